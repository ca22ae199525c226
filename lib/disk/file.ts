import { randomBytes } from 'node:crypto'
import { closeSync, constants, fstatSync, lstatSync, openSync, readSync, type Stats, statSync } from 'node:fs'
import { type FileHandle, link, lstat, mkdir, open, rename, rm, stat, unlink } from 'node:fs/promises'
import { basename, dirname, join, resolve } from 'node:path'

const MISSING = ['ENOENT', 'ENOTDIR']

/** Whether an error says that a file, or a directory above it, is not there. */
export const isMissing = (error: unknown): boolean =>
  MISSING.includes((error as NodeJS.ErrnoException | undefined)?.code ?? '')

/** What an operation on a file gives; `otherwise` where that file is not there. Throws what else goes wrong. */
export async function unlessMissing<T, O>(operation: Promise<T>, otherwise: O): Promise<T | O> {
  try {
    return await operation
  } catch (error) {
    if (isMissing(error)) return otherwise
    throw error
  }
}

/** Whether something, be it a link to nothing, has this name. */
export const exists = (path: string): Promise<boolean> =>
  unlessMissing(
    lstat(path).then(() => true),
    false
  )

/** Whether a regular file, no link to one, has this name. */
export const isFile = async (path: string): Promise<boolean> =>
  (await lstat(path).catch(() => undefined))?.isFile() ?? false

/** Whether a path is, or a link leads to, a regular file. One that may not be looked at counts as there. */
export const hasFile = (path: string): boolean => isKind(path, found => found.isFile())

/** Whether a path is, or a link leads to, a directory. One that may not be looked at counts as there. */
export const hasDirectory = (path: string): boolean => isKind(path, found => found.isDirectory())

function isKind(path: string, test: (found: Stats) => boolean): boolean {
  try {
    return test(statSync(path))
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EACCES'
  }
}

const chunkBytes = 1 << 20

/** Does work with a file, a directory or whatever else is opened for it, and closes it. */
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

/**
 * Makes a file (0600) that must not be there yet, and has it filled; `owner` gets it. When that fails, it is removed and
 * what failed is thrown.
 */
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

/** Copies an open file, which it closes, to a new one (0600); durable but for its name when it resolves. */
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

/** Whether two files hold the same. */
export async function sameBytes(one: string, other: string, signal: AbortSignal): Promise<boolean> {
  const [a, b] = [await open(one), await open(other)]
  try {
    if ((await a.stat()).size !== (await b.stat()).size) return false
    const [ofA, ofB] = [Buffer.allocUnsafe(chunkBytes), Buffer.allocUnsafe(chunkBytes)]
    for (;;) {
      signal.throwIfAborted()
      const [bytes, others] = await Promise.all([fillBuffer(a, ofA), fillBuffer(b, ofB)])
      if (!ofA.subarray(0, bytes).equals(ofB.subarray(0, others))) return false
      if (bytes === 0) return true
    }
  } finally {
    await Promise.all([a.close(), b.close()])
  }
}

/** Reads on until the buffer is full or the file ends; gives the bytes that were read. */
export async function fillBuffer(file: FileHandle, buffer: Buffer): Promise<number> {
  let filled = 0
  for (;;) {
    const { bytesRead } = await file.read(buffer, filled, buffer.length - filled, null)
    filled += bytesRead
    if (bytesRead === 0 || filled === buffer.length) return filled
  }
}

/** Makes the contents of a file durable, and gives it a mode. */
export const syncFile = (file: string, mode: number): Promise<void> =>
  withOpen(open(file, 'r'), async handle => {
    await handle.chmod(mode)
    await handle.sync()
  })

// Without it, to open a pipe waits until somebody writes to it.
const FLAGS = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY

const refused = (file = '') =>
  new Error(`${file}it is not a regular file; move it away, or put the file of a backup in its place`)

/**
 * The bytes of a regular file. Throws the error of the operating system, and an Error for a pipe or a device; both name
 * the file.
 */
export const readRegularFile = (file: string): Promise<Buffer> =>
  withOpen(open(file, FLAGS), async handle => {
    if (!(await handle.stat()).isFile()) throw refused(`${file}: `)
    return handle.readFile()
  })

/** The same, synchronously. The Error for a pipe or a device does not name the file: who asks does. */
export const readRegularFileSync = (file: string): Buffer =>
  withDescriptor(openSync(file, FLAGS), descriptor => {
    const stat = fstatSync(descriptor)
    if (!stat.isFile()) throw refused()
    // readFileSync would ask for its size again: a start may read 100,000 files.
    const bytes = Buffer.allocUnsafe(stat.size)
    let size = 0
    for (let read = -1; size < bytes.length && read !== 0; size += read)
      read = readSync(descriptor, bytes, size, bytes.length - size, null)
    return bytes.subarray(0, size)
  })

const keyBytes = 32

/**
 * Reads a key of 32 random bytes, and makes its file (mode 0600) where there is none; `made` is called then. `loss` says
 * what is lost with the key. Throws Error when the file cannot be read, is not a key, or others than its owner may read
 * or replace it; it is never overwritten.
 */
export async function openKey(file: string, loss: string, made = () => {}): Promise<Buffer> {
  if (await createOnce(file, randomBytes(keyBytes))) made()
  return readKey(file, loss)
}

/** The same for a key that must be there. */
export async function readKey(file: string, loss: string): Promise<Buffer> {
  const key = await readRegularFile(file)
  const restore = `restore it, or remove it, which ${loss}`
  if (key.length !== keyBytes)
    throw new Error(`${file} is damaged (${key.length} bytes, not ${keyBytes}): ${restore}`)
  if (key.every(byte => byte === key[0]))
    throw new Error(`${file} is damaged (all bytes are alike): ${restore}`)
  await refuseOthers(file, 0o077, '0600', 'others than its owner may read it')
  await refuseOthers(dirname(file), 0o022, '0700', 'others than its owner may replace the key in it')
  return key
}

