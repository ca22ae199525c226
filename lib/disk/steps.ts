import {
  closeSync,
  constants,
  fchmodSync,
  fdatasyncSync,
  fsyncSync,
  lstatSync,
  openSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync
} from 'node:fs'
import { open } from 'node:fs/promises'
import { dirname } from 'node:path'
import { crc32c } from '../base/crc32c.js'
import { Thread } from '../base/thread.js'
import {
  linkError,
  readRegularFileSync,
  refuseForeignLink,
  replaceFile,
  syncDirectory,
  temporaryOf,
  unlessMissing,
  withDescriptor,
  withFileName
} from './file.js'

/** A step of disk I/O as plain data, for another thread. */
export type DiskStep =
  /** Replaces the file's content durably; its name is not durable yet (see replaceFile). */
  | { readonly replace: string; readonly text: string; readonly unedited?: Unedited | undefined }
  /** Removes a file, which may be missing; not durable yet. */
  | { readonly remove: string; readonly unedited?: Unedited | undefined }
  /** Makes the names in a directory durable. */
  | { readonly syncDirectory: string }
  /** Writes at a position of a file, then zeros if there is room; `sync`: durably, all before too. */
  | {
      readonly write: number
      readonly position: number
      readonly bytes: Uint8Array
      readonly zeros: number
      readonly sync: boolean
    }
  /** Appends to a file, created 0600 if missing; not durable. */
  | { readonly appendTo: string; readonly text: string }
  /** Fails with the message `otherwise` if the path leads to another directory than this identity. */
  | { readonly same: string; readonly identity: string; readonly otherwise: string }

/**
 * The contents that a file may have before a step: their CRC-32Cs, undefined for a missing file; `any`: no
 * admin edits it. A file with another content, changed since that time (in milliseconds since 1970), was
 * edited by hand: it is kept beside it as `<file>.<time>.edited~`.
 */
export interface Unedited {
  readonly known: readonly (number | undefined)[] | 'any'
  readonly sinceMs?: number | undefined
}

/** Tells which of several steps failed. */
export class StepError extends Error {
  override readonly name = 'StepError'

  constructor(
    message: string,
    /** Index of the failed step. Earlier steps are done, but replacements directly before it may not be. */
    readonly step: number,
    readonly code?: string,
    readonly errno?: number,
    /** The names under which edited files were kept before it. */
    readonly kept: readonly string[] = []
  ) {
    super(message)
  }

  static of(error: unknown, step: number, kept?: readonly string[]): StepError {
    const { message, code, errno } = error as NodeJS.ErrnoException
    return new StepError(message, step, code, errno, kept)
  }
}

/** Device and inode of a directory: equal for every path to it, through links and bind mounts too. */
export const identityIn = ({ dev, ino }: { dev: bigint; ino: bigint }) => `${dev}:${ino}`

/** Runs steps in order; returns the names of edited files that were kept. Throws StepError. */
export function runSteps(steps: readonly DiskStep[]): string[] {
  const kept: string[] = []
  try {
    runAll(steps, kept)
  } catch (error) {
    throw error instanceof StepError ? StepError.of(error, error.step, kept) : error
  }
  return kept
}

/** `runSteps`, which adds the names of edited files to `kept`. */
function runAll(steps: readonly DiskStep[], kept: string[]): void {
  for (let i = 0; i < steps.length; ) {
    const files: Replacement[] = []
    for (let step = steps[i]; step && 'replace' in step; step = steps[i + files.length]) {
      kept.push(...keepEdited(step, i + files.length))
      files.push({ file: step.replace, text: step.text, temporary: temporaryOf(step.replace) })
    }
    if (files.length > 0) replaceAll(files, i)
    else {
      const step = steps[i] as DiskStep
      kept.push(...keepEdited(step, i))
      runStep(step, i)
    }
    i += files.length || 1
  }
}

/** Gives a file that was edited by hand another name; returns it, or nothing. Throws StepError. */
function keepEdited(step: DiskStep, number: number): string[] {
  if (!('unedited' in step) || step.unedited === undefined) return []
  const [file, text] = 'replace' in step ? [step.replace, step.text] : [step.remove, undefined]
  try {
    if (!isEdited(file, step.unedited, [text])) return []
    const kept = `${file}.${Date.now()}.edited~`
    renameSync(file, kept)
    return [kept]
  } catch (error) {
    throw StepError.of(error, number)
  }
}

/** Whether a file was changed since then to other than `known` or `texts`. Throws the system's error. */
export function isEdited(
  file: string,
  { known, sinceMs = 0 }: Unedited,
  texts: readonly (string | undefined)[]
): boolean {
  if (known === 'any') return false
  const stat = lstatSync(file, { throwIfNoEntry: false })
  // The time of a copy or a moved file may be older than its change here.
  if (!stat?.isFile() || stat.ctimeMs < sinceMs) return false
  const content = readRegularFileSync(file)
  return !known.includes(crc32c(content)) && !texts.some(text => content.equals(Buffer.from(text ?? '')))
}

