import type { Exchange } from './exchange.js'

/** What clients may leave unread of all answers together, in bytes; files are not counted here. */
const MOST_BYTES = 32 * 1024 * 1024

/** The answers that wait in memory for clients which do not read them (rules 2.16). */
export class Unread {
  #bytes = 0
  /** The one that waits longest comes first. */
  readonly #waiting = new Map<object, { readonly bytes: number; cut(): void }>()

  /** Counts `bytes` of an answer. Where there are too many in all, the answers that wait longest are cut. */
  add<C>(exchange: Exchange<C>, bytes: number): void {
    this.remove(exchange)
    this.#waiting.set(exchange, { bytes, cut: () => exchange.incoming.socket.destroy() })
    this.#bytes += bytes
    for (const [longest, { cut }] of this.#waiting) {
      if (this.#bytes <= MOST_BYTES) return
      this.remove(longest)
      cut()
    }
  }

  /** The client has taken it, or has gone. */
  remove(exchange: object): void {
    this.#bytes -= this.#waiting.get(exchange)?.bytes ?? 0
    this.#waiting.delete(exchange)
  }
}