/** A group that may write to a sticky directory replaces only what is its members' own. */
const STICKY = 0o1000
const GROUP = 0o070

/** Throws Error, which names path and mode, where the mode has one of these bits; `why` they are too many. */
export async function refuseOthers(path: string, bits: number, wanted: string, why: string): Promise<void> {
  const mode = (await stat(path)).mode & 0o7777
  if (mode & bits & ~(mode & STICKY ? GROUP : 0))
    throw new Error(
      `${path} has mode ${mode.toString(8).padStart(4, '0')}: ${why}; give it mode ${wanted} (chmod ${wanted} ${path})`
    )
}

/** What a file gets: whole, or in pieces, each of which is made when the one before it is written. */
type Content = string | Buffer | Iterable<string>

/**
 * Gives a file its whole new content: it holds the old one or the new one, never a part. The content is durable when
 * this resolves, the name is not yet (see replaceDurably). The temporary file beside it is hidden. A link of that
 * name is replaced, not followed: some of these directories belong to others. Throws the error of the operating system,
 * and Error where the directory is a link of another user than root and this one.
 * Its message names the file and not the temporary one, so that a second failure has the same message as the first.
 */
export async function replaceFile(file: string, content: Content, mode = 0o600): Promise<void> {
  const temporary = temporaryOf(file)
  await refuseForeignLinkTo(dirname(file))
  try {
    await writeNew(temporary, content, mode)
    await rename(temporary, file)
  } catch (error) {
    await rm(temporary, { force: true }).catch(() => {})
    throw namedAs(file, temporary, error as Error)
  }
}

/** A name beside a file for its new content, until that is complete. */
export const temporaryOf = (file: string) =>
  join(dirname(file), `.${basename(file)}.${randomBytes(6).toString('hex')}`)

/** The error of a system call on the temporary file, as one of the file itself. */
export function namedAs(file: string, temporary: string, error: Error): Error {
  error.message = error.message.replace(`${temporary}' -> '`, '').replaceAll(temporary, file)
  return error
}

/** Makes a file that must not be there yet, with this content and mode; durable but for its name when it resolves. */
export const writeNew = (file: string, content: Content, mode: number): Promise<void> =>
  withOpen(open(file, 'wx', mode), async handle => {
    if (typeof content === 'string' || Buffer.isBuffer(content)) await handle.writeFile(content)
    else for (const piece of content) await handle.writeFile(piece)
    await handle.chmod(mode)
    await handle.sync()
  })

/** Whether a name is that of a temporary file that a killed replaceFile, or the library used before it, left. */
export const isLeftover = (name: string) => /^\..+\.[0-9a-f]{12}$|\.json\.\d+$/.test(name)

/** The same, its name durable too. */
export async function replaceDurably(file: string, content: Content, mode = 0o600): Promise<void> {
  await replaceFile(file, content, mode)
  await syncDirectory(dirname(file))
}

/** Makes the names in a directory durable. */
export const syncDirectory = (directory: string): Promise<void> =>
  withOpen(open(directory), handle => handle.sync())

/** Makes a directory (0700), and those above it, where there is none; it outlives a power cut. */
export async function makeDirectory(directory: string, sync = syncDirectory): Promise<void> {
  const first = await mkdir(directory, { recursive: true, mode: 0o700 })
  if (first === undefined) return
  for (let made = resolve(directory); made.length >= first.length; made = dirname(made))
    await sync(dirname(made))
}

/**
 * Makes a file (0600, its directory 0700) with these bytes, whole and durable, unless it exists: true
 * when this call made it. An existing file is never touched, also when two processes ask at once.
 */
export async function createOnce(file: string, bytes: string | Uint8Array): Promise<boolean> {
  // A start needs no writable state for what is there already.
  if (await exists(file)) return false
  await makeDirectory(dirname(file))
  const temporary = `${file}.${randomBytes(6).toString('hex')}.new`
  const handle = await open(temporary, 'wx', 0o600)
  try {
    await handle.writeFile(bytes)
    await handle.sync()
    // Unlike rename, link fails when the name is taken.
    await link(temporary, file)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false
    throw error
  } finally {
    await handle.close()
    await unlink(temporary)
  }
  await syncDirectory(dirname(file))
  return true
}

/** Throws Error that names a link of anybody but root and this user: they would be led by it into any directory. */
export function refuseForeign(path: string, stat: Stats | undefined): void {
  const user = process.getuid?.()
  if (!stat?.isSymbolicLink() || stat.uid === 0 || stat.uid === user) return
  const us = user === 0 ? 'root' : `user ${user}`
  throw new Error(`${path} is a link that belongs to user ${stat.uid}: remove it, or make it again as ${us}`)
}

/** The same for the last name of a path alone; nothing may be there. */
export const refuseForeignLink = (path: string) =>
  refuseForeign(path, lstatSync(path, { throwIfNoEntry: false }))

/** The same, without holding the event loop. */
export const refuseForeignLinkTo = async (path: string) =>
  refuseForeign(path, await unlessMissing(lstat(path), undefined))

/** Does work with a descriptor that is opened for it, synchronously, and closes it. */
export function withDescriptor<T>(descriptor: number, work: (descriptor: number) => T): T {
  try {
    return work(descriptor)
  } finally {
    closeSync(descriptor)
  }
}
