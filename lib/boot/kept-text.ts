import { performance } from 'node:perf_hooks'

const KEPT_MS = 1000

/**
 * A rendered text, kept while all that it was made from is the same, and for a second at most: a template that it
 * includes may have changed (rules 4.11).
 */
export class KeptText {
  #from: readonly unknown[] = []
  #text = ''
  #untilMs = 0

  /** The text that `make` gives for these values, which are compared by identity. Throws what `make` throws. */
  text(from: readonly unknown[], make: () => string): string {
    const now = performance.now()
    const same = from.length === this.#from.length && from.every((value, i) => value === this.#from[i])
    if (same && now < this.#untilMs) return this.#text
    this.#text = make()
    this.#from = from
    this.#untilMs = now + KEPT_MS
    return this.#text
  }
}
