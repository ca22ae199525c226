import { randomBytes } from 'node:crypto'
import { tryLater, unavailable } from '../base/errors.js'
import { RateLimit } from '../base/rate-limit.js'
import { type Poll, type ResultsPoll, reasonOf } from './entry.js'
import type { JobRecord, JobSummary } from './record.js'
import { INTERRUPTED, JobRecords, type RecordsOptions } from './records.js'
import { type JobSpec, JobStoppedError, startable, Work } from './work.js'

export { type Poll, RESULTS_KEPT } from './entry.js'
export type { JobRecord, JobState, JobSummary } from './record.js'
export { type JobContext, type JobSpec, JobStoppedError } from './work.js'

export interface SubmittedJob {
  readonly id: string
  /** `pack of OS image compute`, for messages. */
  readonly name: string
  /** Rejects with what `run` threw, with JobStoppedError for a job that was cancelled or interrupted. */
  readonly done: Promise<void>
}

interface JobsOptions extends Omit<RecordsOptions, 'wrote' | 'lost'> {
  /** How many run at once. */
  readonly parallel: number
}

/** Waiting jobs are in memory. */
const MOST_WAITING = 1000
/** Unfinished requests of one user that only read. */
const MOST_READING = 8
/** An aborted job may take so long to end: its programs take up to 5 s. */
const ABORTED_MS = 7000
/** The reason of jobs whose controller stepped down. */
const STEPPED_DOWN = `${INTERRUPTED}: another controller writes now`

/** Asynchronous requests: a queue with lanes, and a stored record of each (rules 2.8, 2.9). */
export class Jobs {
  /** In the order they came. */
  readonly #waiting = new Set<Work>()
  readonly #running = new Set<Work>()
  /** Pending writes of beginnings and ends. */
  readonly #writing = new Set<Promise<void>>()
  readonly #kept: JobRecords
  /** Only for shared records. */
  readonly #pace: ReadingPace | undefined
  #closed: Promise<void> | undefined
  #onIdle = () => {}

  private constructor(private readonly options: JobsOptions) {
    this.#pace = options.controller === undefined ? undefined : new ReadingPace()
    const wrote = ({ by, reads }: JobSummary, bytes: number) => {
      if (reads) this.#pace?.took(by, bytes)
    }
    this.#kept = new JobRecords({ ...options, wrote, lost: () => this.#stopAll() })
  }

  /** Reads the records; throws as `open` of the options does. Unfinished jobs are left to `becameLeader`. */
  static async open(options: JobsOptions): Promise<Jobs> {
    const jobs = new Jobs(options)
    await jobs.#kept.open()
    return jobs
  }

  /**
   * Queues a job; resolves when its record is durable. Throws 503 after `close`, when 1,000 jobs wait, when
   * the user has 8 unfinished jobs that only read, or these have stored too much in etcd, and when the record
   * cannot be written.
   */
  async submit(spec: JobSpec): Promise<SubmittedJob> {
    if (this.#closed) throw unavailable('the service is shutting down', 'shutting-down')
    const waiting = this.#waiting.size
    if (waiting >= MOST_WAITING) throw unavailable(`${waiting} requests are waiting already`, 'busy')
    const { kind, object, by, reads } = spec
    if (reads && this.#readingOf(by) >= MOST_READING)
      throw tryLater(`${MOST_READING} requests of ${by} that only read have not ended; try again in 10 s`, 10)
    if (reads) this.#pace?.check(by)
    // 128 random bits: nobody guesses an id.
    const id = randomBytes(16).toString('hex')
    const queued = this.options.now()
    const entry = this.#kept.create({
      ...{ id, kind, object, by, ...(reads ? { reads } : {}) },
      ...{ state: 'queued', progress: 0, queued, message: 'queued' }
    })
    const work = new Work(entry, spec)
    // It gets its place in the order before its record is written.
    this.#waiting.add(work)
    try {
      await this.#write(entry.now())
    } catch (error) {
      this.#waiting.delete(work)
      this.#dispatch()
      // It may be stored; the answer does not wait for its removal.
      this.#write(entry.remove()).catch(() => {})
      throw unavailable(`${kind} of ${object} cannot be recorded: ${reasonOf(error)}`)
    }
    this.#kept.add(entry)
    work.ready = true
    this.#dispatch()
    this.#kept.sweep()
    return { id, name: `${kind} of ${object}`, done: work.done }
  }

  /**
   * Returns the undelivered lines for a user. Undefined: there is no such job, or the user has seen its end.
   * Throws 503 when the record of a finished job cannot be read.
   */
  async poll(id: string, user: string): Promise<Poll | undefined> {
    return this.#kept.get(id)?.poll(user)
  }

  /** Returns the undelivered results for a user. Undefined and 503 as `poll`. */
  async pollResults(id: string, user: string): Promise<ResultsPoll | undefined> {
    return this.#kept.get(id)?.pollResults(user)
  }

  /** Returns the summary of a record, undefined when there is none. */
  summary(id: string): JobSummary | undefined {
    return this.#kept.get(id)?.summary
  }

  /** Returns a whole record, undefined when there is none. Throws as `poll`. */
  async record(id: string): Promise<JobRecord | undefined> {
    return this.#kept.get(id)?.record()
  }

  /** Returns the summaries of all records, newest first. */
  records(): JobSummary[] {
    return this.#kept.summaries()
  }

