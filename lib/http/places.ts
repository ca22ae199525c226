import { setImmediate as nextTurn } from 'node:timers/promises'
import { Semaphore } from '../concurrency.js'
import { ServiceError } from '../errors.js'
import { neighbours, networkOf } from '../source.js'
import type { Exchange } from './exchange.js'
import type { Limits } from './limits.js'

/** So many may wait for a place. */
const MOST_WAITING = 1000

/** One of the answers that have a bound in number. */
export interface Place {
  /** Since when the client has taken nothing, or nothing has come from who is waited for, by the clock of `performance`; else undefined. */
  waitingSince: number | undefined
  /**
   * Set while somebody else is waited for: ends that, and the client is told. Only who has waited in vain gets such a place, as
   * what was asked for may be slow by design.
   */
  giveUp?: (() => void) | undefined
  /** The client has got all that it asked for. */
  isServed?: true
}

export interface PlacesOptions {
  readonly most: number
  /** How many one address may have, with those it waits for; absent: all. */
  readonly ofAddress?: {
    readonly most: number
    /** Whether an address has no bound of its own. */
    readonly isUnbound: (address: string) => boolean
    /** What is told: `<address> has <most> <what>`. */
    readonly what: string
  }
  /** What has stood still for so long gives its place to a new one. */
  readonly yieldMs: number
  /** How long a new one waits for a place. */
  readonly waitMs: number
  /** So many of those that are refused are told to come back in a second, at least. */
  readonly leastPerSecond: number
  /** What is told if there is none: `<most> <what>`. */
  readonly what: string
}

/** Answers that are so large, or take so long, that there may be only so many at once (rules 2.13). */
export class Places {
  readonly #taken = new Map<Place, () => void>()
  readonly #waiting = new Waiting()
  readonly #comebacks: Comebacks
  /** Places that were given to somebody who has not gone on yet. */
  #given = 0
  /** What each address has, and waits for. */
  readonly #ofAddress = new Map<string, number>()

  constructor(private readonly options: PlacesOptions) {
    this.#comebacks = new Comebacks(options.leastPerSecond)
  }

  /** How many are taken. */
  get size(): number {
    return this.#taken.size
  }

  /** Runs `send` with a place, if the client is there by then; throws 503 with Retry-After if there is none in time. */
  async run<C>(exchange: Exchange<C>, send: (place: Place) => Promise<void>): Promise<void> {
    const { ofAddress } = this.options
    const address = networkOf(exchange.address)
    const before = this.#ofAddress.get(address) ?? 0
    if (ofAddress && before >= ofAddress.most && !ofAddress.isUnbound(exchange.address))
      // Its own fault: the others do not wait for it.
      throw busy(`${address} has ${before} ${ofAddress.what}`)
    this.#ofAddress.set(address, before + 1)
    try {
      if (await this.#wasGiven(exchange, address)) await this.#use(exchange, send)
    } finally {
      const left = (this.#ofAddress.get(address) ?? 1) - 1
      if (left > 0) this.#ofAddress.set(address, left)
      else this.#ofAddress.delete(address)
    }
  }

  async #use<C>({ outgoing }: Exchange<C>, send: (place: Place) => Promise<void>): Promise<void> {
    const place: Place = { waitingSince: undefined }
    this.#given--
    this.#taken.set(place, () => (place.giveUp ? place.giveUp() : outgoing.destroy()))
    try {
      await send(place)
      if (place.isServed) this.#comebacks.served()
    } finally {
      // One that was cut has given its place to somebody already.
      if (this.#taken.delete(place)) this.#giveNext()
    }
  }

  /** Gives a place, now or in time; false if the client has gone. Nobody passes those who wait. */
  async #wasGiven<C>(exchange: Exchange<C>, address: string): Promise<boolean> {
    if (this.#waiting.size === 0 && (this.#isFree || this.#makeRoom(false))) {
      this.#given++
      return true
    }
    const { waitMs, what } = this.options
    const until = performance.now() + waitMs
    for (;;) {
      const left = until - performance.now()
      if (left <= 0 || this.#waiting.size >= MOST_WAITING)
        throw this.#comebacks.refuse(`${this.#taken.size} ${what}`)
      let isGiven = await this.#isGivenWithin(exchange, address, left)
      if (!isGiven && !exchange.gone && this.#makeRoom(true)) {
        this.#given++
        isGiven = true
      }
      if (isGiven && !exchange.gone) return true
      if (isGiven) {
        this.#given--
        this.#giveNext()
      }
      if (exchange.gone) return false
    }
  }

  get #isFree(): boolean {
    return this.#taken.size + this.#given < this.options.most
  }

  /** Gives a free place to one who waits. */
  #giveNext(): void {
    if (!this.#isFree) return
    const next = this.#waiting.take()
    if (!next) return
    this.#given++
    next()
  }

  /** Resolves with true when a place was given, with false when the client has gone, or after `ms` at the latest. */
  #isGivenWithin<C>({ outgoing }: Exchange<C>, address: string, ms: number): Promise<boolean> {
    return new Promise(resolve => {
      const end = (isGiven: boolean) => {
        clearTimeout(timer)
        outgoing.off('close', stop)
        resolve(isGiven)
      }
      const give = () => end(true)
      const stop = () => {
        this.#waiting.remove(address, give)
        end(false)
      }
      // Now and then a client that has its place stops reading.
      const timer = setTimeout(stop, Math.min(ms, this.options.yieldMs))
      this.#waiting.add(address, give)
      outgoing.once('close', stop)
    })
  }

