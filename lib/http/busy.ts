import { ServiceError } from '../errors.js'

/** Seconds that a client is told to wait. */
const SOONEST = 2
const LATEST = 30
const PERIOD_MS = 1000
/** More are told to come back than were served: otherwise there could never be more. */
const MORE = 1.25

/**
 * Tells clients for whom there is no room when to come back: one after the other, as fast as others were served lately. If all
 * came back within a few seconds, refusing them again would take the time in which they could be served.
 */
export class Comebacks {
  readonly #least: number
  readonly #now: () => number
  /** When the one that was told last comes back. */
  #lastMs = Number.NEGATIVE_INFINITY
  /** How many were served since when, and how many a millisecond are told to come back. */
  #served = 0
  #sinceMs: number
  #pace: number

  /** `leastPerSecond`: so many are told to come back in a second, however few were served. `now`: milliseconds that only grow. */
  constructor(leastPerSecond: number, now = () => performance.now()) {
    this.#least = leastPerSecond / 1000
    this.#pace = this.#least
    this.#now = now
    this.#sinceMs = now()
  }

  /** Somebody was served, to the end. */
  served(): void {
    this.#served++
    this.#measure()
  }

  /** 503 with Retry-After: a later try will succeed. `why` is told to the client. */
  refuse(why: string): ServiceError {
    return busyFor(this.#seconds(), why)
  }

  #seconds(): number {
    this.#measure()
    const now = this.#now()
    const latest = now + LATEST * 1000
    this.#lastMs = Math.max(this.#lastMs, now + SOONEST * 1000) + 1 / this.#pace
    if (this.#lastMs <= latest) return Math.round((this.#lastMs - now) / 1000)
    // More than can come back until then.
    this.#lastMs = latest
    return between(LATEST / 2, LATEST)
  }

  #measure(): void {
    const now = this.#now()
    const period = now - this.#sinceMs
    if (period < PERIOD_MS) return
    this.#pace = Math.max(this.#least, (MORE * this.#served) / period)
    this.#served = 0
    this.#sinceMs = now
  }
}

/** 503 with Retry-After: there is too much to do just now, and a later try will succeed. `why` is told to the client. */
export const busy = (why: string): ServiceError => busyFor(between(SOONEST, 10), why)

/** The same where thousands may be refused in a second, and refusing costs as much as serving. */
export const busyForLong = (why: string): ServiceError => busyFor(between(5, LATEST), why)

const busyFor = (seconds: number, why: string) =>
  new ServiceError(503, `${why}; try again in ${seconds} s`, { 'Retry-After': String(seconds) })

/** A whole number: clients that were refused together should not come back together. */
const between = (least: number, most: number) => least + Math.floor(Math.random() * (most - least + 1))
