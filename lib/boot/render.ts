import { performance } from 'node:perf_hooks'
import { unavailable } from '../base/errors.js'
import { TemplateError } from '../template/errors.js'
import type { Templates } from '../template/templates.js'

/** Renders a template for an answer. Throws 503 with the position of a template error. */
export function render(templates: Templates, name: string, data: object): string {
  try {
    return templates.render(name, data as Readonly<Record<string, unknown>>)
  } catch (error) {
    throw error instanceof TemplateError ? unavailable(`template ${error.message}`, 'template-failed') : error
  }
}

const KEPT_MS = 1000

/** Caches a text while its inputs are the same, for a second at most: includes may change (rules 4.11). */
export class CachedText {
  #from: readonly unknown[] = []
  #text = ''
  #untilMs = 0

  /** `now`: monotonic milliseconds. */
  constructor(private readonly now = () => performance.now()) {}

  /** Returns the text made from these values, compared by identity. Throws as `make` does. */
  text(from: readonly unknown[], make: () => string): string {
    const now = this.now()
    const same = from.length === this.#from.length && from.every((value, i) => value === this.#from[i])
    if (same && now < this.#untilMs) return this.#text
    this.#text = make()
    this.#from = from
    this.#untilMs = now + KEPT_MS
    return this.#text
  }
}
