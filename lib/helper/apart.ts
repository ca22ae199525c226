import { stat } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import type { OpenDirectory } from '../disk/open-directory.js'
import { run } from '../program/program.js'
import type { Places } from './places.js'

/** The directory of the checkout or of the installed service, above dist/helper/ or lib/helper/. */
const libexec = fileURLToPath(new URL('../../libexec', import.meta.url))
const PROBE_MS = 30_000

/** Directories as a program finds them. */
export interface Apart {
  /** Words to put before the words of the program: it has a mount namespace of its own then. */
  readonly through: readonly string[]
  /** The directories for the program, in the order in which they were given. */
  readonly paths: readonly string[]
  /** A path for the program where there is nothing. */
  readonly nothing: string
}

/**
 * Has a program find directories that are held open, whatever has their paths meanwhile, without what is mounted in them,
 * and follow no symbolic link there: it walks by paths, and a name may be a link when it comes to it, though it was none when
 * it was checked. Where this machine cannot do that, or this process is not root, the program gets the paths themselves if
 * who orders it has the same rights; otherwise throws Error.
 */
export async function apart(places: Places, ...directories: readonly OpenDirectory[]): Promise<Apart> {
  const plain = { through: [], paths: directories.map(({ path }) => path), nothing: `${libexec}/nothing` }
  if (process.getuid?.() !== 0) return plain
  const words = ['--mount', '--propagation', 'private', 'sh', `${libexec}/without-links.sh`]
  for (const { path, at } of directories) {
    const { dev, ino } = await stat(at(), { bigint: true })
    words.push(path, `${dev}:${ino}`)
  }
  words.push('--')
  try {
    await run('unshare', [...words, 'true'], { timeLimitMs: PROBE_MS })
  } catch (error) {
    if (places.byRoot && !/was replaced/.test((error as Error).message)) return plain
    throw error
  }
  const paths = directories.map((_, i) => `${libexec}/${i + 1}`)
  return { ...plain, through: ['unshare', ...words], paths }
}
