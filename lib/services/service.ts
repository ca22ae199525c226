import { Background } from '../base/background.js'
import { singleFlight } from '../base/concurrency.js'
import type { Condition } from '../monitor/health.js'
import { Apply, type ApplyOptions } from './apply.js'
import { backendOf } from './backends.js'
import type { Captured } from './capture.js'
import type { Running, Verb } from './control.js'
import { ManagedServer } from './managed-server.js'

const retryMs = { first: 5_000, longest: 600_000 }
const probeMs = 30_000
const settleMs = 1_000
/** Pause between two applies of machines' changes. It doubles, until there were none for `calm`. */
const machinesMs = { first: 1_000, longest: 20_000, calm: 40_000 }
/** Zone serials of another controller arrive in parts. */
const serialsGatherMs = 200

export type ServiceOptions = Omit<ApplyOptions, 'settle' | 'unit'> & {
  readonly settle?: number
  /** The server, where two services share it. */
  readonly unit?: ManagedServer
  /** First pause before a retry (ms); it doubles. */
  readonly retry?: number
}

/** A server that svcd configures (rules 10.1): gathers changes, and retries what failed. */
export class Service {
  readonly #apply: Apply
  readonly #unit: ManagedServer
  /** Its problem is why the last apply failed. */
  readonly #applying: Background
  readonly #probing = new Background({ work: () => this.#probe(), everyMs: probeMs })
  /** Counts of applies that changed files, and of failed ones. */
  readonly applies = { applied: 0, failed: 0 }
  /** Why the server does not run, by the last look; '' while it does. */
  #down = ''
  /** Whether an admin waits for the next run. */
  #isUrgent = false
  /** The last apply without an admin's change (`performance` clock), and the pause that follows it. */
  #machines = { appliedMs: Number.NEGATIVE_INFINITY, pauseMs: 0 }

  constructor(private readonly o: ServiceOptions) {
    const { retry: first = retryMs.first, log, service } = o
    this.#unit = o.unit ?? new ManagedServer(o.settings)
    this.#apply = new Apply({ settle: settleMs, ...o, unit: this.#unit })
    this.#applying = new Background({
      work: () => this.#putInForce(),
      retryMs: { ...retryMs, first },
      onFailure: reason => log.error(`${service}: ${reason}`)
    })
  }

  /** Applies the objects in the background, `afterMs` later. */
  start(afterMs = 0): void {
    this.#applying.wake(afterMs)
    this.#probing.wake()
  }

  /** Schedules an apply. Machines' changes are not urgent: one could restart the server all the time. */
  changed(isUrgent = true): void {
    const { gather } = this.o.settings
    const { appliedMs, pauseMs } = this.#machines
    this.#isUrgent ||= isUrgent
    this.#applying.wake(isUrgent ? gather : Math.max(gather, appliedMs + pauseMs - performance.now()))
  }

  /** Schedules an apply after a change of leader or follower: the files differ by role. */
  roleChanged(): void {
    this.#applying.wake()
  }

  /** Applies the objects now; rejects where that fails. */
  applied(): Promise<void> {
    return this.#applying.run()
  }

  /** Schedules an apply for zone serials from the leader. Cheap. */
  serialsChanged(): void {
    this.#applying.wake(Math.min(serialsGatherMs, this.o.settings.gather))
  }

  /** Reports whether the last files are in force, and whether the server ran at the last look. */
  get condition(): Condition {
    const { ok = true, reason: ofZones = '' } = this.o.zones?.condition ?? {}
    const reasons = [...new Set([this.#applying.problem, this.#down])].filter(text => text !== '')
    return {
      ok: ok && reasons.length === 0,
      reason: [...reasons, ...(ofZones === '' ? [] : [ofZones])].join('; ')
    }
  }

  /** Resolves when all changes so far are in force, or have failed. */
  settled(): Promise<void> {
    return this.#applying.settled()
  }

  /** Returns JSON of the files that would be in force, each with its diff. Throws NotApplied. */
  readonly preview: () => Promise<string> = singleFlight(() => this.#apply.preview())

  /** Returns the files that would differ when rendered from these objects. Throws NotApplied. */
  differing(captured: Captured): Promise<{ path: string; diff: string }[]> {
    return this.#apply.differing(captured)
  }

  readonly #ask: () => Promise<Running> = singleFlight(() => this.#unit.state(this.#apply.signal))

  /** Asks whether the server runs. */
  async status(): Promise<Running> {
    const wasFree = this.#unit.users === 0
    const running = await this.#ask()
    // A server that is being restarted does not count as down.
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
      await this.#probe()
    }
  }

  /** Stops the current apply; the next daemon continues it. */
  async close(): Promise<void> {
    this.#apply.stop()
    await Promise.all([this.#applying.close(), this.#probing.close()])
  }

  async #probe(): Promise<void> {
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
    // The server may lack files that came while it was down.
    if (was !== '' && this.#down === '' && this.#applying.problem !== '') this.#applying.wake()
  }

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
    if (this.#down !== '') await this.#probe()
  }
}
