import { mkdir, realpath } from 'node:fs/promises'
import { basename, dirname, join, relative, sep } from 'node:path'
import { badRequest, notFound, unavailable } from '../base/errors.js'
import { exists } from '../disk/file.js'
import { mountsBelow } from '../disk/open-directory.js'
import type { JobContext } from '../jobs/jobs.js'
import type { Actor } from '../model/model.js'
import { isObjectName } from '../model/names.js'
import type { ObjectPatch } from '../model/object-type.js'
import { imageDirectoryOf, type OsimageDoc } from '../model/types/osimage.js'
import { NotLeaderError, StoreError } from '../store/errors.js'
import type { ImageContext } from './context.js'
import { newIntentId, parentOf, type RemovalIntent, type TreeIntent, temporary } from './intents.js'
import type { Target } from './transfer/remote.js'
import { Changes, requestOf } from './transfers.js'
import { checkUnmounted, here, imageTree, realBelow, treeIfAny } from './trees.js'

/** A tree to make. */
export interface Placement extends Pick<TreeIntent, 'parent' | 'target' | 'replaces'> {
  readonly timeLimitMs: number
  /** Makes the tree at `path`, where nothing is. */
  fill(path: string): Promise<void>
  /**
   * Stores the objects of the tree, with this time in its TreeDoc. Called when the tree stands in its place.
   */
  commit(at: number): Promise<void>
}

/**
 * Builds a tree beside its place and renames it when it is whole. After any failure, also a kill of the
 * daemon, the place holds either the old or the new tree, and nothing else stays: at once, or after the next
 * start (`settle`). Where it is not known what is stored, the new tree stays until it is (`decide`).
 */
async function placeTree(context: ImageContext, placement: Placement, job: JobContext): Promise<void> {
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
      // From here on the new tree stays: `settle` has nothing to put back.
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
    // If the renames could not be undone, the note stays for the next start.
    if (isWhole)
      await removeHidden(context, begun).catch(error =>
        job.line(`${hidden} is removed at the next start: ${error.message}`)
      )
  }
}

/**
 * Whether it is unknown if the objects of a new tree are stored: etcd gave no answer, and the next leader may
 * have them. A tree that replaces another one is undone all the same, as its place was named before.
 */
const isUnclear = ({ controllers }: ImageContext, { replaces }: Placement, error: unknown): boolean =>
  controllers !== undefined && !replaces && error instanceof StoreError && !(error instanceof NotLeaderError)

/** 400: svcd overwrites nothing. */
const alreadyThere = (place: string) =>
  badRequest(`the directory ${place} exists already; remove it, or choose another name`, 'already-exists')

/** Undoes the renames of an unfinished placement. Its new tree has the hidden name after that. */
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

/** Returns a function that renames in the directory of an intent, durably. */
export function renaming(context: ImageContext, intent: TreeIntent | RemovalIntent) {
  const parent = parentOf(intent)
  return (from: string, to: string) =>
    context.work.call('rename', { parent, from: basename(from), to: basename(to) })
}

/** Removes the hidden tree of an intent, and the note. */
export async function removeHidden(context: ImageContext, intent: TreeIntent | RemovalIntent): Promise<void> {
  const parent = parentOf(intent)
  const { hidden } = await pathsOf(context, intent)
  if (await exists(hidden)) await context.work.call('remove', { parent, name: basename(hidden) })
  await context.intents.drop(intent.id)
}

/**
 * Returns the place of a tree, its names while it is made and removed, and the real directory of all three.
 * Throws unavailable (503) where that is no longer in `[image] directory`.
 */
export async function pathsOf({ config }: ImageContext, intent: TreeIntent | RemovalIntent) {
  const { directory } = config.image
  const { id, target } = intent
  const parent = parentOf(intent)
  const top = await realpath(directory)
  const base = await realpath(join(top, parent))
  if (base !== top && !base.startsWith(top === sep ? top : `${top}${sep}`))
    throw unavailable(`${join(directory, parent)} leads out of [image] directory`, 'image-unusable')
  return {
    base,
    hidden: join(base, temporary(id)),
    old: join(base, temporary(id, 'old')),
    place: join(base, target)
  }
}

/**
 * Returns the place of an image's tree: parent and target as placeTree takes them, and the present tree.
 * Throws unavailable (503) for a place outside `[image] directory`, and for a tree that cannot be replaced as
 * a whole.
 */
export async function placeOf(directory: string, image: OsimageDoc) {
  const path = imageDirectoryOf(directory, image)
  if (!(await exists(path))) {
    const above = dirname(path)
    if (above === directory) return { parent: '', target: basename(path), tree: undefined }
    const parent = await realBelow(directory, above).catch(error => {
      throw unavailable(
        `OS image ${image.name}: path ${path} cannot be made below [image] directory ${directory}: ` +
          `${error.message}`,
        'image-unusable'
      )
    })
    return { parent: relative(await realpath(directory), parent), target: basename(path), tree: undefined }
  }
  const tree = await imageTree(directory, image.name, path)
  const [mounted] = await mountsBelow(tree)
  if (mounted !== undefined)
    throw unavailable(
      `OS image ${image.name}: ${tree} cannot be replaced: something is mounted at ${mounted}`,
      'image-unusable'
    )
  return { parent: relative(await realpath(directory), dirname(tree)), target: basename(tree), tree }
}

