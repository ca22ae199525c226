import { busy } from './busy.js'
import type { Exchange } from './exchange.js'

/** One of the answers that have a bound in number. */
export interface Place {
  /** Since when the client has taken nothing, by the clock of `performance`; undefined while it takes. */
  waitingSince: number | undefined
}

/** Answers that are so large, or take so long, that there may be only so many at once (rules 2.13). */
export class Places {
  readonly #most: number
  readonly #yieldMs: number
  readonly #what: string
  readonly #taken = new Map<Place, () => void>()

  /** `yieldMs`: a client that has taken nothing for so long gives its place to a new one. `what` is told if none does. */
  constructor(most: number, yieldMs: number, what: string) {
    this.#most = most
    this.#yieldMs = yieldMs
    this.#what = what
  }

  /** How many are taken. */
  get size(): number {
    return this.#taken.size
  }

  /** Runs `send` with a place; throws 503 with Retry-After if there is none. */
  async run<C>(exchange: Exchange<C>, send: (place: Place) => Promise<void>): Promise<void> {
    if (this.#taken.size >= this.#most) this.#makeRoom()
    const place: Place = { waitingSince: undefined }
    this.#taken.set(place, () => exchange.outgoing.destroy())
    try {
      await send(place)
    } finally {
      this.#taken.delete(place)
    }
  }

  #makeRoom(): void {
    let longest: Place | undefined
    for (const place of this.#taken.keys())
      if ((place.waitingSince ?? Infinity) < (longest?.waitingSince ?? Infinity)) longest = place
    if (longest?.waitingSince === undefined || performance.now() - longest.waitingSince < this.#yieldMs)
      throw busy(`${this.#taken.size} ${this.#what}`)
    const cut = this.#taken.get(longest)
    this.#taken.delete(longest)
    cut?.()
  }
}
