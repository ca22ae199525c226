import { mkdir, realpath } from 'node:fs/promises'
import { basename, join, sep } from 'node:path'
import { badRequest, unavailable } from '../base/errors.js'
import { exists } from '../disk/file.js'
import { refuseMounts } from '../disk/open-directory.js'
import type { JobContext } from '../jobs/jobs.js'
import { daemonActor } from '../model/model.js'
import { isObjectName } from '../model/names.js'
import type { Tx, View } from '../model/stored.js'
import { NotLeaderError, StoreError } from '../store/errors.js'
import type { ImageContext } from './context.js'
import {
  type Note,
  newNoteId,
  type PlacementNote,
  parentOf,
  type RemovalNote,
  type TreeNote,
  temporary
} from './notes.js'
import { discard } from './publish.js'
import { here, imageIn } from './trees.js'

interface Placement extends Pick<PlacementNote, 'parent' | 'target' | 'replaces'> {
  readonly timeLimitMs: number
  /** Makes the tree at `path`, where nothing is. */
  fill(path: string): Promise<void>
  /** Stores the objects when the tree stands in its place; `record` stores that svcd made a new tree. */
  commit(record: (tx: Tx, osimage: string) => void): Promise<void>
}

/**
 * Builds a tree beside its place and renames it when it is whole. After any failure, also a kill of the
 * daemon, the place holds either the old or the new tree, and nothing else stays: at once, or after the next
 * start (`recover`). Where it is not known what is stored, the new tree stays until it is (`decide`).
 */
export async function placeTree(context: ImageContext, placement: Placement, job: JobContext): Promise<void> {
  const { notes, config, now, work } = context
  const { parent, target, replaces, timeLimitMs } = placement
  const { signal } = job
  await mkdir(config.image.directory, { recursive: true })
  const id = newNoteId()
  let note: PlacementNote = { kind: 'tree', id, parent, target, replaces, phase: 'making', at: now() }
  const { hidden, old, place, rename } = await namesOf(context, note)
  const clear = () =>
    removeHidden(context, note).catch(error =>
      job.line(`${hidden} is removed at the next start: ${error.message}`)
    )
  await notes.write(note)
  try {
    await placement.fill(hidden)
    signal.throwIfAborted()
    await work.call('sync', { parent, work: basename(hidden) }, { signal, timeLimitMs })
    note = { ...note, phase: 'placing' }
    await notes.write(note)
    if (replaces) await rename(place, old)
    else if (await exists(place)) throw alreadyThere(place)
    await rename(hidden, place)
    const { at } = note
    await placement.commit((tx, osimage) => {
      if (!replaces && parent === '' && isObjectName(target))
        tx.put('tree', target, { name: target, at, osimage, ...here(context) })
    })
    // From here on the new tree stays: `settle` has nothing to put back.
    if (replaces) await rename(old, hidden)
  } catch (error) {
    if (isUnclear(context, placement, error)) notes.undecided.add(note)
    // If the renames cannot be undone, the note stays.
    else if (await settle(context, note)) await clear()
    throw error
  }
  await clear()
}

/**
 * Whether it is unknown if the objects of a new tree are stored: etcd gave no answer, and the next leader may
 * have them. A tree that replaces another one is undone all the same, as its place was named before.
 */
const isUnclear = ({ controllers }: ImageContext, { replaces }: Placement, error: unknown): boolean =>
  controllers !== undefined && !replaces && error instanceof StoreError && !(error instanceof NotLeaderError)

/** 400: svcd overwrites nothing. */
export const alreadyThere = (place: string) =>
  badRequest(`the directory ${place} exists already; remove it, or choose another name`, 'already-exists')

/**
 * Removes the directory of a deleted image and its record, unless an image is in it; returns whether nothing
 * has the name. A follower only hides it. Throws Error for a mount, and StoreError.
 */
export async function removeTree(
  context: ImageContext,
  name: string,
  { line, signal }: Pick<JobContext, 'line' | 'signal'>
): Promise<boolean> {
  const { config, controllers, ownsObjects, model, notes } = context
  const isFreeNow = () => isFree(model.view, config.image.directory, name)
  const at = model.view.get('tree', name)?.at
  const note: RemovalNote = {
    ...{ kind: 'removal', id: newNoteId(), target: name },
    ...(at === undefined ? {} : { at })
  }
  const { hidden, place, rename } = await namesOf(context, note)
  if (!(await exists(place))) {
    if (ownsObjects() && !(await forgetTree(context, name))) return false
    line(`there is no ${name} to remove`)
    return true
  }
  if (!isFreeNow()) return false
  await refuseMounts(place)
  await notes.write(note)
  let goes = false
  try {
    // A former leader may not know of an image that uses the directory again.
    if (controllers && ownsObjects()) await model.readBarrier()
    signal.throwIfAborted()
    goes = isFreeNow()
  } finally {
    if (!goes) await notes.drop(note)
  }
  if (!goes) return false
  try {
    await rename(place, hidden)
    if (await settle(context, note)) {
      await removeHidden(context, note)
      line(`${name} removed`)
    }
  } catch (error) {
    if (controllers) notes.undecided.add(note)
    throw error
  }
  return !(await exists(place))
}

/** Whether the directory `name` is that of a deleted image, and no image is in it. */
const isFree = (view: View, directory: string, name: string): boolean =>
  view.get('tree', name)?.abandoned === true && imageIn(view, directory, name) === undefined

