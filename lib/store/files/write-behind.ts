import { join } from 'node:path'
import { Background, type Clock } from '../../base/background.js'
import { runSliced } from '../../base/concurrency.js'
import { crc32c } from '../../base/crc32c.js'
import { type DiskStep, StepError, type Unedited } from '../../disk/steps.js'
import { reasonOf, StoreError } from '../errors.js'
import type { Write } from '../medium.js'
import { objectFile } from './listing.js'
import type { LogOptions, Numbers } from './wal.js'

/**
 * Bound of files whose content is only in the log; further changes wait. Enough for two changes of every node
 * of the largest cluster; few enough for a start to read the log soon.
 */
const OUTSTANDING_FILES = 400_000
/** Files, or characters, per write. */
const FILES_PER_WRITE = 32
const MOST_CHARACTERS = 1024 * 1024
/** Later changes of a file within this time replace the earlier ones. */
const DELAY_MS = 100
const RETRY_MS = { first: 100, longest: 2000 }
/** Time limit of the files of a large change during a stop; the daemon has 10 s in all. */
const CLOSE_MS = 5000

/** The new content of a file. Its text may be made on demand. */
export interface FileWrite extends Write, Unedited {}

interface Pending {
  readonly write: FileWrite
  readonly known: Unedited['known']
  /** A flush has begun to write it. */
  isTried: boolean
}

/** Contents that a file may have while the disk fails; with more, no edit of it is found. */
const MOST_KNOWN = 1000

interface WriteBehindOptions extends Pick<LogOptions, 'directory' | 'files' | 'ownershipCheck'> {
  readonly outstandingFiles?: number | undefined
  readonly clock?: Clock | undefined
  /** A file that was changed after this time, in milliseconds since 1970, was edited by hand. */
  readonly sinceMs: number
  /** Called when files up to this number of the log are durable. */
  readonly onWritten: (upTo: number) => void
  readonly log: (level: 'warn' | 'info', message: string) => void
}

/** Writes the files that the log promises, after the answers: the latest content of each; then syncs. */
export class WriteBehind {
  /** By path, the latest content. Only a flush removes what it has written. */
  readonly #pendingWrites = new Map<string, Pending>()
  /** Directories with written files whose names are not durable yet. */
  readonly #unsynced = new Set<string>()
  /** The number of the last record whose files are all in `#pendingWrites`. */
  #last = 0
  #added: Promise<void> = Promise.resolve()
  /** Calls of `add` that wait. */
  #waiting = 0
  #sinceMs: number
  #closeBy = Number.POSITIVE_INFINITY
  readonly #flushing: Background

