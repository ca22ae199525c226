import { relative } from 'node:path'

/** Files that a front server sends in place of svcd. */
export interface FrontFiles {
  /** The directory of those files, absolute. */
  readonly directory: string
  /** Location of that directory in the front server, with a slash at its end; clients cannot ask for it. */
  readonly location: string
}

/** Where the front server has the file `path`, as X-Accel-Redirect names it; undefined for a file elsewhere. */
export function frontLocation({ directory, location }: FrontFiles, path: string): string | undefined {
  const inside = relative(directory, path)
  if (inside === '' || inside.startsWith('..') || inside.startsWith('/')) return undefined
  return location + inside.split('/').map(encodeURIComponent).join('/')
}
