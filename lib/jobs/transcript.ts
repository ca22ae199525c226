import { oneLine } from '../log.js'

/** How many lines are kept of a job's beginning, and as many of its end. */
export const LINES_KEPT = 1000
/** Characters of a line that are kept. */
const LONGEST_LINE = 4096

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
  readonly #mostBytes: number
  /** Bytes of JSON of the first and of the last lines. */
  readonly #bytes: { first: number; last: number }

  /** `mostBytes`: of JSON, of the first lines, and as many of the last ones. */
  constructor(
    { first, left_out, last }: TranscriptDoc = { first: [], left_out: 0, last: [] },
    mostBytes = Number.POSITIVE_INFINITY
  ) {
    this.#first = [...first]
    this.#leftOut = left_out
    this.#last = [...last]
    this.#mostBytes = mostBytes
    const bytesOf = (lines: readonly string[]) => lines.reduce((sum, line) => sum + this.#sizeOf(line), 0)
    this.#bytes = { first: bytesOf(first), last: bytesOf(last) }
  }

  /** The number of all lines. */
  get count(): number {
    return this.#first.length + this.#leftOut + this.#last.length
  }

  add(text: string): void {
    // A copy: a part of a string keeps the whole of it in memory.
    const line: string = JSON.parse(JSON.stringify(oneLine(text.slice(0, LONGEST_LINE))))
    const size = this.#sizeOf(line)
    const isAmongFirst = this.#first.length < LINES_KEPT && this.#first.length === this.count
    if (isAmongFirst && this.#bytes.first + size <= this.#mostBytes) {
      this.#first.push(line)
      this.#bytes.first += size
      return
    }
    this.#last.push(line)
    this.#bytes.last += size
    // The last line is kept whatever it is: it says how the job ended.
    while (this.#last.length > LINES_KEPT || (this.#bytes.last > this.#mostBytes && this.#last.length > 1)) {
      this.#bytes.last -= this.#sizeOf(this.#last.shift() ?? '')
      this.#leftOut++
    }
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

  /** What a line takes in a record; not reckoned where it does not matter. */
  #sizeOf(line: string): number {
    return this.#mostBytes === Number.POSITIVE_INFINITY ? 0 : Buffer.byteLength(JSON.stringify(line)) + 1
  }

  toJSON(): TranscriptDoc {
    return { first: this.#first, left_out: this.#leftOut, last: this.#last }
  }
}
