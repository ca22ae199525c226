import { Semaphore } from '../../base/concurrency.js'
import { Parties } from '../../base/lists.js'
import { clientNetworkOf } from '../../base/request-source.js'
import type { Exchange } from '../exchange.js'
import { LIMITS, type Limits } from './limits.js'
import { busy, RetryAfter } from './retry-after.js'

/** A slot of an answer whose number is limited. */
export interface Slot {
  /** Time of the last progress (ms of `performance`); undefined while there is progress. */
  stalledSinceMs: number | undefined
  /** Gives up a slow upstream. Called only after the newcomer's wait, as slowness may be by design. */
  abortUpstream?: (() => void) | undefined
  /** The client has received everything. */
  isServed?: true
}

interface ConcurrencyLimitOptions {
  readonly most: number
  /** Limit per client network, waiting requests included. */
  readonly mostPerAddress: number
  /** Whether an address has no limit of its own. */
  readonly isExempt: (address: string) => boolean
  /** A slot without progress for this long is given to a newcomer. */
  readonly yieldMs: number
  /** How long a newcomer waits for a slot. */
  readonly waitMs: number
  /** Minimum pace of the retries of refused clients. */
  readonly leastPerSecond: number
  /** Rest of the message `<count> <what>`. */
  readonly what: string
  /** Rest of the message `<address> has <count> <whatPerAddress>`. */
  readonly whatPerAddress: string
}

/** Limits the number of answers that are large or take long (rules 2.13). */
export class ConcurrencyLimit {
  readonly #slots: Semaphore
  /** Slots in use, with what ends their answer. */
  readonly #taken = new Map<Slot, () => void>()
  /** Running and waiting requests. */
  readonly #parties = new Parties<object>()
  readonly #retryAfter: RetryAfter

  constructor(private readonly options: ConcurrencyLimitOptions) {
    this.#slots = new Semaphore(options.most)
    this.#retryAfter = new RetryAfter(options.leastPerSecond)
  }

  /** Number of slots in use. */
  get size(): number {
    return this.#taken.size
  }

  /** Runs `send` in a slot, unless the client leaves. Throws 503 with Retry-After if none is free in time. */
  async run(exchange: Exchange, send: (slot: Slot) => Promise<void>): Promise<void> {
    const { mostPerAddress, isExempt, whatPerAddress } = this.options
    const party = clientNetworkOf(exchange.address)
    const before = this.#parties.of(party).size
    if (before >= mostPerAddress && !isExempt(exchange.address))
      // The others do not wait for an address that is over its own limit.
      throw busy(`${party} has ${before} ${whatPerAddress}`)
    this.#parties.add(party, exchange)
    try {
      if (this.#takeAtOnce() || (await this.#wait(exchange, party))) await this.#use(exchange, send)
    } finally {
      this.#parties.delete(party, exchange)
    }
  }

  async #use(exchange: Exchange, send: (slot: Slot) => Promise<void>): Promise<void> {
    const slot: Slot = { stalledSinceMs: undefined }
    this.#taken.set(slot, () => (slot.abortUpstream ? slot.abortUpstream() : exchange.outgoing.destroy()))
    try {
      // The client may have left when its turn came.
      if (!exchange.gone) await send(slot)
      if (slot.isServed) this.#retryAfter.served()
    } finally {
      // A slot that was cut has been given away already.
      if (this.#taken.delete(slot)) this.#slots.release()
    }
  }

  /** Never overtakes those that wait. */
  #takeAtOnce(): boolean {
    return this.#slots.tryTake() || (this.#slots.waiting(0) === 0 && this.#takeStalled(false))
  }

