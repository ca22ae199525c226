import { constants } from 'node:fs'
import { open } from 'node:fs/promises'

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
