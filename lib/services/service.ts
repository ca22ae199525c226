import type { Condition } from '../monitor/health.js'
import { Apply, type ApplyOptions } from './apply.js'
import { backendOf } from './backends.js'
import { control, type Running, reload, runningState, type Verb } from './control.js'

const firstRetryMs = 5_000
const longestRetryMs = 600_000
const probeMs = 30_000
const settleMs = 1_000

export type ServiceOptions = Omit<ApplyOptions, 'settle'> & {
  readonly settle?: number
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
  #preview: Promise<string> | undefined
  #probe: NodeJS.Timeout | undefined
  #closed = false
  #settled: (() => void)[] = []

  constructor(options: ServiceOptions) {
    this.#o = options
    this.#apply = new Apply({ settle: settleMs, ...options })
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
  preview(): Promise<string> {
    this.#preview ??= this.#apply.preview().finally(() => {
      this.#preview = undefined
    })
    return this.#preview
  }

  /** Whether the server runs, asked now. */
  async status(): Promise<Running> {
    const running = await runningState(this.#o.settings, this.#apply.signal)
    this.#note(running)
    return running
  }

  /** Runs the control command; `signal` stops waiting for it. Throws an Error with its last words. */
  async control(verb: Exclude<Verb, 'status'>, signal: AbortSignal): Promise<string> {
    const { settings, service } = this.#o
    try {
      if (verb !== 'reload') return await control(settings, verb, signal)
      await reload(settings, backendOf(service, settings.server).reload, signal)
      return ''
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
    await this.status().catch(error => {
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
      const { changed } = await this.#apply.run()
      if (changed > 0)
        log.info(`${service}: ${changed} ${changed === 1 ? 'file' : 'files'} changed and in force`)
      else if (this.#problem !== '') log.info(`${service}: well again`)
      this.#problem = ''
      this.#retryMs = this.#firstRetryMs
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
