import { lstat } from 'node:fs/promises'
import { mountsBelow } from '../../disk/mounts.js'

/** What is mounted in a tree, which a pack leaves out: it need not be inside `[image] directory`. */
export interface Mounted {
  /** `./proc`. */
  readonly path: string
  /** A directory is packed as an empty one, another file is not packed. */
  readonly isDirectory: boolean
  /** On the tree's own device: its device number does not tell that it is mounted. */
  readonly isBound: boolean
}

/**
 * The mounts in a real directory, without those inside others. Throws an Error for a mount point whose name is not
 * UTF-8, which could not be left out.
 */
export async function mountedIn(tree: string): Promise<Mounted[]> {
  const { dev } = await lstat(tree)
  const points = [...new Set(await mountsBelow(tree))].filter(point => point !== tree)
  const outer = points.filter(point => !points.some(other => point.startsWith(`${other}/`)))
  return Promise.all(
    outer.map(async point => {
      const path = `.${point.slice(tree.length)}`
      if (path.includes('\ufffd'))
        throw new Error(`something is mounted in the image at ${point}, a name that is not UTF-8`)
      const stat = await lstat(point)
      return { path, isDirectory: stat.isDirectory(), isBound: stat.dev === dev }
    })
  )
}
