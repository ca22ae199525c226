import { dirname, join } from 'node:path'
import type { FileLayer } from '../disk/files.js'
import type { Flusher } from './flush.js'
import { intentText } from './intents.js'
import { INTENTS, intentFile, objectFile, type Write } from './paths.js'

interface CommitterOptions {
  readonly directory: string
  readonly files: FileLayer
  readonly flusher: Flusher
  /** Throws a StoreError when the directory is no longer ours to write. */
  readonly assertOurs: () => Promise<void>
  /** The highest number an intent on disk has, 0 without any. */
  readonly lastIntent: number
}

/** A write with what the file held after the last commit. */
export interface Revertible extends Write {
  readonly textBefore: string | undefined
}

/** Makes changes durable, one batch at a time. */
export class Committer {
  readonly #options: CommitterOptions
  #lastIntent: number
  /** Takes a failed commit off the disk again: in spite of the error it may be there. */
  #revert: (() => Promise<void>) | undefined

  constructor(options: CommitterOptions) {
    this.#options = options
    this.#lastIntent = options.lastIntent
  }

  /**
   * Resolves when all the writes (at most one for an object) will outlive a power cut; when it throws, none does. A
   * single file is written directly, unless an older intent might still overwrite it; otherwise one intent is written.
   */
  async commit(writes: readonly Revertible[]): Promise<void> {
    await this.#options.assertOurs()
    await this.#revertFailed()
    const [only] = writes
    if (only !== undefined && writes.length === 1 && this.#options.flusher.idle) await this.#commitFile(only)
    else await this.#commitIntent(writes)
  }

  async #commitFile(write: Revertible): Promise<void> {
    const { directory, files } = this.#options
    const { type, name, text } = write
    const file = objectFile(directory, type, name)
    const put = (content: string | undefined) =>
      content === undefined ? files.remove(file) : files.replace(file, content)
    await put(text)
    await this.#settle(dirname(file), () => put(write.textBefore))
  }

  async #commitIntent(writes: readonly Write[]): Promise<void> {
    const { directory, files, flusher } = this.#options
    await flusher.room()
    const number = ++this.#lastIntent
    const file = intentFile(directory, number)
    await files.replace(file, intentText(writes))
    await this.#settle(join(directory, INTENTS), () => files.remove(file))
    flusher.add({ number, writes })
  }

  /**
   * The last step of a commit: syncs the directory. After a failure nothing else is written until it is reverted on
   * disk too.
   */
  async #settle(directory: string, revert: () => Promise<void>): Promise<void> {
    const { files } = this.#options
    try {
      await files.syncDirectory(directory)
    } catch (error) {
      this.#revert = async () => {
        await revert()
        await files.syncDirectory(directory)
      }
      await this.#revertFailed().catch(() => {}) // still noted, and tried before the next commit
      throw error
    }
  }

  async #revertFailed(): Promise<void> {
    await this.#revert?.()
    this.#revert = undefined
  }
}
