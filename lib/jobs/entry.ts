import { unavailable } from '../base/errors.js'
import type { JsonValue } from '../base/json.js'
import { type Log, oneLine } from '../base/log.js'
import {
  ALL,
  type Body,
  type Decoded,
  type Delivered,
  isFinished,
  type JobRecord,
  type JobState,
  type JobSummary
} from './record.js'
import { type RecordDisk, RecordFile } from './record-file.js'

/** Returns the message of a failure as one line. */
export const reasonOf = (error: unknown) => oneLine(error instanceof Error ? error.message : String(error))

/** Bytes of JSON of all results of a record. */
export const RESULTS_KEPT = 1024 * 1024
/** Bytes of JSON around the key and the value of a result: brackets and commas. */
const AROUND_RESULT = 4

/** The answer of `GET /config/status/{id}` for one user (rules 2.9). */
export interface Poll {
  /** The undelivered lines for this user, joined by `;;`. */
  readonly message: string
  readonly status: 200 | 500
  readonly state: JobState
  readonly progress: number
}

/** The answer of `GET /control/status/{id}` for one user: the undelivered results. */
export interface ResultsPoll {
  readonly results: readonly (readonly [key: string, value: JsonValue])[]
  readonly state: JobState
  readonly progress: number
}

/** Where records are kept. */
export interface RecordPlace {
  readonly disk: RecordDisk
  /** Returns the name of a record's file, for the disk and messages. */
  file(id: string): string
  /** Reads a record; throws Error for one that cannot be read. */
  read(id: string): Promise<Decoded>
  /** Returns the text of a record's file. */
  encode(summary: JobSummary, body: Body, delivered: Delivered): string
  /** As in RecordFile. */
  flow?(summary: JobSummary): number
}

interface EntryOptions {
  /** Called after each change of the summary; it must not throw. */
  readonly told?: (summary: JobSummary) => void
  /** Called after each write of the file, with its bytes; it must not throw. */
  readonly wrote?: (summary: JobSummary, bytes: number) => void
  readonly place: RecordPlace
  readonly log: Log
}

/**
 * The record of one job, in memory and in its file. Of a finished job only the summary stays in memory; the
 * rest is read from the file on demand.
 */
export class Entry {
  readonly #place: RecordPlace
  readonly #told: ((summary: JobSummary) => void) | undefined
  /** Its file. */
  readonly file: RecordFile
  readonly #delivered: Delivered
  readonly #resultSizes = new Map<string, number>()
  #resultSize = 0
  #summary: JobSummary
  #body: Body | undefined
  /** Readers of the body. */
  #readers = 0

  /** `bytes`: the size of its file, if it has one. */
  constructor(stored: Decoded, { place, log, told, wrote }: EntryOptions, bytes = 0) {
    this.#told = told
    this.#place = place
    this.#summary = stored.summary
    this.#delivered = stored.delivered
    this.#body = stored.body
    this.file = new RecordFile({
      file: place.file(stored.summary.id),
      text: () => place.encode(this.#summary, this.#known(), this.#delivered),
      bytes,
      wrote: wrote && (written => wrote(this.#summary, written)),
      onWritten: () => this.release(),
      ...{ disk: place.disk, flow: place.flow?.(stored.summary), log }
    })
  }

  get summary(): JobSummary {
    return this.#summary
  }

  get finished(): boolean {
    return isFinished(this.#summary)
  }

  /** Adds a line. This method and the next ones do nothing once the job has finished. */
  line(text: string): void {
    if (this.finished) return
    this.#known().transcript.add(text)
    this.file.soon()
  }

  progress(fraction: number): void {
    if (this.finished || Number.isNaN(fraction)) return
    const progress = Math.round(Math.min(1, Math.max(0, fraction)) * 1000) / 1000
    if (progress === this.#summary.progress) return
    this.#change({ progress })
    this.file.soon()
  }

  /** Throws a TypeError for what is not JSON. */
  result(key: string, value: JsonValue): void {
    if (this.finished) return
    const { results } = this.#known()
    this.#resultSize -= this.#resultSizes.get(key) ?? 0
    const around = Buffer.byteLength(JSON.stringify(key)) + AROUND_RESULT
    const { kept, size, leftOut } = fit(value, RESULTS_KEPT - this.#resultSize - around)
    if (kept === undefined) results.delete(key)
    else results.set(key, kept)
    const taken = kept === undefined ? 0 : size + around
    // A result that is not kept leaves no key: a job may send any number.
    if (kept === undefined) this.#resultSizes.delete(key)
    else this.#resultSizes.set(key, taken)
    this.#resultSize += taken
    if (leftOut > 0) this.line(`result ${key}: too large, ${leftOut} left out`)
    this.file.soon()
  }

  begin(now: number): void {
    this.#change({ state: 'running', started: now, message: 'running' })
  }

  /** Ends the job: with success if there is no reason. */
  end(now: number, reason?: string): void {
    const failed = reason !== undefined
    const message = failed ? oneLine(`failed: ${reason}`) : 'done'
    if (failed) this.line(message)
    else this.progress(1)
    this.#change({ state: failed ? 'failed' : 'done', ended: now, message })
  }

  #change(changed: Partial<JobSummary>): void {
    this.#summary = { ...this.#summary, ...changed }
    this.#told?.(this.#summary)
  }

  /** Throws 503 when the file of a finished job cannot be read. */
  record(): Promise<JobRecord> {
    return this.#read(async ({ transcript, results }) => ({
      ...this.#summary,
      lines: transcript.since(0),
      results: Object.fromEntries(results)
    }))
  }

  /** Undefined when the user has seen the end. Throws as `record`. */
  poll(user: string): Promise<Poll | undefined> {
    return this.#deliver(
      user,
      ({ transcript }) => transcript.count,
      ({ transcript }, from) => {
        const message = transcript.since(from).map(unseparated).join(';;')
        const { state, progress } = this.#summary
        return { message, status: state === 'failed' ? 500 : 200, state, progress }
      }
    )
  }

  /** The same for the results, in their order; lines and results are delivered apart. */
  pollResults(user: string): Promise<ResultsPoll | undefined> {
    return this.#deliver(
      // No name of a user has a blank.
      `${user} results`,
      ({ results }) => results.size,
      ({ results }, from) => {
        const { state, progress } = this.#summary
        return { results: [...results].slice(from), state, progress }
      }
    )
  }

