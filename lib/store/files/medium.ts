import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { makeDirectory } from '../../disk/directory.js'
import { type FileLayer, realFiles } from '../../disk/files.js'
import type { DiskStep } from '../../disk/steps.js'
import { INTENTS, type Medium, type Revertible } from '../medium.js'
import { Committer } from './commit.js'
import { Flusher } from './flush.js'
import { acquireLock, type Lock } from './lock.js'
import { StoredFiles } from './stored.js'

/** What files a store is kept in. */
export interface FileOptions {
  /** The state directory, made (0700) when missing. */
  readonly directory: string
  /** How many files may still have to be written after the answers before the next change waits. Default 400,000. */
  readonly outstandingFiles?: number | undefined
  /** How files are written; a test puts failing ones here. */
  readonly files?: FileLayer | undefined
  readonly log?: ((level: 'warn' | 'info', message: string) => void) | undefined
}

/** A store kept as files, one for an object, in a directory that one process has at a time. */
export class Files implements Medium {
  readonly #options: FileOptions
  readonly #layer: FileLayer
  #lock: Lock | undefined
  #stored: StoredFiles | undefined
  #writing: { readonly flusher: Flusher; readonly committer: Committer } | undefined

  constructor(options: FileOptions) {
    this.#options = options
    this.#layer = options.files ?? realFiles
  }

  /** Makes the directory and locks it. Throws a LockedError when another process has it. */
  async lock(): Promise<void> {
    const { directory } = this.#options
    await this.#make(directory)
    this.#lock = await acquireLock(directory)
  }

  async read(): Promise<StoredFiles> {
    this.#stored = new StoredFiles(this.#options.directory)
    return this.#stored
  }

  async start(types: Iterable<string>): Promise<void> {
    const { directory, outstandingFiles, log = () => {} } = this.#options
    const { intents = [], leftovers = [] } = this.#stored ?? {}
    this.#stored = undefined
    for (const leftover of leftovers) await rm(leftover, { force: true })
    for (const type of [INTENTS, ...types]) await this.#make(join(directory, type))
    const common = { directory, files: this.#layer, ours: this.ours }
    const flusher = new Flusher({ ...common, outstandingFiles, log })
    const lastIntent = intents.at(-1)?.number ?? 0
    this.#writing = { flusher, committer: new Committer({ ...common, flusher, lastIntent }) }
    for (const intent of intents) await flusher.add(intent)
  }

  async commit(writes: readonly Revertible[]): Promise<void> {
    if (this.#writing === undefined) throw new Error('the directory is not open for changes')
    await this.#writing.committer.commit(writes)
  }

  get problem(): string {
    return this.#writing?.flusher.problem ?? ''
  }

  /** Fails when the directory is no longer ours to write (rules 11.3): also for what others write in it. */
  get ours(): DiskStep {
    if (this.#lock === undefined) throw new Error('the directory is not locked')
    return this.#lock.ours
  }

  /** Finishes the files behind the commits, and unlocks. */
  async close(): Promise<void> {
    await this.#writing?.flusher.close()
    this.#writing = undefined
    await this.#lock?.release()
  }

  #make(directory: string): Promise<void> {
    return makeDirectory(directory, made => this.#layer.syncDirectory(made))
  }
}
