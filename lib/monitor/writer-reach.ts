import { certificateAdvice } from '../ask-controller.js'
import type { Log } from '../log.js'
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
  readonly #o: WriterReachOptions
  #last: Failure | undefined

  constructor(options: WriterReachOptions) {
    this.#o = options
  }

  /** Takes why a request could not be handed on to the controller at a URL, a code or words; '' when that one answers. */
  told(url: string, failure: string): void {
    const before = this.#failure
    if (failure === '') {
      this.#last = undefined
      if (before) this.#o.log.info(`${this.#nameOf(url)}, which writes, can be asked again`)
      return
    }
    const text = `${this.#nameOf(url)}, which writes, cannot be asked (${failure}): ${this.#wayOut(url, failure)}`
    this.#last = { url, text, atMs: this.#o.ticks() }
    if (before?.text !== text) this.#o.log.warn(text)
  }

  /** Not well while the one that writes could not be asked a moment ago. */
  get condition(): Condition | undefined {
    const failure = this.#failure
    return failure && { ok: false, reason: failure.text }
  }

  get #failure(): Failure | undefined {
    const { writer, ticks } = this.#o
    const last = this.#last
    return last && last.url === writer() && ticks() - last.atMs < FRESH_MS ? last : undefined
  }

  #namesAt(url: string): string[] {
    return this.#o.others().flatMap(other => (other.url === url ? [other.name] : []))
  }

  #nameOf(url: string): string {
    const names = this.#namesAt(url)
    return `${names.length > 0 ? `controller ${names.join(' or ')}` : 'the controller'} (${url})`
  }

  #wayOut(url: string, failure: string): string {
    const isOwn = url === this.#o.own
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
