import { setTimeout as sleep } from 'node:timers/promises'

/** Lets at most `size` begin in any time of `delayMs`, whoever asks: so that machines are switched on in batches. */
export class Pace {
  /** When the last `size` began, or will begin. */
  readonly #begun: number[] = []

  /** `ticks`: milliseconds that only grow. */
  constructor(
    private readonly size: number,
    private readonly delayMs: number,
    private readonly ticks: () => number
  ) {}

  /** Resolves when the next one may begin; rejects when the signal is aborted. */
  async turn(signal: AbortSignal): Promise<void> {
    const now = this.ticks()
    const free = this.#begun.length < this.size ? now : (this.#begun.shift() as number) + this.delayMs
    this.#begun.push(Math.max(now, free))
    if (free > now) await sleep(free - now, undefined, { signal })
  }
}
