import type { FileHandle } from 'node:fs/promises'
import { lstat, open, readlink } from 'node:fs/promises'
import { mountOf } from './mounts.js'
import { DIRECTORY, entryPath, FILE } from './open-directory.js'

/** As many links as the kernel follows in one path. */
const MOST_LINKS = 40

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
