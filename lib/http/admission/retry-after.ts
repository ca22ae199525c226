import { type ServiceError, tryLater } from '../../base/errors.js'
import { LIMITS } from './limits.js'

const { retryMinS, retryMaxS, retryGrowth } = LIMITS
const PERIOD_MS = 1000

/** Books retries at the pace of service: refusing all again at once would leave no time to serve them. */
export class RetryAfter {
  readonly #least: number
  /** The latest time that was given out. */
  #lastBookedMs = Number.NEGATIVE_INFINITY
  /** Clients served since `#sinceMs`, and retries per millisecond. */
  #served = 0
  #sinceMs: number
  #pace: number

  /** `leastPerSecond`: minimum pace, however few were served. `now`: monotonic milliseconds. */
  constructor(
    leastPerSecond: number,
    private readonly now = () => performance.now()
  ) {
    this.#least = leastPerSecond / 1000
    this.#pace = this.#least
    this.#sinceMs = now()
  }

  /** Counts a client that received everything. */
  served(): void {
    this.#served++
    this.#measure()
  }

  /** Returns a 503 with Retry-After. `why` is part of the message. */
  refuse(why: string): ServiceError {
    return busyFor(this.#seconds(), why)
  }

  #seconds(): number {
    this.#measure()
    const now = this.now()
    const latest = now + retryMaxS * 1000
    this.#lastBookedMs = Math.max(this.#lastBookedMs, now + retryMinS * 1000) + 1 / this.#pace
    if (this.#lastBookedMs <= latest) return Math.round((this.#lastBookedMs - now) / 1000)
    // The whole period is booked.
    this.#lastBookedMs = latest
    return between(retryMaxS / 2, retryMaxS)
  }

  #measure(): void {
    const now = this.now()
    const period = now - this.#sinceMs
    if (period < PERIOD_MS) return
    this.#pace = Math.max(this.#least, (retryGrowth * this.#served) / period)
    this.#served = 0
    this.#sinceMs = now
  }
}

/** Returns a 503 with Retry-After for a short overload. `why` is part of the message. */
export const busy = (why: string): ServiceError => busyFor(between(retryMinS, LIMITS.busyMaxS), why)

/** The same where thousands may be refused in a second, and refusing costs as much as serving. */
export const busyForLong = (why: string): ServiceError =>
  busyFor(between(LIMITS.busyForLongMinS, retryMaxS), why)

const busyFor = (seconds: number, why: string) => tryLater(`${why}; try again in ${seconds} s`, seconds)

/** A random whole number, so that clients refused together do not come back together. */
const between = (least: number, most: number) => least + Math.floor(Math.random() * (most - least + 1))
