import { constants, readFileSync } from 'node:fs'
import {
  type FileHandle,
  lstat,
  open,
  readdir,
  readFile,
  readlink,
  realpath,
  rmdir,
  unlink
} from 'node:fs/promises'
import { dirname } from 'node:path'
import { unlessMissing, withOpen } from './file.js'
import { shown } from './printable.js'

/** Flags that open a directory itself, never what a symbolic link in its place leads to. */
export const DIRECTORY = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW

/** Flags that open a file itself, neither through a link nor waiting for the other end of a pipe. */
export const FILE = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY

/**
 * The path of a name in an open directory (its descriptor), to be used as openat(2) would: whatever happens to the
 * directory's own path meanwhile, it stays in that directory. '' is the directory. Names are bytes, or text.
 */
export function entryPath(directory: number, name: Buffer | string): Buffer {
  return Buffer.concat([Buffer.from(`/proc/self/fd/${directory}/`), Buffer.from(name as string)])
}

/** A directory that is held open. Whatever is renamed meanwhile, what is done by `at` is done in this one. */
export interface OpenDirectory {
  /** Where it lay when it was opened: for messages, not for opening anything. */
  readonly path: string
  /**
   * The path of a name in it, or of the directory itself, for this process and the programs that it starts as the same
   * user. The name itself may be a link: `O_NOFOLLOW`, `O_EXCL` and the like are the caller's matter.
   */
  at(name?: string): string
}

/**
 * Does work in a directory below `top`, which must have no link in its path that others could change. `path` is relative,
 * '' for `top`. It is resolved once, name by name, and no link is followed. The directory is open until the work has
 * ended. Throws the error of the operating system for what is no directory: ENOENT, ENOTDIR (a link too).
 */
export async function inDirectory<T>(
  top: string,
  path: string,
  work: (directory: OpenDirectory) => Promise<T>
): Promise<T> {
  let handle = await open(top, DIRECTORY)
  try {
    for (const name of path === '' ? [] : path.split('/')) {
      if (name === '' || name === '.' || name === '..') throw new Error(`${path} is no plain path`)
      const next = await open(entryPath(handle.fd, name), DIRECTORY)
      await handle.close()
      handle = next
    }
    const { fd } = handle
    return await work({
      path: path === '' ? top : `${top === '/' ? '' : top}/${path}`,
      at: (name = '.') => `/proc/${process.pid}/fd/${fd}/${name}`
    })
  } finally {
    await handle.close()
  }
}

/**
 * The mount points in the text of a /proc/self/mountinfo, in its order: what is mounted in a mount comes after it, and
 * two mounts on one place are there twice. Other lines are left out, as a login shell may write some before it.
 */
export const mountPoints = (mountinfo: string): string[] =>
  mountinfo.split('\n').flatMap(line => {
    const point = /^\d+ \d+ \d+:\d+ [^ ]+ (\/[^ ]*) /.exec(line)?.[1]
    // Blanks, tabs, ends of lines and backslashes stand there as three octal digits.
    return point?.replace(/\\([0-7]{3})/g, (_, octal) => String.fromCharCode(Number.parseInt(octal, 8))) ?? []
  })

/**
 * Mount points at or below a directory, as `mountPoints` gives them. None for a directory that does not exist. Bytes
 * that are not UTF-8 are U+FFFD.
 */
export async function mountsBelow(directory: string): Promise<string[]> {
  const real = await unlessMissing(realpath(directory), undefined)
  if (real === undefined) return []
  const below = real === '/' ? '/' : `${real}/`
  return mountPoints(await readFile('/proc/self/mountinfo', 'utf8')).filter(
    point => point === real || point.startsWith(below)
  )
}

/** Which mount an open file was reached through, by its descriptor: its device says nothing of a bind mount. */
export const mountOf = (fd: number): string | undefined =>
  /^mnt_id:\s*(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, 'latin1'))?.[1]

/** As many links as the kernel follows in one path. */
export const MOST_LINKS = 40

/** A sparse file of any size costs an image nothing, and whoever reads it all its holes. */
const MOST_GIB = 4

/**
 * Resolves a path inside a tree as a chroot would: an absolute link starts at the tree, `..` stops at it. Returns
 * the path below the tree with no link left ('' is the tree); undefined when something is missing, is no
 * directory where one is needed, or links go round in a circle. `tree` must be a real directory.
 */
export async function resolveInside(tree: string, path: string): Promise<string | undefined> {
  if (path.includes('\0')) return undefined
  const left = path.split('/').reverse()
  const found: string[] = []
  for (let links = 0; left.length > 0; ) {
    const name = left.pop() as string
    if (name === '' || name === '.') continue
    if (name === '..') {
      found.pop()
      continue
    }
    const here = [tree, ...found, name].join('/')
    const stat = await orMissing(lstat(here))
    if (stat?.isSymbolicLink()) {
      const target = await orMissing(readlink(here))
      if (target === undefined || ++links > MOST_LINKS) return undefined
      if (target.startsWith('/')) found.length = 0
      left.push(...target.split('/').reverse())
    } else if (stat === undefined || (left.length > 0 && !stat.isDirectory())) {
      return undefined
    } else {
      found.push(name)
    }
  }
  return found.join('/')
}

