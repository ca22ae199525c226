import {
  closeSync,
  constants,
  fchmodSync,
  fdatasyncSync,
  fsyncSync,
  openSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync
} from 'node:fs'
import { open, rename } from 'node:fs/promises'
import { dirname } from 'node:path'
import { Worker } from 'node:worker_threads'
import {
  namedAs,
  refuseForeignLink,
  replaceFile,
  syncDirectory,
  temporaryOf,
  unlessMissing,
  withDescriptor
} from './file.js'

/** A step of work on the disk, as plain data: it is carried out in another thread. */
export type DiskStep =
  /** The file gets this content; it is durable, its name not yet (see replaceFile). */
  | { readonly replace: string; readonly text: string }
  /** A missing file is fine. The removal is not durable yet. */
  | { readonly remove: string }
  /** Makes the names in a directory durable. */
  | { readonly syncDirectory: string }
  /** Appends to an open file, by its descriptor, and makes that durable. */
  | { readonly append: number; readonly text: string }
  /** Appends to a file, made 0600 when missing. It is not durable. */
  | { readonly appendTo: string; readonly text: string }
  /** Fails, with the message `otherwise`, where the path leads to another directory than the one with this identity. */
  | { readonly same: string; readonly identity: string; readonly otherwise: string }

/** Says which step of several failed. */
export class StepError extends Error {
  override readonly name = 'StepError'

  constructor(
    message: string,
    /**
     * The number of the step, from 0. What comes after it is not done; what came before it is, but for files that are replaced
     * together with it.
     */
    readonly step: number,
    readonly code?: string,
    readonly errno?: number
  ) {
    super(message)
  }

  static of(error: unknown, step: number): StepError {
    const { message, code, errno } = error as NodeJS.ErrnoException
    return new StepError(message, step, code, errno)
  }
}

/** The device and inode of a directory: the same by every path that leads to it, through links and bind mounts too. */
export const identityIn = ({ dev, ino }: { dev: bigint; ino: bigint }) => `${dev}:${ino}`

/**
 * Carries steps out one after the other, and holds the thread meanwhile. Throws a StepError; of files that are replaced one after
 * the other, those before the failed one may still have their old content.
 */
export function carryOut(steps: readonly DiskStep[]): void {
  for (let i = 0; i < steps.length; ) {
    const files: Replacement[] = []
    for (let step = steps[i]; step && 'replace' in step; step = steps[i + files.length])
      files.push({ file: step.replace, text: step.text, temporary: temporaryOf(step.replace) })
    if (files.length > 0) replaceAll(files, i)
    else carryOutOne(steps[i] as DiskStep, i)
    i += files.length || 1
  }
}

function carryOutOne(step: DiskStep, number: number): void {
  try {
    if ('remove' in step) {
      refuseForeignLink(dirname(step.remove))
      rmSync(step.remove, { force: true })
    } else if ('syncDirectory' in step) withDescriptor(openSync(step.syncDirectory, 'r'), fsyncSync)
    else if ('append' in step) {
      writeFileSync(step.append, step.text)
      fdatasyncSync(step.append)
    } else if ('appendTo' in step)
      withDescriptor(openToAppend(step.appendTo), fd => writeFileSync(fd, step.text))
    else if ('same' in step && identityIn(statSync(step.same, { bigint: true })) !== step.identity)
      throw new Error(step.otherwise)
  } catch (error) {
    throw StepError.of(error, number)
  }
}

/**
 * How a file is opened for appending. Without O_NONBLOCK, a pipe of that name would hold the thread until somebody reads from it.
 * O_CREAT is for a second try alone: with it, the kernel refuses root the file of another user in a directory that several
 * may write to (fs.protected_regular). No link is followed: root may append in a directory of another user, who could lead it
 * to any file by a link.
 */
export const APPENDING = constants.O_WRONLY | constants.O_APPEND | constants.O_NONBLOCK | constants.O_NOFOLLOW

/** An error of opening so, in words where the file is a link. */
function namedLink(file: string, error: NodeJS.ErrnoException): Error {
  const { code, errno } = error
  if (code !== 'ELOOP') return error
  const message = `${file} is a link, and svcd follows none here: put the file itself in its place`
  return Object.assign(new Error(message), { code, errno })
}

function openToAppend(file: string): number {
  try {
    return openSync(file, APPENDING)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT')
      throw namedLink(file, error as NodeJS.ErrnoException)
    return openSync(file, APPENDING | constants.O_CREAT, 0o600)
  }
}

interface Replacement {
  readonly file: string
  readonly text: string
  readonly temporary: string
  descriptor?: number
}

