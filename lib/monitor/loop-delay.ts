import { type IntervalHistogram, monitorEventLoopDelay } from 'node:perf_hooks'
import type { Condition } from './health.js'

const windowMs = 10_000
const resolutionMs = 20

/** Whether the event loop turns in time: the mean of ten seconds, so that one long turn does not count as failure. */
export class LoopDelay {
  readonly #histogram: IntervalHistogram = monitorEventLoopDelay({ resolution: resolutionMs })
  readonly #timer: NodeJS.Timeout
  #meanMs = 0

  /** `window`: what the mean is taken over, milliseconds. */
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

  get condition(): Condition {
    const ok = this.#meanMs <= this.mostMs
    return { ok, reason: ok ? '' : `the event loop is more than ${this.mostMs} ms late in the mean` }
  }

  close(): void {
    clearInterval(this.#timer)
    this.#histogram.disable()
  }
}
