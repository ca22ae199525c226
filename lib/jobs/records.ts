import { readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { Background } from '../background.js'
import { makeDirectory } from '../disk/directory.js'
import { readRegularFile } from '../disk/regular-file.js'
import { isLeftover } from '../disk/replace.js'
import type { Log } from '../log.js'
import { Entry } from './entry.js'
import { decode, emptyBody, type JobSummary } from './record.js'
import type { RecordDisk } from './record-file.js'
import { reasonOf } from './text.js'

/** How long a record is kept after its end (rules 2.9). */
export const KEPT_MS = 7 * 24 * 3_600_000
/** The same of one that only read. */
export const READING_KEPT_MS = 3_600_000
/** Bytes of all records; a small one counts as SMALLEST, so that their number has a bound too (rules 8.2). */
const MOST_BYTES = 128 * 1024 * 1024
const SMALLEST = 8192
const SWEEP_MS = 3_600_000

/** Why a job failed that the end of the daemon interrupted. */
export const INTERRUPTED = 'interrupted'

interface RecordsOptions {
  readonly directory: string
  readonly now: () => number
  readonly log: Log
  readonly disk: RecordDisk
  /** Absent: 128 MiB. */
  readonly mostBytes?: number
  /** Is told each change of a summary; it must not throw. */
  readonly told?: (summary: JobSummary) => void
}

/** The records of a directory, one file each. */
export class Records {
  /** Oldest first. */
  readonly #entries = new Map<string, Entry>()
  readonly #sweeping = new Background({ work: () => this.#removeOld(), everyMs: SWEEP_MS })

  private constructor(private readonly options: RecordsOptions) {}

  /**
   * Reads the records. A job that had not ended is `failed: interrupted` from now on. A file that is no record is
   * logged and left alone. Throws the error of the operating system when the directory cannot be made or read.
   */
  static async open(options: RecordsOptions): Promise<Records> {
    const { directory } = options
    await makeDirectory(directory)
    const names = await readdir(directory)
    const records = new Records(options)
    await records.#load(names)
    records.sweep()
    return records
  }

  /** Makes a record; `add` puts it among the others. */
  create(summary: JobSummary): Entry {
    return new Entry({ summary, body: emptyBody(), delivered: new Map() }, this.options)
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

  /** Removes the records that were kept long enough, and those for which there is no room, in the background. */
  sweep(): void {
    this.#sweeping.wake()
  }

  /** Writes what can be written, and nothing after that. */
  async close(): Promise<void> {
    await this.#sweeping.close()
    await Promise.all([...this.#entries.values()].map(entry => entry.close()))
  }

  async #load(names: readonly string[]): Promise<void> {
    const { directory, log, now } = this.options
    const entries: Entry[] = []
    for (const name of names) {
      const file = join(directory, name)
      // What an interrupted atomic write left.
      if (isLeftover(name)) await rm(file, { force: true, recursive: true })
      const id = /^(.+)\.json$/.exec(name)?.[1]
      if (id === undefined) continue
      try {
        const content = await readRegularFile(file)
        const entry = new Entry(decode(id, content.toString()), this.options, content.length)
        entry.release()
        entries.push(entry)
      } catch (error) {
        log.error(`${file} is no record of a request, and is left alone: ${reasonOf(error)}`)
      }
    }
    for (const entry of entries.sort((a, b) => a.summary.queued - b.summary.queued)) {
      this.add(entry)
      if (entry.finished) continue
      const { id, kind, object } = entry.summary
      log.warn(`request ${id} (${kind} of ${object}) was interrupted by the end of the daemon`)
      entry.end(now(), INTERRUPTED)
      await entry.save().catch(() => {})
    }
  }

  async #removeOld(): Promise<void> {
    const { log, now, mostBytes = MOST_BYTES } = this.options
    for (const entry of this.#entries.values()) {
      const { reads, ended = 0 } = entry.summary
      if (entry.finished && ended <= now() - (reads ? READING_KEPT_MS : KEPT_MS)) await this.#remove(entry)
    }
    let bytes = 0
    for (const entry of this.#entries.values()) bytes += sizeOf(entry)
    if (bytes <= mostBytes) return
    const finished = [...this.#entries.values()].filter(entry => entry.finished)
    const isReading = (entry: Entry) => entry.summary.reads === true
    for (const entry of [...finished.filter(isReading), ...finished.filter(entry => !isReading(entry))]) {
      if (bytes <= mostBytes) return
      if (!(await this.#remove(entry))) continue
      bytes -= sizeOf(entry)
      const { id, kind, object } = entry.summary
      if (!isReading(entry))
        log.warn(
          `the record of request ${id} (${kind} of ${object}) is removed: all have over ${mostBytes} bytes`
        )
    }
  }

  /** False when the disk refuses. */
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
