import { oneLine } from '../log.js'

/** How many lines are kept of a job's beginning, and as many of its end. */
export const LINES_KEPT = 1000

/** A transcript as it is stored. */
export interface TranscriptDoc {
  readonly first: readonly string[]
  /** Lines between the two that were not kept. */
  readonly left_out: number
  readonly last: readonly string[]
}

/** What a job said: its first and last lines, and how many were left out between them. */
export class Transcript {
  readonly #first: string[]
  #leftOut: number
  readonly #last: string[]

  constructor({ first, left_out, last }: TranscriptDoc = { first: [], left_out: 0, last: [] }) {
    this.#first = [...first]
    this.#leftOut = left_out
    this.#last = [...last]
  }

  /** The number of all lines. */
  get count(): number {
    return this.#first.length + this.#leftOut + this.#last.length
  }

  add(text: string): void {
    const line = oneLine(text)
    if (this.#first.length < LINES_KEPT) {
      this.#first.push(line)
      return
    }
    this.#last.push(line)
    if (this.#last.length <= LINES_KEPT) return
    this.#last.shift()
    this.#leftOut++
  }

  /** The lines from number `from` (0 is the first) on. A line of its own tells how many of them were not kept. */
  since(from: number): string[] {
    const lastBegins = this.#first.length + this.#leftOut
    const missing = Math.min(this.#leftOut, Math.max(0, lastBegins - from))
    return [
      ...this.#first.slice(from),
      ...(missing > 0 ? [`… ${missing} lines left out …`] : []),
      ...this.#last.slice(Math.max(0, from - lastBegins))
    ]
  }

  toJSON(): TranscriptDoc {
    return { first: this.#first, left_out: this.#leftOut, last: this.#last }
  }
}
