import { realpath, rename } from 'node:fs/promises'
import { join } from 'node:path'
import { exists, syncDirectory } from './durable.js'
import { mountsBelow, removeTree } from './tree.js'
import { isTreeUsed } from './where.js'
import { type RemovalWork, temporary } from './works.js'
import type { Workshop } from './workshop.js'

/**
 * Removes the tree of a deleted image, which svcd made; the note of it goes at the end. Left alone: the tree of an
 * image that is there after all, or that another image uses by now. Throws an Error when something is mounted in it.
 */
export async function removeOwnTree({ config, model, works }: Workshop, work: RemovalWork): Promise<boolean> {
  const { directory } = config.image
  const { view } = model
  const base = await realpath(directory)
  const hidden = join(base, temporary(work.id))
  const tree = join(base, work.target)
  const wanted =
    view.get('osimage', work.osimage) !== undefined ||
    view.get('tree', work.target) !== undefined ||
    isTreeUsed(view, directory, work.target)
  if (!wanted && (await exists(tree))) {
    const [mounted] = await mountsBelow(tree)
    if (mounted !== undefined) throw new Error(`${tree} is not removed: something is mounted at ${mounted}`)
    await rename(tree, hidden)
    await syncDirectory(base)
  }
  const found = await exists(hidden)
  if (found) await removeTree(hidden)
  await works.drop(work.id)
  return found
}
