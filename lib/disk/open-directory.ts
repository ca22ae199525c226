import { constants, readFileSync } from 'node:fs'
import {
  type FileHandle,
  lstat,
  mkdir,
  open,
  readdir,
  readFile,
  readlink,
  realpath,
  rmdir,
  unlink
} from 'node:fs/promises'
import { basename, dirname, join, resolve } from 'node:path'
import { shown } from '../base/log.js'
import { refuseForeign, refuseForeignLink, unlessMissing, withOpen } from './file.js'

/** Flags that open a directory itself, not the target of a symbolic link. */
export const DIRECTORY = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW

/** Flags that open a file itself, without following a link or waiting for the other end of a pipe. */
export const FILE = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY

/**
 * The path of a name in an open directory, as for openat(2): it stays in that directory even if the
 * directory's own path changes. '' is the directory. Names are bytes or text.
 */
export function entryPath(directory: number, name: Buffer | string): Buffer {
  return Buffer.concat([Buffer.from(`/proc/self/fd/${directory}/`), Buffer.from(name as string)])
}

/** An open directory: paths of `at` stay in it, whatever is renamed. */
export interface OpenDirectory {
  /** The path at the time of opening: for messages only. */
  readonly path: string
  /**
   * Returns the path of a name in it, or of itself, for this process and its child processes as the same
   * user. The name may be a link: the caller uses `O_NOFOLLOW`, `O_EXCL` and the like.
   */
  at(name?: string): string
}

/**
 * Runs `work` in a directory below `top`, whose path must have no link that others could change. `path` is
 * relative, '' for `top`; it is resolved once, name by name, without following links. The directory stays
 * open until the work ends. Throws the system's error if it is no directory: ENOENT, ENOTDIR (a link too).
 */
export async function inDirectory<T>(
  top: string,
  path: string,
  work: (directory: OpenDirectory) => Promise<T>
): Promise<T> {
  const names = path === '' ? [] : path.split('/')
  if (names.some(name => name === '' || name === '.' || name === '..'))
    throw new Error(`${path} is no plain path`)
  let opened = open(top, DIRECTORY)
  // Each directory is closed once the next one in it is open; nothing in `top` is opened by its whole path.
  for (const name of names) opened = withOpen(opened, ({ fd }) => open(entryPath(fd, name), DIRECTORY))
  return withOpen(opened, ({ fd }) =>
    work({
      path: path === '' ? top : `${top === '/' ? '' : top}/${path}`,
      at: (name = '.') => `/proc/${process.pid}/fd/${fd}/${name}`
    })
  )
}

/**
 * The mount points in a /proc/self/mountinfo, in order: nested mounts come later, and stacked ones are listed
 * twice. Skips other lines, as a login shell may print some first.
 */
export const mountPoints = (mountinfo: string): string[] =>
  mountinfo.split('\n').flatMap(line => {
    const point = /^\d+ \d+ \d+:\d+ [^ ]+ (\/[^ ]*) /.exec(line)?.[1]
    // White space and backslashes are octal escapes there.
    return point?.replace(/\\([0-7]{3})/g, (_, octal) => String.fromCharCode(Number.parseInt(octal, 8))) ?? []
  })

/** The mount points at or below a directory, which may be missing. Invalid UTF-8 becomes U+FFFD. */
export async function mountsBelow(directory: string): Promise<string[]> {
  const real = await unlessMissing(realpath(directory), undefined)
  if (real === undefined) return []
  const below = real === '/' ? '/' : `${real}/`
  return mountPoints(await readFile('/proc/self/mountinfo', 'utf8')).filter(
    point => point === real || point.startsWith(below)
  )
}

/** The id of the mount through which a descriptor was opened; the device does not show bind mounts. */
export const mountOf = (fd: number): string | undefined =>
  /^mnt_id:\s*(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, 'latin1'))?.[1]

/** The kernel's limit of links in a path. */
const MOST_LINKS = 40

/** A sparse file costs an image nothing, but its readers read all holes. */
const MOST_GIB = 4

