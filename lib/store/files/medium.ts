import { type FileHandle, open, readFile, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { exists, makeDirectory, readRegularFile, replaceFile } from '../../disk/file.js'
import { flock } from '../../disk/lock.js'
import { type DiskStep, type FileLayer, identityIn, realFiles } from '../../disk/steps.js'
import { refuseForeignLinks } from '../../disk/trusted-path.js'
import { LockedError } from '../errors.js'
import { INTENTS, type Medium, type Revertible } from '../medium.js'
import { Committer, Flusher } from './flush.js'
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
  readonly #layer: FileLayer
  #lock: Lock | undefined
  #stored: StoredFiles | undefined
  #writing: { readonly flusher: Flusher; readonly committer: Committer } | undefined

  constructor(private readonly options: FileOptions) {
    this.#layer = options.files ?? realFiles
  }

  /** Makes the directory and locks it. Throws a LockedError when another process has it. */
  async lock(): Promise<void> {
    const { directory } = this.options
    await this.#make(directory)
    this.#lock = await acquireLock(directory)
  }

  async read(): Promise<StoredFiles> {
    this.#stored = new StoredFiles(this.options.directory)
    return this.#stored
  }

  async start(types: Iterable<string>): Promise<void> {
    const { directory, outstandingFiles, log = () => {} } = this.options
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

/** How long a start waits for another one that has the directory and has not said so yet. */
const PATIENCE_MS = 10_000
const STEP_MS = 50

/** The state directory, held by this process. */
interface Lock {
  /** Fails when the path leads to another directory by now, or cannot be looked at: before what is written in it. */
  readonly ours: DiskStep
  release(): Promise<void>
}

interface Holder {
  readonly pid: number
  /** Clock ticks from boot to the process's start: tells a reused pid. */
  readonly startTime: string
  readonly bootId: string
  /** Device and inode of the directory that is held. A copy has others, and nobody holds it. */
  readonly directory: string
}

/**
 * Takes the lock of a state directory: one daemon at a time (rules 11.3). It is a kernel lock on the directory itself. It
 * ends with this process, however that ends; no failure of the disk takes it away. Throws a LockedError that knows who
 * holds it, and Error for a link in it that belongs to another user than root and this one.
 */
export async function acquireLock(directory: string): Promise<Lock> {
  const holderFile = join(directory, 'holder.json')
  const handle = await open(directory, 'r')
  try {
    await take(handle, directory, holderFile)
    await refuseForeignLinks(directory)
    const self = await thisProcess(directory)
    // Replaced, not opened: to open a pipe would wait for its reader.
    await replaceFile(holderFile, `${JSON.stringify(self)}\n`)
    return {
      ours: {
        same: directory,
        identity: self.directory,
        otherwise: `${directory} is another directory than at the start: start svcd again`
      },
      release: () => handle.close()
    }
  } catch (error) {
    await handle.close()
    throw error
  }
}

/** Takes the lock on an open directory, or throws the LockedError. */
async function take({ fd }: FileHandle, directory: string, holderFile: string): Promise<void> {
  for (const giveUp = performance.now() + PATIENCE_MS; ; await sleep(STEP_MS)) {
    const isTaken = await flock(fd)
    const earlier = join(directory, 'lock')
    if (isTaken && !(await exists(earlier))) return
    const holder = await readHolder(holderFile)
    if (holder && (await holds(holder, directory))) throw new LockedError(directory, holder.pid)
    // An earlier version of svcd made this directory as its lock, and has ended.
    if (isTaken) return rm(earlier, { recursive: true, force: true })
    // Whoever has the lock has not written its name yet.
    if (performance.now() > giveUp)
      throw new Error(`${directory}: another process has locked it and does not say which it is`)
  }
}

async function readHolder(file: string): Promise<Holder | undefined> {
  try {
    const { pid, startTime, bootId, directory = '' } = JSON.parse((await readRegularFile(file)).toString())
    const texts = { startTime: String(startTime), bootId: String(bootId), directory: String(directory) }
    return { pid: Number(pid), ...texts }
  } catch {
    return undefined // it was killed, or the power went, while it wrote its name: it never got to the lock
  }
}

/** Whether that process is alive, and holds this very directory. */
async function holds(holder: Holder, directory: string): Promise<boolean> {
  if (holder.bootId !== (await bootId()) || holder.startTime !== (await startTimeOf(holder.pid))) return false
  // An earlier version did not write its directory down.
  return holder.directory === '' || holder.directory === (await identityOf(directory))
}

async function thisProcess(directory: string): Promise<Holder> {
  return {
    pid: process.pid,
    startTime: await startTimeOf(process.pid),
    bootId: await bootId(),
    directory: await identityOf(directory)
  }
}

async function identityOf(directory: string): Promise<string> {
  return identityIn(await stat(directory, { bigint: true }))
}

async function bootId(): Promise<string> {
  return (await readFile('/proc/sys/kernel/random/boot_id', 'utf8')).trim()
}

/** Field 22 of /proc/<pid>/stat; '' when there is no such process, or only its zombie. */
async function startTimeOf(pid: number): Promise<string> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '')
  // The second field, the program's name in parentheses, may hold spaces and parentheses itself.
  const [state = '', ...rest] = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return 'ZX'.includes(state) ? '' : (rest[18] ?? '')
}
