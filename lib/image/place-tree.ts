import { mkdir, realpath, rename } from 'node:fs/promises'
import { join, sep } from 'node:path'
import { syncDirectory } from '../disk/directory.js'
import { exists } from '../disk/missing.js'
import { removeTree } from '../disk/remove-tree.js'
import { badRequest, unavailable } from '../errors.js'
import type { JobContext } from '../jobs/jobs.js'
import { run } from '../program/program.js'
import type { ImageContext } from './context.js'
import { newIntentId, type TreeIntent, temporary } from './intents.js'

/** A tree to be made. */
export interface Placement extends Pick<TreeIntent, 'parent' | 'target' | 'replaces'> {
  readonly timeLimitMs: number
  /** Makes the tree at `path`, where nothing is yet. */
  fill(path: string): Promise<void>
  /**
   * Stores what belongs to the tree, with this time in the TreeDoc where there is one. Called when the tree stands in
   * its place.
   */
  commit(at: number): Promise<void>
}

/**
 * Builds a tree beside its place and puts it there when it is whole. Whatever stops it, be it a kill of the daemon,
 * the place holds either what it held before or the new tree, and nothing else stays: at once, or after the next
 * start (`settle`).
 */
export async function placeTree(context: ImageContext, placement: Placement, job: JobContext): Promise<void> {
  const { intents, config, now } = context
  const { parent, target, replaces, timeLimitMs } = placement
  const { signal } = job
  await mkdir(config.image.directory, { recursive: true })
  const begun: TreeIntent = {
    ...{ kind: 'tree', id: newIntentId(), parent, target, replaces },
    ...{ phase: 'making', at: now() }
  }
  const { made, old, place, base } = await pathsOf(context, begun)
  await intents.write(begun)
  let isWhole = true
  try {
    await placement.fill(made)
    signal.throwIfAborted()
    await run('sync', ['-f', '--', made], { signal, timeLimitMs })
    const ready: TreeIntent = { ...begun, phase: 'placing' }
    await intents.write(ready)
    try {
      if (replaces) await rename(place, old)
      else if (await exists(place)) throw alreadyThere(place)
      await rename(made, place)
      await syncDirectory(base)
      await placement.commit(begun.at)
      // From here on the new tree stays: what `settle` would put back is gone.
      if (replaces) await rename(old, made)
      await syncDirectory(base)
    } catch (error) {
      isWhole = false
      await settle(context, ready)
      isWhole = true
      throw error
    }
  } finally {
    // Where the renames could not be undone, the note stays for the next start.
    if (isWhole)
      await finishPlacement(context, begun).catch(error =>
        job.line(`${made} is removed at the next start: ${error.message}`)
      )
  }
}

/** 400: what is in the way is never overwritten. */
export const alreadyThere = (place: string) =>
  badRequest(`the directory ${place} exists already; remove it, or choose another name`)

/** Undoes the renames of a placement that did not come to its end, whose new tree has its hidden name then. */
export async function settle(context: ImageContext, intent: TreeIntent): Promise<void> {
  if (intent.phase === 'making') return
  const { made, old, place, base } = await pathsOf(context, intent)
  if (intent.replaces) {
    if (!(await exists(old))) return
    if (await exists(place)) await rename(place, made)
    await rename(old, place)
  } else {
    const isStored = context.model.view.get('tree', intent.target)?.at === intent.at
    if ((intent.parent === '' && isStored) || (await exists(made)) || !(await exists(place))) return
    await rename(place, made)
  }
  await syncDirectory(base)
}

/** Removes the tree that is not needed any more, and the note of the placement. */
export async function finishPlacement(context: ImageContext, intent: TreeIntent): Promise<void> {
  const { made } = await pathsOf(context, intent)
  await removeTree(made)
  await context.intents.drop(intent.id)
}

/** Throws unavailable (503) where the parent of the place is not below `[image] directory` any more. */
async function pathsOf({ config }: ImageContext, { id, parent, target }: TreeIntent) {
  const { directory } = config.image
  const top = await realpath(directory)
  const base = await realpath(join(top, parent))
  if (base !== top && !base.startsWith(top === sep ? top : `${top}${sep}`))
    throw unavailable(`${join(directory, parent)} leads out of [image] directory`)
  return {
    base,
    made: join(base, temporary(id)),
    old: join(base, temporary(id, 'old')),
    place: join(base, target)
  }
}