/**
 * Makes a node's file systems the tree of an image. The old tree stays until the new one is whole. An image
 * without a path gets `<[image] directory>/<its name>`. A dry run only reports what would change.
 */
export async function grabImage(
  context: ImageContext,
  from: Target,
  osimage: string,
  dryrun: boolean,
  actor: Actor,
  job: JobContext
): Promise<void> {
  const { model, config } = context
  const { directory } = config.image
  const image = model.get('osimage', osimage)
  const { parent, target, tree } = await placeOf(directory, image)
  const changes = new Changes(job, from.node, dryrun)
  const take = async (work: string) => {
    const { args, course } = requestOf(context, image, changes)
    const place = { tree, parent: dryrun ? '' : parent, work: basename(work) }
    await changes.during(() => context.work.call('grab', { ...args, ...from, ...place }, course))
  }
  if (dryrun) return take(join(directory, temporary(newIntentId())))
  job.line(`taking node ${from.node} into OS image ${osimage}`)
  const commit = (at: number) =>
    model.change(actor, tx => {
      const now = tx.get('osimage', osimage)
      if (!now)
        throw unavailable(
          `OS image ${osimage} was deleted or renamed while node ${from.node} was grabbed`,
          'image-changed'
        )
      if (now.path !== image.path)
        throw unavailable(
          `OS image ${osimage}: field "path" was changed while node ${from.node} was grabbed`,
          'image-changed'
        )
      const stored = { ...now, path: now.path ?? join(directory, osimage), ...here(context) }
      if (now.path === undefined || now.controller !== stored.controller) tx.put('osimage', osimage, stored)
      if (tree === undefined && parent === '' && isObjectName(target))
        tx.put('tree', target, { name: target, at, osimage, ...here(context) })
    })
  const placement = { parent, target, replaces: tree !== undefined, timeLimitMs: config.ssh.time_limit }
  await placeTree(context, { ...placement, fill: take, commit }, job)
}

/**
 * Returns the source of a clone. Throws 404 without a source or a new name, 400 for a name that is taken and
 * for a `path` that is neither the source's nor the clone's place, 503 for a directory with a mount in it.
 */
export async function checkClone(
  { model, config }: ImageContext,
  name: string,
  given: ObjectPatch
): Promise<OsimageDoc> {
  const source = model.get('osimage', name)
  const copy = given.newName
  if (!copy) throw notFound(`OS image ${name}: field "newosimage" is missing`)
  if (model.view.get('osimage', copy)) throw badRequest(`OS image ${copy} exists already`, 'already-exists')
  const path = given.values.get('path') ?? source.path
  const place = join(config.image.directory, copy)
  if (path !== source.path && path !== place)
    throw badRequest(`OS image ${name}: field "path": the files of the clone go to ${place}`, 'invalid-field')
  const tree = await treeIfAny(config.image.directory, source)
  if (tree === undefined) return source
  await checkUnmounted(name, tree, 'copied')
  // An abandoned directory is gone by the time this runs: both need the same lane.
  if (!model.view.get('tree', copy)?.abandoned && (await exists(place))) throw alreadyThere(place)
  return source
}

/**
 * Copies an image with its directory, by reflinks where the file system can. The clone names the packed files
 * of its source, which stay as long as an object names them. All of it is there at the end, or nothing.
 */
export async function cloneImage(
  context: ImageContext,
  name: string,
  given: ObjectPatch,
  actor: Actor,
  job: JobContext
): Promise<void> {
  const { model } = context
  const { directory, time_limit: timeLimitMs } = context.config.image
  const source = await checkClone(context, name, given)
  const copy = given.newName as string
  const values = new Map(given.values)
  values.delete('path')
  const tree = await treeIfAny(directory, source)
  if (tree === undefined) {
    job.line(`OS image ${name} has no directory: nothing but the object is copied`)
    return model.clone('osimage', name, { ...given, values }, actor)
  }
  const { signal } = job
  const place = join(directory, copy)
  if (await exists(place)) throw alreadyThere(place)
  job.line(`copying ${tree} to ${place}`)
  const fill = async (path: string) => {
    const args = { tree, parent: '', work: basename(path) }
    await context.work.call('clone', args, { signal, timeLimitMs })
  }
  const commit = (at: number) =>
    model.clone('osimage', name, { ...given, values: values.set('path', place) }, actor, tx => {
      if (tx.get('osimage', name)?.path !== source.path)
        throw unavailable(`OS image ${name}: field "path" was changed while it was copied`, 'image-changed')
      tx.put('tree', copy, { name: copy, at, osimage: copy, ...here(context) })
      const made = tx.get('osimage', copy)
      if (made) tx.put('osimage', copy, { ...made, ...here(context) })
    })
  await placeTree(context, { parent: '', target: copy, replaces: false, timeLimitMs, fill, commit }, job)
}
