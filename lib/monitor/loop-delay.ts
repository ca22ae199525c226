import { type IntervalHistogram, monitorEventLoopDelay } from 'node:perf_hooks'
import type { Condition } from './health.js'

const windowMs = 10_000
const resolutionMs = 20

/** Whether the event loop is in time, in the mean over ten seconds: one long turn is no failure. */
export class LoopDelay {
  readonly #histogram: IntervalHistogram = monitorEventLoopDelay({ resolution: resolutionMs })
  readonly #timer: NodeJS.Timeout
  #meanMs = 0

  /** `mostMs`: the longest mean delay. `window`: the time that the mean is taken over. Both in milliseconds. */
  constructor(
    readonly mostMs: number,
    window = windowMs
  ) {
    this.#histogram.enable()
    this.#timer = setInterval(() => {
      const { mean } = this.#histogram
      this.#meanMs = Number.isNaN(mean) ? 0 : mean / 1e6 - resolutionMs
      this.#histogram.reset()
    }, window).unref()
  }

  /** Milliseconds that it was late on average. */
  get meanMs(): number {
    return this.#meanMs
  }

  get condition(): Condition {
    const ok = this.#meanMs <= this.mostMs
    return { ok, reason: ok ? '' : `the event loop is more than ${this.mostMs} ms late on average` }
  }

  close(): void {
    clearInterval(this.#timer)
    this.#histogram.disable()
  }
}
