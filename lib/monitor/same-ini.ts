import { CLOCK_WARN_MS, clocksApart, SLACK_MS } from '../ask-controller.js'
import { Background } from '../background.js'
import type { Log } from '../log.js'
import type { Controller } from '../store/medium.js'
import type { Condition } from './health.js'

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
