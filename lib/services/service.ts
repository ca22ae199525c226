import { singleFlight } from '../concurrency.js'
import type { Condition } from '../monitor/health.js'
import { Apply, type ApplyOptions } from './apply.js'
import { backendOf } from './backends.js'
import type { Running, Verb } from './control.js'
import { Unit } from './unit.js'

const firstRetryMs = 5_000
const longestRetryMs = 600_000
const probeMs = 30_000
const settleMs = 1_000

export type ServiceOptions = Omit<ApplyOptions, 'settle' | 'unit'> & {
  readonly settle?: number
  /** The server, where another service has it too. */
  readonly unit?: Unit
  /** First pause before what failed is tried again; it doubles. Milliseconds. */
  readonly retry?: number
}

/**
 * A server that svcd configures (issue: dhcp and dns). Changes are gathered, and put in force together; what fails is
 * tried again, with growing pauses.
 */
export class Service {
  readonly #o: ServiceOptions
  readonly #apply: Apply
  readonly #unit: Unit
  readonly #firstRetryMs: number
  /** What keeps the objects from being in force. */
  #problem = ''
  /** What the last look at the server said. */
  #down = ''
  #waiting = false
  #timer: NodeJS.Timeout | undefined
  #timerAt = Number.POSITIVE_INFINITY
  #current: Promise<void> | undefined
  #retryMs: number
  #probe: NodeJS.Timeout | undefined
  #closed = false
  #settled: (() => void)[] = []

  constructor(options: ServiceOptions) {
    this.#o = options
    this.#unit = options.unit ?? new Unit(options.settings)
    this.#apply = new Apply({ settle: settleMs, ...options, unit: this.#unit })
    this.#firstRetryMs = options.retry ?? firstRetryMs
    this.#retryMs = this.#firstRetryMs
  }

  /** Puts in force what the objects say now, in the background. */
  start(): void {
    this.#waiting = true
    this.#schedule(0)
    this.#probe = setInterval(() => void this.#look(), probeMs).unref()
    void this.#look()
  }

  /** Something that may matter has changed. Costs nothing. */
  changed(): void {
    this.#waiting = true
    this.#schedule(this.#o.settings.gather)
  }

  /** Last known: what the server was last given, and whether it ran when last looked at. */
  get condition(): Condition {
    const reason = [...new Set([this.#problem, this.#down])].filter(text => text !== '').join('; ')
    return { ok: reason === '', reason }
  }

  /** Resolves when what was changed so far is in force, or has failed. */
  settled(): Promise<void> {
    if (!this.#waiting && !this.#current) return Promise.resolve()
    return new Promise(resolve => this.#settled.push(resolve))
  }

  /** JSON of the files that would be in force, each with its difference to what is. Throws NotApplied. */
  readonly preview: () => Promise<string> = singleFlight(() => this.#apply.preview())

  readonly #ask: () => Promise<Running> = singleFlight(() => this.#unit.state(this.#apply.signal))

  /** Whether the server runs, asked now. */
  async status(): Promise<Running> {
    const wasQuiet = this.#unit.takers === 0
    const running = await this.#ask()
    // A server that is being restarted is not one that does not run.
    if (wasQuiet && this.#unit.takers === 0) this.#note(running)
    return running
  }

  /** Runs the control command; `signal` stops waiting for it. Throws an Error with its last words. */
  async control(verb: Exclude<Verb, 'status'>, signal: AbortSignal): Promise<string> {
    const { settings, service } = this.#o
    const unit = this.#unit
    try {
      return await unit.take(signal, async () => {
        if (verb !== 'reload') return unit.control(verb, signal)
        await unit.reload(settings, backendOf(service, settings.server).reload, signal)
        return ''
      })
    } finally {
      await this.#look()
    }
  }

  /** Ends what is under way; the next daemon goes on with it. */
  async close(): Promise<void> {
    this.#closed = true
    clearTimeout(this.#timer)
    clearInterval(this.#probe)
    this.#apply.stop()
    await this.#current
    for (const settled of this.#settled.splice(0)) settled()
  }

  async #look(): Promise<void> {
    const { signal } = this.#apply
    await this.#unit
      .take(signal, async () => this.#note(await this.#ask()))
      .catch(error => {
        if (!this.#closed) this.#down = String(error.message)
      })
  }

  #note({ state, words }: Running): void {
    const was = this.#down
    const { service, reload: own } = this.#o.settings
    this.#down = state === 'stopped' ? `service ${service} does not run` : ''
    if (state === 'unknown' && own.length === 0) this.#down = words
    // It may have missed a file while it was down.
    if (was !== '' && this.#down === '' && this.#problem !== '') this.#schedule(0)
  }

  #schedule(ms: number): void {
    const at = performance.now() + ms
    if (this.#closed || this.#current || at >= this.#timerAt) return
    clearTimeout(this.#timer)
    this.#timerAt = at
    this.#timer = setTimeout(() => {
      this.#timerAt = Number.POSITIVE_INFINITY
      this.#current = this.#run()
    }, ms)
  }

  async #run(): Promise<void> {
    const { service, log } = this.#o
    this.#waiting = false
    try {
      const { changed } = await this.#apply.run(this.#problem !== '')
      if (changed > 0)
        log.info(`${service}: ${changed} ${changed === 1 ? 'file' : 'files'} changed and in force`)
      else if (this.#problem !== '') log.info(`${service}: well again`)
      this.#problem = ''
      this.#retryMs = this.#firstRetryMs
      if (this.#down !== '') await this.#look()
    } catch (error) {
      if (!this.#closed) this.#fail(error instanceof Error ? error.message : String(error))
    }
    this.#current = undefined
    if (this.#waiting) this.#schedule(this.#o.settings.gather)
    else {
      for (const settled of this.#settled.splice(0)) settled()
      if (this.#problem === '') return
      this.#schedule(this.#retryMs)
      this.#retryMs = Math.min(this.#retryMs * 2, longestRetryMs)
    }
  }

  #fail(reason: string): void {
    if (reason !== this.#problem) this.#o.log.error(`${this.#o.service}: ${reason}`)
    this.#problem = reason
  }
}