  /** Takes the place of one that has stood still for long. `hasWaited`: whoever needs it has waited in vain. */
  #makeRoom(hasWaited: boolean): boolean {
    let longest: Place | undefined
    for (const place of this.#taken.keys()) {
      if (place.giveUp && !hasWaited) continue
      if ((place.waitingSince ?? Infinity) < (longest?.waitingSince ?? Infinity)) longest = place
    }
    if (longest?.waitingSince === undefined) return false
    if (performance.now() - longest.waitingSince < this.options.yieldMs) return false
    const cut = this.#taken.get(longest)
    this.#taken.delete(longest)
    cut?.()
    return true
  }
}

/** Those who wait, taken from each address in turn: one address with hundreds does not keep another one from its place. */
class Waiting {
  readonly #ofAddress = new Map<string, Set<() => void>>()
  size = 0

  add(address: string, give: () => void): void {
    const others = this.#ofAddress.get(address)
    if (others) others.add(give)
    else this.#ofAddress.set(address, new Set([give]))
    this.size++
  }

  remove(address: string, give: () => void): void {
    const waiting = this.#ofAddress.get(address)
    if (!waiting?.delete(give)) return
    this.size--
    if (waiting.size === 0) this.#ofAddress.delete(address)
  }

  /** The next one; its address goes to the end. */
  take(): (() => void) | undefined {
    for (const [address, waiting] of this.#ofAddress) {
      const [give] = waiting
      if (give === undefined) continue
      this.remove(address, give)
      if (waiting.size > 0) {
        this.#ofAddress.delete(address)
        this.#ofAddress.set(address, waiting)
      }
      return give
    }
    return undefined
  }
}

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

/** So many that are refused are told to come back in a second. */
const LEAST_PER_SECOND = 10

/** Makes one piece of a list when it is its turn. */
export type InTurn = <R>(make: () => R) => Promise<R>

/**
 * Long lists and exports that are being sent: they are bounded in number, and one turn of the event loop makes one piece of
 * one of them, from each client address in turn (rules 2.13).
 */
export class Lists {
  readonly #places: Places
  readonly #pieces = new Semaphore(1)

  /** `isUnbound`: whether an address may have all places. */
  constructor(
    { lists: most, yieldMs, listWaitMs: waitMs }: Pick<Limits, 'lists' | 'yieldMs' | 'listWaitMs'>,
    isUnbound: (address: string) => boolean
  ) {
    const what = 'long lists and exports are being sent, which is the most'
    const own = 'lists and exports on their way, which is the most for one address'
    // Short ones go by here too, of which a program may ask for many at once.
    const ofAddress = { most: Math.ceil((most * 3) / 4), isUnbound, what: own }
    this.#places = new Places({ most, ofAddress, yieldMs, waitMs, leastPerSecond: LEAST_PER_SECOND, what })
  }

  /** Runs `send` with a place for one list; throws 503 with Retry-After if there is none in time. */
  run<C>(exchange: Exchange<C>, send: (place: Place, inTurn: InTurn) => Promise<void>): Promise<void> {
    const inTurn: InTurn = make =>
      this.#pieces.run(neighbours(exchange.address), async () => {
        const made = make()
        await nextTurn()
        return made
      })
    return this.#places.run(exchange, place => send(place, inTurn))
  }
}
