import { join } from 'node:path'
import { Background } from '../background.js'
import { inParallel } from '../concurrency.js'
import type { FileLayer } from '../disk/files.js'
import { reasonOf, StoreError } from './errors.js'
import type { Intent } from './intents.js'
import { INTENTS, intentFile, objectFile } from './paths.js'

/**
 * How many files intents may promise before they are written; further changes wait. Enough for a change of every node
 * of a large cluster, and few enough that a start soon has read the intents.
 */
const OUTSTANDING_FILES = 65_536
/** More at once would not be faster: each write holds one of libuv's four threads, which others need too. */
const PARALLEL_WRITES = 3
const RETRY_MS = { first: 100, longest: 2000 }
/** How long a stop may write the files of a large change; the daemon has 10 s in all to stop. */
const CLOSE_MS = 5000

interface FlusherOptions {
  readonly outstandingFiles?: number | undefined
  readonly directory: string
  readonly files: FileLayer
  /** Throws a StoreError when the directory is no longer ours to write. */
  readonly assertOurs: () => Promise<void>
  readonly log: (level: 'warn' | 'info', message: string) => void
}

type Promised = Intent['writes'][number]

/**
 * Brings the object files up to what the intents promise, after the answers: writes the latest content of each file,
 * syncs the directories, then removes the intents. What fails is tried again, ever slower; until then the intents
 * stay.
 */
export class Flusher {
  readonly #options: FlusherOptions
  /** By object: the latest content that its file has to get. */
  #waiting = new Map<string, Promised>()
  #intents: { number: number; files: number }[] = []
  #outstanding = 0
  #closeBy = Number.POSITIVE_INFINITY
  readonly #flushing: Background

  constructor(options: FlusherOptions) {
    this.#options = options
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

  /** Takes over a committed intent. */
  add(intent: Intent): void {
    this.#intents.push({ number: intent.number, files: intent.writes.length })
    this.#outstanding += intent.writes.length
    for (const write of intent.writes) this.#waiting.set(`${write.type}/${write.name}`, write)
    // What fails has pauses of its own.
    if (this.problem === '') this.#flushing.wake()
  }

  /** Resolves when another intent may be added; throws a StoreError when that is not to be expected soon. */
  async room(): Promise<void> {
    while (this.#outstanding >= (this.#options.outstandingFiles ?? OUTSTANDING_FILES)) {
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

  /** Writes what waits at the call. Throws an Error with the reason when not all of it could be written. */
  async #flush(): Promise<void> {
    const { directory, files, assertOurs } = this.#options
    const writes = this.#waiting
    this.#waiting = new Map()
    const covered = [...this.#intents]
    if (covered.length === 0) return
    try {
      await assertOurs()
      await inParallel(writes, PARALLEL_WRITES, async ([, { type, name, text }]) => {
        if (performance.now() > this.#closeBy)
          throw new StoreError('shutting down; the next start goes on with them')
        const file = objectFile(directory, type, name)
        await (text === undefined ? files.remove(file) : files.replace(file, text))
      })
      const types = new Set(Array.from(writes.values(), ({ type }) => type))
      for (const type of types) await files.syncDirectory(join(directory, type))
      await assertOurs()
      // Oldest first: an older intent that outlived a newer one would bring old content back.
      for (const { number } of covered) await files.remove(intentFile(directory, number))
      await files.syncDirectory(join(directory, INTENTS))
    } catch (error) {
      this.#waiting = new Map([...writes, ...this.#waiting])
      throw new Error(reasonOf(error))
    }
    this.#intents.splice(0, covered.length)
    for (const intent of covered) this.#outstanding -= intent.files
    if (!this.idle) this.#flushing.wake()
  }
}
