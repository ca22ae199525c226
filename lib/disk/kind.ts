import { type Stats, statSync } from 'node:fs'

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