function runStep(step: DiskStep, number: number): void {
  try {
    if ('remove' in step) {
      refuseForeignLink(dirname(step.remove))
      rmSync(step.remove, { force: true })
    } else if ('syncDirectory' in step) withDescriptor(openSync(step.syncDirectory, 'r'), fsyncSync)
    else if ('write' in step) {
      writeAt(step.write, step.bytes, step.position)
      if (step.zeros > 0)
        tryToWrite(step.write, new Uint8Array(step.zeros), step.position + step.bytes.length)
      if (step.sync) fdatasyncSync(step.write)
    } else if ('appendTo' in step)
      withDescriptor(openToAppend(step.appendTo), fd => writeFileSync(fd, step.text))
    else if ('same' in step && identityIn(statSync(step.same, { bigint: true })) !== step.identity)
      throw new Error(step.otherwise)
  } catch (error) {
    throw StepError.of(error, number)
  }
}

/** Writes as much as there is room for. */
function tryToWrite(fd: number, bytes: Uint8Array, position: number): void {
  try {
    writeSync(fd, bytes, 0, bytes.length, position)
  } catch {}
}

/** Writes all bytes: a disk that is nearly full takes a part of them first. */
function writeAt(fd: number, bytes: Uint8Array, position: number): void {
  for (let done = 0; done < bytes.length; )
    done += writeSync(fd, bytes, done, bytes.length - done, position + done)
}

/**
 * Flags to open a file for writing. O_NONBLOCK: a pipe of that name would block until it is read. O_CREAT
 * only in a second try: with it, the kernel refuses root another user's file in a shared directory
 * (fs.protected_regular). O_NOFOLLOW: in another user's directory, a link could lead root to any file.
 */
const WRITING = constants.O_WRONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW

/** The same for appending. */
export const APPENDING = WRITING | constants.O_APPEND

/** Explains the error of opening a link. */
function explainLink(file: string, error: NodeJS.ErrnoException): Error {
  return error.code === 'ELOOP' ? linkError(file) : error
}

function openToAppend(file: string): number {
  try {
    return openSync(file, APPENDING)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT')
      throw explainLink(file, error as NodeJS.ErrnoException)
    return openSync(file, APPENDING | constants.O_CREAT, 0o600)
  }
}

interface Replacement {
  readonly file: string
  readonly text: string
  readonly temporary: string
  descriptor?: number
}

/** Writes all files before the first sync, which then makes most of the others durable too. */
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
    closeDescriptor,
    file => renameSync(file.temporary, file.file)
  ]
  for (const round of rounds) {
    for (const [i, file] of files.entries()) {
      try {
        round(file)
      } catch (error) {
        for (const left of files) discard(left)
        throw StepError.of(withFileName(file.file, file.temporary, error as Error), firstStep + i)
      }
    }
  }
}

function closeDescriptor(file: Replacement): void {
  const { descriptor } = file
  delete file.descriptor
  if (descriptor !== undefined) closeSync(descriptor)
}

/** Closes and removes a failed replacement's temporary file. If that fails, the next start does it. */
function discard(file: Replacement): void {
  for (const work of [() => closeDescriptor(file), () => rmSync(file.temporary, { force: true })]) {
    try {
      work()
    } catch {}
  }
}

/** Runs steps in its own thread: many system calls cost the event loop one message, not a wait for each. */
export class DiskThread {
  readonly #thread = new Thread<readonly DiskStep[], Failure | readonly string[]>(
    new URL('./steps-worker.js', import.meta.url)
  )

  /**
   * Resolves when all steps are done, with the names under which edited files were kept. Rejects with a
   * StepError for the first failure; later steps are not run. Another Error: the thread has died, and the
   * outcome is unknown.
   */
  async run(steps: readonly DiskStep[]): Promise<readonly string[]> {
    const answer = await this.#thread.ask(steps)
    if ('step' in answer)
      throw new StepError(answer.message, answer.step, answer.code, answer.errno, answer.kept)
    return answer
  }
}

/** A StepError as an object, because an error loses its fields between threads. */
export type Failure = Pick<StepError, 'message' | 'step' | 'code' | 'errno' | 'kept'>

/** A file open for writing. */
export interface LogFile {
  /** For `write` steps. */
  readonly fd: number
  datasync(): Promise<void>
  truncate(sizeBytes: number): Promise<void>
  close(): Promise<void>
}

/** All writes of the store go through here, so that tests can make them fail or wait. */
export interface FileLayer {
  /**
   * Runs steps in order; resolves with the names under which edited files were kept. Rejects with a StepError
   * for the first failure; later steps are not run. Steps `behind` the answers do not delay others.
   */
  runSteps(steps: readonly DiskStep[], lane?: 'behind'): Promise<readonly string[]>
  /** Like the step. A long text may come in pieces, produced one per turn of the event loop. */
  replace(file: string, text: string | Iterable<string>): Promise<void>
  /** Like the step. */
  syncDirectory(directory: string): Promise<void>
  /** Opens for `write` steps (created 0600 if missing); `empty` truncates it. */
  openLog(file: string, empty: boolean): Promise<LogFile>
}

const thread = new DiskThread()
const threadBehind = new DiskThread()

/** The real file system. */
export const realFiles: FileLayer = {
  runSteps: (steps, lane) => (lane ? threadBehind : thread).run(steps),
  replace: replaceFile,
  syncDirectory,

  async openLog(file, empty) {
    const found = await unlessMissing(open(file, WRITING), undefined).catch(error => {
      throw explainLink(file, error)
    })
    const handle = found ?? (await open(file, WRITING | constants.O_CREAT, 0o600))
    if (empty) await handle.truncate(0)
    return handle
  }
}
