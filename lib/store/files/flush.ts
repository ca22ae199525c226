import { dirname, join } from 'node:path'
import { Background } from '../../background.js'
import { inSlices } from '../../concurrency.js'
import { type DiskStep, type FileLayer, StepError } from '../../disk/steps.js'
import { reasonOf, StoreError } from '../errors.js'
import { INTENTS, type Revertible, type Write } from '../medium.js'
import { fileStep, type Intent, intentFile, intentText, objectFile } from './stored.js'

/**
 * How many files intents may promise before they are written; further changes wait. Enough for two changes of every node
 * of the largest cluster, and few enough that a start soon has read the intents.
 */
const OUTSTANDING_FILES = 400_000
/** So many files, or characters, are written together; what is committed meanwhile waits for them. */
const TOGETHER = 32
const MOST_CHARACTERS = 1024 * 1024
const RETRY_MS = { first: 100, longest: 2000 }
/** How long a stop may write the files of a large change; the daemon has 10 s in all to stop. */
const CLOSE_MS = 5000

interface FlusherOptions {
  readonly outstandingFiles?: number | undefined
  readonly directory: string
  readonly files: FileLayer
  /** Fails when the directory is no longer ours to write. */
  readonly ours: DiskStep
  readonly log: (level: 'warn' | 'info', message: string) => void
}

type Promised = Intent['writes'][number]

/**
 * Brings the object files up to what the intents promise, after the answers: writes the latest content of each file,
 * syncs the directories, then removes the intents. What fails is tried again, ever slower; until then the intents
 * stay.
 */
export class Flusher {
  /** By object: the latest content that its file has to get. Only a flush takes out what it has written. */
  readonly #waiting = new Map<string, Promised>()
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
      failed: reason => options.log('warn', `the store's files are behind: ${reason}`),
      recovered: () => options.log('info', "the store's files are written again")
    })
  }

  /** Whether no intent is on disk, so that an object's file may be written directly. */
  get idle(): boolean {
    return this.#intents.length === 0
  }

  /** Why the files cannot be written, '' when they can. */
  get problem(): string {
    return this.#flushing.problem
  }

  /** Takes over a committed intent, in slices. Resolves when it has; one is added at a time. */
  async add({ number, writes }: Intent): Promise<void> {
    await inSlices(this.#wait(writes))
    // Not before all of them wait: a flush takes away the intents whose writes have waited from its beginning.
    this.#intents.push({ number, files: writes.length })
    this.#outstanding += writes.length
    // What fails has pauses of its own.
    if (this.problem === '') this.#flushing.wake()
  }

  /** Resolves when another intent may be added; throws a StoreError when that is not to be expected soon. */
  async room(): Promise<void> {
    while (this.#outstanding >= (this.options.outstandingFiles ?? OUTSTANDING_FILES)) {
      if (this.problem !== '') throw new StoreError(this.problem)
      await this.#flushing.run().catch(() => undefined)
    }
  }

  /** Writes what waits. When that fails, or takes over 5 s, the intents stay, and the next start finishes them. */
  async close(): Promise<void> {
    this.#closeBy = performance.now() + CLOSE_MS
    await this.#flushing.run().catch(() => undefined)
    await this.#flushing.close()
  }

  *#wait(writes: Intent['writes']): Generator<void> {
    for (const write of writes) {
      this.#waiting.set(`${write.type}/${write.name}`, write)
      yield
    }
  }

  /** Writes what waits at the call. Throws an Error with the reason when not all of it could be written. */
  async #flush(): Promise<void> {
    const { directory, files, ours } = this.options
    const covered = [...this.#intents]
    if (covered.length === 0) return
    try {
      let steps: DiskStep[] = [ours]
      let written: [string, Promised][] = []
      let characters = 0
      // What is added meanwhile comes behind these, or in the place of one of them.
      let left = this.#waiting.size
      const write = async () => {
        this.#assertTime()
        await files.inOrder(steps)
        for (const [object, promised] of written)
          if (this.#waiting.get(object) === promised) this.#waiting.delete(object)
        steps = [ours]
        written = []
        characters = 0
      }
      for (const [object, promised] of this.#waiting) {
        if (left-- === 0) break
        const { type, name, text } = promised
        this.#unsynced.add(type)
        steps.push(fileStep(objectFile(directory, type, name), text))
        written.push([object, promised])
        characters += text?.length ?? 0
        if (written.length === TOGETHER || characters >= MOST_CHARACTERS) await write()
      }
      for (const type of this.#unsynced) steps.push({ syncDirectory: join(directory, type) })
      // Once more: an intent of another directory must stay.
      steps.push(ours)
      // Oldest first: an older intent that outlived a newer one would bring old content back.
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
  /** Fails when the directory is no longer ours to write. */
  readonly ours: DiskStep
  /** The highest number an intent on disk has, 0 without any. */
  readonly lastIntent: number
}

/** The intent of so many writes, and so many characters, is made as one text, in one turn of the event loop. */
const MOST_AT_ONCE = 64

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
