import { singleFlight } from './concurrency.js'
import { LONGEST_MS } from './thread.js'

/** Source of time; tests pass their own. */
export interface Clock {
  /** Monotonic, in milliseconds. */
  now(): number
  /** Calls `work` after `ms`; returns how to cancel it. `holds` keeps the process alive. */
  after(ms: number, work: () => void, holds: boolean): () => void
}

/** The endpoint in a message changes as endpoints take turns, and does not make the failure a new one. */
const ENDPOINT = /\bhttps?:\/\/[^\s,;/]+|\b\d+\.\d+\.\d+\.\d+:\d+\b|\[[\da-f:.]+\]:\d+/g
/** Reasons reported until the next success. */
const MOST_REPORTED = 20

const realClock: Clock = {
  now: () => performance.now(),
  after(ms, work, holds) {
    const timer = setTimeout(work, Math.min(ms, LONGEST_MS))
    if (!holds) timer.unref()
    return () => clearTimeout(timer)
  }
}

export interface BackgroundOptions {
  /** One run; a throw is a failure. `close` aborts `signal`. */
  readonly work: (signal: AbortSignal) => Promise<unknown>
  /** Pause between runs in milliseconds; a function is called after each. Undefined: until `wake`. */
  readonly everyMs?: number | (() => number | undefined)
  /** Exponential backoff after failures, in milliseconds. Absent: `everyMs` applies. */
  readonly retryMs?: { readonly first: number; readonly longest: number }
  /** Called for a failure, once per reason until the next success; the endpoint does not count. */
  readonly onFailure?: (reason: string) => void
  /** Called when a run succeeds after a failed one. */
  readonly onRecovery?: () => void
  readonly clock?: Clock
}

/** Runs work once it is woken, one run at a time, again when woken or after a pause; failures back off. */
export class Background {
  readonly #clock: Clock
  readonly #closing = new AbortController()
  readonly #run = singleFlight(() => this.#runOnce())
  #due = Number.POSITIVE_INFINITY
  #holds = false
  #cancelTimer = () => {}
  /** A run was requested and has not begun. */
  #requested = false
  #running = false
  #failures = 0
  #problem = ''
  /** Reasons reported since the last success, without endpoints. */
  readonly #reported = new Set<string>()
  #waiting: (() => void)[] = []

  constructor(private readonly options: BackgroundOptions) {
    this.#clock = options.clock ?? realClock
  }

  /** The reason of the last run's failure; '' if it succeeded. */
  get problem(): string {
    return this.#problem
  }

  /** Requests a run within `ms`. */
  wake(ms = 0): void {
    if (this.#closing.signal.aborted) return
    this.#requested = true
    if (ms > 0) this.#schedule(ms, true)
    else void this.#run().catch(() => undefined)
  }

  /** Runs as soon as no run is under way, with that run's outcome. Does nothing after `close`. */
  run(): Promise<void> {
    this.#requested = true
    return this.#run()
  }

  /** Resolves when every requested run has ended, successful or not. */
  async settled(): Promise<void> {
    while ((this.#requested || this.#running) && !this.#closing.signal.aborted)
      await new Promise<void>(resolve => this.#waiting.push(resolve))
  }

  /** Aborts the current run, waits for its end, and prevents further runs. */
  async close(): Promise<void> {
    this.#closing.abort()
    this.#unschedule()
    await this.#run().catch(() => undefined)
    this.#notifySettled()
  }

  async #runOnce(): Promise<void> {
    const { signal } = this.#closing
    this.#unschedule()
    this.#requested = false
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
      this.#notifySettled()
    }
  }

  #succeeded(): void {
    const wasFailing = this.#problem !== ''
    this.#problem = ''
    this.#reported.clear()
    this.#failures = 0
    if (wasFailing) this.options.onRecovery?.()
    this.#repeat()
  }

  #failed(error: unknown): void {
    const { retryMs, onFailure } = this.options
    const reason = (error instanceof Error && error.message) || String(error)
    const gist = reason.replace(ENDPOINT, '')
    const isNews = !this.#reported.has(gist) && this.#reported.size < MOST_REPORTED
    this.#problem = reason
    if (isNews) onFailure?.(reason)
    if (isNews) this.#reported.add(gist)
    if (retryMs) this.#schedule(Math.min(retryMs.first * 2 ** this.#failures++, retryMs.longest), false)
    else this.#repeat()
  }

  #repeat(): void {
    const { everyMs } = this.options
    const ms = typeof everyMs === 'function' ? everyMs() : everyMs
    if (ms !== undefined) this.#schedule(ms, false)
  }

  #notifySettled(): void {
    for (const resolve of this.#waiting.splice(0)) resolve()
  }

  /** The earliest due run is next. Requested runs keep the process alive. */
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

/** Names that nothing needs, with the time since (monotonic), which counts anew after a restart. */
export class Grace {
  #since: ReadonlyMap<string, number> = new Map()

  constructor(
    private readonly graceMs: number,
    private readonly ticks: () => number
  ) {}

  /** Takes all names that are not needed now; the time of any other begins anew. Returns those to go. */
  over(names: Iterable<string>): string[] {
    const now = this.ticks()
    this.#since = new Map([...names].map(name => [name, this.#since.get(name) ?? now]))
    return [...this.#since].flatMap(([name, since]) => (now - since >= this.graceMs ? name : []))
  }

  /** Milliseconds until each name is to go. */
  get dueMs(): number[] {
    return [...this.#since.values()].map(since => since + this.graceMs - this.ticks())
  }
}
