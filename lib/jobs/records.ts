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
const SWEEP_MS = 3_600_000

/** Why a job failed that the end of the daemon interrupted. */
export const INTERRUPTED = 'interrupted'

interface RecordsOptions {
  readonly directory: string
  readonly now: () => number
  readonly log: Log
  readonly disk: RecordDisk
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
  }

  get(id: string): Entry | undefined {
    return this.#entries.get(id)
  }

  /** Newest first. */
  summaries(): JobSummary[] {
    return [...this.#entries.values()].map(({ summary }) => summary).reverse()
  }

  /** Removes the records that were kept long enough, in the background. */
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
        const entry = new Entry(decode(id, (await readRegularFile(file)).toString()), this.options)
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
    const { log, now } = this.options
    const until = now() - KEPT_MS
    for (const [id, entry] of this.#entries) {
      if (!entry.finished || (entry.summary.ended ?? 0) > until) continue
      try {
        await entry.remove()
        this.#entries.delete(id)
      } catch (error) {
        log.warn(`the old record of request ${id} cannot be removed: ${reasonOf(error)}`)
      }
    }
  }
}
