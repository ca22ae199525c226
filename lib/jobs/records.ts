import { Background } from '../base/background.js'
import type { KeptRecords, OpenRecords, RecordedState } from '../store/records.js'
import { Entry, type EntryOptions, reasonOf } from './entry.js'
import { type Decoded, decode, type JobSummary, Transcript } from './record.js'

/** A record is kept so long after its end (rules 2.9). */
export const KEPT_MS = 7 * 24 * 3_600_000
/** A record of a job that only read. */
export const READING_KEPT_MS = 3_600_000
/** Bytes of all records. A small one counts as SMALLEST, so that their number is bounded too (rules 8.2). */
const MOST_BYTES = 128 * 1024 * 1024
const SMALLEST = 8192
const SWEEP_MS = 3_600_000
/** Bytes of the first, and of the last lines of a shared record: etcd takes 1.5 MiB, results have 1 MiB. */
const SHARED_LINES = 64 * 1024
/** Bytes per second of a shared record: etcd keeps each state of it for a while. */
const SHARED_FLOW = 64 * 1024
/** The same for a job that only reads: a user may have 8 of them. */
const SHARED_READING_FLOW = 8 * 1024

/** The reason of a job that the end of the daemon interrupted. */
export const INTERRUPTED = 'interrupted'

/** A stored record; an id alone stands for a removal. */
interface StoredJob {
  readonly id: string
}

export interface RecordsOptions extends Pick<EntryOptions, 'told' | 'wrote' | 'log'> {
  /** Opens the stored records. */
  readonly open: OpenRecords
  /** The name of this controller, where several share the records. */
  readonly controller?: string | undefined
  readonly now: () => number
  /** Bytes of all records; absent: 128 MiB. */
  readonly mostBytes?: number
  /** Called when another controller reports what ran here as failed; it must not throw. */
  readonly lost?: () => void
}

/** The records of jobs. The leader writes and removes them; a follower takes those of the leader. */
export class JobRecords {
  /** Oldest first. */
  readonly #entries = new Map<string, Entry>()
  #stored!: KeptRecords<StoredJob>
  /** Whether old records are removed here. */
  #removesOld = false
  readonly #sweeping = new Background({ work: () => this.#removeOld(), everyMs: SWEEP_MS })
  readonly #linesBytes: number | undefined
  readonly #entryOptions: EntryOptions

