import type { Log } from '../log.js'

const EVERY_MS = 60_000

/**
 * A warning about something that can happen thousands of times a second: one line a minute for each kind, with how often it
 * was. Kinds are few words of ours, never a client's.
 */
export class Notice {
  readonly #log: Log
  readonly #kinds = new Map<string, { count: number; lastMs: number }>()

  constructor(log: Log) {
    this.#log = log
  }

  /** `text` tells what happens, without how often. */
  say(text: string, kind = ''): void {
    const said = this.#kinds.get(kind) ?? { count: 0, lastMs: Number.NEGATIVE_INFINITY }
    this.#kinds.set(kind, said)
    said.count++
    const now = performance.now()
    if (now - said.lastMs < EVERY_MS) return
    this.#log.warn(said.count === 1 ? text : `${text} (${said.count} times since this was said last)`)
    said.lastMs = now
    said.count = 0
  }
}
