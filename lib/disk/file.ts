import { randomBytes } from 'node:crypto'
import { closeSync, constants, fstatSync, lstatSync, openSync, readSync, type Stats, statSync } from 'node:fs'
import {
  type FileHandle,
  link,
  lstat,
  mkdir,
  open,
  readdir,
  rename,
  rm,
  stat,
  writeFile
} from 'node:fs/promises'
import { constants as os } from 'node:os'
import { basename, dirname, join, resolve } from 'node:path'

// Node ignores the signal, so that a file at its limit of size (EFBIG) is an error. write-file-atomic and
// proper-lockfile would end the process, by signal-exit, unless somebody listens.
process.on('SIGXFSZ', () => {})

const MISSING = ['ENOENT', 'ENOTDIR']

/** Whether an error means that a file, or a directory above it, is missing. */
export const isMissing = (error: unknown): boolean =>
  MISSING.includes((error as NodeJS.ErrnoException | undefined)?.code ?? '')

/** Returns the result of a file operation; `otherwise` if the file is missing. Rethrows other errors. */
export async function unlessMissing<T, O>(operation: Promise<T>, otherwise: O): Promise<T | O> {
  try {
    return await operation
  } catch (error) {
    if (isMissing(error)) return otherwise
    throw error
  }
}

/** Whether this name exists, even as a dangling link. */
export const exists = (path: string): Promise<boolean> =>
  unlessMissing(
    lstat(path).then(() => true),
    false
  )

/** Whether this name is a regular file, not a link. */
export const isFile = async (path: string): Promise<boolean> =>
  (await lstat(path).catch(() => undefined))?.isFile() ?? false

/** Whether a path leads to a regular file, through links too. True if it may not be examined. */
export const hasFile = (path: string): boolean => isKind(path, found => found.isFile())

/** Whether a path leads to a directory, through links too. True if it may not be examined. */
export const hasDirectory = (path: string): boolean => isKind(path, found => found.isDirectory())

function isKind(path: string, test: (found: Stats) => boolean): boolean {
  try {
    return test(statSync(path))
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EACCES'
  }
}

const chunkBytes = 1 << 20

/** Runs `work` with an opened handle, and closes it. */
export async function withOpen<H extends { close(): Promise<unknown> }, T>(
  opened: Promise<H>,
  work: (handle: H) => Promise<T>
): Promise<T> {
  const handle = await opened
  try {
    return await work(handle)
  } finally {
    await handle.close()
  }
}

/** Creates a new file (0600, owned by `owner`) and fills it. On failure, removes it and rethrows. */
export async function fillNew<T>(
  path: string,
  fill: (file: FileHandle) => Promise<T>,
  owner?: { readonly uid: number; readonly gid: number }
): Promise<T> {
  return withOpen(open(path, 'wx', 0o600), async file => {
    try {
      if (owner !== undefined) await file.chown(owner.uid, owner.gid)
      return await fill(file)
    } catch (error) {
      await rm(path, { force: true })
      throw error
    }
  })
}

/** Copies an open file, which it closes, to a new one (0600), synced; its name is not durable yet. */
export async function copyTo(
  from: FileHandle,
  to: string,
  signal: AbortSignal,
  owner?: { readonly uid: number; readonly gid: number }
): Promise<void> {
  try {
    await fillNew(
      to,
      async into => {
        const chunk = Buffer.allocUnsafe(chunkBytes)
        for (;;) {
          signal.throwIfAborted()
          const { bytesRead } = await from.read(chunk, 0, chunk.length, null)
          if (bytesRead === 0) break
          await into.writeFile(chunk.subarray(0, bytesRead))
        }
        await into.sync()
      },
      owner
    )
  } finally {
    await from.close()
  }
}

/** Whether two files have equal content. */
export const sameBytes = (one: string, other: string, signal: AbortSignal): Promise<boolean> =>
  withOpen(open(one), a =>
    withOpen(open(other), async b => {
      if ((await a.stat()).size !== (await b.stat()).size) return false
      const [ofA, ofB] = [Buffer.allocUnsafe(chunkBytes), Buffer.allocUnsafe(chunkBytes)]
      for (;;) {
        signal.throwIfAborted()
        const [bytes, others] = await Promise.all([fillBuffer(a, ofA), fillBuffer(b, ofB)])
        if (!ofA.subarray(0, bytes).equals(ofB.subarray(0, others))) return false
        if (bytes === 0) return true
      }
    })
  )

/** Reads until the buffer is full or the file ends; returns the number of bytes. */
export async function fillBuffer(file: FileHandle, buffer: Buffer): Promise<number> {
  let filled = 0
  for (;;) {
    const { bytesRead } = await file.read(buffer, filled, buffer.length - filled, null)
    filled += bytesRead
    if (bytesRead === 0 || filled === buffer.length) return filled
  }
}

