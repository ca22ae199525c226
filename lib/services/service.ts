import { Background } from '../background.js'
import { singleFlight } from '../concurrency.js'
import type { Condition } from '../monitor/health.js'
import { Apply, type ApplyOptions } from './apply.js'
import { backendOf } from './backends.js'
import type { Running, Verb } from './control.js'
import { Unit } from './unit.js'

const retryMs = { first: 5_000, longest: 600_000 }
const probeMs = 30_000
const settleMs = 1_000
/** Between two times that machines' changes come into force, each time twice as much, until there was none for a while. */
const machinesMs = { first: 1_000, longest: 20_000, calm: 40_000 }
/** What another controller tells of zones comes in parts. */
const heardMs = 200

/** What a service is made of. */
export type ServiceOptions = Omit<ApplyOptions, 'settle' | 'unit'> & {
  readonly settle?: number
  /** The server, when another service has the same one. */
  readonly unit?: Unit
  /** First pause before what failed is tried again, in milliseconds; the pauses double. */
  readonly retry?: number
}

/**
 * A server that svcd configures (rules 10.1). Changes are gathered, and put in force together; what fails is tried
 * again, with growing pauses.
 */
export class Service {
  readonly #apply: Apply
  readonly #unit: Unit
  /** Puts in force what the objects say. Its problem is why that failed. */
  readonly #applying: Background
  readonly #looking = new Background({ work: () => this.#look(), everyMs: probeMs })
  /** How often files were put in force, and could not be. */
  readonly applies = { applied: 0, failed: 0 }
  /** What the last look at the server said. */
  #down = ''
  /** Whether an admin waits for the next run. */
  #isUrgent = false
  /** When files came into force without one, and what machines change has to wait since then; by the clock of `performance`. */
  #machines = { appliedMs: Number.NEGATIVE_INFINITY, pauseMs: 0 }

  constructor(private readonly o: ServiceOptions) {
    const { retry: first = retryMs.first, log, service } = o
    this.#unit = o.unit ?? new Unit(o.settings)
    this.#apply = new Apply({ settle: settleMs, ...o, unit: this.#unit })
    this.#applying = new Background({
      work: () => this.#putInForce(),
      retryMs: { ...retryMs, first },
      failed: reason => log.error(`${service}: ${reason}`)
    })
  }

  /** Puts in force what the objects say now, in the background; so many milliseconds later. */
  start(afterMs = 0): void {
    this.#applying.wake(afterMs)
    this.#looking.wake()
  }

  /**
   * Tells that objects have changed; not urgent is what machines change: a machine could have its server restarted again and
   * again. Cheap.
   */
  changed(isUrgent = true): void {
    const { gather } = this.o.settings
    const { appliedMs, pauseMs } = this.#machines
    this.#isUrgent ||= isUrgent
    this.#applying.wake(isUrgent ? gather : Math.max(gather, appliedMs + pauseMs - performance.now()))
  }

  /** Tells that this controller writes from now on, or another one does: what is in force is not that any more. */
  roleChanged(): void {
    this.#applying.wake()
  }

  /** Puts in force what the objects say now; rejects where that fails. */
  applied(): Promise<void> {
    return this.#applying.run()
  }

  /** Tells that the controller that writes has told something of zones. Cheap. */
  heard(): void {
    this.#applying.wake(Math.min(heardMs, this.o.settings.gather))
  }

  /** Whether the last files are in force, and whether the server ran when svcd last looked. */
  get condition(): Condition {
    const { ok = true, reason: ofZones = '' } = this.o.zones?.condition ?? {}
    const reasons = [...new Set([this.#applying.problem, this.#down])].filter(text => text !== '')
    return {
      ok: ok && reasons.length === 0,
      reason: [...reasons, ...(ofZones === '' ? [] : [ofZones])].join('; ')
    }
  }

  /** Resolves when what was changed so far is in force, or has failed. */
  settled(): Promise<void> {
    return this.#applying.settled()
  }

  /** JSON of the files that would be in force, each with its difference to what is. Throws NotApplied. */
  readonly preview: () => Promise<string> = singleFlight(() => this.#apply.preview())

  /** The files that differ from those in force when they are made of other data. Throws NotApplied. */
  differing(data: () => Generator<unknown, object>): Promise<{ path: string; diff: string }[]> {
    return this.#apply.differing(data)
  }

  readonly #ask: () => Promise<Running> = singleFlight(() => this.#unit.state(this.#apply.signal))

  /** Whether the server runs, asked now. */
  async status(): Promise<Running> {
    const wasFree = this.#unit.users === 0
    const running = await this.#ask()
    // A server that is just being restarted does not count as down.
    if (wasFree && this.#unit.users === 0) this.#note(running)
    return running
  }

  /** Runs the control command; `signal` ends the wait for it. Throws an Error with the end of its output. */
  async control(verb: Exclude<Verb, 'status'>, signal: AbortSignal): Promise<string> {
    const { settings, service } = this.o
    const unit = this.#unit
    try {
      return await unit.withLock(signal, async () => {
        if (verb !== 'reload') return unit.control(verb, signal)
        await unit.reload(settings, backendOf(service, settings.server).reload, signal)
        return ''
      })
    } finally {
      await this.#look()
    }
  }

  /** Stops what is under way. The next daemon goes on with it. */
  async close(): Promise<void> {
    this.#apply.stop()
    await Promise.all([this.#applying.close(), this.#looking.close()])
  }

  async #look(): Promise<void> {
    const { signal } = this.#apply
    await this.#unit
      .withLock(signal, async () => this.#note(await this.#ask()))
      .catch(error => {
        if (!signal.aborted) this.#down = String(error.message)
      })
  }

  #note({ state, words }: Running): void {
    const was = this.#down
    const { service, reload: own } = this.o.settings
    this.#down = state === 'stopped' ? `service ${service} does not run` : ''
    if (state === 'unknown' && own.length === 0) this.#down = words
    // It may lack a file that came while it was down.
    if (was !== '' && this.#down === '' && this.#applying.problem !== '') this.#applying.wake()
  }

  /** Machines wait longer next time. */
  #slowDown(): void {
    const { appliedMs, pauseMs } = this.#machines
    const { first, longest, calm } = machinesMs
    const now = performance.now()
    const next = now - appliedMs > calm ? first : Math.min(2 * pauseMs, longest)
    this.#machines = { appliedMs: now, pauseMs: Math.max(next, this.o.settings.gather) }
  }

  async #putInForce(): Promise<void> {
    const { service, log } = this.o
    const { problem } = this.#applying
    const isUrgent = this.#isUrgent
    this.#isUrgent = false
    const { changed, againMs } = await this.#apply.run(problem !== '').catch(error => {
      this.applies.failed++
      this.#isUrgent ||= isUrgent
      throw error
    })
    if (againMs !== undefined) this.#applying.wake(againMs)
    if (changed > 0) this.applies.applied++
    if (changed > 0 && !isUrgent) this.#slowDown()
    if (changed > 0)
      log.info(`${service}: ${changed} ${changed === 1 ? 'file' : 'files'} changed and in force`)
    else if (problem !== '') log.info(`${service}: well again`)
    if (this.#down !== '') await this.#look()
  }
}
