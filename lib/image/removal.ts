import { realpath, rename } from 'node:fs/promises'
import { join } from 'node:path'
import { syncDirectory } from '../disk/directory.js'
import { exists } from '../disk/missing.js'
import type { ImageContext } from './context.js'
import { type RemovalIntent, temporary } from './intents.js'
import { mountsBelow, removeTree } from './tree.js'
import { isTreeUsed } from './trees.js'

/**
 * Moves the tree of a deleted image, which svcd made, to a hidden name; once. Left alone: the tree of an image that is
 * there after all, or that another image uses by now. Throws an Error when something is mounted in it.
 */
export async function hideOwnTree({ config, model }: ImageContext, work: RemovalIntent): Promise<void> {
  const { directory } = config.image
  const { base, hidden, tree } = await placesOf(directory, work)
  if ((await exists(hidden)) || !(await exists(tree))) return
  const [mounted] = await mountsBelow(tree)
  const { view } = model
  if (
    view.get('osimage', work.osimage) !== undefined ||
    view.get('tree', work.target) !== undefined ||
    isTreeUsed(view, directory, work.target)
  )
    return
  if (mounted !== undefined) throw new Error(`${tree} is not removed: something is mounted at ${mounted}`)
  await rename(tree, hidden)
  await syncDirectory(base)
}

/** Removes what was hidden, and the note of it; whether there was something. */
export async function removeHidden({ config, intents }: ImageContext, work: RemovalIntent): Promise<boolean> {
  const { hidden } = await placesOf(config.image.directory, work)
  const found = await exists(hidden)
  if (found) await removeTree(hidden)
  await intents.drop(work.id)
  return found
}

async function placesOf(directory: string, { id, target }: RemovalIntent) {
  const base = await realpath(directory)
  return { base, hidden: join(base, temporary(id)), tree: join(base, target) }
}