  /** Returns what `give` makes of the undelivered part of the body for `who`. */
  async #deliver<T>(
    who: string,
    count: (body: Body) => number,
    give: (body: Body, from: number) => T
  ): Promise<T | undefined> {
    if (this.#delivered.get(who) === ALL) return undefined
    return this.#read(async body => {
      // The same user may have got the end while the file was read.
      const from = this.#delivered.get(who) ?? 0
      if (from === ALL) return undefined
      const given = give(body, from)
      if (this.finished) {
        this.#delivered.set(who, ALL)
        // If the disk refuses, the end is delivered again after a restart.
        await this.file.now().catch(() => {})
      } else if (from !== count(body)) {
        this.#delivered.set(who, count(body))
        this.file.soon()
      }
      return given
    })
  }

  /** Drops the body from memory once the file has it and nobody reads it. */
  release(): void {
    if (this.finished && this.#readers === 0 && !this.file.behind) this.#body = undefined
  }

  #known(): Body {
    if (!this.#body) throw new TypeError(`the body of request ${this.#summary.id} is not in memory`)
    return this.#body
  }

  async #read<T>(use: (body: Body) => Promise<T>): Promise<T> {
    this.#readers++
    try {
      this.#body ??= await this.#load()
      return await use(this.#body)
    } finally {
      this.#readers--
      this.release()
    }
  }

  async #load(): Promise<Body> {
    const { id } = this.#summary
    try {
      return (await this.#place.read(id)).body
    } catch (error) {
      throw unavailable(`the record of request ${id} cannot be read: ${reasonOf(error)}`)
    }
  }
}

/** Returns the line without `;;`, also at its join with the next line. */
const unseparated = (line: string) => line.replace(/;(?=;|$)/g, '; ')

/** Returns as much of a value as fits: the first items of a list, all or nothing of anything else. */
function fit(value: JsonValue, room: number): { kept?: JsonValue; size: number; leftOut: number } {
  const text = JSON.stringify(value)
  if (text === undefined) throw new TypeError('a result must be JSON')
  // A copy: the caller may change its own.
  const whole = Buffer.byteLength(text)
  if (whole <= room) return { kept: JSON.parse(text), size: whole, leftOut: 0 }
  if (!Array.isArray(value) || room < 2) return { size: 0, leftOut: Array.isArray(value) ? value.length : 1 }
  const kept: JsonValue[] = []
  let size = 2
  for (const item of value) {
    const length = Buffer.byteLength(JSON.stringify(item)) + 1
    if (size + length > room) break
    size += length
    kept.push(item)
  }
  return { kept: JSON.parse(JSON.stringify(kept)), size, leftOut: value.length - kept.length }
}
