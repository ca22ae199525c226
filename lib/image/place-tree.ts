import { mkdir, realpath, rename } from 'node:fs/promises'
import { join, sep } from 'node:path'
import { syncDirectory } from '../disk/directory.js'
import { exists } from '../disk/missing.js'
import { removeTree } from '../disk/remove-tree.js'
import { badRequest, unavailable } from '../errors.js'
import type { View } from '../model/view.js'
import { run } from '../program/program.js'
import { type Intents, newIntentId, type TreeIntent, temporary } from './intents.js'

export interface Placing {
  readonly intents: Intents
  /** `[image] directory`. */
  readonly directory: string
  /** See TreeIntent. */
  readonly parent: string
  readonly target: string
  readonly replaces: boolean
  readonly view: () => View
  readonly now: () => number
  readonly signal: AbortSignal
  readonly timeLimitMs: number
  line(text: string): void
  /** Makes the tree; `work` is a path where nothing is yet, beside the target. */
  fill(work: string): Promise<void>
  /** Stores what belongs to it, with this time in the TreeDoc where there is one; called when it stands in its place. */
  commit(at: number): Promise<void>
}

/**
 * Builds a tree beside its place and puts it there when it is whole. Whatever stops it, a kill of the daemon too,
 * the place holds either what it held before or the new tree, and nothing else stays: at once, or after the
 * next start (`settle`).
 */
export async function placeTree(placing: Placing): Promise<void> {
  const { intents, directory, parent, target, replaces, signal, now } = placing
  await mkdir(directory, { recursive: true })
  const begun: TreeIntent = {
    kind: 'tree',
    id: newIntentId(),
    parent,
    target,
    replaces,
    phase: 'making',
    at: now()
  }
  const { work, old, place, base } = await pathsOf(directory, begun)
  await intents.write(begun)
  let whole = true
  try {
    await placing.fill(work)
    signal.throwIfAborted()
    await run('sync', ['-f', '--', work], { signal, timeLimitMs: placing.timeLimitMs })
    const ready: TreeIntent = { ...begun, phase: 'placing' }
    await intents.write(ready)
    try {
      if (replaces) await rename(place, old)
      else if (await exists(place)) throw standsThere(place)
      await rename(work, place)
      await syncDirectory(base)
      await placing.commit(begun.at)
      // From here on the new tree stays: what `settle` would put back is gone.
      if (replaces) await rename(old, work)
      await syncDirectory(base)
    } catch (error) {
      whole = false
      await settle(directory, ready, placing.view())
      whole = true
      throw error
    }
  } finally {
    // Where the renames could not be undone the note stays, for the next start.
    if (whole) await clear(placing, work, begun.id)
  }
}

/** Removes what is not needed any more; what cannot be removed now is told, and removed by the next start. */
async function clear({ intents, line }: Placing, work: string, id: string): Promise<void> {
  try {
    if (await exists(work)) await removeTree(work)
    await intents.drop(id)
  } catch (error) {
    line(`${work} could not be removed: ${(error as Error).message}`)
  }
}

/** 400: what is in the way is never overwritten. */
export const standsThere = (place: string) =>
  badRequest(`the directory ${place} exists already; remove it, or choose another name`)

/** Undoes the renames of work that did not come to its end; what it left to remove is in its hidden directory. */
export async function settle(directory: string, work: TreeIntent, view: View): Promise<void> {
  if (work.phase === 'making') return
  const paths = await pathsOf(directory, work)
  if (work.replaces) {
    if (!(await exists(paths.old))) return
    if (await exists(paths.place)) await rename(paths.place, paths.work)
    await rename(paths.old, paths.place)
  } else {
    const kept = work.parent === '' && view.get('tree', work.target)?.at === work.at
    if (kept || (await exists(paths.work)) || !(await exists(paths.place))) return
    await rename(paths.place, paths.work)
  }
  await syncDirectory(paths.base)
}

/** The paths of a piece of work; throws unavailable where its directory is not below `[image] directory` any more. */
export async function pathsOf(directory: string, { id, parent, target }: TreeIntent) {
  const top = await realpath(directory)
  const base = await realpath(join(top, parent))
  if (base !== top && !base.startsWith(top === sep ? top : `${top}${sep}`))
    throw unavailable(`${join(directory, parent)} leads out of [image] directory`)
  return {
    base,
    work: join(base, temporary(id)),
    old: join(base, temporary(id, 'old')),
    place: join(base, target)
  }
}