  /** Waits for a slot; resolves with false if the client leaves first. */
  #wait({ outgoing }: Exchange, party: string): Promise<boolean> {
    const { waitMs, yieldMs, what } = this.options
    const refusal = () => this.#retryAfter.refuse(`${this.#taken.size} ${what}`)
    if (this.#slots.waiting(0) >= LIMITS.waiting) throw refusal()
    const untilMs = performance.now() + waitMs
    return new Promise((resolve, reject) => {
      const end = (isGranted: boolean) => {
        clearTimeout(timer)
        outgoing.off('close', left)
        stopWaiting()
        resolve(isGranted)
      }
      const left = () => end(false)
      const look = () => {
        const leftMs = untilMs - performance.now()
        if (this.#takeStalled(true)) return end(true)
        if (leftMs > 0) return sleep(leftMs)
        reject(refusal())
        end(false)
      }
      // Wakes now and then, as the client of a slot may have stopped reading.
      const sleep = (ms: number) => {
        timer = setTimeout(look, Math.min(ms, yieldMs))
      }
      let timer: NodeJS.Timeout
      sleep(waitMs)
      const stopWaiting = this.#slots.wait(party, { grant: () => end(true), refuse: reject })
      outgoing.once('close', left)
    })
  }

  /** Takes over the slot without progress for longest. `hasWaited`: the newcomer's wait has timed out. */
  #takeStalled(hasWaited: boolean): boolean {
    let longest: Slot | undefined
    for (const slot of this.#taken.keys()) {
      if (slot.abortUpstream && !hasWaited) continue
      if ((slot.stalledSinceMs ?? Infinity) < (longest?.stalledSinceMs ?? Infinity)) longest = slot
    }
    if (longest?.stalledSinceMs === undefined) return false
    if (performance.now() - longest.stalledSinceMs < this.options.yieldMs) return false
    const cut = this.#taken.get(longest)
    this.#taken.delete(longest)
    cut?.()
    return true
  }
}

export type ConcurrencyLimits = ReturnType<typeof concurrencyLimits>

/** The limits of a server by kind of answer. `isExempt`: whether an address has no limit of its own. */
export function concurrencyLimits(limits: Limits, isExempt: (address: string) => boolean) {
  const { yieldMs } = limits
  const { perAddress, retriesPerSecond: leastPerSecond } = LIMITS
  return {
    /** Request bodies being received. */
    bodies: new ConcurrencyLimit({
      ...{ most: limits.bodies, mostPerAddress: limits.bodiesPerAddress, isExempt },
      ...{ yieldMs: LIMITS.bodyYieldMs, waitMs: LIMITS.bodyYieldMs, leastPerSecond },
      what: 'bodies are on their way, which is the most',
      whatPerAddress: 'requests whose bodies have not come whole, which is the most for one address'
    }),
    /** Files that are sent in pieces. */
    downloads: new ConcurrencyLimit({
      most: limits.downloads,
      mostPerAddress: Math.max(LIMITS.downloadsPerAddressMin, Math.ceil(limits.downloads * perAddress)),
      ...{ isExempt, yieldMs, waitMs: limits.downloadWaitMs, leastPerSecond },
      what: 'files are being downloaded, which is the most ([http] max_downloads)',
      whatPerAddress:
        'downloads under way or waiting, ' +
        'which is the most for one address (a quarter of [http] max_downloads)'
    }),
    /** Long lists and exports. Short ones come by here too, of which a program may ask for many at once. */
    lists: new ConcurrencyLimit({
      ...{ most: limits.lists, mostPerAddress: Math.ceil(limits.lists * LIMITS.listsPerAddress), isExempt },
      ...{ yieldMs, waitMs: limits.listWaitMs, leastPerSecond: LIMITS.listRetriesPerSecond },
      what: 'long lists and exports are being sent, which is the most',
      whatPerAddress: 'lists and exports on their way, which is the most for one address'
    }),
    /** Requests that another server answers. */
    forwards: new ConcurrencyLimit({
      ...{ most: limits.forwards, mostPerAddress: Math.ceil(limits.forwards * perAddress), isExempt },
      ...{ yieldMs, waitMs: limits.forwardWaitMs, leastPerSecond },
      what: 'requests are handed on to the primary, which is the most',
      whatPerAddress: 'requests that are handed on to the primary, which is the most for one address'
    })
  }
}
