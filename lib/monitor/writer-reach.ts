import { CLOCK_WARN_MS, certificateAdvice, clocksApart, SLACK_MS } from '../ask-controller.js'
import { Background } from '../background.js'
import type { Log } from '../log.js'
import type { Controller } from '../store/medium.js'
import type { Condition } from './health.js'

/** A failure says something for so long: requests to hand on may be rare. */
const FRESH_MS = 60_000

interface WriterReachOptions {
  /** Where others reach this controller. */
  readonly own: string
  /** The other controllers, as they tell of themselves. */
  readonly others: () => readonly { readonly name: string; readonly url?: string }[]
  /** The URL of the one that writes; undefined where that is this one, or nobody is known to. */
  readonly writer: () => string | undefined
  readonly log: Log
  /** Milliseconds that only grow. */
  readonly ticks: () => number
}

interface Failure {
  readonly url: string
  readonly text: string
  readonly atMs: number
}

/**
 * Whether a standby reaches the controller that writes. Who asks is told nothing of that one: the log and health name it, and the way
 * out (rules 11.16).
 */
export class WriterReach {
  #last: Failure | undefined

  constructor(private readonly o: WriterReachOptions) {}

  /** Takes why a request could not be handed on to the controller at a URL, a code or words; '' when that one answers. */
  told(url: string, failure: string): void {
    const before = this.#failure
    if (failure === '') {
      this.#last = undefined
      if (before) this.o.log.info(`${this.#nameOf(url)}, which writes, can be asked again`)
      return
    }
    const text = `${this.#nameOf(url)}, which writes, cannot be asked (${failure}): ${this.#wayOut(url, failure)}`
    this.#last = { url, text, atMs: this.o.ticks() }
    if (before?.text !== text) this.o.log.warn(text)
  }

  /** Not well while the one that writes could not be asked a moment ago. */
  get condition(): Condition | undefined {
    const failure = this.#failure
    return failure && { ok: false, reason: failure.text }
  }

  get #failure(): Failure | undefined {
    const { writer, ticks } = this.o
    const last = this.#last
    return last && last.url === writer() && ticks() - last.atMs < FRESH_MS ? last : undefined
  }

  #namesAt(url: string): string[] {
    return this.o.others().flatMap(other => (other.url === url ? [other.name] : []))
  }

  #nameOf(url: string): string {
    const names = this.#namesAt(url)
    return `${names.length > 0 ? `controller ${names.join(' or ')}` : 'the controller'} (${url})`
  }

  #wayOut(url: string, failure: string): string {
    const isOwn = url === this.o.own
    const there = this.#namesAt(url).length
    if (isOwn ? there > 0 : there > 1)
      return `the URL is that of ${isOwn ? 'this' : 'another'} controller too; give each controller a URL of its own, [store] url`
    // Its right to write outlives an svcd that was killed, for [store] ttl.
    if (isOwn)
      return 'this controller wrote before it was started; another one, or this one, writes in a moment'
    return (
      certificateAdvice(failure) ??
      'look whether svcd runs there, and whether its [store] url or [http] url leads to it'
    )
  }
}

const LOOK_MS = 5000
/** So many differences are named at once; an admin begins with one. */
const MOST_NAMED = 10

/** Digests of what has to be alike, by its words for an admin. */
type Digests = Readonly<Record<string, string>>

interface SameIniOptions {
  /** The name of this controller. */
  readonly name: string
  /** Those of this controller. */
  readonly own: Digests
  /** The other controllers that are there; what one does not tell is not compared. */
  readonly others: () => readonly Pick<Controller, 'name' | 'digests' | 'aheadMs'>[]
  readonly log: Log
}

/**
 * Whether the ini of each other controller has the same where it has to, and its clock goes as this one's does: the log and health name
 * what differs, and where (rules 11.15).
 */
export class SameIni {
  /** Each difference that was there at the last look. */
  #told: ReadonlySet<string> = new Set()
  readonly #looking: Background

  constructor(private readonly options: SameIniOptions) {
    this.#looking = new Background({ work: async () => this.look(), everyMs: LOOK_MS })
    this.#looking.wake()
  }

  /** What this controller tells the others. */
  get own(): Digests {
    return this.options.own
  }

  /** Logs each difference that was not there at the last look, or was another one. */
  look(): void {
    const found = new Map(this.#differences().map(({ id, text }) => [id, text]))
    for (const [id, text] of found) if (!this.#told.has(id)) this.options.log.warn(text)
    this.#told = new Set(found.keys())
  }

  /** Not well while another controller that is there has something else. A clock is told before it differs by too much. */
  get condition(): Condition | undefined {
    const found = this.#differences()
    const bad = found.filter(({ isWarning }) => !isWarning)
    // Who was started again is listed twice for a moment.
    const texts = [...new Set((bad.length > 0 ? bad : found).map(({ text }) => text))]
    if (texts.length === 0) return undefined
    const more = texts.length > MOST_NAMED ? `; and ${texts.length - MOST_NAMED} more` : ''
    return { ok: bad.length === 0, reason: texts.slice(0, MOST_NAMED).join('; ') + more }
  }

  async close(): Promise<void> {
    await this.#looking.close()
  }

  /** One for each controller and thing that differs; `id` is another one when its digest changes, or its clock fails. */
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
