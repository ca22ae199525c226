import type { Log } from '../log.js'

const EVERY_MS = 60_000

/** A warning about something that can happen thousands of times a second: one line a minute, with how often it was. */
export class Notice {
  readonly #log: Log
  #count = 0
  #lastMs = Number.NEGATIVE_INFINITY

  constructor(log: Log) {
    this.#log = log
  }

  /** `text` tells what happens, without how often. */
  say(text: string): void {
    this.#count++
    const now = performance.now()
    if (now - this.#lastMs < EVERY_MS) return
    this.#log.warn(this.#count === 1 ? text : `${text} (${this.#count} times since this was said last)`)
    this.#lastMs = now
    this.#count = 0
  }
}