const MISSING = ['ENOENT', 'ENOTDIR', 'ENAMETOOLONG', 'EINVAL']

async function orMissing<T>(look: Promise<T>): Promise<T | undefined> {
  try {
    return await look
  } catch (error) {
    if (MISSING.includes((error as NodeJS.ErrnoException).code ?? '')) return undefined
    throw error
  }
}

/**
 * Opens a regular file of a tree for reading, the path resolved as by resolveInside. Nothing outside the tree is
 * opened, also when names in it change meanwhile, nor what is mounted in it. Throws an Error that names both when there
 * is no such regular file, or it is larger than any kernel or initramfs; it calls the tree `name`.
 */
export async function openInside(tree: string, path: string, name = tree): Promise<FileHandle> {
  const found = await resolveInside(tree, path)
  if (!found) throw new Error(`there is no file ${path} in ${name}`)
  let handle = await open(tree, DIRECTORY)
  try {
    const mount = mountOf(handle.fd)
    const names = found.split('/')
    for (const [i, step] of names.entries()) {
      const next = await open(entryPath(handle.fd, step), i < names.length - 1 ? DIRECTORY : FILE)
      await handle.close()
      handle = next
    }
    if (mountOf(handle.fd) !== mount) throw new Error('something is mounted there')
    const stat = await handle.stat()
    if (stat.size > MOST_GIB * 2 ** 30)
      throw new Error(`it is larger than ${MOST_GIB} GiB, the most for a kernel or an initramfs`)
    if (stat.isFile()) return handle
  } catch (error) {
    await handle.close()
    const { code, message } = error as NodeJS.ErrnoException
    throw new Error(`${path} in ${name} cannot be read: ${code ?? message}`, { cause: error })
  }
  await handle.close()
  throw new Error(`${path} in ${name} is no regular file`)
}

/**
 * Removes a directory and all that is in it; one that is not there is fine. Never follows a link, never enters
 * another file system: throws an Error, with nothing removed, when something is mounted in it, and when `path` is a
 * link or no directory. Where something cannot be removed, throws an Error that names it, below `name`.
 */
export async function removeTree(path: string, name = path): Promise<void> {
  const [mounted] = await mountsBelow(path)
  if (mounted !== undefined) throw new Error(`${name} is not removed: something is mounted at ${mounted}`)
  try {
    const parent = await open(`${dirname(path)}/.`, DIRECTORY)
    const mount = mountOf(parent.fd)
    await parent.close()
    await withOpen(open(path, DIRECTORY), async top => empty(top.fd, name, mount, (await top.stat()).dev))
    await rmdir(path)
  } catch (error) {
    const { code, syscall } = error as NodeJS.ErrnoException
    if (code === 'ENOENT' && syscall === 'open') return
    throw mended(
      code === undefined ? error : new Error(`${name} is not removed: ${code}`, { cause: error }),
      name
    )
  }
}

/** The same error, with the way out where root meets something that may not be changed (`chattr +i`, `+a`), at or below a path. */
export function mended(error: unknown, path: string): unknown {
  if (process.getuid?.() === 0 && error instanceof Error && /\bEPERM\b|not permitted/.test(error.message))
    error.message += `: it, or its directory, is immutable: type, as root: chattr -R -i -a ${path}`
  return error
}

/** Names are bytes here: what is in an image need not be UTF-8. */
async function empty(
  directory: number,
  path: string,
  mount: string | undefined,
  device: number
): Promise<void> {
  // Whatever was renamed since the mounts were looked at.
  if (mountOf(directory) !== mount) throw new Error(`${path} is not removed: something is mounted there`)
  for (const name of await readdir(entryPath(directory, ''), { encoding: 'buffer' })) {
    const entry = entryPath(directory, name)
    const inner = `${path}/${shown(name)}`
    try {
      if (await isGone(entry)) continue
      await withOpen(open(entry, DIRECTORY), async child => {
        if ((await child.stat()).dev !== device)
          throw new Error(`${inner} is not removed: something is mounted there`)
        await empty(child.fd, inner, mount, device)
      })
      await rmdir(entry)
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException
      throw code === undefined ? error : new Error(`${inner} is not removed: ${code}`, { cause: error })
    }
  }
}

/** Removes a name that is no directory; false for one. */
async function isGone(entry: Buffer): Promise<boolean> {
  try {
    await unlink(entry)
    return true
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT') return true
    if (code === 'EISDIR') return false
    throw error
  }
}
