import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'
import { badRequest, notFound } from '../base/errors.js'
import { RecordMap } from '../store/record-map.js'
import type { OpenRecords } from '../store/records.js'
import { type Grant, grantText, parseGrant } from './grant.js'

/** Most tokens, ended ones included. */
const MOST = 1000
/** Behind it stand 256 random bits in base64url. Scanners for leaked secrets find it. */
const PREFIX = 'svcd_'
const LENGTH = PREFIX.length + 43
/** A later use is stored no sooner. */
const USED_EVERY_MS = 3_600_000

/** The token of a program as it is stored. Times are milliseconds since 1970. */
export interface ProgramToken {
  readonly name: string
  /** SHA-256 of the token, hex. A part of it names the record. */
  readonly hash: string
  /** The text of its grant. */
  readonly role: string
  /** The admin who made it. */
  readonly by: string
  readonly created: number
  /** Absent: it has no end. */
  readonly ends?: number
  /** About the last use that the leader saw. */
  readonly used?: number
}

const hashOf = (text: string) => createHash('sha256').update(text).digest()
const keyOf = (hash: string) => hash.slice(0, 32)

/** Tokens of programs: named, with a grant, and an end or none; void once they are removed (rules 5.9). */
export class ProgramTokens {
  private constructor(
    private readonly stored: RecordMap<ProgramToken>,
    private readonly now: () => number
  ) {}

  /** Opens the stored tokens. `now`: milliseconds since 1970. */
  static async open(open: OpenRecords, now: () => number): Promise<ProgramTokens> {
    return new ProgramTokens(await RecordMap.open(open, tokenIn), now)
  }

  /** Returns name and grant of a valid token; undefined for other texts. It reads memory alone. */
  verify(text: string): { readonly name: string; readonly grant: Grant } | undefined {
    if (text.length !== LENGTH || !text.startsWith(PREFIX)) return undefined
    const given = hashOf(text)
    const key = keyOf(given.toString('hex'))
    const token = this.stored.get(key)
    if (!token || !timingSafeEqual(Buffer.from(token.hash, 'hex'), given)) return undefined
    const { name, role, ends = Number.POSITIVE_INFINITY, used = 0 } = token
    const now = this.now()
    if (now >= ends) return undefined
    if (now - used >= USED_EVERY_MS) this.stored.setSoon(key, { ...token, used: now })
    return { name, grant: parseGrant(role) }
  }

  /** Returns the tokens, by name. */
  list(): ProgramToken[] {
    return this.stored.values().sort((a, b) => (a.name < b.name ? -1 : 1))
  }

  /** Returns the token of this name. Throws 404. */
  get(name: string): ProgramToken {
    const token = this.stored.values().find(one => one.name === name)
    if (!token) throw notFound(`there is no token ${name}`, 'no-object')
    return token
  }

  /**
   * Makes a token that lasts `days`, or has no end. Returns it with its text, which is stored nowhere. Throws
   * 400 for a name that is taken, or one token too many, and StoreError.
   */
  async create(name: string, grant: Grant, days: number | null, by: string) {
    const all = this.stored.values()
    if (all.some(one => one.name === name))
      throw badRequest(
        `token ${name} exists already: revoke it first, or choose another name`,
        'already-exists'
      )
    if (all.length >= MOST) throw badRequest(`there are ${MOST} tokens, the most: revoke one`, 'too-many')
    const text = PREFIX + randomBytes(32).toString('base64url')
    const created = this.now()
    const end = days === null ? {} : { ends: created + days * 86_400_000 }
    const hash = hashOf(text).toString('hex')
    const token: ProgramToken = { name, hash, role: grantText(grant), by, created, ...end }
    await this.stored.set(keyOf(hash), token)
    return { token, text }
  }

  /** Removes a token, which is void at once. Throws 404 and StoreError. */
  async revoke(name: string): Promise<ProgramToken> {
    const token = this.get(name)
    await this.stored.set(keyOf(token.hash), undefined)
    return token
  }

  /** Writes pending uses. */
  close(): Promise<void> {
    return this.stored.close()
  }
}

/** Returns a stored token. Throws Error for what is none. */
function tokenIn(json: unknown, key: string): ProgramToken {
  const token = json as ProgramToken
  const { name, hash, role, by, created, ends = 0, used = 0 } = token
  const texts = [name, hash, role, by].every(text => typeof text === 'string')
  if (!texts || ![created, ends, used].every(Number.isFinite)) throw new Error('it is no token')
  if (!/^[\da-f]{64}$/.test(hash) || keyOf(hash) !== key) throw new Error('its name is not that of its hash')
  parseGrant(role)
  return token
}
