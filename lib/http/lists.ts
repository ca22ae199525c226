import { setImmediate as nextTurn } from 'node:timers/promises'
import { Semaphore } from '../concurrency.js'
import type { Exchange } from './exchange.js'
import type { Limits } from './limits.js'
import { type Place, Places } from './places.js'

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

  constructor({
    lists: most,
    yieldMs,
    listWaitMs: waitMs
  }: Pick<Limits, 'lists' | 'yieldMs' | 'listWaitMs'>) {
    const what = 'long lists and exports are being sent, which is the most'
    this.#places = new Places({ most, yieldMs, waitMs, leastPerSecond: LEAST_PER_SECOND, what })
  }

  /** Runs `send` with a place for one list; throws 503 with Retry-After if there is none in time. */
  run<C>(exchange: Exchange<C>, send: (place: Place, inTurn: InTurn) => Promise<void>): Promise<void> {
    const inTurn: InTurn = make =>
      this.#pieces.run(exchange.address, async () => {
        const made = make()
        await nextTurn()
        return made
      })
    return this.#places.run(exchange, place => send(place, inTurn))
  }
}
