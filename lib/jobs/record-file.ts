import { rm } from 'node:fs/promises'
import { Background } from '../background.js'
import { replaceDurably } from '../disk/file.js'
import type { Log } from '../log.js'

/** How records are written; tests put failing ones here. */
export interface RecordDisk {
  /** Old content or new, never a part; durable with its name when it resolves. */
  replace(file: string, text: string): Promise<void>
  /** Not durable yet; a missing file is fine. */
  remove(file: string): Promise<void>
}

/** The real disk. Files are 0600. */
export const realDisk: RecordDisk = {
  replace: replaceDurably,
  remove: file => rm(file, { force: true })
}

/** Lines and progress are written no more often than this. */
const SOON_MS = 1000
const RETRY_MS = { first: 1000, longest: 30_000 }

interface RecordFileOptions {
  readonly file: string
  /** Gives the text of the record at the time of writing. */
  readonly text: () => string
  /** Bytes that the file has already; absent: it is new. */
  readonly bytes?: number
  /** Called after each write, with its bytes. */
  readonly wrote?: ((bytes: number) => void) | undefined
  /** Called when the file holds the whole record. */
  readonly onWritten: () => void
  readonly disk: RecordDisk
  /** So many bytes are written in a second, but for `now`; absent: any number. */
  readonly flow?: number | undefined
  readonly log: Log
}

/** Keeps one file in step with its record. What cannot be written is tried again, ever slower. */
export class RecordFile {
  readonly #writing: Background
  /** How often the record has changed, and how often it had when it was last written. */
  #changes = 0
  #written = 0
  #bytes: number

  constructor(private readonly options: RecordFileOptions) {
    const { file, log } = options
    this.#bytes = options.bytes ?? 0
    this.#writing = new Background({
      work: () => this.#write(),
      retryMs: RETRY_MS,
      failed: reason => log.warn(`${file} cannot be written, and is tried again: ${reason}`),
      recovered: () => log.info(`${file} is written again`)
    })
  }

  /** Whether the file lacks something of the record. */
  get behind(): boolean {
    return this.#changes !== this.#written
  }

  /** Bytes of the file when it was last written. */
  get bytes(): number {
    return this.#bytes
  }

  /** Writes a change that may be lost within a second, together with what else changes until then. */
  soon(): void {
    this.#changes++
    // A write that fails has pauses of its own.
    if (this.#writing.problem === '') this.#writing.wake(this.#soonMs)
  }

  /** Writes the record now. Rejects when that fails; it is tried again later. */
  now(): Promise<void> {
    this.#changes++
    return this.#writing.run()
  }

  /** Removes the file, and writes no more. Rejects when it cannot be removed. */
  async remove(): Promise<void> {
    await this.#writing.close()
    await this.options.disk.remove(this.options.file)
  }

  /** Writes no more, and leaves what is written: another controller goes on with it. */
  async abandon(): Promise<void> {
    await this.#writing.close()
  }

  /** Tries once more to write what is not written, and writes no more after that. */
  async close(): Promise<void> {
    if (this.behind) await this.#writing.run().catch(() => {})
    await this.#writing.close()
  }

  get #soonMs(): number {
    const { flow = Number.POSITIVE_INFINITY } = this.options
    return Math.max(SOON_MS, (this.#bytes / flow) * 1000)
  }

  async #write(): Promise<void> {
    const { file, text, wrote, onWritten, disk } = this.options
    const changes = this.#changes
    const content = text()
    await disk.replace(file, content)
    this.#bytes = Buffer.byteLength(content)
    wrote?.(this.#bytes)
    this.#written = changes
    if (this.behind) this.#writing.wake(this.#soonMs)
    else onWritten()
  }
}
