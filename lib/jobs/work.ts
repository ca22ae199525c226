import { setMaxListeners } from 'node:events'
import type { JsonValue } from '../base/json.js'
import { oneLine } from '../base/log.js'
import type { Entry } from './entry.js'

/** A job was cancelled, or the daemon stopped. */
export class JobStoppedError extends Error {
  override readonly name = 'JobStoppedError'
}

/** The record of a running job, as its work sees it. Calls after the end are ignored. */
export interface JobContext {
  readonly id: string
  /** Aborted when the job is cancelled or the daemon closes. */
  readonly signal: AbortSignal
  /** Adds a line to the record, which keeps 2,000 characters of it, and the first and last 1,000 lines. */
  line(text: string): void
  /** 0 to 1. */
  progress(fraction: number): void
  /** Copies a value into the record. A list that is too large loses its last items (1 MiB for all). */
  result(key: string, value: JsonValue): void
}

/** A job to submit. */
export interface JobSpec {
  /** `pack`, `kernel`, `clone`, `grab`, `push`, `power on`. */
  readonly kind: string
  /** Its object, for messages: `OS image compute`. */
  readonly object: string
  /** The requester: `user admin`. */
  readonly by: string
  /** Two jobs with a common lane never overlap, and run in the order they came (see Laned). */
  readonly lanes: readonly string[]
  /** Its work is on other machines: it does not wait for a pack to end. */
  readonly remote?: true
  /** It only reads: it keeps no change waiting, and its record is removed first (rules 8.2). */
  readonly reads?: true
  run(job: JobContext): Promise<void>
}

/** An unfinished job. */
export class Work implements Laned {
  readonly lanes: readonly string[]
  readonly remote: boolean
  readonly reads: boolean
  readonly abort = new AbortController()
  readonly done: Promise<void>
  resolve!: () => void
  reject!: (error: unknown) => void
  /** Its record is durable. */
  ready = false
  /** The reason of its stop. */
  stopped: string | undefined

  constructor(
    readonly entry: Entry,
    private readonly spec: JobSpec
  ) {
    this.lanes = spec.lanes
    this.remote = spec.remote ?? false
    this.reads = spec.reads ?? false
    this.done = new Promise((resolve, reject) => {
      this.resolve = resolve
      this.reject = reject
    })
    // Each running program of a job listens.
    setMaxListeners(0, this.abort.signal)
    // A caller may read the record instead of waiting: a rejection must not count as unhandled.
    this.done.catch(() => {})
  }

  /** Its name in the log. */
  get name(): string {
    const { id, kind, object, by } = this.entry.summary
    return oneLine(`request ${id} (${kind} of ${object}, by ${by})`)
  }

  async run(): Promise<void> {
    const { entry } = this
    await this.spec.run({
      id: entry.id,
      signal: this.abort.signal,
      line: text => entry.line(text),
      progress: fraction => entry.progress(fraction),
      result: (key, value) => entry.result(key, value)
    })
  }
}

/**
 * Work in lanes. Two jobs with a common lane never overlap, and run in the order they came. A lane includes
 * those whose names continue its own after a slash: `tree /a` includes `tree /a/b`.
 */
interface Laned {
  readonly lanes: readonly string[]
  /** Whether it may begin. Until then it only has its place in the order. */
  readonly ready: boolean
  /** Its work is on other machines: it takes a slot of its own kind. */
  readonly remote: boolean
  /** With `remote`: it changes nothing, and takes a slot for readers. */
  readonly reads?: boolean
}

/** Slots for jobs that work on other machines, and cost little here. */
const MOST_REMOTE = 16
/** Slots for such jobs that only read. */
const MOST_READING = 16

/**
 * Returns the waiting jobs that may begin now, oldest first: at most `parallel` on this machine, and beside
 * them 16 on other machines that change something and 16 that only read.
 */
export function startable<J extends Laned>(
  waiting: Iterable<J>,
  running: Iterable<Laned>,
  parallel: number
): J[] {
  const taken = new Set<string>()
  /** The lanes that include a taken one. */
  const above = new Set<string>()
  const take = (lane: string) => {
    taken.add(lane)
    for (const holder of holdersOf(lane)) above.add(holder)
  }
  const isTaken = (lane: string) =>
    taken.has(lane) || above.has(lane) || holdersOf(lane).some(holder => taken.has(holder))
  const free = { here: parallel, remote: MOST_REMOTE, reading: MOST_READING }
  const placeOf = ({ remote, reads }: Laned) => (!remote ? 'here' : reads ? 'reading' : 'remote')
  for (const job of running) {
    free[placeOf(job)]--
    for (const lane of job.lanes) take(lane)
  }
  const found: J[] = []
  for (const job of waiting) {
    if (free.here <= 0 && free.remote <= 0 && free.reading <= 0) break
    const place = placeOf(job)
    if (job.ready && free[place] > 0 && !job.lanes.some(isTaken)) {
      found.push(job)
      free[place]--
    }
    // Also the lanes of a waiting job: a later job in one of them waits behind it.
    for (const lane of job.lanes) take(lane)
  }
  return found
}

/** Whether two that have these lanes have a common one. */
export const meet = (one: readonly string[], other: readonly string[]): boolean =>
  one.some(lane =>
    other.some(to => lane === to || holdersOf(lane).includes(to) || holdersOf(to).includes(lane))
  )

/** The lanes that include a lane: `tree /a` and `tree ` for `tree /a/b`. */
const holdersOf = (lane: string) => [...lane.matchAll(/\//g)].map(({ index }) => lane.slice(0, index))
