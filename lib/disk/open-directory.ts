import { open } from 'node:fs/promises'
import { DIRECTORY, entryPath } from './openat.js'

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
