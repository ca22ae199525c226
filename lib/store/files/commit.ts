import { dirname, join } from 'node:path'
import type { FileLayer } from '../../disk/steps.js'
import { type DiskStep, StepError } from '../../disk/steps.js'
import { INTENTS, type Revertible, type Write } from '../medium.js'
import type { Flusher } from './flush.js'
import { fileStep, intentFile, intentText, objectFile } from './stored.js'

interface CommitterOptions {
  readonly directory: string
  readonly files: FileLayer
  readonly flusher: Flusher
  /** Fails when the directory is no longer ours to write. */
  readonly ours: DiskStep
  /** The highest number an intent on disk has, 0 without any. */
  readonly lastIntent: number
}

/** The intent of so many writes, and so many characters, is made as one text, in one turn of the event loop. */
const MOST_AT_ONCE = 64
const MOST_CHARACTERS = 1024 * 1024

const isShort = (writes: readonly Write[]) =>
  writes.length <= MOST_AT_ONCE &&
  writes.reduce((sum, { text = '' }) => sum + text.length, 0) <= MOST_CHARACTERS

/** Makes changes durable, one batch at a time. */
export class Committer {
  #lastIntent: number
  /** Takes a failed commit off the disk again: in spite of the error it may be there. */
  #revert: readonly DiskStep[] | undefined

  constructor(private readonly options: CommitterOptions) {
    this.#lastIntent = options.lastIntent
  }

  /**
   * Resolves when all the writes (at most one for an object) will outlive a power cut; when it throws, none does. A
   * single file is written directly, unless an older intent might still overwrite it; otherwise one intent is written.
   */
  async commit(writes: readonly Revertible[]): Promise<void> {
    await this.#revertFailed()
    const [only] = writes
    if (only !== undefined && writes.length === 1 && this.options.flusher.idle) await this.#commitFile(only)
    else await this.#commitIntent(writes)
  }

  async #commitFile(write: Revertible): Promise<void> {
    const file = objectFile(this.options.directory, write.type, write.name)
    // What the file held is worked out only where it is needed.
    await this.#settle([fileStep(file, write.text)], dirname(file), () => fileStep(file, write.textBefore))
  }

  async #commitIntent(writes: readonly Write[]): Promise<void> {
    const { directory, files, flusher, ours } = this.options
    await flusher.room()
    const number = ++this.#lastIntent
    const file = intentFile(directory, number)
    const steps: DiskStep[] = []
    if (isShort(writes)) steps.push({ replace: file, text: [...intentText(writes)].join('') })
    else {
      await files.inOrder([ours])
      await files.replace(file, intentText(writes))
    }
    await this.#settle(steps, join(directory, INTENTS), () => ({ remove: file }))
    await flusher.add({ number, writes })
  }

  /**
   * Carries out the steps and syncs the directory, which ends a commit. When that fails, nothing else is written until what
   * is there is taken back on the disk too.
   */
  async #settle(steps: readonly DiskStep[], directory: string, back: () => DiskStep): Promise<void> {
    const { files, ours } = this.options
    const sync: DiskStep = { syncDirectory: directory }
    const all = [ours, ...steps, sync]
    try {
      await files.inOrder(all)
    } catch (error) {
      // A step before the last one failed: nothing is there, unless it was written before these steps.
      if (steps.length > 0 && error instanceof StepError && error.step < all.length - 1) throw error
      this.#revert = [ours, back(), sync]
      await this.#revertFailed().catch(() => {}) // still noted, and tried before the next commit
      throw error
    }
  }

  async #revertFailed(): Promise<void> {
    if (this.#revert) await this.options.files.inOrder(this.#revert)
    this.#revert = undefined
  }
}
