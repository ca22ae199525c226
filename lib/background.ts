import { LONGEST_MS, singleFlight } from './concurrency.js'

/** Where background work gets its timers from; tests put their own in. */
export interface Clock {
  /** Milliseconds that only grow. */
  now(): number
  /** Calls `work` in so many milliseconds; returns how to cancel that. With `holds` the process does not end before. */
  after(ms: number, work: () => void, holds: boolean): () => void
}

/** Endpoints are asked by turns, so that the same failure names another one each time: that is no news. */
const ENDPOINT = /\bhttps?:\/\/[^\s,;/]+|\b\d+\.\d+\.\d+\.\d+:\d+\b|\[[\da-f:.]+\]:\d+/g
/** So many reasons are told until it goes well again. */
const MOST_TOLD = 20

const realClock: Clock = {
  now: () => performance.now(),
  after(ms, work, holds) {
    const timer = setTimeout(work, Math.min(ms, LONGEST_MS))
    if (!holds) timer.unref()
    return () => clearTimeout(timer)
  }
}

/** What background work does, and when. */
export interface BackgroundOptions {
  /** One run; a throw is a failure. `signal` is aborted by `close`. */
  readonly work: (signal: AbortSignal) => Promise<unknown>
  /** Pause before the next run, in milliseconds; a function is asked after each run. Undefined: until it is woken. */
  readonly everyMs?: number | (() => number | undefined)
  /** Pauses after failures, in milliseconds: each is twice the one before. Absent: they are those of `everyMs`. */
  readonly retryMs?: { readonly first: number; readonly longest: number }
  /** Called when a run failed, unless one since the last good run did for the same reason, at another endpoint perhaps. */
  readonly failed?: (reason: string) => void
  /** Called when a run went well after one that failed. */
  readonly recovered?: () => void
  readonly clock?: Clock
}

/**
 * Work that goes on in the background: it is woken, runs once at a time, runs again when it was woken meanwhile, is
 * repeated after a pause, and backs off while it fails. It does nothing before it is first woken.
 */
export class Background {
  readonly #clock: Clock
  readonly #closing = new AbortController()
  readonly #run = singleFlight(() => this.#runOnce())
  #due = Number.POSITIVE_INFINITY
  #holds = false
  #cancelTimer = () => {}
  /** Somebody asked for a run that has not begun. */
  #asked = false
  #running = false
  #failures = 0
  #problem = ''
  /** Reasons that were told since the last run that went well, without the endpoints in them. */
  readonly #told = new Set<string>()
  #waiting: (() => void)[] = []

  constructor(private readonly options: BackgroundOptions) {
    this.#clock = options.clock ?? realClock
  }

  /** Why the last run failed, '' when it went well. */
  get problem(): string {
    return this.#problem
  }

  /** Asks for a run in so many milliseconds at the latest. */
  wake(ms = 0): void {
    if (this.#closing.signal.aborted) return
    this.#asked = true
    if (ms > 0) this.#schedule(ms, true)
    else void this.#run().catch(() => undefined)
  }

  /** Runs as soon as no run is under way; resolves or rejects as that run does. Does nothing when it is closed. */
  run(): Promise<void> {
    this.#asked = true
    return this.#run()
  }

  /** Resolves when every run that was asked for has ended, well or not. */
  async settled(): Promise<void> {
    while ((this.#asked || this.#running) && !this.#closing.signal.aborted)
      await new Promise<void>(resolve => this.#waiting.push(resolve))
  }

  /** Aborts the run under way, waits for its end, and lets none begin after it. */
  async close(): Promise<void> {
    this.#closing.abort()
    this.#unschedule()
    await this.#run().catch(() => undefined)
    this.#tellSettled()
  }

  async #runOnce(): Promise<void> {
    const { signal } = this.#closing
    this.#unschedule()
    this.#asked = false
    if (signal.aborted) return
    this.#running = true
    try {
      await this.options.work(signal)
      if (!signal.aborted) this.#succeeded()
    } catch (error) {
      if (!signal.aborted) this.#failed(error)
      throw error
    } finally {
      this.#running = false
      this.#tellSettled()
    }
  }

  #succeeded(): void {
    const wasFailing = this.#problem !== ''
    this.#problem = ''
    this.#told.clear()
    this.#failures = 0
    if (wasFailing) this.options.recovered?.()
    this.#repeat()
  }

  #failed(error: unknown): void {
    const { retryMs, failed } = this.options
    const reason = (error instanceof Error && error.message) || String(error)
    const gist = reason.replace(ENDPOINT, '')
    const isNews = !this.#told.has(gist) && this.#told.size < MOST_TOLD
    this.#problem = reason
    if (isNews) failed?.(reason)
    if (isNews) this.#told.add(gist)
    if (retryMs) this.#schedule(Math.min(retryMs.first * 2 ** this.#failures++, retryMs.longest), false)
    else this.#repeat()
  }

  #repeat(): void {
    const { everyMs } = this.options
    const ms = typeof everyMs === 'function' ? everyMs() : everyMs
    if (ms !== undefined) this.#schedule(ms, false)
  }

  #tellSettled(): void {
    for (const resolve of this.#waiting.splice(0)) resolve()
  }

  /** The next run is the earliest of all that are due. The process waits for those that somebody asked for. */
  #schedule(ms: number, holds: boolean): void {
    const now = this.#clock.now()
    const due = Math.min(this.#due, now + ms)
    if (due === this.#due && (this.#holds || !holds)) return
    const held = this.#holds || holds
    this.#unschedule()
    this.#due = due
    this.#holds = held
    const run = () => void this.#run().catch(() => undefined)
    this.#cancelTimer = this.#clock.after(Math.max(0, due - now), run, held)
  }

  #unschedule(): void {
    this.#cancelTimer()
    this.#due = Number.POSITIVE_INFINITY
    this.#holds = false
  }
}