  constructor(private readonly options: RecordsOptions) {
    const { told, wrote, log, controller } = options
    this.#linesBytes = controller === undefined ? undefined : SHARED_LINES
    this.#entryOptions = {
      ...{ told, wrote, log },
      store: record => this.#stored.append(record),
      read: id => this.#read(id),
      flow: ({ reads }) =>
        controller === undefined ? Number.POSITIVE_INFINITY : reads ? SHARED_READING_FLOW : SHARED_FLOW
    }
  }

  /** Reads the records; throws as `open` of the options does. Unfinished ones are left to `becameLeader`. */
  async open(): Promise<void> {
    this.#stored = await this.options.open(this.#memory)
  }

  /** Makes a record; `add` puts it among the others. */
  create(summary: JobSummary): Entry {
    const { controller } = this.options
    const whole = controller === undefined ? summary : { controller, ...summary }
    const body = { transcript: new Transcript(undefined, this.#linesBytes), results: new Map() }
    return new Entry({ summary: whole, body, delivered: new Map() }, this.#entryOptions)
  }

  add(entry: Entry): void {
    this.#entries.set(entry.id, entry)
    this.options.told?.(entry.summary)
  }

  get(id: string): Entry | undefined {
    return this.#entries.get(id)
  }

  /** Newest first. */
  summaries(): JobSummary[] {
    return [...this.#entries.values()].map(({ summary }) => summary).reverse()
  }

  /** Removes old records, and those for which there is no room, in the background. */
  sweep(): void {
    this.#sweeping.wake()
  }

  /** Flushes all records, and writes nothing after that. */
  async close(): Promise<void> {
    await this.#sweeping.close()
    await Promise.all([...this.#entries.values()].map(entry => entry.close()))
    await this.#stored.close()
  }

  get #memory(): RecordedState<StoredJob> {
    const entries = this.#entries
    return {
      namesIn: ({ id }) => [id],
      // A new one is among the others once it is stored.
      appliesOnceStored: record => record instanceof Entry && !entries.has(record.id),
      names: () => entries.keys(),
      recordsOf: id => [entries.get(id) ?? []].flat().filter(({ isRemoved }) => !isRemoved),
      json: record => (record instanceof Entry ? record.text() : undefined),
      replaceRecords: (id, [record], bytes) => {
        if (record === undefined) {
          entries.delete(id)
          return
        }
        const entry = new Entry(decode(id, record, this.#linesBytes), this.#entryOptions, bytes)
        // An unfinished record stays whole in memory: this controller may have to end it.
        entry.release()
        entries.set(id, entry)
      },
      reset: () => {
        this.options.lost?.()
        for (const entry of entries.values()) void entry.abandon()
        entries.clear()
      }
    }
  }

  async #read(id: string): Promise<Decoded> {
    const [record] = await this.#stored.read(id)
    if (!record) throw new Error('it is not there')
    return decode(id, record, this.#linesBytes)
  }

  /** Ends the requests that nobody runs any more, and removes old records from now on. */
  becameLeader(): void {
    this.#removesOld = true
    const entries = [...this.#entries.values()].sort(byAge)
    this.#entries.clear()
    for (const entry of entries) {
      this.#entries.set(entry.id, entry)
      if (!entry.finished) this.#interrupt(entry).catch(() => {})
    }
    this.sweep()
  }

  steppedDown(): void {
    this.#removesOld = false
    this.options.lost?.()
  }

  /** Ends a job that nobody runs any more. Rejects when that cannot be stored; it is tried again then. */
  #interrupt(entry: Entry): Promise<void> {
    const { log, now, controller: own } = this.options
    const { id, kind, object, controller, state } = entry.summary
    const isOurs = controller === undefined || controller === own
    const role = state === 'queued' ? 'where it waited' : 'which ran it'
    const lost = `controller ${controller}, ${role}, was lost`
    log.warn(
      `request ${id} (${kind} of ${object}) was ` +
        `interrupted${isOurs ? ' by the end of the daemon' : `: ${lost}`}`
    )
    entry.end(now(), isOurs ? INTERRUPTED : `${INTERRUPTED}: ${lost}`)
    return entry.now()
  }

  async #removeOld(): Promise<void> {
    if (!this.#removesOld) return
    const { log, now, mostBytes = MOST_BYTES } = this.options
    for (const entry of this.#entries.values()) {
      const { reads, ended = 0 } = entry.summary
      if (!entry.finished || ended > now() - (reads ? READING_KEPT_MS : KEPT_MS)) continue
      if (!(await this.#remove(entry))) return
    }
    let bytes = 0
    for (const entry of this.#entries.values()) bytes += sizeOf(entry)
    if (bytes <= mostBytes) return
    const finished = [...this.#entries.values()].filter(entry => entry.finished)
    const isReading = (entry: Entry) => entry.summary.reads === true
    for (const entry of [...finished.filter(isReading), ...finished.filter(entry => !isReading(entry))]) {
      if (bytes <= mostBytes) return
      if (!(await this.#remove(entry))) return
      bytes -= sizeOf(entry)
      const { id, kind, object } = entry.summary
      if (!isReading(entry))
        log.warn(
          `the record of request ${id} (${kind} of ${object}) is removed: all have over ${mostBytes} bytes`
        )
    }
  }

  /** Returns false if it cannot be stored; others could not be removed either. */
  async #remove(entry: Entry): Promise<boolean> {
    const { id } = entry.summary
    try {
      await entry.remove()
      this.#entries.delete(id)
      return true
    } catch (error) {
      this.options.log.warn(`the old record of request ${id} cannot be removed: ${reasonOf(error)}`)
      return false
    }
  }
}

const sizeOf = ({ bytes }: Entry) => Math.max(bytes, SMALLEST)

const byAge = (a: Entry, b: Entry) => a.summary.queued - b.summary.queued