/** All are written before the first is synced: what one sync makes durable, the next ones need not wait for. */
function replaceAll(files: readonly Replacement[], firstStep: number): void {
  const directories = new Set<string>()
  const rounds: ((file: Replacement) => void)[] = [
    file => {
      const directory = dirname(file.file)
      if (!directories.has(directory)) refuseForeignLink(directory)
      directories.add(directory)
      file.descriptor = openSync(file.temporary, 'wx', 0o600)
      writeFileSync(file.descriptor, file.text)
      fchmodSync(file.descriptor, 0o600)
    },
    file => fsyncSync(file.descriptor as number),
    closed,
    file => renameSync(file.temporary, file.file)
  ]
  for (const round of rounds) {
    for (const [i, file] of files.entries()) {
      try {
        round(file)
      } catch (error) {
        for (const left of files) discard(left)
        throw StepError.of(namedAs(file.file, file.temporary, error as Error), firstStep + i)
      }
    }
  }
}

function closed(file: Replacement): void {
  const { descriptor } = file
  delete file.descriptor
  if (descriptor !== undefined) closeSync(descriptor)
}

/** Closes and removes what a failure left of a replacement. Where that fails too, the next start removes it. */
function discard(file: Replacement): void {
  for (const work of [() => closed(file), () => rmSync(file.temporary, { force: true })]) {
    try {
      work()
    } catch {}
  }
}

interface Asked {
  done(): void
  failed(error: Error): void
}

/**
 * Carries out steps on the disk in a thread of its own: several system calls cost the event loop one message, where each
 * call of node:fs/promises costs it a wait of its own. The thread starts with the first steps, and does not keep the process alive.
 */
export class DiskThread {
  #worker: Worker | undefined
  /** In the order in which they were asked for: the answers come in the same. */
  #asked: Asked[] = []

  /**
   * Resolves when all steps are done. Rejects with a StepError for the first that fails; those after it are not begun. Another
   * Error: the thread has ended, and what was done is not known.
   */
  carryOut(steps: readonly DiskStep[]): Promise<void> {
    return new Promise((done, failed) => {
      this.#worker ??= this.#start()
      this.#worker.postMessage(steps)
      if (this.#asked.push({ done, failed }) === 1) this.#worker.ref()
    })
  }

  #start(): Worker {
    const worker = new Worker(new URL('./steps-worker.js', import.meta.url), { execArgv: [] })
    worker.on('message', (failure?: StepError) => {
      // The answers of a thread that has ended may come after its error.
      if (this.#worker !== worker) return
      const asked = this.#asked.shift()
      if (this.#asked.length === 0) worker.unref()
      if (failure) asked?.failed(new StepError(failure.message, failure.step, failure.code, failure.errno))
      else asked?.done()
    })
    worker.once('error', error => this.#ended(worker, error))
    worker.once('exit', status =>
      this.#ended(worker, new Error(`the thread for the disk ended with ${status}`))
    )
    return worker
  }

  /** The next steps get a new thread; whether those under way were done is not known. */
  #ended(worker: Worker, error: Error): void {
    if (this.#worker !== worker) return
    this.#worker = undefined
    for (const { failed } of this.#asked.splice(0)) failed(error)
  }
}

/** A file open for appending. */
export interface LogFile {
  /** For steps that append to it. */
  readonly fd: number
  appendFile(text: string): Promise<void>
  datasync(): Promise<void>
  truncate(sizeBytes: number): Promise<void>
  close(): Promise<void>
}

/** Every write of the store and its journals goes through here, so that tests can make it fail or wait. */
export interface FileLayer {
  /** Carries out steps one after the other. Rejects with a StepError for the first that fails; those after it are not begun. */
  inOrder(steps: readonly DiskStep[]): Promise<void>
  /**
   * As the step of that name. A text in pieces is made as it is written, a piece in each turn of the event loop: for one
   * that may be long.
   */
  replace(file: string, text: string | Iterable<string>): Promise<void>
  rename(from: string, to: string): Promise<void>
  /** As the step of that name. */
  syncDirectory(directory: string): Promise<void>
  /** Opens for appending (made 0600 when missing); `empty`: what it held is gone. */
  openLog(file: string, empty: boolean): Promise<LogFile>
}

const thread = new DiskThread()

/** The real file system. */
export const realFiles: FileLayer = {
  inOrder: steps => thread.carryOut(steps),
  replace: replaceFile,
  rename,
  syncDirectory,

  async openLog(file, empty) {
    const found = await unlessMissing(open(file, APPENDING), undefined).catch(error => {
      throw namedLink(file, error)
    })
    const handle = found ?? (await open(file, APPENDING | constants.O_CREAT, 0o600))
    if (empty) await handle.truncate(0)
    return handle
  }
}
