import { createHmac, createSecretKey, hkdfSync, type KeyObject, timingSafeEqual } from 'node:crypto'
import { join } from 'node:path'
import { LRUCache } from 'lru-cache'
import { jsonObjectOrEmpty } from '../base/json.js'
import { openKey } from '../disk/file.js'
import { type Grant, grantText, type Login, loginSources, parseGrant } from './grant.js'

/** Our longest token has a user's name of 256 characters, and 32 groups of 63. */
const longestToken = 4096
const longestName = 256
/** Verified tokens to remember: 5 MB of those of nodes. The oldest is dropped first. */
const mostKnown = 10_000
/** Tokens from the future are void, except for steps of time synchronisation. */
const clockSlackMs = 60_000

const encode = (json: object) => Buffer.from(JSON.stringify(json)).toString('base64url')
/** The only valid header: it fixes the algorithm. */
const prefix = `${encode({ alg: 'HS256', typ: 'JWT' })}.`

/** The claims of a valid token; times in milliseconds since the epoch. */
export type Claims = (({ readonly kind: 'user' } & Login) | ({ readonly kind: 'node' } & NodeClaims)) & {
  readonly issuedAt: number
  readonly expiresAt: number
}

interface NodeClaims {
  readonly node: string
  /** Generation of the node's name; absent in tokens of an earlier version. */
  readonly generation?: number
  /** The proof of a good boot that its machine got it for (`Trust.takes`); absent without one. */
  readonly proof?: string
}

/** The purpose of a node's token: equal permissions, different lifetimes (rules 4.8). */
type NodeUse = 'installing' | 'running'

/** The claims of a token besides its times, in this order. */
interface Payload {
  readonly kind: 'user' | 'node'
  readonly sub: string
  /** The text of a grant. */
  readonly role?: string
  /** The source of the login; absent: the ini. */
  readonly src?: string | undefined
  readonly gen?: number
  readonly proof?: string | undefined
}

interface TokensOptions {
  /** Milliseconds since the epoch. */
  readonly now: () => number
  /** `[auth] token_lifetime`. */
  readonly lifetimeMs: number
  /** `[auth] node_token_lifetime`. */
  readonly nodeLifetimeMs: number
  /** `[auth] running_token_lifetime`; absent: `nodeLifetimeMs`. */
  readonly runningLifetimeMs?: number
  /** Called when the key is created: all earlier tokens are void. */
  readonly onNewKey?: () => void
}

/** Tokens: HS256 JWTs, opaque to clients; they survive a restart (rules 5.1, 4.8). */
export class Tokens {
  readonly #key: KeyObject
  /** A node sends its token a dozen times, and a signature takes longer than the rest of a report. */
  readonly #known = new LRUCache<string, Claims>({ max: mostKnown })

  private constructor(
    key: Uint8Array,
    private readonly options: TokensOptions
  ) {
    this.#key = createSecretKey(key)
  }

  /**
   * Reads the key from `token.key` in the state directory, or creates it (mode 0600).
   * @throws Error if the file cannot be read or is no key; it is never overwritten
   */
  static async open(stateDirectory: string, options: TokensOptions): Promise<Tokens> {
    const file = join(stateDirectory, 'token.key')
    return new Tokens(await openKey(file, 'voids every token', options.onNewKey), options)
  }

  /** Issues a token for a verified login. */
  issueUser({ user, grant, source }: Login): string {
    const src = source === 'local' ? undefined : source
    return this.#issue({ kind: 'user', sub: user, role: grantText(grant), src }, this.options.lifetimeMs)
  }

  /** Issues a token to a node of this generation, in microseconds; `proof`: as in `Claims`. */
  issueNode(node: string, generation: number, use: NodeUse = 'installing', proof?: string): string {
    const { nodeLifetimeMs, runningLifetimeMs = nodeLifetimeMs } = this.options
    const lifetimeMs = use === 'running' ? runningLifetimeMs : nodeLifetimeMs
    return this.#issue({ kind: 'node', sub: node, gen: generation, proof }, lifetimeMs)
  }

  /** Renews a running node's token; undefined in the first 90th of its life, so that few are stored. */
  renewNode(claims: NodeClaims & { readonly expiresAt: number }): string | undefined {
    const { node, generation = 0, proof, expiresAt } = claims
    const { now, nodeLifetimeMs, runningLifetimeMs = nodeLifetimeMs } = this.options
    if (expiresAt - now() > runningLifetimeMs * (1 - 1 / 90)) return undefined
    return this.issueNode(node, generation, 'running', proof)
  }

  /**
   * Returns the claims of a token; undefined if it is not ours, expired, or from the future. The caller
   * checks the user's role and the node's generation. Takes microseconds.
   */
  verify(token: string): Claims | undefined {
    if (token.length > longestToken) return undefined
    const claims = this.#known.get(token) ?? this.#check(token)
    const now = this.options.now()
    return claims && claims.issuedAt <= now + clockSlackMs && now < claims.expiresAt ? claims : undefined
  }

  /** Derives a key for another purpose from the key of the tokens. */
  keyFor(purpose: string): Uint8Array {
    return new Uint8Array(hkdfSync('sha256', this.#key, '', `svcd ${purpose}`, 32))
  }

  get remembered(): number {
    return this.#known.size
  }

  /** Returns the claims of a token of ours, whatever the time, and remembers it; undefined for others. */
  #check(token: string): Claims | undefined {
    if (!token.startsWith(prefix)) return undefined
    const dot = token.lastIndexOf('.')
    // Compared as text, not decoded: base64 has several spellings of the same bytes.
    const given = Buffer.from(token.slice(dot + 1))
    const ours = Buffer.from(this.#sign(token.slice(0, dot)))
    if (given.length !== ours.length || !timingSafeEqual(given, ours)) return undefined
    const claims = readClaims(token.slice(prefix.length, dot))
    if (!claims) return undefined
    this.#known.set(token, claims)
    return claims
  }

  #issue({ kind, sub, role, src, gen, proof }: Payload, lifetimeMs: number): string {
    const now = this.options.now()
    // JWT times are seconds; fractions keep the milliseconds. Named one by one: spreads are slow in V8.
    const signed =
      prefix + encode({ kind, sub, role, src, gen, proof, iat: now / 1000, exp: (now + lifetimeMs) / 1000 })
    return `${signed}.${this.#sign(signed)}`
  }

  #sign(text: string): string {
    return createHmac('sha256', this.#key).update(text).digest('base64url')
  }
}

/** Parses the payload of a token with our signature; an older program may have written it. */
function readClaims(payload: string): Claims | undefined {
  const json = jsonObjectOrEmpty(Buffer.from(payload, 'base64url').toString())
  const { kind, sub, role, src = 'local', gen, proof, iat, exp } = json
  if (typeof sub !== 'string' || sub.length > longestName) return undefined
  if (typeof iat !== 'number' || typeof exp !== 'number') return undefined
  const times = { issuedAt: Math.round(iat * 1000), expiresAt: Math.round(exp * 1000) }
  if (kind === 'node')
    return {
      ...{ kind, node: sub, ...times },
      ...(typeof gen === 'number' ? { generation: gen } : {}),
      ...(typeof proof === 'string' ? { proof } : {})
    }
  const source = loginSources.find(known => known === src)
  const grant = typeof role === 'string' ? grantOf(role) : undefined
  return kind === 'user' && grant && source ? { kind, user: sub, grant, source, ...times } : undefined
}

function grantOf(text: string): Grant | undefined {
  try {
    return parseGrant(text)
  } catch {
    return undefined
  }
}