  constructor(private readonly options: WriteBehindOptions) {
    this.#sinceMs = options.sinceMs
    this.#flushing = new Background({
      work: () => this.#flush(),
      retryMs: RETRY_MS,
      ...(options.clock ? { clock: options.clock } : {}),
      onFailure: reason => options.log('warn', `the store's files are behind: ${reason}`),
      onRecovery: () => options.log('info', "the store's files are written again")
    })
  }

  /** The reason why the files cannot be written; '' if they can. */
  get problem(): string {
    return this.#flushing.problem
  }

  /** The text that waits to be written; undefined if none does. */
  pending(type: string, name: string): FileWrite | undefined {
    return this.#pendingWrites.get(objectFile(this.options.directory, type, name))?.write
  }

  /** Takes the writes of records of the log, in slices; in the order of the calls. */
  add(writes: Iterable<FileWrite>, numbers: Numbers): Promise<void> {
    this.#waiting++
    this.#added = this.#added.then(() => this.#add(writes, numbers))
    return this.#added
  }

  async #add(writes: Iterable<FileWrite>, { first, last }: Numbers): Promise<void> {
    await runSliced(this.#adding(writes))
    // Other changes in the same records may still wait.
    this.#last = --this.#waiting > 0 ? first - 1 : last
    // After a failure, the backoff decides.
    if (this.#pendingWrites.size === 0 && this.#unsynced.size === 0) this.options.onWritten(this.#last)
    else if (this.problem === '') this.#flushing.wake(DELAY_MS)
  }

  /** Resolves when more writes may be added; throws a StoreError if that is not to be expected soon. */
  async waitForRoom(): Promise<void> {
    while (this.#pendingWrites.size >= (this.options.outstandingFiles ?? OUTSTANDING_FILES)) {
      if (this.problem !== '') throw new StoreError(this.problem)
      await this.#flushing.run().catch(() => undefined)
    }
  }

  /** Writes all files that wait now. Throws Error with the reason if that fails; it is tried again. */
  async flush(): Promise<void> {
    await this.#added
    await this.#flushing.run()
  }

  /** Flushes. Returns false on failure, or after 5 s: the next start goes on. */
  async close(): Promise<boolean> {
    this.#closeBy = performance.now() + CLOSE_MS
    const isWritten = await this.#flushing.run().then(
      () => true,
      () => false
    )
    await this.#flushing.close()
    return isWritten
  }

  *#adding(writes: Iterable<FileWrite>): Generator<void> {
    for (const write of writes) {
      const file = objectFile(this.options.directory, write.type, write.name)
      const earlier = this.#pendingWrites.get(file)
      this.#pendingWrites.set(file, { write, known: knownOf(write, earlier), isTried: false })
      yield
    }
  }

  /** Writes what waits at the call. Throws Error with the reason if some of it could not be written. */
  async #flush(): Promise<void> {
    const { onWritten } = this.options
    const number = this.#last
    try {
      let steps: DiskStep[] = []
      let batch: [string, Pending][] = []
      let characters = 0
      // Files that are added meanwhile come after these or replace one of them.
      let left = this.#pendingWrites.size
      for (const [file, pending] of this.#pendingWrites) {
        if (left-- === 0) break
        const step = this.#step(file, pending)
        steps.push(step)
        batch.push([file, pending])
        characters += 'text' in step ? step.text.length : 0
        if (batch.length < FILES_PER_WRITE && characters < MOST_CHARACTERS) continue
        await this.#write(steps, batch)
        steps = []
        batch = []
        characters = 0
      }
      for (const directory of this.#unsynced) steps.push({ syncDirectory: directory })
      await this.#write(steps, batch)
    } catch (error) {
      throw new Error(reasonOf(error))
    }
    this.#unsynced.clear()
    onWritten(number)
    if (this.#pendingWrites.size > 0) this.#flushing.wake(DELAY_MS)
  }

  #step(file: string, pending: Pending): DiskStep {
    const { directory } = this.options
    // With a clock that was set back, times say nothing.
    if (Date.now() < this.#sinceMs) this.#sinceMs = 0
    const { type, text } = pending.write
    this.#unsynced.add(join(directory, type))
    pending.isTried = true
    const unedited = { known: pending.known, sinceMs: pending.write.sinceMs ?? this.#sinceMs }
    return text === undefined ? { remove: file, unedited } : { replace: file, text, unedited }
  }

  async #write(steps: readonly DiskStep[], batch: readonly [string, Pending][]): Promise<void> {
    if (performance.now() > this.#closeBy)
      throw new StoreError('shutting down; the next start goes on with them')
    const { files, ownershipCheck, log } = this.options
    const report = (kept: readonly string[]) => {
      for (const file of kept)
        log('warn', `${file}: this file was edited while svcd ran; svcd's change of the object counts`)
    }
    try {
      // Checked again at the end: the log of another directory must stay.
      report(await files.runSteps([ownershipCheck, ...steps, ownershipCheck], 'behind'))
    } catch (error) {
      if (error instanceof StepError) report(error.kept)
      throw error
    }
    for (const [file, pending] of batch)
      if (this.#pendingWrites.get(file) === pending) this.#pendingWrites.delete(file)
  }
}

/** Returns the contents that a file may have before this write. */
function knownOf(next: FileWrite, earlier: Pending | undefined): Unedited['known'] {
  if (!earlier) return next.known
  const { write, known, isTried } = earlier
  if (!isTried || known === 'any') return known
  const crc = write.text === undefined ? undefined : crc32c(write.text)
  if (known.includes(crc)) return known
  return known.length < MOST_KNOWN ? [...known, crc] : 'any'
}
