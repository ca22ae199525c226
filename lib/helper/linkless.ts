import { fileURLToPath } from 'node:url'
import { mountsBelow } from '../disk/mounts.js'
import { run } from '../program/program.js'
import { imagesOf, type Places } from './places.js'

/** The directory of the checkout or of the installed service, above dist/helper/ or lib/helper/. */
const script = fileURLToPath(new URL('../../libexec/without-links.sh', import.meta.url))

const apart = ['unshare', '--mount', '--propagation', 'private']
const PROBE_MS = 30_000

/** Words to put before the words of a program. */
export interface Linkless {
  /** In a mount namespace of its own. */
  readonly through: readonly string[]
  /** For a program that has one. */
  readonly inNamespace: readonly string[]
}

/**
 * Has programs follow no symbolic link in `[image] directory`. They walk by paths, and a name in a tree may be a link when
 * they come to it, though it was none when it was checked. So none leads them out. Where this machine cannot do that, or
 * this process is not root, a program runs as it is if who orders it has the same rights; otherwise throws Error.
 */
export async function linkless(places: Places): Promise<Linkless> {
  const top = await imagesOf(places)
  // All is below it, and links cannot be shut off for the whole system.
  if (top === '/' || process.getuid?.() !== 0) return { through: [], inNamespace: [] }
  const mounts = new Set([top, ...(await mountsBelow(top))])
  const inNamespace = ['sh', script, ...mounts, '--']
  const [program = '', ...words] = [...apart, ...inNamespace]
  try {
    await run(program, [...words, 'true'], { timeLimitMs: PROBE_MS })
  } catch (error) {
    if (places.byRoot) return { through: [], inNamespace: [] }
    throw error
  }
  return { through: [program, ...words], inNamespace }
}
