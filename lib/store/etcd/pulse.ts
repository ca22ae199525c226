/** Looks are half a second apart: with much more from one answer to the next, etcd gave none for a while, or this svcd stood still. */
const PAUSE_MS = 1200
/** With its own election timeout etcd makes no lease shorter than this, whatever the time of the right to write is. */
const LEAST_MS = 2000

/**
 * Whether who has the right to write gives no sign of life any more: it changes its key every third of its time. Its lease alone may last
 * longer than its time, as a member of etcd that becomes leader gives all leases their whole time again.
 */
export class Pulse {
  /** The last sign, and when it was first seen. */
  #sign: string | undefined
  #seenMs = 0
  /** Since when etcd answers without a pause, and its last answer. */
  #answersMs = 0
  #lastMs = Number.NEGATIVE_INFINITY

  /**
   * Takes the last sign of who writes, undefined where nobody does: asked for and told at these times, in ms that only grow. Gives whether there was no
   * new one for all of `ttlMs`, and etcd could have told one for half of it. `ttlMs` undefined: it gives none.
   */
  isSilent(
    sign: string | undefined,
    ttlMs: number | undefined,
    askedMs: number,
    answeredMs: number
  ): boolean {
    if (answeredMs - this.#lastMs > PAUSE_MS) this.#answersMs = answeredMs
    this.#lastMs = answeredMs
    if (sign !== this.#sign) {
      this.#sign = sign
      this.#seenMs = answeredMs
    }
    if (sign === undefined || ttlMs === undefined) return false
    return askedMs - this.#seenMs >= Math.max(ttlMs, LEAST_MS) && askedMs - this.#answersMs >= ttlMs / 2
  }
}
