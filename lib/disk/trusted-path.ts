import { lstat, mkdir, readdir, readlink } from 'node:fs/promises'
import { basename, dirname, join, resolve } from 'node:path'
import { refuseForeign, refuseForeignLink, unlessMissing } from './file.js'
import { inDirectory, MOST_LINKS, type OpenDirectory } from './open-directory.js'

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
