import { open, readdir, rmdir, unlink } from 'node:fs/promises'
import { dirname } from 'node:path'
import { withOpen } from './copy.js'
import { mountOf, mountsBelow } from './mounts.js'
import { DIRECTORY, entryPath } from './open-directory.js'
import { shown } from './printable.js'

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
    throw code === undefined ? error : new Error(`${name} is not removed: ${code}`, { cause: error })
  }
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
