import { setImmediate as nextTurn } from 'node:timers/promises'
import { Semaphore } from '../base/concurrency.js'
import { type ServiceError, tryLater } from '../base/errors.js'
import { addressBlockOf, clientNetworkOf } from '../base/request-source.js'
import type { Exchange } from './exchange.js'
import type { Limits } from './limits.js'

/** Maximum number of waiting requests. */
const MOST_WAITING = 1000

/** A slot of an answer whose number is limited. */
export interface Slot {
  /** Time of the last progress (ms of `performance`); undefined while there is progress. */
  waitingSince: number | undefined
  /** Gives up a slow upstream. Called only after the newcomer's wait, as slowness may be by design. */
  giveUp?: (() => void) | undefined
  /** The client has received everything. */
  isServed?: true
}

export interface ConcurrencyLimitOptions {
  readonly most: number
  /** Limit per address, waiting requests included; by default there is none. */
  readonly ofAddress?: {
    readonly most: number
    /** Whether an address has no limit of its own. */
    readonly isUnbound: (address: string) => boolean
    /** Rest of the message `<address> has <count> <what>`. */
    readonly what: string
  }
  /** A slot without progress for this long is given to a newcomer. */
  readonly yieldMs: number
  /** How long a newcomer waits for a slot. */
  readonly waitMs: number
  /** Minimum pace of the retries of refused clients. */
  readonly leastPerSecond: number
  /** Rest of the message `<count> <what>`. */
  readonly what: string
}

/** Limits the number of answers that are large or take long (rules 2.13). */
export class ConcurrencyLimit {
  readonly #taken = new Map<Slot, () => void>()
  readonly #waiting = new FairQueue()
  readonly #retryAfter: RetryAfter
  /** Slots that were granted, but are not in use yet. */
  #granted = 0
  /** Running and waiting requests by address. */
  readonly #ofAddress = new Map<string, number>()

  constructor(private readonly options: ConcurrencyLimitOptions) {
    this.#retryAfter = new RetryAfter(options.leastPerSecond)
  }

  /** Number of slots in use. */
  get size(): number {
    return this.#taken.size
  }

  /** Runs `send` in a slot, unless the client leaves. Throws 503 with Retry-After if none is free in time. */
  async run<C>(exchange: Exchange<C>, send: (place: Slot) => Promise<void>): Promise<void> {
    const { ofAddress } = this.options
    const address = clientNetworkOf(exchange.address)
    const before = this.#ofAddress.get(address) ?? 0
    if (ofAddress && before >= ofAddress.most && !ofAddress.isUnbound(exchange.address))
      // The others do not wait for an address that is over its own limit.
      throw busy(`${address} has ${before} ${ofAddress.what}`)
    this.#ofAddress.set(address, before + 1)
    try {
      if (await this.#acquire(exchange, address)) await this.#use(exchange, send)
    } finally {
      const left = (this.#ofAddress.get(address) ?? 1) - 1
      if (left > 0) this.#ofAddress.set(address, left)
      else this.#ofAddress.delete(address)
    }
  }

  async #use<C>({ outgoing }: Exchange<C>, send: (place: Slot) => Promise<void>): Promise<void> {
    const place: Slot = { waitingSince: undefined }
    this.#granted--
    this.#taken.set(place, () => (place.giveUp ? place.giveUp() : outgoing.destroy()))
    try {
      await send(place)
      if (place.isServed) this.#retryAfter.served()
    } finally {
      // A slot that was cut has been given away already.
      if (this.#taken.delete(place)) this.#grantNext()
    }
  }

  /** Gets a slot, now or in time; false if the client has left. Never overtakes those that wait. */
  async #acquire<C>(exchange: Exchange<C>, address: string): Promise<boolean> {
    if (this.#waiting.size === 0 && (this.#isFree || this.#evictStalled(false))) {
      this.#granted++
      return true
    }
    const { waitMs, what } = this.options
    const until = performance.now() + waitMs
    for (;;) {
      const left = until - performance.now()
      if (left <= 0 || this.#waiting.size >= MOST_WAITING)
        throw this.#retryAfter.refuse(`${this.#taken.size} ${what}`)
      let isGiven = await this.#waitForSlot(exchange, address, left)
      if (!isGiven && !exchange.gone && this.#evictStalled(true)) {
        this.#granted++
        isGiven = true
      }
      if (isGiven && !exchange.gone) return true
      if (isGiven) {
        this.#granted--
        this.#grantNext()
      }
      if (exchange.gone) return false
    }
  }

  get #isFree(): boolean {
    return this.#taken.size + this.#granted < this.options.most
  }

  /** Gives a free slot to the next in the queue. */
  #grantNext(): void {
    if (!this.#isFree) return
    const next = this.#waiting.take()
    if (!next) return
    this.#granted++
    next()
  }

  /** True when a slot was granted; false when the client has left, or after at most `ms`. */
  #waitForSlot<C>({ outgoing }: Exchange<C>, address: string, ms: number): Promise<boolean> {
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
      // Wakes now and then, as the client of a slot may have stopped reading.
      const timer = setTimeout(stop, Math.min(ms, this.options.yieldMs))
      this.#waiting.add(address, give)
      outgoing.once('close', stop)
    })
  }

  /** Takes the slot without progress for longest. `hasWaited`: the newcomer's wait has timed out. */
  #evictStalled(hasWaited: boolean): boolean {
    let longest: Slot | undefined
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

