import { mkdir, realpath } from 'node:fs/promises'
import { basename, join, sep } from 'node:path'
import { exists } from '../disk/missing.js'
import { badRequest, unavailable } from '../errors.js'
import type { JobContext } from '../jobs/jobs.js'
import { FollowingError, StoreError } from '../store/errors.js'
import type { ImageContext } from './context.js'
import { newIntentId, type RemovalIntent, type TreeIntent, temporary } from './intents.js'

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
 * start (`settle`). Where it is not known whether it is stored, the new tree stays until that is (`decide`).
 */
export async function placeTree(context: ImageContext, placement: Placement, job: JobContext): Promise<void> {
  const { intents, config, now, work } = context
  const { parent, target, replaces, timeLimitMs } = placement
  const { signal } = job
  await mkdir(config.image.directory, { recursive: true })
  const id = newIntentId()
  const begun: TreeIntent = { kind: 'tree', id, parent, target, replaces, phase: 'making', at: now() }
  const { hidden, old, place } = await pathsOf(context, begun)
  const rename = renaming(context, begun)
  await intents.write(begun)
  let isWhole = true
  try {
    await placement.fill(hidden)
    signal.throwIfAborted()
    await work.call('sync', { parent, work: basename(hidden) }, { signal, timeLimitMs })
    const ready: TreeIntent = { ...begun, phase: 'placing' }
    await intents.write(ready)
    try {
      if (replaces) await rename(place, old)
      else if (await exists(place)) throw alreadyThere(place)
      await rename(hidden, place)
      await placement.commit(begun.at)
      // From here on the new tree stays: what `settle` would put back is gone.
      if (replaces) await rename(old, hidden)
    } catch (error) {
      isWhole = false
      if (isUnclear(context, placement, error)) {
        intents.undecided.add(ready)
        throw error
      }
      await settle(context, ready)
      isWhole = true
      throw error
    }
  } finally {
    // Where the renames could not be undone, the note stays for the next start.
    if (isWhole)
      await removeHidden(context, begun).catch(error =>
        job.line(`${hidden} is removed at the next start: ${error.message}`)
      )
  }
}

/**
 * Whether nobody knows if what belongs to a new tree is stored: etcd gave no answer, and another controller that takes over may have it.
 * A tree that replaces another one is undone all the same: its place is named before and after.
 */
const isUnclear = ({ controllers }: ImageContext, { replaces }: Placement, error: unknown): boolean =>
  controllers !== undefined && !replaces && error instanceof StoreError && !(error instanceof FollowingError)

/** 400: what is in the way is never overwritten. */
export const alreadyThere = (place: string) =>
  badRequest(`the directory ${place} exists already; remove it, or choose another name`)

/** Undoes the renames of a placement that did not come to its end. Its new tree has the hidden name after that. */
export async function settle(context: ImageContext, intent: TreeIntent): Promise<void> {
  if (intent.phase === 'making') return
  const { hidden, old, place } = await pathsOf(context, intent)
  const rename = renaming(context, intent)
  if (intent.replaces) {
    if (!(await exists(old))) return
    if (await exists(place)) await rename(place, hidden)
    await rename(old, place)
  } else {
    const isStored = context.model.view.get('tree', intent.target)?.at === intent.at
    if ((intent.parent === '' && isStored) || (await exists(hidden)) || !(await exists(place))) return
    await rename(place, hidden)
  }
}

/** Gives a directory another name in the directory of an intent, durably. */
export function renaming(context: ImageContext, intent: TreeIntent | RemovalIntent) {
  const parent = intent.kind === 'tree' ? intent.parent : ''
  return (from: string, to: string) =>
    context.work.call('rename', { parent, from: basename(from), to: basename(to) })
}

/** Removes the tree that has the hidden name, as it is not needed any more, and the note of it. */
export async function removeHidden(context: ImageContext, intent: TreeIntent | RemovalIntent): Promise<void> {
  const parent = intent.kind === 'tree' ? intent.parent : ''
  const { hidden } = await pathsOf(context, intent)
  if (await exists(hidden)) await context.work.call('remove', { parent, name: basename(hidden) })
  await context.intents.drop(intent.id)
}

/**
 * The place of a tree, the names that it has while it is made and removed, and the real directory of all three. Throws
 * unavailable (503) where that is not in `[image] directory` any more.
 */
export async function pathsOf({ config }: ImageContext, intent: TreeIntent | RemovalIntent) {
  const { directory } = config.image
  const { id, target } = intent
  const parent = intent.kind === 'tree' ? intent.parent : ''
  const top = await realpath(directory)
  const base = await realpath(join(top, parent))
  if (base !== top && !base.startsWith(top === sep ? top : `${top}${sep}`))
    throw unavailable(`${join(directory, parent)} leads out of [image] directory`)
  return {
    base,
    hidden: join(base, temporary(id)),
    old: join(base, temporary(id, 'old')),
    place: join(base, target)
  }
}
