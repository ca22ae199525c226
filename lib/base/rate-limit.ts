import { setTimeout as sleep } from 'node:timers/promises'
import { getOrAdd } from './lists.js'
import type { Log } from './log.js'

interface Bucket {
  readonly left: number
  readonly sinceMs: number
}

/** `burst`: tokens at first, and at most; `refill`: those that come back every `everyMs`. */
type Rate = Readonly<Record<'burst' | 'refill' | 'everyMs', number>>

/** A token bucket for each key. A bucket that is full again takes no memory. */
export class RateLimit {
  /** In the order of their last use. */
  readonly #buckets = new Map<string, Bucket>()

  /** `now`: monotonic milliseconds. */
  constructor(
    private readonly rate: Rate,
    private readonly now = () => performance.now()
  ) {}

  /** Takes a token; false if the key has none. */
  take(key: string): boolean {
    const hasOne = this.left(key) > 0
    if (hasOne) this.spend(key, 1)
    return hasOne
  }

  /** Takes tokens in any case: the key may owe some afterwards. */
  spend(key: string, tokens: number): void {
    const { left, sinceMs } = this.#bucket(key)
    this.#buckets.delete(key)
    this.#buckets.set(key, { left: left - tokens, sinceMs })
    for (const oldest of this.#buckets.keys()) {
      if (this.left(oldest) < this.rate.burst) break
      this.#buckets.delete(oldest)
    }
  }

  /** The tokens of a key; negative if it owes some. */
  left(key: string): number {
    return this.#bucket(key).left
  }

  #bucket(key: string): Bucket {
    const { burst, refill, everyMs } = this.rate
    const now = this.now()
    const { left, sinceMs } = this.#buckets.get(key) ?? { left: burst, sinceMs: now }
    const periods = Math.floor((now - sinceMs) / everyMs)
    const refilled = left + periods * refill
    if (refilled >= burst) return { left: burst, sinceMs: now }
    return { left: refilled, sinceMs: sinceMs + periods * everyMs }
  }
}

/** Lets at most `most` events begin in any period. */
export class SlidingWindow {
  /** Times of the last events; they may be in the future. */
  readonly #times: number[] = []

  /** `now`: monotonic milliseconds. */
  constructor(
    private readonly most: number,
    private readonly periodMs: number,
    private readonly now: () => number
  ) {}

  /** Milliseconds until another event may begin; 0 for now. */
  get waitMs(): number {
    if (this.#times.length < this.most) return 0
    const now = this.now()
    return Math.max(0, (this.#times[0] ?? now) + this.periodMs - now)
  }

  /** Books the next event, which may begin after `waitMs`. */
  book(): void {
    const beginsMs = this.now() + this.waitMs
    if (this.#times.length >= this.most) this.#times.shift()
    this.#times.push(beginsMs)
  }

  /** Resolves when the next event may begin; rejects when the signal is aborted. */
  async turn(signal: AbortSignal): Promise<void> {
    const { waitMs } = this
    this.book()
    if (waitMs > 0) await sleep(waitMs, undefined, { signal })
  }
}

const EVERY_MS = 60_000

/** Limits a frequent warning to one line a minute, with a count. A `kind` never comes from a client. */
export class ThrottledWarning {
  readonly #kinds = new Map<string, { count: number; lastMs: number }>()

  constructor(private readonly log: Log) {}

  /** `text` says what happens, without a count. */
  say(text: string, kind = ''): void {
    const said = getOrAdd(this.#kinds, kind, () => ({ count: 0, lastMs: Number.NEGATIVE_INFINITY }))
    said.count++
    const now = performance.now()
    if (now - said.lastMs < EVERY_MS) return
    this.log.warn(said.count === 1 ? text : `${text} (${said.count} times since this was said last)`)
    said.lastMs = now
    said.count = 0
  }
}
