import { dirname, join } from 'node:path'
import { Background } from '../../base/background.js'
import { runSliced } from '../../base/concurrency.js'
import { type DiskStep, type FileLayer, StepError } from '../../disk/steps.js'
import { reasonOf, StoreError } from '../errors.js'
import { INTENTS, type Revertible, type Write } from '../medium.js'
import { fileStep, type Intent, intentFile, intentText, objectFile } from './stored.js'

/**
 * Bound of files that intents promise before they are written; further changes wait. Enough for two changes
 * of every node of the largest cluster; few enough for a start to read the intents soon.
 */
const OUTSTANDING_FILES = 400_000
/** Files, or characters, per write; commits made meanwhile wait for it. */
const FILES_PER_WRITE = 32
const MOST_CHARACTERS = 1024 * 1024
const RETRY_MS = { first: 100, longest: 2000 }
/** Time limit of the files of a large change during a stop; the daemon has 10 s in all. */
const CLOSE_MS = 5000

interface FlusherOptions {
  readonly outstandingFiles?: number | undefined
  readonly directory: string
  readonly files: FileLayer
  /** Fails if the directory is no longer ours to write. */
  readonly ownershipCheck: DiskStep
  readonly log: (level: 'warn' | 'info', message: string) => void
}

type PendingWrite = Intent['writes'][number]

/**
 * Writes the object files that intents promise, after the answers: the latest content of each file, the
 * directories' syncs, then the removal of the intents. Retries failures with backoff, and keeps the intents.
 */
export class Flusher {
  /** By object, the latest content of its file. Only a flush removes what it has written. */
  readonly #pendingWrites = new Map<string, PendingWrite>()
  /** Types with written files whose names are not durable yet. */
  readonly #unsynced = new Set<string>()
  #intents: { number: number; files: number }[] = []
  #outstanding = 0
  #closeBy = Number.POSITIVE_INFINITY
  readonly #flushing: Background

