import { createHash } from 'node:crypto'
import { performance } from 'node:perf_hooks'
import type { Log } from '../log.js'
import { TemplateError, type Templates } from '../template/templates.js'

const TEMPLATE = 'install/templ_library.cfg'
/** A template that is included may have changed after so long (rules 4.11). */
const KEPT_MS = 1000
/** So many texts are kept, the newest included: nodes whose script names an older one are still on their way. */
const MOST_TEXTS = 8

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
  readonly #o: LibraryOptions
  readonly #now: () => number
  /** The newest is the last. */
  readonly #texts = new Map<string, Buffer>()
  #text = ''
  #sha256 = ''
  #untilMs = 0
  #told = ''

  constructor(options: LibraryOptions) {
    this.#o = options
    this.#now = options.now ?? (() => performance.now())
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

  /** The text with this sha256: the present one, or one of those that were handed out before; undefined for any other. */
  text(sha256: string): Buffer | undefined {
    this.sha256()
    return this.#texts.get(sha256)
  }

  #make(): void {
    const text = this.#render()
    if (text === this.#text) return
    this.#text = text
    this.#sha256 = ''
    if (text === '') return
    const bytes = Buffer.from(text)
    this.#sha256 = createHash('sha256').update(bytes).digest('hex')
    this.#texts.delete(this.#sha256)
    this.#texts.set(this.#sha256, bytes)
    const [oldest] = this.#texts.keys()
    if (this.#texts.size > MOST_TEXTS && oldest !== undefined) this.#texts.delete(oldest)
  }

  #render(): string {
    const { templates, log } = this.#o
    if (!templates.identity(TEMPLATE)) return ''
    try {
      const text = templates.render(TEMPLATE, {})
      this.#told = ''
      return text
    } catch (error) {
      if (!(error instanceof TemplateError)) throw error
      if (error.message !== this.#told)
        log.warn(`each install script holds what they could share: template ${error.message}`)
      this.#told = error.message
      return ''
    }
  }
}
