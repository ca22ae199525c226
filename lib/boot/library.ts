import { createHash } from 'node:crypto'
import { performance } from 'node:perf_hooks'
import type { Log } from '../base/log.js'
import { TemplateError, type Templates } from '../template/templates.js'
import { CachedText } from './render.js'

const TEMPLATE = 'install/templ_library.cfg'
/** Texts kept, the newest included: nodes may still hold scripts that name an older one. */
const MOST_TEXTS = 8
/** Lifetime of an older text, so that a removed password does not stay forever. */
const OLDER_MS = 3_600_000

interface Text {
  readonly bytes: Buffer
  /** When it is dropped; Infinity for the current text. */
  untilMs: number
}

interface LibraryOptions {
  readonly templates: Templates
  readonly log: Log
  /** Monotonic clock, in milliseconds. */
  readonly now?: () => number
}

/** The part of install scripts that all nodes share, cached by its sha256 (rules 4.27). */
export class Library {
  readonly #now: () => number
  readonly #current: CachedText
  /** Newest last. */
  readonly #texts = new Map<string, Text>()
  #text = ''
  #sha256 = ''
  #loggedReason = ''

  constructor(private readonly o: LibraryOptions) {
    this.#now = o.now ?? (() => performance.now())
    this.#current = new CachedText(this.#now)
  }

  /** Returns the sha256 of the text in hex; '' if it needs node variables: scripts then hold the text. */
  sha256(): string {
    return this.#current.text([], () => this.#make())
  }

  /** Returns the text with this sha256: the current one, or one handed out recently; else undefined. */
  text(sha256: string): Buffer | undefined {
    // Renders only once after the start, so that unknown digests cannot cause renderings.
    if (this.#texts.size === 0) this.sha256()
    const text = this.#texts.get(sha256)
    return text && text.untilMs > this.#now() ? text.bytes : undefined
  }

  #make(): string {
    const text = this.#render()
    const now = this.#now()
    for (const [sha256, { untilMs }] of this.#texts) if (untilMs <= now) this.#texts.delete(sha256)
    if (text === this.#text) return this.#sha256
    this.#text = text
    const former = this.#texts.get(this.#sha256)
    if (former) former.untilMs = now + OLDER_MS
    this.#sha256 = ''
    if (text === '') return ''
    const bytes = Buffer.from(text)
    this.#sha256 = createHash('sha256').update(bytes).digest('hex')
    this.#texts.delete(this.#sha256)
    this.#texts.set(this.#sha256, { bytes, untilMs: Number.POSITIVE_INFINITY })
    const [oldest] = this.#texts.keys()
    if (this.#texts.size > MOST_TEXTS && oldest !== undefined) this.#texts.delete(oldest)
    return this.#sha256
  }

  #render(): string {
    const { templates } = this.o
    if (!templates.identity(TEMPLATE)) return ''
    try {
      const asked = new Set<string>()
      const text = templates.render(TEMPLATE, recordingVariables(asked))
      const [name] = asked
      // Also for a test whether a variable is defined: without a node it never is.
      if (name !== undefined) return this.#notShared(`${TEMPLATE} or one of its parts asks for ${name}`)
      this.#loggedReason = ''
      return text
    } catch (error) {
      if (!(error instanceof TemplateError)) throw error
      return this.#notShared(error.message)
    }
  }

  /** Returns no text, and logs the reason once. */
  #notShared(why: string): '' {
    if (why !== this.#loggedReason) this.o.log.warn(`install scripts are not shared: template ${why}`)
    this.#loggedReason = why
    return ''
  }
}

/** Returns empty template data that adds each requested name to `asked`. */
const recordingVariables = (asked: Set<string>): Record<string, never> =>
  new Proxy({}, { getOwnPropertyDescriptor: (_, name) => void asked.add(String(name)) })
