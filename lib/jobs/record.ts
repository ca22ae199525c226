import { isObject, type JsonValue } from '../base/json.js'
import { oneLine } from '../base/log.js'

/** Kept lines of a job's beginning, and of its end. */
const LINES_KEPT = 1000

/** A transcript as it is stored. */
interface TranscriptDoc {
  readonly first: readonly string[]
  /** Number of lines that were left out between the two. */
  readonly left_out: number
  readonly last: readonly string[]
}

/** The output of a job: its first and last lines, and the number of lines left out between them. */
export class Transcript {
  readonly #first: string[]
  #leftOut: number
  readonly #last: string[]
  /** Bytes of JSON of the first, and of the last lines. */
  readonly #bytes: { first: number; last: number }

  /** `mostBytes`: JSON of the first lines, and as much of the last ones. */
  constructor(
    { first, left_out, last }: TranscriptDoc = { first: [], left_out: 0, last: [] },
    private readonly mostBytes = Number.POSITIVE_INFINITY
  ) {
    this.#first = [...first]
    this.#leftOut = left_out
    this.#last = [...last]
    const bytesOf = (lines: readonly string[]) => lines.reduce((sum, line) => sum + this.#sizeOf(line), 0)
    this.#bytes = { first: bytesOf(first), last: bytesOf(last) }
  }

  /** The number of all lines. */
  get count(): number {
    return this.#first.length + this.#leftOut + this.#last.length
  }

  add(text: string): void {
    // A copy: a substring keeps the whole string in memory.
    const line: string = JSON.parse(JSON.stringify(oneLine(text)))
    const size = this.#sizeOf(line)
    const isAmongFirst = this.#first.length < LINES_KEPT && this.#first.length === this.count
    if (isAmongFirst && this.#bytes.first + size <= this.mostBytes) {
      this.#first.push(line)
      this.#bytes.first += size
      return
    }
    this.#last.push(line)
    this.#bytes.last += size
    // The last line always stays: it says how the job ended.
    while (this.#last.length > LINES_KEPT || (this.#bytes.last > this.mostBytes && this.#last.length > 1)) {
      this.#bytes.last -= this.#sizeOf(this.#last.shift() ?? '')
      this.#leftOut++
    }
  }

  /** Returns the lines from number `from` (0 is the first) on; one more line tells how many were left out. */
  since(from: number): string[] {
    const lastBegins = this.#first.length + this.#leftOut
    const missing = Math.min(this.#leftOut, Math.max(0, lastBegins - from))
    return [
      ...this.#first.slice(from),
      ...(missing > 0 ? [`… ${missing} lines left out …`] : []),
      ...this.#last.slice(Math.max(0, from - lastBegins))
    ]
  }

  /** Returns the bytes of a line in a record; 0 where there is no bound. */
  #sizeOf(line: string): number {
    return this.mostBytes === Number.POSITIVE_INFINITY ? 0 : Buffer.byteLength(JSON.stringify(line)) + 1
  }

  toJSON(): TranscriptDoc {
    return { first: this.#first, left_out: this.#leftOut, last: this.#last }
  }
}

export type JobState = 'queued' | 'running' | 'done' | 'failed'

/** A job as a list shows it; times in ms. */
export interface JobSummary {
  readonly id: string
  readonly kind: string
  readonly object: string
  readonly by: string
  /** It changes nothing. */
  readonly reads?: true
  /** The controller that runs it, among several. */
  readonly controller?: string
  readonly state: JobState
  /** 0 to 1. */
  readonly progress: number
  readonly queued: number
  readonly started?: number
  readonly ended?: number
  /** `queued`, `running`, `done`, or `failed: ` and why. */
  readonly message: string
}

/** A whole record; lines name what did not fit (rules 2.9). */
export interface JobRecord extends JobSummary {
  readonly lines: readonly string[]
  readonly results: Readonly<Record<string, JsonValue>>
}

/** The long parts of a record, in memory only while needed. */
export interface Body {
  readonly transcript: Transcript
  readonly results: Map<string, JsonValue>
}

/** In place of a number of lines: the user has seen the end. */
export const ALL = 'all'
/** Number of delivered lines by user, and of delivered results by `<user> results`. */
export type Delivered = Map<string, number | typeof ALL>

/** Whether the job has ended. */
export const isFinished = ({ state }: { readonly state: JobState }) => state === 'done' || state === 'failed'

/** Returns the text of a record: one line, which has no more bytes than its parts were counted with. */
export const encode = (summary: JobSummary, body: Body, delivered: Delivered) =>
  JSON.stringify({
    ...summary,
    delivered: Object.fromEntries(delivered),
    // Pairs: an object would put keys that are numbers first.
    results: [...body.results],
    lines: body.transcript
  })

/** A whole record with its deliveries. */
export interface Decoded {
  readonly summary: JobSummary
  readonly body: Body
  readonly delivered: Delivered
}

/** Decodes a stored record; `linesBytes` as in Transcript. Throws Error that says what is wrong with it. */
export function decode(id: string, doc: unknown, linesBytes?: number): Decoded {
  if (!isObject(doc)) throw new Error('not a record')
  const wrong = Object.entries(rules).find(([key, is]) => !is(doc[key]))
  if (wrong) throw new Error(`field "${wrong[0]}" is missing or wrong`)
  if (doc.id !== id) throw new Error('field "id" is not the name of the record')
  const { delivered, results, lines, ...summary } = doc as unknown as JobSummary & {
    readonly delivered: Record<string, number | typeof ALL>
    /** An object in the records of earlier versions. */
    readonly results: readonly [string, JsonValue][] | Record<string, JsonValue>
    readonly lines: TranscriptDoc
  }
  if (isFinished(summary) && summary.ended === undefined) throw new Error('field "ended" is missing or wrong')
  const body = {
    transcript: new Transcript(lines, linesBytes),
    results: new Map<string, JsonValue>(Array.isArray(results) ? results : Object.entries(results))
  }
  return { summary, body, delivered: new Map(Object.entries(delivered)) }
}

type Is = (value: unknown) => boolean
const isText: Is = value => typeof value === 'string'
const isTime: Is = value => Number.isFinite(value)
const isCount: Is = value => Number.isSafeInteger(value) && (value as number) >= 0
const isPair: Is = value => Array.isArray(value) && value.length === 2 && isText(value[0])
const isLines: Is = value => Array.isArray(value) && value.every(isText)
const maybe =
  (is: Is): Is =>
  value =>
    value === undefined || is(value)

const rules: Readonly<Record<string, Is>> = {
  id: isText,
  kind: isText,
  object: isText,
  by: isText,
  reads: maybe(value => value === true),
  controller: maybe(isText),
  state: value => ['queued', 'running', 'done', 'failed'].includes(value as string),
  progress: isTime,
  queued: isTime,
  started: maybe(isTime),
  ended: maybe(isTime),
  message: isText,
  delivered: value => isObject(value) && Object.values(value).every(count => count === ALL || isCount(count)),
  results: value => isObject(value) || (Array.isArray(value) && value.every(isPair)),
  lines: value => isObject(value) && isLines(value.first) && isCount(value.left_out) && isLines(value.last)
}
