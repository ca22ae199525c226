import { Background } from '../base/background.js'
import { unavailable } from '../base/errors.js'
import type { JsonValue } from '../base/json.js'
import { type Log, oneLine } from '../base/log.js'
import {
  ALL,
  type Body,
  type Decoded,
  type Delivered,
  encode,
  isFinished,
  type JobRecord,
  type JobSummary
} from './record.js'

/** Returns the message of a failure as one line. */
export const reasonOf = (error: unknown) => oneLine(error instanceof Error ? error.message : String(error))

/** Bytes of JSON of all results of a record. */
export const RESULTS_KEPT = 1024 * 1024
/** Bytes of JSON around the key and the value of a result: brackets and commas. */
const AROUND_RESULT = 4

/** The answer of `GET /config/status/{id}` for one user (rules 2.9). */
export interface Poll extends Pick<JobSummary, 'state' | 'progress'> {
  /** The undelivered lines for this user, joined by `;;`. */
  readonly message: string
  readonly status: 200 | 500
}

/** The answer of `GET /control/status/{id}` for one user: the undelivered results. */
export interface ResultsPoll extends Pick<JobSummary, 'state' | 'progress'> {
  readonly results: readonly (readonly [key: string, value: JsonValue])[]
}

export interface EntryOptions {
  /** Called after each change of the summary; it must not throw. */
  readonly told?: ((summary: JobSummary) => void) | undefined
  /** Called after each write, with its bytes; it must not throw. */
  readonly wrote?: ((summary: JobSummary, bytes: number) => void) | undefined
  /** Stores the text that an entry has by then; for an id alone, its removal. */
  readonly store: (record: { readonly id: string }) => Promise<void>
  /** Reads a stored record; throws Error for one that cannot be read. */
  readonly read: (id: string) => Promise<Decoded>
  /** Bytes per second, but for `now`. */
  readonly flow: (summary: JobSummary) => number
  readonly log: Log
}

/** Lines and progress are written no more often than this. */
const SOON_MS = 1000
const RETRY_MS = { first: 1000, longest: 30_000 }

/**
 * The record of one job, in memory and stored. Of a finished job only the summary stays in memory; the rest
 * is read on demand. Failed writes are tried again, ever slower.
 */
export class Entry {
  readonly #writing: Background
  readonly #delivered: Delivered
  readonly #resultSizes = new Map<string, number>()
  #resultSize = 0
  #summary: JobSummary
  #body: Body | undefined
  /** Readers of the body. */
  #readers = 0
  /** Changes of the record, those in its last text, and those that are stored. */
  #changes = 0
  #encoded = 0
  #written = 0
  /** Whether its removal has begun. */
  isRemoved = false

  constructor(
    stored: Decoded,
    private readonly options: EntryOptions,
    /** Bytes of its last text. */
    public bytes = 0
  ) {
    this.#summary = stored.summary
    this.#delivered = stored.delivered
    this.#body = stored.body
    const name = `the record of request ${this.id}`
    this.#writing = new Background({
      work: () => this.#write(),
      retryMs: RETRY_MS,
      onFailure: reason => options.log.warn(`${name} cannot be written, and is tried again: ${reason}`),
      onRecovery: () => options.log.info(`${name} is written again`)
    })
  }

  get id(): string {
    return this.#summary.id
  }

  /** Returns the text to store. */
  text(): string {
    this.#encoded = this.#changes
    const text = encode(this.#summary, this.#known(), this.#delivered)
    this.bytes = Buffer.byteLength(text)
    return text
  }

  /** Stores the record now. Rejects when that fails; it is tried again later. */
  now(): Promise<void> {
    this.#changes++
    return this.#writing.run()
  }

  /** Removes what is stored, and writes no more. Rejects when it cannot be removed. */
  async remove(): Promise<void> {
    await this.#writing.close()
    this.isRemoved = true
    await this.options.store({ id: this.id })
  }

  /** Writes no more: another controller owns the record. */
  async abandon(): Promise<void> {
    await this.#writing.close()
  }

  /** Flushes pending changes once more, and writes nothing after that. */
  async close(): Promise<void> {
    if (this.#isBehind) await this.#writing.run().catch(() => {})
    await this.#writing.close()
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
    this.#soon()
  }

  progress(fraction: number): void {
    if (this.finished || Number.isNaN(fraction)) return
    const progress = Math.round(Math.min(1, Math.max(0, fraction)) * 1000) / 1000
    if (progress === this.#summary.progress) return
    this.#change({ progress })
    this.#soon()
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
    // A result that is not kept leaves no key: a job may send any number.
    if (kept === undefined) this.#resultSizes.delete(key)
    else this.#resultSizes.set(key, size + around)
    this.#resultSize += this.#resultSizes.get(key) ?? 0
    if (leftOut > 0) this.line(`result ${key}: too large, ${leftOut} left out`)
    this.#soon()
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
    this.options.told?.(this.#summary)
  }

  /** Throws 503 when the record of a finished job cannot be read. */
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
      // The same user may have got the end while the record was read.
      const from = this.#delivered.get(who) ?? 0
      if (from === ALL) return undefined
      const given = give(body, from)
      if (this.finished) {
        this.#delivered.set(who, ALL)
        // If that fails, the end is delivered again after a restart.
        await this.now().catch(() => {})
      } else if (from !== count(body)) {
        this.#delivered.set(who, count(body))
        this.#soon()
      }
      return given
    })
  }

  /** Drops the body from memory once it is stored and nobody reads it. */
  release(): void {
    if (this.finished && this.#readers === 0 && !this.#isBehind) this.#body = undefined
  }

  /** Whether a change is not stored. */
  get #isBehind(): boolean {
    return this.#changes !== this.#written
  }

  /** Stores it soon, with further changes within a second; a crash may lose it. */
  #soon(): void {
    this.#changes++
    // A failed write has its own backoff.
    if (this.#writing.problem === '') this.#writing.wake(this.#soonMs)
  }

  get #soonMs(): number {
    return Math.max(SOON_MS, (this.bytes / this.options.flow(this.#summary)) * 1000)
  }

  async #write(): Promise<void> {
    // The write before had all changes.
    if (!this.#isBehind) return
    await this.options.store(this)
    this.options.wrote?.(this.#summary, this.bytes)
    this.#written = this.#encoded
    if (this.#isBehind) this.#writing.wake(this.#soonMs)
    else this.release()
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
    try {
      return (await this.options.read(this.id)).body
    } catch (error) {
      throw unavailable(`the record of request ${this.id} cannot be read: ${reasonOf(error)}`)
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
