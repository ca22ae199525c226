import { createHmac, createSecretKey, hkdfSync, type KeyObject, timingSafeEqual } from 'node:crypto'
import { join } from 'node:path'
import { openKey } from '../disk/file.js'
import { type Role, roles } from './passwords.js'

// Names have 63 characters at most, so ours stay far below.
const longestToken = 1024
/** So many tokens are remembered whose signature was good: 5 MB. The one that has been known longest is forgotten. */
const mostKnown = 10_000
/** A token from the future is void, but for what a clock may be set back by time synchronisation. */
const clockSlackMs = 60_000

const encode = (json: object) => Buffer.from(JSON.stringify(json)).toString('base64url')
/** The one header there is: a token with any other, whatever algorithm it names, is not ours. */
const prefix = `${encode({ alg: 'HS256', typ: 'JWT' })}.`

/** Whom a valid token stands for; times in milliseconds since the epoch. */
export type Claims = (
  | { readonly kind: 'user'; readonly user: string; readonly role: Role }
  | {
      readonly kind: 'node'
      readonly node: string
      /** Which node of this name; absent: an earlier version issued the token. */
      readonly generation?: number
    }
) & { readonly issuedAt: number; readonly expiresAt: number }

/** What a node's token is given for; both are good for the same, and last differently long (rules 4.8). */
export type NodeUse = 'installing' | 'running'

/** What a token says beside its times, in this order. */
interface Payload {
  readonly kind: 'user' | 'node'
  readonly sub: string
  readonly role?: Role
  readonly gen?: number
}

/** What a new token is made from. */
export interface RunningClaims {
  readonly node: string
  readonly generation: number
  /** Milliseconds since 1970. */
  readonly expiresAt: number
}

export interface TokensOptions {
  /** Milliseconds since the epoch. */
  readonly now: () => number
  /** `[auth] token_lifetime`. */
  readonly lifetimeMs: number
  /** `[auth] node_token_lifetime`. */
  readonly nodeLifetimeMs: number
  /** `[auth] running_token_lifetime`; absent: as long as the other. */
  readonly runningLifetimeMs?: number
  /** Called when the key is made: every token that was issued before is void. */
  readonly onNewKey?: () => void
}

/** Tokens: HS256 JWTs to us, opaque to clients; valid over a restart (rules 5.1, 4.8). */
export class Tokens {
  readonly #key: KeyObject
  /** A node sends its token a dozen times, and to compute its signature takes longer than the rest of a report. */
  readonly #known = new Map<string, Claims>()
  readonly #options: TokensOptions

  private constructor(key: Uint8Array, options: TokensOptions) {
    this.#key = createSecretKey(key)
    this.#options = options
  }

  /**
   * Reads the key from `token.key` in the state directory, and makes it (mode 0600) where there is none.
   * @throws Error when the file cannot be read or is not a key; it is never overwritten
   */
  static async open(stateDirectory: string, options: TokensOptions): Promise<Tokens> {
    const file = join(stateDirectory, 'token.key')
    return new Tokens(await openKey(file, 'voids every token', options.onNewKey), options)
  }

  /** A token for a user who has just logged in. */
  issueUser(user: string, role: Role): string {
    return this.#issue({ kind: 'user', sub: user, role }, this.#options.lifetimeMs)
  }

  /** A token for a node that installs itself, or runs; `generation` tells it from others of its name. Microseconds. */
  issueNode(node: string, generation: number, use: NodeUse = 'installing'): string {
    const { nodeLifetimeMs, runningLifetimeMs = nodeLifetimeMs } = this.#options
    const lifetimeMs = use === 'running' ? runningLifetimeMs : nodeLifetimeMs
    return this.#issue({ kind: 'node', sub: node, gen: generation }, lifetimeMs)
  }

  /**
   * A token in the place of that with which a running node came, for the node that it was issued to; undefined while that
   * is nearly new (a 90th of its life), so that nodes need not write a new one each time. Microseconds.
   */
  renewNode({ node, generation, expiresAt }: RunningClaims): string | undefined {
    const { now, nodeLifetimeMs, runningLifetimeMs = nodeLifetimeMs } = this.#options
    if (expiresAt - now() > runningLifetimeMs * (1 - 1 / 90)) return undefined
    return this.issueNode(node, generation, 'running')
  }

  /**
   * What a token says, undefined when it is not ours, has expired, or was issued in the future. That the
   * user still has that role, and the node was not deleted since, is the caller's to check. Microseconds.
   */
  verify(token: string): Claims | undefined {
    if (token.length > longestToken) return undefined
    const claims = this.#known.get(token) ?? this.#check(token)
    const now = this.#options.now()
    return claims && claims.issuedAt <= now + clockSlackMs && now < claims.expiresAt ? claims : undefined
  }

  /** A key for another purpose, which all have who have the key of the tokens. */
  keyFor(purpose: string): Uint8Array {
    return new Uint8Array(hkdfSync('sha256', this.#key, '', `svcd ${purpose}`, 32))
  }

  /** How many tokens are remembered. */
  get remembered(): number {
    return this.#known.size
  }

  /** What a token of ours says, whatever the time; undefined for any other. Only ours are remembered. */
  #check(token: string): Claims | undefined {
    if (!token.startsWith(prefix)) return undefined
    const dot = token.lastIndexOf('.')
    // Compared as bytes of the text: base64 has several spellings of the same signature.
    const given = Buffer.from(token.slice(dot + 1))
    const ours = Buffer.from(this.#sign(token.slice(0, dot)))
    if (given.length !== ours.length || !timingSafeEqual(given, ours)) return undefined
    const claims = readClaims(token.slice(prefix.length, dot))
    if (!claims) return undefined
    this.#known.set(token, claims)
    const [oldest] = this.#known.keys()
    if (this.#known.size > mostKnown && oldest !== undefined) this.#known.delete(oldest)
    return claims
  }

  #issue({ kind, sub, role, gen }: Payload, lifetimeMs: number): string {
    const now = this.#options.now()
    // JWT times are seconds and may have fractions: the milliseconds survive. Each by its name: V8 adds to a spread slowly.
    const signed = prefix + encode({ kind, sub, role, gen, iat: now / 1000, exp: (now + lifetimeMs) / 1000 })
    return `${signed}.${this.#sign(signed)}`
  }

  #sign(text: string): string {
    return createHmac('sha256', this.#key).update(text).digest('base64url')
  }
}

/** The payload of a token whose signature is ours; the key may be older than this program all the same. */
function readClaims(payload: string): Claims | undefined {
  let json: Record<string, unknown> | null
  try {
    json = JSON.parse(Buffer.from(payload, 'base64url').toString()) as typeof json
  } catch {
    return undefined
  }
  const { kind, sub, role, gen, iat, exp } = json ?? {}
  if (typeof sub !== 'string' || typeof iat !== 'number' || typeof exp !== 'number') return undefined
  const times = { issuedAt: Math.round(iat * 1000), expiresAt: Math.round(exp * 1000) }
  if (kind === 'node')
    return { kind, node: sub, ...(typeof gen === 'number' ? { generation: gen } : {}), ...times }
  const known = roles.find(candidate => candidate === role)
  return kind === 'user' && known ? { kind, user: sub, role: known, ...times } : undefined
}
