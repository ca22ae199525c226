import { constants } from 'node:fs'

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