  /**
   * Stops a job: a waiting one fails at once, a running one is aborted and fails when its work has ended.
   * Returns false for an unknown or finished job. `by`: the user, for the record.
   */
  cancel(id: string, by?: string): boolean {
    const work = [...this.#waiting, ...this.#running].find(({ entry }) => entry.summary.id === id)
    if (!work) return false
    this.#stop(work, by === undefined ? 'cancelled' : `cancelled by ${by}`)
    this.#dispatch()
    return true
  }

  /**
   * Takes no more jobs and ends waiting ones. Running ones may finish for up to `graceMs`; then they are
   * aborted and fail as interrupted. Resolves when all have ended, or were given up 7 s later, and the
   * records are written as far as possible. A second call waits for the first.
   */
  close(graceMs: number): Promise<void> {
    this.#closed ??= this.#close(graceMs)
    return this.#closed
  }

  async #close(graceMs: number): Promise<void> {
    for (const work of [...this.#waiting]) this.#stop(work, INTERRUPTED)
    await this.#idle(graceMs)
    for (const work of [...this.#running]) this.#stop(work, INTERRUPTED)
    await this.#idle(ABORTED_MS)
    for (const work of [...this.#running]) {
      this.options.log.warn(`${work.name} did not end when it was stopped`)
      this.#ended(work, { error: new JobStoppedError(INTERRUPTED) })
    }
    await Promise.allSettled(this.#writing)
    await this.#kept.close()
  }

  /** Resolves when nothing runs, after `ms` at the latest. */
  async #idle(ms: number): Promise<void> {
    if (this.#running.size === 0) return
    await new Promise<void>(resolve => {
      const timer = setTimeout(resolve, ms)
      this.#onIdle = () => {
        clearTimeout(timer)
        resolve()
      }
    })
  }

  /** Takes over: requests that a crash or another controller left unfinished fail as interrupted. */
  becameLeader(): void {
    this.#kept.becameLeader()
  }

  /** Stops all jobs, which the new leader reports as failed. */
  steppedDown(): void {
    this.#kept.steppedDown()
  }

  /** Stops all jobs; another controller owns their records. */
  #stopAll(): void {
    for (const work of [...this.#waiting, ...this.#running]) {
      void work.entry.abandon()
      this.#stop(work, STEPPED_DOWN)
    }
  }

  #readingOf(by: string): number {
    return [...this.#waiting, ...this.#running].filter(work => work.reads && work.entry.summary.by === by)
      .length
  }

  #dispatch(): void {
    if (this.#closed) return
    for (const work of startable(this.#waiting, this.#running, this.options.parallel)) this.#start(work)
  }

  #start(work: Work): void {
    this.#waiting.delete(work)
    this.#running.add(work)
    work.entry.begin(this.options.now())
    // The record logs a failure, which stops no work.
    this.#write(work.entry.now()).catch(() => {})
    work.run().then(
      () => this.#ended(work),
      error => this.#ended(work, { error })
    )
  }

  #stop(work: Work, why: string): void {
    work.stopped ??= why
    const error = new JobStoppedError(work.stopped)
    if (this.#waiting.delete(work)) this.#write(this.#conclude(work, { error }))
    else work.abort.abort(error)
  }

  #ended(work: Work, failure?: { error: unknown }): void {
    // `close` has given it up.
    if (!this.#running.delete(work)) return
    this.#write(this.#conclude(work, failure))
    this.#dispatch()
    if (this.#running.size === 0) this.#onIdle()
  }

  /** Records the end of a job, then settles its promise. */
  async #conclude(
    { entry, name, stopped, resolve, reject }: Work,
    failure?: { error: unknown }
  ): Promise<void> {
    if (!failure) {
      entry.end(this.options.now())
      this.options.log.info(`${name}: done`)
    } else {
      const { error } = failure
      // The error of a stopped job may name what could not be cleaned up.
      if (stopped !== undefined && !(error instanceof JobStoppedError)) entry.line(reasonOf(error))
      entry.end(this.options.now(), stopped ?? reasonOf(error))
      this.options.log.warn(`${name}: ${entry.summary.message}`)
      if (error instanceof Error && stopped === undefined) this.options.log.debug(error.stack ?? '')
    }
    await entry.now().catch(() => {})
    if (!failure) resolve()
    else if (stopped === undefined) reject(failure.error)
    else reject(new JobStoppedError(`${entry.summary.kind} of ${entry.summary.object} was ${stopped}`))
  }

  #write(writing: Promise<void>): Promise<void> {
    this.#writing.add(writing)
    const forget = () => this.#writing.delete(writing)
    writing.then(forget, forget)
    return writing
  }
}

/** Bytes that requests of one user may store in a burst, and per second. */
const AT_ONCE = 32 * 1024 * 1024
const EACH_SECOND = 64 * 1024
/** Bytes of a write beside the record. */
const AROUND_WRITE = 1024

/**
 * Limits the bytes that requests that only read store in etcd for a user: a viewer could fill it otherwise. A
 * running request stores all of its record; after too much, the next request waits.
 */
export class ReadingPace {
  readonly #rate: RateLimit

  /** `now`: monotonic milliseconds. */
  constructor(now?: () => number) {
    this.#rate = new RateLimit({ burst: AT_ONCE, refill: EACH_SECOND, everyMs: 1000 }, now)
  }

  /** Throws 503 with Retry-After where requests of this user have stored too much. */
  check(by: string): void {
    const left = this.#rate.left(by)
    if (left > 0) return
    const seconds = Math.floor(-left / EACH_SECOND) + 1
    throw tryLater(
      `requests of ${by} that only read have stored too much in etcd: ask less often, or for fewer ` +
        `nodes; try again in ${seconds} s`,
      seconds
    )
  }

  /** Counts a stored record of a user. */
  took(by: string, bytes: number): void {
    this.#rate.spend(by, bytes + AROUND_WRITE)
  }
}
