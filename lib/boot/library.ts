import { createHash } from 'node:crypto'
import { performance } from 'node:perf_hooks'
import type { Log } from '../log.js'
import { TemplateError, type Templates } from '../template/templates.js'

const TEMPLATE = 'install/templ_library.cfg'
/** A template that is included may have changed after so long (rules 4.11). */
const KEPT_MS = 1000
/** So many texts are kept, the newest included: nodes whose script names an older one are still on their way. */
const MOST_TEXTS = 8
/** An older one is kept for so long: who takes a password out of a part need not wait for more changes. */
const OLDER_MS = 3_600_000

interface Text {
  readonly bytes: Buffer
  /** When it is dropped; Infinity for the present one. */
  untilMs: number
}

export interface LibraryOptions {
  readonly templates: Templates
  readonly log: Log
  /** Milliseconds on a clock that never goes back. */
  readonly now?: () => number
}

/**
 * The part of the install script that is the same for every node: a text that is named by its sha256, so that machines and
 * caches can share it (rules 4.27).
 */
export class Library {
  readonly #now: () => number
  /** The newest is the last. */
  readonly #texts = new Map<string, Text>()
  #text = ''
  #sha256 = ''
  #untilMs = 0
  #told = ''

  constructor(private readonly o: LibraryOptions) {
    this.#now = o.now ?? (() => performance.now())
  }

  /**
   * The sha256 of the present text, in lower-case hex; '' where there is none, because the template is not there, or needs
   * what only a node has. Install scripts then hold its parts themselves.
   */
  sha256(): string {
    const now = this.#now()
    if (now >= this.#untilMs) {
      this.#make()
      this.#untilMs = now + KEPT_MS
    }
    return this.#sha256
  }

  /** The text with this sha256: the present one, or one that was handed out lately; undefined for any other. */
  text(sha256: string): Buffer | undefined {
    // Who asks for what is not here does not make it: that is for scripts to do.
    if (this.#texts.size === 0) this.sha256()
    const text = this.#texts.get(sha256)
    return text && text.untilMs > this.#now() ? text.bytes : undefined
  }

  #make(): void {
    const text = this.#render()
    const now = this.#now()
    for (const [sha256, { untilMs }] of this.#texts) if (untilMs <= now) this.#texts.delete(sha256)
    if (text === this.#text) return
    this.#text = text
    const former = this.#texts.get(this.#sha256)
    if (former) former.untilMs = now + OLDER_MS
    this.#sha256 = ''
    if (text === '') return
    const bytes = Buffer.from(text)
    this.#sha256 = createHash('sha256').update(bytes).digest('hex')
    this.#texts.delete(this.#sha256)
    this.#texts.set(this.#sha256, { bytes, untilMs: Number.POSITIVE_INFINITY })
    const [oldest] = this.#texts.keys()
    if (this.#texts.size > MOST_TEXTS && oldest !== undefined) this.#texts.delete(oldest)
  }

  #render(): string {
    const { templates } = this.o
    if (!templates.identity(TEMPLATE)) return ''
    try {
      const asked = new Set<string>()
      const text = templates.render(TEMPLATE, noting(asked))
      const [name] = asked
      // Also where it asks whether there is one: without a node there never is.
      if (name !== undefined) return this.#notShared(`${TEMPLATE} or one of its parts asks for ${name}`)
      this.#told = ''
      return text
    } catch (error) {
      if (!(error instanceof TemplateError)) throw error
      return this.#notShared(error.message)
    }
  }

  /** No text; says why, once. */
  #notShared(why: string): '' {
    if (why !== this.#told)
      this.o.log.warn(`each install script holds what they could share: template ${why}`)
    this.#told = why
    return ''
  }
}

/** No variables; the names that are asked for are added to `asked`. */
const noting = (asked: Set<string>): Record<string, never> =>
  new Proxy(
    {},
    {
      getOwnPropertyDescriptor(_, name) {
        asked.add(String(name))
        return undefined
      }
    }
  )
