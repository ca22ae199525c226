import { open, readdir, realpath, rmdir, stat, unlink } from 'node:fs/promises'
import { isAbsolute } from 'node:path'
import { mountsBelow } from '../disk/mounts.js'
import { at, DIRECTORY } from '../disk/openat.js'
import { shown } from '../disk/printable.js'
import { unavailable } from '../errors.js'

export { openInside, resolveInside } from '../disk/inside.js'
export { mountsBelow } from '../disk/mounts.js'

/**
 * The real directory of an image's `path`, with no link left. Throws unavailable (503) naming `[image] directory`
 * unless it is a directory strictly below that one, whatever links there are on the way (rules 3.12).
 */
export async function imageTree(directory: string, osimage: string, path: string): Promise<string> {
  const refused = (why: string, cause?: unknown) =>
    unavailable(
      `osimage ${osimage}: path ${path} is no directory below [image] directory ${directory}: ${why}`,
      cause
    )
  const real = async (path: string, whose: string) => {
    try {
      return await realpath(path)
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException
      throw refused(code === 'ENOENT' ? `${whose} does not exist` : `${whose}: ${code ?? message}`, error)
    }
  }
  if (!isAbsolute(path)) throw refused('it is relative')
  if (path.split('/').includes('..')) throw refused('it holds ..')
  const home = await real(directory, 'that directory')
  const tree = await real(path, 'it')
  if (tree === home) throw refused('it is that directory itself')
  if (!tree.startsWith(home === '/' ? '/' : `${home}/`)) throw refused(`it leads to ${tree}`)
  if (!(await stat(tree)).isDirectory()) throw refused('it is a file')
  return tree
}

/**
 * Removes a directory and all that is in it; one that is not there is fine. Never follows a link, never enters
 * another file system: throws an Error, with nothing removed, when something is mounted in it, and when `path` is a
 * link or no directory. Where something cannot be removed, throws an Error that names it.
 */
export async function removeTree(path: string): Promise<void> {
  const [mounted] = await mountsBelow(path)
  if (mounted !== undefined) throw new Error(`${path} is not removed: something is mounted at ${mounted}`)
  try {
    const top = await open(path, DIRECTORY)
    try {
      await empty(top.fd, path, (await top.stat()).dev)
    } finally {
      await top.close()
    }
    await rmdir(path)
  } catch (error) {
    const { code, syscall } = error as NodeJS.ErrnoException
    if (code === 'ENOENT' && syscall === 'open') return
    throw code === undefined ? error : new Error(`${path} is not removed: ${code}`, { cause: error })
  }
}

/** Names are bytes here: what is in an image need not be UTF-8. */
async function empty(directory: number, path: string, device: number): Promise<void> {
  for (const name of await readdir(at(directory, ''), { encoding: 'buffer' })) {
    const entry = at(directory, name)
    const inner = `${path}/${shown(name)}`
    try {
      if (await isGone(entry)) continue
      const child = await open(entry, DIRECTORY)
      try {
        if ((await child.stat()).dev !== device)
          throw new Error(`${inner} is not removed: something is mounted there`)
        await empty(child.fd, inner, device)
      } finally {
        await child.close()
      }
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
