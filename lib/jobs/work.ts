import { setMaxListeners } from 'node:events'
import type { JsonValue } from '../json.js'
import { oneLine } from '../log.js'
import type { Entry } from './entry.js'
import type { Laned } from './lanes.js'

/** A job did not end by itself: somebody cancelled it, or the daemon stopped. */
export class JobStoppedError extends Error {
  override readonly name = 'JobStoppedError'
}

/** What a job sees of its record while it runs; calls after its end are ignored. */
export interface JobContext {
  readonly id: string
  /** Aborted when the job is cancelled or the daemon closes. */
  readonly signal: AbortSignal
  /** Adds a line to the record. The first 2,000 characters of a line are kept, and the first and last 1,000 lines. */
  line(text: string): void
  /** 0 to 1. */
  progress(fraction: number): void
  /** Keeps a copy of a value in the record. A list that is too large loses its last items (1 MiB for all results). */
  result(key: string, value: JsonValue): void
}

/** A job as it is asked for. */
export interface JobSpec {
  /** `pack`, `kernel`, `clone`, `grab`, `push`, `power on`. */
  readonly kind: string
  /** What it is about, for messages: `OS image compute`. */
  readonly object: string
  /** Who asked: `user admin`. */
  readonly by: string
  /** Two jobs with a common lane never overlap, and run in the order they came (see Laned). */
  readonly lanes: readonly string[]
  /** Its work is on other machines: it does not wait for a pack to end. */
  readonly elsewhere?: true
  /** It changes nothing: it keeps no change waiting, and its record goes first (rules 8.2). */
  readonly reads?: true
  run(job: JobContext): Promise<void>
}

/** A job that has not ended. */
export class Work implements Laned {
  readonly abort = new AbortController()
  readonly done: Promise<void>
  resolve!: () => void
  reject!: (error: unknown) => void
  /** Its record is on disk. */
  ready = false
  /** Why it was stopped, once it was. */
  stopped: string | undefined

  constructor(
    readonly entry: Entry,
    private readonly spec: JobSpec
  ) {
    this.done = new Promise((resolve, reject) => {
      this.resolve = resolve
      this.reject = reject
    })
    // Each program that a job runs at once listens.
    setMaxListeners(0, this.abort.signal)
    // A caller may read the record instead of waiting: then a rejection must not count as unhandled.
    this.done.catch(() => {})
  }

  get lanes(): readonly string[] {
    return this.spec.lanes
  }

  get elsewhere(): boolean {
    return this.spec.elsewhere ?? false
  }

  get reads(): boolean {
    return this.spec.reads ?? false
  }

  /** As the log names it. */
  get name(): string {
    const { id, kind, object, by } = this.entry.summary
    return oneLine(`request ${id} (${kind} of ${object}, by ${by})`)
  }

  async run(): Promise<void> {
    const { entry } = this
    await this.spec.run({
      id: entry.summary.id,
      signal: this.abort.signal,
      line: text => entry.line(text),
      progress: fraction => entry.progress(fraction),
      result: (key, value) => entry.result(key, value)
    })
  }
}
