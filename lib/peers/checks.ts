import { Background } from '../base/background.js'
import { firstOf, type Log } from '../base/log.js'
import { CLOCK_WARN_MS, certificateAdvice, clocksApart, SLACK_MS } from '../client/controllers.js'
import type { Condition } from '../monitor/health.js'
import type { Controller } from '../store/medium.js'

/** How long a failure counts: forwarded requests may be rare. */
const FRESH_MS = 60_000

interface LeaderReachOptions {
  /** URL of this controller. */
  readonly own: string
  /** The other controllers, as they announce themselves. */
  readonly others: () => readonly { readonly name: string; readonly url?: string }[]
  /** URL of the leader; undefined if this controller leads, or if none is known. */
  readonly leader: () => string | undefined
  readonly log: Log
  /** Monotonic clock, in milliseconds. */
  readonly ticks: () => number
}

interface Failure {
  readonly url: string
  readonly text: string
  readonly atMs: number
}

/** Reports a leader that this follower cannot reach, in the log and health, not to clients (rules 11.16). */
export class LeaderReach {
  #last: Failure | undefined

  constructor(private readonly o: LeaderReachOptions) {}

  /**
   * Records why a request could not be forwarded to the controller at `url`, a code or words; '' on success.
   */
  recordOutcome(url: string, failure: string): void {
    const before = this.#failure
    if (failure === '') {
      this.#last = undefined
      if (before) this.o.log.info(`${this.#nameOf(url)}, which writes, can be asked again`)
      return
    }
    const text =
      `${this.#nameOf(url)}, which writes, ` + `cannot be asked (${failure}): ${this.#remedy(url, failure)}`
    this.#last = { url, text, atMs: this.o.ticks() }
    if (before?.text !== text) this.o.log.warn(text)
  }

  /** Failed while the leader was unreachable a moment ago. */
  get condition(): Condition | undefined {
    const failure = this.#failure
    return failure && { ok: false, reason: failure.text }
  }

  get #failure(): Failure | undefined {
    const { leader, ticks } = this.o
    const last = this.#last
    return last && last.url === leader() && ticks() - last.atMs < FRESH_MS ? last : undefined
  }

  #namesAt(url: string): string[] {
    return this.o.others().flatMap(other => (other.url === url ? [other.name] : []))
  }

  #nameOf(url: string): string {
    const names = this.#namesAt(url)
    return `${names.length > 0 ? `controller ${names.join(' or ')}` : 'the controller'} (${url})`
  }

  #remedy(url: string, failure: string): string {
    const isOwn = url === this.o.own
    const there = this.#namesAt(url).length
    if (isOwn ? there > 0 : there > 1)
      return (
        `the URL is that of ${isOwn ? 'this' : 'another'} controller too; ` +
        'give each controller a URL of its own, [store] url'
      )
    // The lease outlives a killed svcd for [store] ttl.
    if (isOwn)
      return 'this controller wrote before it was started; another one, or this one, writes in a moment'
    return (
      certificateAdvice(failure) ??
      'look whether svcd runs there, and whether its [store] url or [http] url leads to it'
    )
  }
}

const LOOK_MS = 5000
/** Differences named at once. */
const MOST_NAMED = 10

interface ControllerDriftOptions {
  /** Name of this controller. */
  readonly name: string
  /** Digests of its settings that must be equal everywhere, by their names for an admin. */
  readonly own: Readonly<Record<string, string>>
  /** The other controllers that are up; digests that are not announced are not compared. */
  readonly others: () => readonly Pick<Controller, 'name' | 'digests' | 'aheadMs'>[]
  readonly log: Log
}

/** Checks that settings and clocks agree on all controllers, and logs differences (rules 11.15). */
export class ControllerDrift {
  /** Differences at the last check. */
  #logged: ReadonlySet<string> = new Set()
  readonly #looking: Background

  constructor(private readonly options: ControllerDriftOptions) {
    this.#looking = new Background({ work: async () => this.check(), everyMs: LOOK_MS })
    this.#looking.wake()
  }

  /** Logs each difference that is new since the last check. */
  check(): void {
    const found = new Map(this.#differences().map(({ id, text }) => [id, text]))
    for (const [id, text] of found) if (!this.#logged.has(id)) this.options.log.warn(text)
    this.#logged = new Set(found.keys())
  }

  /** Failed while another controller differs. A clock is reported before its offset becomes a failure. */
  get condition(): Condition | undefined {
    const found = this.#differences()
    const bad = found.filter(({ isWarning }) => !isWarning)
    // A restarted controller is listed twice for a moment.
    const texts = [...new Set((bad.length > 0 ? bad : found).map(({ text }) => text))]
    if (texts.length === 0) return undefined
    return { ok: bad.length === 0, reason: firstOf(texts, MOST_NAMED, '; ') }
  }

  async close(): Promise<void> {
    await this.#looking.close()
  }

  /** Returns the differences; `id` changes with the other digest, or if a clock warning becomes a failure. */
  #differences(): { readonly id: string; readonly text: string; readonly isWarning?: boolean }[] {
    return this.options.others().flatMap(({ name, digests = {}, aheadMs = 0 }) => {
      const differ = Object.entries(this.options.own).flatMap(([words, digest]) => {
        const other = Object.hasOwn(digests, words) ? digests[words] : undefined
        if (other === undefined || other === digest) return []
        const text = `${words} of this controller is not that of controller ${name}: give both the same`
        return [{ id: JSON.stringify([name, words, other]), text }]
      })
      if (Math.abs(aheadMs) <= CLOCK_WARN_MS) return differ
      const isWarning = Math.abs(aheadMs) <= SLACK_MS
      const text = clocksApart(`controller ${this.options.name}`, `controller ${name}`, aheadMs)
      return [...differ, { id: JSON.stringify([name, 'clock', isWarning]), text, isWarning }]
    })
  }
}
