import { createHmac, timingSafeEqual } from 'node:crypto'
import { SLACK_MS } from '../ask-controller.js'

/** The proof that one who has the key has said this, in hexadecimal digits. */
export const proofBy = (key: Uint8Array, said: readonly unknown[]): string =>
  createHmac('sha256', key).update(JSON.stringify(said)).digest('hex')

/** Whether two proofs are the same, in a time that does not tell where they differ. */
export function isSameProof(one: string, other: string): boolean {
  const [a, b] = [Buffer.from(one), Buffer.from(other)]
  return a.length === b.length && timingSafeEqual(a, b)
}

/** The random numbers of what controllers have said: each counts once. Nobody but controllers makes it grow, as it is given only what is proved. */
export class SaidOnce {
  /** The minute in which the time of what was said is over → its numbers: whatever a clock does, a whole minute is forgotten at once. */
  readonly #numbers = new Map<number, Set<string>>()

  #lastMs: number

  /** `since`: of what was said before it nothing is known here. */
  constructor(private since: number) {
    this.#lastMs = since
  }

  /** Whether what was said at that time may have come before, to an svcd that has ended. */
  isForgotten(saidMs: number, now: number): boolean {
    // The start goes back with the clock: otherwise all that is said is refused until the time of the start has come again.
    this.since -= Math.max(0, this.#lastMs - now)
    this.#lastMs = now
    return saidMs < this.since
  }

  /** Whether this number, of what was said at `saidMs`, is a new one. `number`: in hexadecimal digits. */
  take(number: string, saidMs: number, now: number): boolean {
    for (const minute of this.#numbers.keys())
      if ((minute + 1) * SLACK_MS <= now) this.#numbers.delete(minute)
    const minute = Math.floor((saidMs + SLACK_MS) / SLACK_MS)
    const numbers = this.#numbers.get(minute) ?? new Set()
    this.#numbers.set(minute, numbers)
    // A text of its own: a piece of a header would keep the whole header in memory.
    const own = Buffer.from(number, 'hex').toString('latin1')
    if (numbers.has(own)) return false
    numbers.add(own)
    return true
  }

  /** How many are kept. */
  get size(): number {
    return [...this.#numbers.values()].reduce((sum, { size }) => sum + size, 0)
  }
}