/** Sets the mode of a file, and makes its content durable. */
export const syncFile = (file: string, mode: number): Promise<void> =>
  withOpen(open(file, 'r'), async handle => {
    await handle.chmod(mode)
    await handle.sync()
  })

// O_NONBLOCK: opening a pipe would wait for its writer.
const FLAGS = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY

const notRegular = (file = '') =>
  new Error(`${file}it is not a regular file; move it away, or put the file of a backup in its place`)

/** Reads a regular file. Throws the system's error, or Error for a pipe or device; both name the file. */
export const readRegularFile = (file: string): Promise<Buffer> =>
  withOpen(open(file, FLAGS), async handle => {
    if (!(await handle.stat()).isFile()) throw notRegular(`${file}: `)
    return handle.readFile()
  })

/** `readRegularFile`, synchronously. Its own Error does not name the file. */
export const readRegularFileSync = (file: string): Buffer =>
  withDescriptor(openSync(file, FLAGS), descriptor => {
    const stat = fstatSync(descriptor)
    if (!stat.isFile()) throw notRegular()
    // readFileSync would ask for the size again; a start may read 100,000 files.
    const bytes = Buffer.allocUnsafe(stat.size)
    let size = 0
    for (let read = -1; size < bytes.length && read !== 0; size += read)
      read = readSync(descriptor, bytes, size, bytes.length - size, null)
    return bytes.subarray(0, size)
  })

const keyBytes = 32

/**
 * Reads a key of 32 random bytes; creates the file (mode 0600) if it is missing, and calls `made`. `loss`:
 * the consequence of removing it. Throws Error if the file is unreadable, no key, or readable or replaceable
 * by others than its owner; it is never overwritten.
 */
export async function openKey(file: string, loss: string, made = () => {}): Promise<Buffer> {
  if (await createOnce(file, randomBytes(keyBytes))) made()
  return readKey(file, loss)
}

/** `openKey` for a key that must exist. */
export async function readKey(file: string, loss: string): Promise<Buffer> {
  const key = await readRegularFile(file)
  const restore = `restore it, or remove it, which ${loss}`
  if (key.length !== keyBytes)
    throw new Error(`${file} is damaged (${key.length} bytes, not ${keyBytes}): ${restore}`)
  if (key.every(byte => byte === key[0]))
    throw new Error(`${file} is damaged (all bytes are alike): ${restore}`)
  await refuseLooseMode(file, 0o077, '0600', 'others than its owner may read it')
  await refuseLooseMode(dirname(file), 0o022, '0700', 'others than its owner may replace the key in it')
  return key
}

/** Reads a file with a secret that an admin made. Throws Error if others than owner and group may read it. */
export async function readSecret(file: string): Promise<Buffer> {
  const bytes = await readRegularFile(file)
  await refuseLooseMode(file, 0o037, '0640', 'others than its owner and its group may read or change it')
  return bytes
}

/** Reads the password in such a file. Throws Error if it is not one line of text. */
export async function readPassword(file: string): Promise<string> {
  const password = (await readSecret(file)).toString().replace(/\r?\n$/, '')
  if (password === '' || password.length > 1000 || /[\u0000-\u001f\u007f\ufffd]/.test(password))
    throw new Error(`${file} holds no password: put it there, one line of text`)
  return password
}

/** In a sticky directory, members of a writing group replace only their own files. */
const STICKY = 0o1000
const GROUP = 0o070

/** Throws Error with path and mode if the mode has one of these bits; `why` explains. */
export async function refuseLooseMode(
  path: string,
  bits: number,
  wanted: string,
  why: string
): Promise<void> {
  const mode = (await stat(path)).mode & 0o7777
  if (mode & bits & ~(mode & STICKY ? GROUP : 0))
    throw new Error(
      `${path} has mode ${mode.toString(8).padStart(4, '0')}: ` +
        `${why}; give it mode ${wanted} (chmod ${wanted} ${path})`
    )
}

/** Content of a file: whole, or in pieces that are produced while writing. */
type Content = string | Uint8Array | Iterable<string>

/**
 * Replaces a file atomically, by write-file-atomic; writes of one file take turns, in no order. The content
 * is durable when this resolves; the name is not yet (see replaceDurably). Throws the system's error, and
 * Error for a link in the place of the file, or for a directory that is a link of another user than root and
 * this one. The message names the file, not the temporary one, so that repeated failures have equal messages.
 */
export async function replaceFile(file: string, content: Content, mode = 0o600): Promise<void> {
  await refuseForeignLinkTo(dirname(file))
  // The package would replace what the link leads to.
  if ((await unlessMissing(lstat(file), undefined))?.isSymbolicLink()) throw linkError(file)
  // svcctl, which starts at each Tab, seldom needs it.
  const { default: writeFileAtomic } = await import('write-file-atomic')
  try {
    await writeFileAtomic(file, '', {
      mode,
      // Documented, but not in its types: the file belongs to this user.
      chown: false as unknown as undefined,
      // The package's own write(2) may take a part on a full disk, and the package does not notice.
      tmpfileCreated: temporary => writeFile(temporary, content, { flag: 'r+' })
    })
  } catch (error) {
    throw withFileName(file, (error as NodeJS.ErrnoException).path ?? file, error as Error)
  }
}

