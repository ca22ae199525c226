import { ServiceError } from '../errors.js'

/** Bytes that the requests of one user may store at once, and in each second. */
const AT_ONCE = 32 * 1024 * 1024
const EACH_SECOND = 64 * 1024
/** What etcd takes for a write beside the record. */
const AROUND_WRITE = 1024

/**
 * How much the requests of each user that only read may store of what controllers share: a viewer could fill etcd otherwise. What a request
 * stores once it runs is stored in any case. If it is too much, the next one waits.
 */
export class ReadingPace {
  /** How much is left to a user who has stored something (below 0: too much), and since when. */
  readonly #left = new Map<string, { readonly bytes: number; readonly sinceMs: number }>()

  /** `now`: milliseconds of a clock that only grows. */
  constructor(private readonly now = () => performance.now()) {}

  /** Throws 503 with Retry-After where requests of this user have stored too much. */
  check(by: string): void {
    const left = this.#leftTo(by)
    if (left > 0) return
    const seconds = Math.floor(-left / EACH_SECOND) + 1
    throw new ServiceError(
      503,
      `requests of ${by} that only read have stored too much in etcd: ask less often, or for fewer nodes; try again in ${seconds} s`,
      { 'Retry-After': String(seconds) }
    )
  }

  /** Counts a record of a user's request that was stored, with so many bytes. */
  took(by: string, bytes: number): void {
    this.#left.set(by, { bytes: this.#leftTo(by) - bytes - AROUND_WRITE, sinceMs: this.now() })
  }

  #leftTo(by: string): number {
    const { bytes, sinceMs } = this.#left.get(by) ?? { bytes: AT_ONCE, sinceMs: 0 }
    return Math.min(AT_ONCE, bytes + ((this.now() - sinceMs) / 1000) * EACH_SECOND)
  }
}
