import { readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { Background } from '../base/background.js'
import type { Log } from '../base/log.js'
import { isLeftover, makeDirectory, readRegularFile } from '../disk/file.js'
import { Entry, type RecordPlace, reasonOf } from './entry.js'
import { decode, decoded, emptyBody, encode, encodeShort, type JobSummary } from './record.js'
import type { RecordDisk } from './record-file.js'
import { type JobFollower, SharedDisk, type Sharing } from './shared.js'

/** A record is kept so long after its end (rules 2.9). */
export const KEPT_MS = 7 * 24 * 3_600_000
/** A record of a job that only read. */
export const READING_KEPT_MS = 3_600_000
/** Bytes of all records. A small one counts as SMALLEST, so that their number is bounded too (rules 8.2). */
const MOST_BYTES = 128 * 1024 * 1024
const SMALLEST = 8192
const SWEEP_MS = 3_600_000
/**
 * Bytes of the first, and of the last lines of a shared record: a request of etcd has 1.5 MiB at most, of
 * which results may have 1 MiB.
 */
const SHARED_LINES = 64 * 1024
/** Bytes per second of a shared record: etcd keeps each state of it for a while. */
const SHARED_FLOW = 64 * 1024
/** The same for a job that only reads: a user may have 8 of them. */
const SHARED_READING_FLOW = 8 * 1024

/** The reason of a job that the end of the daemon interrupted. */
export const INTERRUPTED = 'interrupted'

interface RecordsOptions {
  readonly directory: string
  readonly now: () => number
  readonly log: Log
  readonly disk: RecordDisk
  /** Absent: 128 MiB. */
  readonly mostBytes?: number
  /** Called after each change of a summary; it must not throw. */
  readonly told?: (summary: JobSummary) => void
  /** Called after each write of a record, with its bytes; it must not throw. */
  readonly wrote?: (summary: JobSummary, bytes: number) => void
  /** In place of the directory and the disk. */
  readonly sharing?: Sharing | undefined
  /** Called when another controller reports what ran here as failed; it must not throw. */
  readonly lost?: () => void
}

/** The records of a directory, one file each, or those in etcd. */
export class Records {
  /** Oldest first. */
  readonly #entries = new Map<string, Entry>()
  readonly #shared: SharedDisk | undefined
  readonly #place: RecordPlace
  /** Whether old records are removed here. Shared ones are removed by the leader. */
  #removesOld: boolean
  readonly #sweeping = new Background({ work: () => this.#removeOld(), everyMs: SWEEP_MS })

  private constructor(private readonly options: RecordsOptions) {
    this.#shared = options.sharing && new SharedDisk()
    this.#removesOld = !options.sharing
    this.#place = this.#shared ? sharedPlace(this.#shared) : placeIn(options)
  }

  /**
   * Reads the records. An unfinished job of this controller alone fails as interrupted; those that
   * controllers share are left to `becameLeader`. A file that is no record is logged and left alone. Throws
   * the error of the operating system when the directory cannot be made or read.
   */
  static async open(options: RecordsOptions): Promise<Records> {
    const { directory, sharing } = options
    const records = new Records(options)
    if (sharing) {
      await records.#shared?.open(sharing, records.#followed)
    } else {
      await makeDirectory(directory)
      await records.#load(await readdir(directory))
    }
    records.sweep()
    return records
  }

  /** Makes a record; `add` puts it among the others. */
  create(summary: JobSummary): Entry {
    const { sharing } = this.options
    const whole = sharing ? { controller: sharing.controller, ...summary } : summary
    const body = emptyBody(sharing && SHARED_LINES)
    return new Entry({ summary: whole, body, delivered: new Map() }, this.#entryOptions)
  }

  add(entry: Entry): void {
    this.#entries.set(entry.summary.id, entry)
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
    await Promise.all([...this.#entries.values()].map(({ file }) => file.close()))
    await this.#shared?.close()
  }

  get #entryOptions() {
    return { ...this.options, place: this.#place }
  }

  /** Hears the changes of shared records. */
  readonly #followed: JobFollower = {
    stored: (id, record, bytes) => {
      if (record === undefined) {
        this.#entries.delete(id)
        return
      }
      const entry = new Entry(decoded(id, record, SHARED_LINES), this.#entryOptions, bytes)
      // An unfinished record stays whole in memory: this controller may have to end it.
      entry.release()
      this.#entries.set(id, entry)
    },
    ids: () => this.#entries.keys(),
    reset: () => {
      this.options.lost?.()
      for (const { file } of this.#entries.values()) void file.abandon()
      this.#entries.clear()
    }
  }

  /** Ends the shared requests that the previous leader did not end, and removes old records from now on. */
  becameLeader(): void {
    this.#removesOld = true
    const entries = [...this.#entries.values()].sort(byAge)
    this.#entries.clear()
    for (const entry of entries) {
      this.#entries.set(entry.summary.id, entry)
      if (!entry.finished) this.#interrupt(entry).catch(() => {})
    }
    this.sweep()
  }

  steppedDown(): void {
    this.#removesOld = false
    this.options.lost?.()
  }

  async #load(names: readonly string[]): Promise<void> {
    const { directory, log } = this.options
    const entries: Entry[] = []
    for (const name of names) {
      const file = join(directory, name)
      // A leftover of an interrupted atomic write.
      if (isLeftover(name)) await rm(file, { force: true, recursive: true })
      const id = /^(.+)\.json$/.exec(name)?.[1]
      if (id === undefined) continue
      try {
        const content = await readRegularFile(file)
        const entry = new Entry(decode(id, content.toString()), this.#entryOptions, content.length)
        entry.release()
        entries.push(entry)
      } catch (error) {
        log.error(`${file} is no record of a request, and is left alone: ${reasonOf(error)}`)
      }
    }
    for (const entry of entries.sort(byAge)) {
      this.add(entry)
      if (!entry.finished) await this.#interrupt(entry).catch(() => {})
    }
  }

  /** Ends a job that nobody runs any more. Rejects when that cannot be stored; it is tried again then. */
  #interrupt(entry: Entry): Promise<void> {
    const { log, now, sharing } = this.options
    const { id, kind, object, controller, state } = entry.summary
    const isOurs = controller === undefined || controller === sharing?.controller
    const role = state === 'queued' ? 'where it waited' : 'which ran it'
    const lost = `controller ${controller}, ${role}, was lost`
    log.warn(
      `request ${id} (${kind} of ${object}) was ` +
        `interrupted${isOurs ? ' by the end of the daemon' : `: ${lost}`}`
    )
    entry.end(now(), isOurs ? INTERRUPTED : `${INTERRUPTED}: ${lost}`)
    return entry.file.now()
  }

  async #removeOld(): Promise<void> {
    if (!this.#removesOld) return
    const { log, now, mostBytes = MOST_BYTES } = this.options
    for (const entry of this.#entries.values()) {
      const { reads, ended = 0 } = entry.summary
      if (!entry.finished || ended > now() - (reads ? READING_KEPT_MS : KEPT_MS)) continue
      if (!(await this.#remove(entry)) && this.#failsAsWhole) return
    }
    let bytes = 0
    for (const entry of this.#entries.values()) bytes += sizeOf(entry)
    if (bytes <= mostBytes) return
    const finished = [...this.#entries.values()].filter(entry => entry.finished)
    const isReading = (entry: Entry) => entry.summary.reads === true
    for (const entry of [...finished.filter(isReading), ...finished.filter(entry => !isReading(entry))]) {
      if (bytes <= mostBytes) return
      if (!(await this.#remove(entry))) {
        if (this.#failsAsWhole) return
        continue
      }
      bytes -= sizeOf(entry)
      const { id, kind, object } = entry.summary
      if (!isReading(entry))
        log.warn(
          `the record of request ${id} (${kind} of ${object}) is removed: all have over ${mostBytes} bytes`
        )
    }
  }

  /**
   * Whether a failed removal ends the sweep: a disk may refuse one file, but etcd, or a lost lead, refuses
   * all.
   */
  get #failsAsWhole(): boolean {
    return this.#shared !== undefined
  }

  /** Returns false when the disk refuses. */
  async #remove(entry: Entry): Promise<boolean> {
    const { id } = entry.summary
    try {
      await entry.file.remove()
      this.#entries.delete(id)
      return true
    } catch (error) {
      this.options.log.warn(`the old record of request ${id} cannot be removed: ${reasonOf(error)}`)
      return false
    }
  }
}

const sizeOf = ({ file }: Entry) => Math.max(file.bytes, SMALLEST)

const byAge = (a: Entry, b: Entry) => a.summary.queued - b.summary.queued

function placeIn({ directory, disk }: RecordsOptions): RecordPlace {
  const file = (id: string) => join(directory, `${id}.json`)
  const read = async (id: string) => decode(id, (await readRegularFile(file(id))).toString())
  return { disk, file, read, encode }
}

function sharedPlace(disk: SharedDisk): RecordPlace {
  const read = async (id: string) => decoded(id, await disk.read(disk.file(id)), SHARED_LINES)
  const flow = ({ reads }: JobSummary) => (reads ? SHARED_READING_FLOW : SHARED_FLOW)
  return { disk, file: id => disk.file(id), read, encode: encodeShort, flow }
}
