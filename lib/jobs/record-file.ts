import { rm } from 'node:fs/promises'
import { Background } from '../base/background.js'
import type { Log } from '../base/log.js'
import { replaceDurably } from '../disk/file.js'

/** How records are written; tests use failing ones. */
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
  /** Returns the text of the record at the time of writing. */
  readonly text: () => string
  /** Bytes of an existing file. */
  readonly bytes?: number
  /** Called after each write, with its bytes. */
  readonly wrote?: ((bytes: number) => void) | undefined
  /** Called when the file holds the whole record. */
  readonly onWritten: () => void
  readonly disk: RecordDisk
  /** Bytes per second, but for `now`; absent: no limit. */
  readonly flow?: number | undefined
  readonly log: Log
}

/** Keeps one file in step with its record. Failed writes are tried again, ever slower. */
export class RecordFile {
  readonly #writing: Background
  /** Changes of the record, and those at the last write. */
  #changes = 0
  #written = 0
  #bytes: number

  constructor(private readonly options: RecordFileOptions) {
    const { file, log } = options
    this.#bytes = options.bytes ?? 0
    this.#writing = new Background({
      work: () => this.#write(),
      retryMs: RETRY_MS,
      onFailure: reason => log.warn(`${file} cannot be written, and is tried again: ${reason}`),
      onRecovery: () => log.info(`${file} is written again`)
    })
  }

  /** Whether the file lacks a change. */
  get behind(): boolean {
    return this.#changes !== this.#written
  }

  /** Bytes of the last write. */
  get bytes(): number {
    return this.#bytes
  }

  /** Writes soon, with further changes within a second; a crash may lose it. */
  soon(): void {
    this.#changes++
    // A failed write has its own backoff.
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

  /** Writes no more and leaves the file: another controller owns it. */
  async abandon(): Promise<void> {
    await this.#writing.close()
  }

  /** Flushes pending changes once more, and writes nothing after that. */
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