/** Removes the record of a directory, unless an image is in it; returns whether the record is gone. */
export const forgetTree = ({ config, model }: ImageContext, name: string): Promise<boolean> =>
  model.change(daemonActor, tx => {
    if (!tx.get('tree', name)) return true
    if (!isFree(tx, config.image.directory, name)) return false
    tx.remove('tree', name)
    return true
  })

/** `remove`: the hidden directory has to go; `over`: the note is gone; `later`: the leader stores first. */
type Outcome = 'remove' | 'over' | 'later'

/** Repairs the directory of a note by what is stored; returns whether the hidden directory has to go. */
async function settle(context: ImageContext, note: TreeNote): Promise<boolean> {
  const { undecided } = context.notes
  undecided.delete(note)
  try {
    const outcome = await (note.kind === 'tree' ? undoPlacement(context, note) : endRemoval(context, note))
    if (outcome === 'later') undecided.add(note)
    return outcome === 'remove'
  } catch (error) {
    if (context.controllers) undecided.add(note)
    throw error
  }
}

/** `settle` once it is known what is stored. Throws StoreError where it is not: the note stays. */
export async function decide(context: ImageContext, note: TreeNote): Promise<boolean> {
  await context.model.readBarrier()
  return settle(context, note)
}

/** Undoes the renames of a placement, unless it is stored. Its new tree has the hidden name after that. */
async function undoPlacement(context: ImageContext, note: PlacementNote): Promise<Outcome> {
  const { phase, replaces, parent, target, at } = note
  const { hidden, old, place, rename } = await namesOf(context, note)
  const isStored = parent === '' && context.model.view.get('tree', target)?.at === at
  const isMoved = async () => (replaces ? exists(old) : !isStored && !(await exists(hidden)))
  if (phase === 'placing' && (await isMoved())) {
    if (await exists(place)) await rename(place, hidden)
    if (replaces) await rename(old, place)
  }
  return 'remove'
}

/** Ends a removal by what is stored. Throws Error where something else has the directory's name. */
async function endRemoval(context: ImageContext, note: RemovalNote): Promise<Outcome> {
  const { ownsObjects, notes } = context
  const { directory } = context.config.image
  const { view } = context.model
  const { target, at, osimage } = note
  const { hidden, place, rename } = await namesOf(context, note)
  const tree = view.get('tree', target)
  if (!(await exists(hidden))) {
    // An earlier version removed the record before the directory, and noted the image.
    const isLeft = osimage !== undefined && !tree && (await exists(place))
    if (!isLeft || imageIn(view, directory, target) !== undefined) {
      await notes.drop(note)
      return 'over'
    }
    await refuseMounts(place)
    await rename(place, hidden)
  }
  if (!tree || (at !== undefined && at !== tree.at)) return 'remove'
  if (isFree(view, directory, target)) {
    if (!ownsObjects()) return 'later'
    if (await forgetTree(context, target)) return 'remove'
  }
  if (await exists(place))
    throw new Error(
      `${place} is there anew, and an OS image is in it; what it held before is ${hidden}: remove one of ` +
        'the two'
    )
  await rename(hidden, place)
  await notes.drop(note)
  return 'over'
}

/** Removes the hidden tree of a note, and the note. */
export async function removeHidden(context: ImageContext, note: TreeNote): Promise<void> {
  const { hidden } = await namesOf(context, note)
  if (await exists(hidden))
    await context.work.call('remove', { parent: parentOf(note), name: basename(hidden) })
  await context.notes.drop(note)
}

/** Returns the names of a note's tree, and what renames durably. Throws 503 for a place outside. */
async function namesOf({ config, work }: ImageContext, note: TreeNote) {
  const { directory } = config.image
  const parent = parentOf(note)
  const top = await realpath(directory)
  const base = await realpath(join(top, parent))
  if (base !== top && !base.startsWith(top === sep ? top : `${top}${sep}`))
    throw unavailable(`${join(directory, parent)} leads out of [image] directory`, 'image-unusable')
  return {
    hidden: join(base, temporary(note.id)),
    old: join(base, temporary(note.id, 'old')),
    place: join(base, note.target),
    rename: (from: string, to: string) =>
      work.call('rename', { parent, from: basename(from), to: basename(to) })
  }
}

/** Repairs what an earlier daemon left; returns slow removals. Logs failures; the next start tries again. */
export async function recover(context: ImageContext): Promise<() => Promise<void>> {
  const { controllers, notes, log } = context
  const later: TreeNote[] = []
  const guarded = (note: TreeNote, step: () => Promise<void>) =>
    step().catch(error => {
      if (controllers && error instanceof StoreError) return
      log.error(`${titleOf(note)} was interrupted and is not put right (note ${note.id}): ${error.message}`)
    })
  for (const note of notes.left) {
    log.info(`${titleOf(note)} was interrupted and is put right`)
    if (note.kind === 'pack') await discard(context, note)
    else
      await guarded(note, async () => {
        if (await settle(context, note)) later.push(note)
      })
  }
  return async () => {
    for (const note of later) await guarded(note, () => removeHidden(context, note))
  }
}

function titleOf(note: Note): string {
  if (note.kind === 'pack') return 'a pack'
  return `the ${note.kind === 'tree' ? 'making' : 'removal'} of directory ${note.target}`
}