/** A queue that is fair to addresses: hundreds of requests of one do not delay those of another. */
class FairQueue {
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

  /** Takes the next one; its address moves to the end. */
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

/** Shortest and longest Retry-After in seconds. */
const RETRY_MIN_S = 2
const RETRY_MAX_S = 30
const PERIOD_MS = 1000
/** More clients are invited than were served lately: otherwise the pace could never grow. */
const GROWTH = 1.25

/** Books retries at the pace of service: refusing all again at once would leave no time to serve them. */
export class RetryAfter {
  readonly #least: number
  readonly #now: () => number
  /** The latest time that was given out. */
  #lastBookedMs = Number.NEGATIVE_INFINITY
  /** Clients served since `#sinceMs`, and retries per millisecond. */
  #served = 0
  #sinceMs: number
  #pace: number

  /** `leastPerSecond`: minimum pace, however few were served. `now`: monotonic milliseconds. */
  constructor(leastPerSecond: number, now = () => performance.now()) {
    this.#least = leastPerSecond / 1000
    this.#pace = this.#least
    this.#now = now
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
    const now = this.#now()
    const latest = now + RETRY_MAX_S * 1000
    this.#lastBookedMs = Math.max(this.#lastBookedMs, now + RETRY_MIN_S * 1000) + 1 / this.#pace
    if (this.#lastBookedMs <= latest) return Math.round((this.#lastBookedMs - now) / 1000)
    // The whole period is booked.
    this.#lastBookedMs = latest
    return between(RETRY_MAX_S / 2, RETRY_MAX_S)
  }

  #measure(): void {
    const now = this.#now()
    const period = now - this.#sinceMs
    if (period < PERIOD_MS) return
    this.#pace = Math.max(this.#least, (GROWTH * this.#served) / period)
    this.#served = 0
    this.#sinceMs = now
  }
}

/** Returns a 503 with Retry-After for a short overload. `why` is part of the message. */
export const busy = (why: string): ServiceError => busyFor(between(RETRY_MIN_S, 10), why)

/** The same where thousands may be refused in a second, and refusing costs as much as serving. */
export const busyForLong = (why: string): ServiceError => busyFor(between(5, RETRY_MAX_S), why)

const busyFor = (seconds: number, why: string) => tryLater(`${why}; try again in ${seconds} s`, seconds)

/** A random whole number, so that clients refused together do not come back together. */
const between = (least: number, most: number) => least + Math.floor(Math.random() * (most - least + 1))

/** Pace of the retries of refused clients. */
const LEAST_PER_SECOND = 10

/** Makes one piece of a list in its turn. */
export type InTurn = <R>(make: () => R) => Promise<R>

/** Limits long lists: in number, and to one piece per turn, fair to client addresses (rules 2.13). */
export class ListLimit {
  readonly #places: ConcurrencyLimit
  readonly #pieces = new Semaphore(1)

  /** `isUnbound`: whether an address may use all slots. */
  constructor(
    { lists: most, yieldMs, listWaitMs: waitMs }: Pick<Limits, 'lists' | 'yieldMs' | 'listWaitMs'>,
    isUnbound: (address: string) => boolean
  ) {
    const what = 'long lists and exports are being sent, which is the most'
    const own = 'lists and exports on their way, which is the most for one address'
    // Short lists come by here too, of which a program may ask for many at once.
    const ofAddress = { most: Math.ceil((most * 3) / 4), isUnbound, what: own }
    this.#places = new ConcurrencyLimit({
      most,
      ofAddress,
      yieldMs,
      waitMs,
      leastPerSecond: LEAST_PER_SECOND,
      what
    })
  }

  /** Runs `send` in a slot for one list. Throws 503 with Retry-After if none is free in time. */
  run<C>(exchange: Exchange<C>, send: (place: Slot, inTurn: InTurn) => Promise<void>): Promise<void> {
    const inTurn: InTurn = make =>
      this.#pieces.run(addressBlockOf(exchange.address), async () => {
        const made = make()
        await nextTurn()
        return made
      })
    return this.#places.run(exchange, place => send(place, inTurn))
  }
}