/**
 * Resolves a path inside a tree as a chroot would: absolute links start at the tree, `..` stops at it.
 * Returns the path below the tree without links ('' is the tree); undefined if a part is missing or no
 * directory, or links loop. `tree` must be a real directory.
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

/** Whether a tree has something at one of these paths, as resolveInside finds it; not the tree itself. */
export async function hasAnyInside(tree: string, paths: readonly string[]): Promise<boolean> {
  for (const path of paths) if (await resolveInside(tree, path)) return true
  return false
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
 * Opens a regular file of a tree for reading, with the path resolved by resolveInside. Opens nothing outside
 * the tree or in a mount, also if names change meanwhile. Throws Error with path and `name` (of the tree) if
 * it is no regular file, or larger than any kernel or initramfs.
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

/** Returns the first bytes of a file of a tree as a text; undefined where openInside throws. */
export async function textInside(tree: string, path: string, most: number): Promise<string | undefined> {
  const file = await openInside(tree, path).catch(() => undefined)
  if (file === undefined) return undefined
  const { buffer, bytesRead } = await file
    .read(Buffer.allocUnsafe(most), 0, most, 0)
    .finally(() => file.close())
  return buffer.toString('utf8', 0, bytesRead)
}

/** Throws Error if something is mounted at or below a directory that is to be removed. */
export async function refuseMounts(path: string, name = path): Promise<void> {
  const [mounted] = await mountsBelow(path)
  if (mounted !== undefined) throw new Error(`${name} is not removed: something is mounted at ${mounted}`)
}

/**
 * Removes a directory with its content; it may be missing. Never follows a link or enters another file
 * system: throws Error, with nothing removed, if something is mounted in it or `path` is no directory. Throws
 * Error with the path, below `name`, of what cannot be removed.
 */
export async function removeTree(path: string, name = path): Promise<void> {
  await refuseMounts(path, name)
  try {
    const parent = await open(`${dirname(path)}/.`, DIRECTORY)
    const mount = mountOf(parent.fd)
    await parent.close()
    await withOpen(open(path, DIRECTORY), async top => empty(top.fd, name, mount, (await top.stat()).dev))
    await rmdir(path)
  } catch (error) {
    const { code, syscall } = error as NodeJS.ErrnoException
    if (code === 'ENOENT' && syscall === 'open') return
    throw withRemedy(
      code === undefined ? error : new Error(`${name} is not removed: ${code}`, { cause: error }),
      name
    )
  }
}

/** Adds the way out to an error of root at an immutable file (`chattr +i`, `+a`) at or below a path. */
export function withRemedy(error: unknown, path: string): unknown {
  if (process.getuid?.() === 0 && error instanceof Error && /\bEPERM\b|not permitted/.test(error.message))
    error.message += `: it, or its directory, is immutable: type, as root: chattr -R -i -a ${path}`
  return error
}

/** Names are bytes, because those in an image need not be UTF-8. */
async function empty(
  directory: number,
  path: string,
  mount: string | undefined,
  device: number
): Promise<void> {
  // Detects renames since the mounts were listed.
  if (mountOf(directory) !== mount) throw new Error(`${path} is not removed: something is mounted there`)
  for (const name of await readdir(entryPath(directory, ''), { encoding: 'buffer' })) {
    const entry = entryPath(directory, name)
    const inner = `${path}/${shown(name)}`
    try {
      if (await unlinkUnlessDirectory(entry)) continue
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

/** Removes a name that is no directory; false for a directory. */
async function unlinkUnlessDirectory(entry: Buffer): Promise<boolean> {
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

/**
 * Resolves all links of a path. Throws Error for a link of another user than root and this one, who could
 * lead us to any directory, and the system's error for a missing part.
 */
export async function trustedPath(path: string): Promise<string> {
  const left = resolve(path).split('/').reverse()
  let found = '/'
  for (let links = 0; left.length > 0; ) {
    const name = left.pop() as string
    if (name === '' || name === '.') continue
    const here = name === '..' ? dirname(found) : join(found, name)
    const stat = await lstat(here)
    if (!stat.isSymbolicLink()) {
      found = here
      continue
    }
    refuseForeign(here, stat)
    if (++links > MOST_LINKS) throw new Error(`${path}: its links go round in a circle`)
    const target = await readlink(here)
    if (target.startsWith('/')) found = '/'
    left.push(...target.split('/').reverse())
  }
  return found
}

/** Runs `work` in such a directory, opened name by name: links created meanwhile are not followed. */
export const inTrusted = async <T>(
  path: string,
  work: (directory: OpenDirectory) => Promise<T>
): Promise<T> => inDirectory('/', (await trustedPath(path)).slice(1), work)

/** Creates the directory of such a path if it is missing, and its parents (0755). */
export async function makeTrusted(path: string, mode: number): Promise<void> {
  if ((await unlessMissing(trustedPath(path), undefined)) !== undefined) return
  await makeTrusted(dirname(path), 0o755)
  await inTrusted(dirname(path), ({ at }) => mkdir(at(basename(path)), { mode }))
}

/** `refuseForeignLink` for each name in a directory. */
export async function refuseForeignLinks(directory: string): Promise<void> {
  for (const name of await readdir(directory)) refuseForeignLink(join(directory, name))
}
