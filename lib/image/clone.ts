import { basename, join } from 'node:path'
import { badRequest, notFound } from '../base/errors.js'
import { exists } from '../disk/file.js'
import type { JobContext } from '../jobs/jobs.js'
import type { Actor } from '../model/model.js'
import type { ObjectPatch } from '../model/object-type.js'
import { type ImageContext, sameImage } from './context.js'
import { alreadyThere, placeTree } from './tree-changes.js'
import { checkUnmounted, here, treeIfAny } from './trees.js'

/**
 * Returns the source of a clone. Throws 404 without a source or a new name, 400 for a name that is taken and
 * for a `path` that is neither the source's nor the clone's place, 503 for a directory with a mount in it.
 */
export async function checkClone({ model, config }: ImageContext, name: string, given: ObjectPatch) {
  const source = model.get('osimage', name)
  const copy = given.newName
  if (!copy) throw notFound(`OS image ${name}: field "newosimage" is missing`, 'no-new-name')
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

/** Copies an image and its tree, by reflinks if possible, whole or not at all. The clone shares packs. */
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
  await placeTree(
    context,
    {
      ...{ parent: '', target: copy, replaces: false, timeLimitMs },
      fill: path =>
        context.work.call('clone', { tree, parent: '', work: basename(path) }, { signal, timeLimitMs }),
      commit: record =>
        model.clone('osimage', name, { ...given, values: values.set('path', place) }, actor, tx => {
          sameImage(tx, source, 'it was copied')
          record(tx, copy)
          const made = tx.get('osimage', copy)
          if (made) tx.put('osimage', copy, { ...made, ...here(context) })
        })
    },
    job
  )
}