/**
 * `replaceFile` in a directory where another user can make names; a link in the place of the file is
 * replaced. The package would follow a link of that user: its temporary names can be guessed, it opens them
 * without O_EXCL, and it resolves the path once more.
 */
export async function replaceAmongOthers(file: string, content: Content, mode: number): Promise<void> {
  const temporary = temporaryOf(file)
  await refuseForeignLinkTo(dirname(file))
  try {
    await writeNew(temporary, content, mode)
    await rename(temporary, file)
  } catch (error) {
    await rm(temporary, { force: true }).catch(() => {})
    throw withFileName(file, temporary, error as Error)
  }
}

/** A hidden name beside a file for its incomplete content. */
export const temporaryOf = (file: string) =>
  join(dirname(file), `.${basename(file)}.${randomBytes(6).toString('hex')}`)

/** Replaces the temporary file's name in a system call's error with the file's. */
export function withFileName(file: string, temporary: string, error: Error): Error {
  error.message = error.message.replace(`${temporary}' -> '`, '').replaceAll(temporary, file)
  return error
}

/** Creates a file that must not exist; synced, but its name is not durable yet. */
export const writeNew = (file: string, content: Content, mode: number): Promise<void> =>
  withOpen(open(file, 'wx', mode), async handle => {
    await writeFile(handle, content)
    await handle.chmod(mode)
    await handle.sync()
  })

/** Whether a killed write left a file of this name in a state directory. */
export const isLeftover = (name: string) => /^\..+\.[0-9a-f]{12}$|\.(json|journal)\.\d+$/.test(name)

/** Removes the names beside a file that `rest` turns into its name: killed writes left them. */
export async function removeLeftovers(file: string, rest: RegExp): Promise<void> {
  const [directory, base] = [dirname(file), basename(file)]
  for (const name of await readdir(directory))
    if (name !== base && name.replace(rest, '') === base) await rm(join(directory, name), { force: true })
}

/** `replaceFile`, with a durable name. */
export async function replaceDurably(file: string, content: Content, mode = 0o600): Promise<void> {
  await replaceFile(file, content, mode)
  await syncDirectory(dirname(file))
}

/** Makes the names in a directory durable. */
export const syncDirectory = (directory: string): Promise<void> =>
  withOpen(open(directory), handle => handle.sync())

/** Creates a directory (0700) and its parents if missing; durable. */
export async function makeDirectory(directory: string, sync = syncDirectory): Promise<void> {
  const first = await mkdir(directory, { recursive: true, mode: 0o700 })
  if (first === undefined) return
  for (let made = resolve(directory); made.length >= first.length; made = dirname(made))
    await sync(dirname(made))
}

/** Creates a file (0600, directory 0700) durably unless it exists, also in a race; returns whether it did. */
export async function createOnce(file: string, bytes: string | Uint8Array): Promise<boolean> {
  // Existing files need no writable state at a start.
  if (await exists(file)) return false
  await makeDirectory(dirname(file))
  const temporary = `${file}.${randomBytes(6).toString('hex')}.new`
  try {
    await writeNew(temporary, bytes, 0o600)
    // Unlike rename, link fails if the name is taken.
    await link(temporary, file)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false
    throw error
  } finally {
    await rm(temporary, { force: true })
  }
  await syncDirectory(dirname(file))
  return true
}

/** The error of a link in the place of a file, with the code ELOOP. */
export const linkError = (file: string) =>
  Object.assign(
    new Error(`${file} is a link, and svcd follows none here: put the file itself in its place`),
    {
      code: 'ELOOP',
      errno: -os.errno.ELOOP
    }
  )

/** Throws Error for a link of another user than root and this one, who could lead us to any directory. */
export function refuseForeign(path: string, stat: Stats | undefined): void {
  const user = process.getuid?.()
  if (!stat?.isSymbolicLink() || stat.uid === 0 || stat.uid === user) return
  const us = user === 0 ? 'root' : `user ${user}`
  throw new Error(`${path} is a link that belongs to user ${stat.uid}: remove it, or make it again as ${us}`)
}

/** `refuseForeign` for the last component of a path, which may be missing. */
export const refuseForeignLink = (path: string) =>
  refuseForeign(path, lstatSync(path, { throwIfNoEntry: false }))

/** `refuseForeignLink`, asynchronously. */
const refuseForeignLinkTo = async (path: string) =>
  refuseForeign(path, await unlessMissing(lstat(path), undefined))

/** Runs `work` synchronously with a descriptor, and closes it. */
export function withDescriptor<T>(descriptor: number, work: (descriptor: number) => T): T {
  try {
    return work(descriptor)
  } finally {
    closeSync(descriptor)
  }
}
