import { busy } from './busy.js'
import type { Exchange } from './exchange.js'

/** So many may wait for a place. */
const MOST_WAITING = 1000

/** One of the answers that have a bound in number. */
export interface Place {
  /** Since when the client has taken nothing, by the clock of `performance`; undefined while it takes. */
  waitingSince: number | undefined
}

export interface PlacesOptions {
  readonly most: number
  /** A client that has taken nothing for so long gives its place to a new one. */
  readonly yieldMs: number
  /** How long a new one waits for a place. */
  readonly waitMs: number
  /** What is told if there is none: `<most> <what>`. */
  readonly what: string
}

/** Answers that are so large, or take so long, that there may be only so many at once (rules 2.13). */
export class Places {
  readonly #options: PlacesOptions
  readonly #taken = new Map<Place, () => void>()
  readonly #waiting = new Set<() => void>()

  constructor(options: PlacesOptions) {
    this.#options = options
  }

  /** How many are taken. */
  get size(): number {
    return this.#taken.size
  }

  /** Runs `send` with a place, if the client is there by then; throws 503 with Retry-After if there is none in time. */
  async run<C>(exchange: Exchange<C>, send: (place: Place) => Promise<void>): Promise<void> {
    const { most, waitMs, what } = this.#options
    const until = performance.now() + waitMs
    while (this.#taken.size >= most && !this.#makeRoom()) {
      const left = until - performance.now()
      if (left <= 0 || this.#waiting.size >= MOST_WAITING) throw busy(`${this.#taken.size} ${what}`)
      await this.#released(exchange, left)
      if (exchange.gone) return
    }
    const place: Place = { waitingSince: undefined }
    this.#taken.set(place, () => exchange.outgoing.destroy())
    try {
      await send(place)
    } finally {
      this.#taken.delete(place)
      const [next] = this.#waiting
      next?.()
    }
  }

  /** Resolves when a place was released or the client has gone, after `ms` at the latest. */
  #released<C>({ outgoing }: Exchange<C>, ms: number): Promise<void> {
    return new Promise(resolve => {
      const done = () => {
        clearTimeout(timer)
        outgoing.off('close', done)
        this.#waiting.delete(done)
        resolve()
      }
      // Now and then a client that has its place stops reading.
      const timer = setTimeout(done, Math.min(ms, this.#options.yieldMs))
      this.#waiting.add(done)
      outgoing.once('close', done)
    })
  }

  #makeRoom(): boolean {
    let longest: Place | undefined
    for (const place of this.#taken.keys())
      if ((place.waitingSince ?? Infinity) < (longest?.waitingSince ?? Infinity)) longest = place
    if (longest?.waitingSince === undefined) return false
    if (performance.now() - longest.waitingSince < this.#options.yieldMs) return false
    const cut = this.#taken.get(longest)
    this.#taken.delete(longest)
    cut?.()
    return true
  }
}
