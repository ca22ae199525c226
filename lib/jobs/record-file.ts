import { rm } from 'node:fs/promises'
import { replaceDurably } from '../disk/replace.js'
import type { Log } from '../log.js'
import { reasonOf } from './text.js'

/** How records are written, so that tests can make it fail. */
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

/** Lines and progress reach the disk so often at most. */
const SOON_MS = 1000
const FIRST_PAUSE_MS = 1000
const LONGEST_PAUSE_MS = 30_000

interface RecordFileOptions {
  readonly file: string
  /** The record as it is when it is written. */
  readonly text: () => string
  /** The file holds what there is. */
  readonly onWritten: () => void
  readonly disk: RecordDisk
  readonly log: Log
}

/** Keeps one file in step with its record. What cannot be written is tried again, ever slower. */
export class RecordFile {
  readonly #options: RecordFileOptions
  #dirty = false
  #timer: NodeJS.Timeout | undefined
  #last: Promise<void> = Promise.resolve()
  #next: Promise<void> | undefined
  #pauseMs = FIRST_PAUSE_MS
  #writing = false
  #problem = false
  #gone = false

  constructor(options: RecordFileOptions) {
    this.#options = options
  }

  /** Whether the file lacks something, as far as is known. */
  get behind(): boolean {
    return this.#dirty || this.#writing || this.#next !== undefined
  }

  /** Something changed that may be lost: it is written within a second, with what else changes until then. */
  soon(): void {
    this.#dirty = true
    this.#schedule(SOON_MS)
  }

  /** Writes what there is now; rejects when that fails, and it is tried again later. */
  now(): Promise<void> {
    this.#dirty = true
    clearTimeout(this.#timer)
    this.#timer = undefined
    this.#next ??= this.#last.catch(() => {}).then(() => this.#write())
    this.#last = this.#next
    return this.#next
  }

  /** No more is written; the file is removed. Rejects when it cannot be. */
  async remove(): Promise<void> {
    this.#gone = true
    clearTimeout(this.#timer)
    await this.#last.catch(() => {})
    await this.#options.disk.remove(this.#options.file)
  }

  /** One last attempt for what is not written, and no more after it. */
  async close(): Promise<void> {
    await (this.#dirty && !this.#gone ? this.now() : this.#last).catch(() => {})
    clearTimeout(this.#timer)
    this.#gone = true
  }

  async #write(): Promise<void> {
    this.#next = undefined
    if (this.#gone) return
    const { file, text, onWritten, disk, log } = this.#options
    this.#dirty = false
    this.#writing = true
    try {
      await disk.replace(file, text())
    } catch (error) {
      this.#writing = false
      this.#dirty = true
      if (!this.#problem) log.warn(`${file} cannot be written, and is tried again: ${reasonOf(error)}`)
      this.#problem = true
      this.#schedule(this.#pauseMs)
      this.#pauseMs = Math.min(this.#pauseMs * 2, LONGEST_PAUSE_MS)
      throw error
    }
    this.#writing = false
    if (this.#problem) log.info(`${file} is written again`)
    this.#problem = false
    this.#pauseMs = FIRST_PAUSE_MS
    if (!this.behind) onWritten()
  }

  #schedule(ms: number): void {
    if (this.#gone) return
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined
      if (this.#dirty) this.now().catch(() => {})
    }, ms).unref()
  }
}
