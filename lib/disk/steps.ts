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
import { dirname } from 'node:path'
import { namedAs, temporaryOf } from './replace.js'
import { refuseForeignLink } from './trusted-path.js'

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
    } else if ('syncDirectory' in step) syncDirectory(step.syncDirectory)
    else if ('append' in step) append(step.append, step.text)
    else if ('appendTo' in step) appendTo(step.appendTo, step.text)
    else if ('same' in step && identityIn(statSync(step.same, { bigint: true })) !== step.identity)
      throw new Error(step.otherwise)
  } catch (error) {
    throw StepError.of(error, number)
  }
}

function syncDirectory(directory: string): void {
  const descriptor = openSync(directory, 'r')
  try {
    fsyncSync(descriptor)
  } finally {
    closeSync(descriptor)
  }
}

function appendTo(file: string, text: string): void {
  const descriptor = openToAppend(file)
  try {
    writeFileSync(descriptor, text)
  } finally {
    closeSync(descriptor)
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
export function namedLink(file: string, error: NodeJS.ErrnoException): Error {
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

function append(descriptor: number, text: string): void {
  writeFileSync(descriptor, text)
  fdatasyncSync(descriptor)
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