  constructor(private readonly options: FlusherOptions) {
    this.#flushing = new Background({
      work: () => this.#flush(),
      retryMs: RETRY_MS,
      onFailure: reason => options.log('warn', `the store's files are behind: ${reason}`),
      onRecovery: () => options.log('info', "the store's files are written again")
    })
  }

  /** Whether no intent is on disk, so that an object's file may be written directly. */
  get idle(): boolean {
    return this.#intents.length === 0
  }

  /** The reason why the files cannot be written; '' if they can. */
  get problem(): string {
    return this.#flushing.problem
  }

  /** Takes over a committed intent, in slices. Only one call at a time. */
  async add({ number, writes }: Intent): Promise<void> {
    await runSliced(this.#addPending(writes))
    // Last: a flush removes the intents whose writes have waited since its start.
    this.#intents.push({ number, files: writes.length })
    this.#outstanding += writes.length
    // After a failure, the backoff decides.
    if (this.problem === '') this.#flushing.wake()
  }

  /** Resolves when another intent may be added; throws a StoreError if that is not to be expected soon. */
  async waitForRoom(): Promise<void> {
    while (this.#outstanding >= (this.options.outstandingFiles ?? OUTSTANDING_FILES)) {
      if (this.problem !== '') throw new StoreError(this.problem)
      await this.#flushing.run().catch(() => undefined)
    }
  }

  /** Flushes. On failure, or after 5 s, the intents stay for the next start. */
  async close(): Promise<void> {
    this.#closeBy = performance.now() + CLOSE_MS
    await this.#flushing.run().catch(() => undefined)
    await this.#flushing.close()
  }

  *#addPending(writes: Intent['writes']): Generator<void> {
    for (const write of writes) {
      this.#pendingWrites.set(`${write.type}/${write.name}`, write)
      yield
    }
  }

  /** Writes what waits at the call. Throws Error with the reason if some of it could not be written. */
  async #flush(): Promise<void> {
    const { directory, files, ownershipCheck } = this.options
    const covered = [...this.#intents]
    if (covered.length === 0) return
    try {
      let steps: DiskStep[] = [ownershipCheck]
      let written: [string, PendingWrite][] = []
      let characters = 0
      // Objects added meanwhile come after these or replace one of them.
      let left = this.#pendingWrites.size
      const write = async () => {
        this.#assertTime()
        await files.runSteps(steps)
        for (const [object, promised] of written)
          if (this.#pendingWrites.get(object) === promised) this.#pendingWrites.delete(object)
        steps = [ownershipCheck]
        written = []
        characters = 0
      }
      for (const [object, promised] of this.#pendingWrites) {
        if (left-- === 0) break
        const { type, name, text } = promised
        this.#unsynced.add(type)
        steps.push(fileStep(objectFile(directory, type, name), text))
        written.push([object, promised])
        characters += text?.length ?? 0
        if (written.length === FILES_PER_WRITE || characters >= MOST_CHARACTERS) await write()
      }
      for (const type of this.#unsynced) steps.push({ syncDirectory: join(directory, type) })
      // Checked again: an intent of another directory must stay.
      steps.push(ownershipCheck)
      // Oldest first: an older intent that outlives a newer one would bring old content back.
      for (const { number } of covered) steps.push({ remove: intentFile(directory, number) })
      steps.push({ syncDirectory: join(directory, INTENTS) })
      await write()
    } catch (error) {
      throw new Error(reasonOf(error))
    }
    this.#unsynced.clear()
    this.#intents.splice(0, covered.length)
    for (const intent of covered) this.#outstanding -= intent.files
    if (!this.idle) this.#flushing.wake()
  }

  #assertTime(): void {
    if (performance.now() > this.#closeBy)
      throw new StoreError('shutting down; the next start goes on with them')
  }
}

interface CommitterOptions {
  readonly directory: string
  readonly files: FileLayer
  readonly flusher: Flusher
  /** Fails if the directory is no longer ours to write. */
  readonly ownershipCheck: DiskStep
  /** The highest number of an intent on disk, 0 without any. */
  readonly lastIntent: number
}

/** Up to this many writes, an intent's text is built in one turn of the event loop. */
const MOST_AT_ONCE = 64

const isShort = (writes: readonly Write[]) =>
  writes.length <= MOST_AT_ONCE &&
  writes.reduce((sum, { text = '' }) => sum + text.length, 0) <= MOST_CHARACTERS

/** Makes changes durable, one batch at a time. */
export class Committer {
  #lastIntent: number
  /** Undoes a failed commit, which may be on the disk in spite of the error. */
  #revert: readonly DiskStep[] | undefined

  constructor(private readonly options: CommitterOptions) {
    this.#lastIntent = options.lastIntent
  }

  /**
   * Resolves when all the writes (at most one per object) survive a power cut; after a throw, none does.
   * Writes a single file directly unless an older intent might overwrite it, otherwise an intent.
   */
  async commit(writes: readonly Revertible[]): Promise<void> {
    await this.#revertFailed()
    const [only] = writes
    if (only !== undefined && writes.length === 1 && this.options.flusher.idle) await this.#commitFile(only)
    else await this.#commitIntent(writes)
  }

  async #commitFile(write: Revertible): Promise<void> {
    const file = objectFile(this.options.directory, write.type, write.name)
    // The old text is encoded only when needed.
    await this.#commitOrRevert([fileStep(file, write.text)], dirname(file), () =>
      fileStep(file, write.textBefore)
    )
  }

  async #commitIntent(writes: readonly Write[]): Promise<void> {
    const { directory, files, flusher, ownershipCheck } = this.options
    await flusher.waitForRoom()
    const number = ++this.#lastIntent
    const file = intentFile(directory, number)
    const steps: DiskStep[] = []
    if (isShort(writes)) steps.push({ replace: file, text: [...intentText(writes)].join('') })
    else {
      await files.runSteps([ownershipCheck])
      await files.replace(file, intentText(writes))
    }
    await this.#commitOrRevert(steps, join(directory, INTENTS), () => ({ remove: file }))
    await flusher.add({ number, writes })
  }

  /**
   * Runs the steps and syncs the directory, which ends a commit. After a failure, nothing else is written
   * until it is undone on the disk too.
   */
  async #commitOrRevert(steps: readonly DiskStep[], directory: string, back: () => DiskStep): Promise<void> {
    const { files, ownershipCheck } = this.options
    const sync: DiskStep = { syncDirectory: directory }
    const all = [ownershipCheck, ...steps, sync]
    try {
      await files.runSteps(all)
    } catch (error) {
      // A failed step before the sync leaves nothing behind, unless the file was written before the steps.
      if (steps.length > 0 && error instanceof StepError && error.step < all.length - 1) throw error
      this.#revert = [ownershipCheck, back(), sync]
      await this.#revertFailed().catch(() => {}) // still noted, and retried before the next commit
      throw error
    }
  }

  async #revertFailed(): Promise<void> {
    if (this.#revert) await this.options.files.runSteps(this.#revert)
    this.#revert = undefined
  }
}
