import { join } from 'node:path'
import { exists } from '../disk/missing.js'
import { mountsBelow } from '../disk/mounts.js'
import type { JobContext } from '../jobs/jobs.js'
import { theDaemon } from '../model/model.js'
import type { TreeDoc } from '../model/types/osimage.js'
import type { ImageContext } from './context.js'
import { newIntentId, type RemovalIntent } from './intents.js'
import { pathsOf, removeHidden, renaming } from './place-tree.js'
import { imageIn } from './trees.js'

/**
 * The directories that svcd made for images that have been deleted, and that no other image is in (rules 3.12). Where
 * another image is in one, the directory belongs to that image from now on.
 */
export async function abandonedTrees({ config, controllers, model }: ImageContext): Promise<TreeDoc[]> {
  const { directory } = config.image
  // What another controller made is removed by that one, when it is there. Of one from before there were several, nobody noted where it is.
  const isHere = async ({ name, controller }: TreeDoc) =>
    !controllers ||
    (controller === undefined
      ? exists(join(directory, name))
      : [controllers.own, ...controllers.others()].includes(controller))
  const names: string[] = []
  for (const name of model.view.names('tree')) {
    const tree = model.view.get('tree', name)
    if (tree?.abandoned && (await isHere(tree))) names.push(name)
  }
  if (names.length === 0) return []
  return model.change(theDaemon, tx =>
    names.flatMap(name => {
      const tree = tx.get('tree', name)
      if (!tree?.abandoned) return []
      const osimage = imageIn(tx, directory, name)
      if (osimage === undefined) return [tree]
      const { abandoned: _, ...rest } = tree
      tx.put('tree', name, { ...rest, osimage })
      return []
    })
  )
}

/** Whether a directory that svcd made for a deleted image waits for a controller that is not there. */
export const isAnyAway = ({ controllers, model }: Pick<ImageContext, 'controllers' | 'model'>): boolean =>
  [...model.view.names('tree')].some(name => {
    const { abandoned, controller } = model.view.get('tree', name) ?? {}
    return abandoned && controllers && ![controllers.own, undefined].includes(controller)
  })

/** Removes the record of a directory that is gone. */
export const forgetTree = ({ model }: Pick<ImageContext, 'model'>, name: string): Promise<void> =>
  model.change(theDaemon, tx => {
    if (tx.get('tree', name)) tx.remove('tree', name)
  })

/**
 * Removes the directory `name` and its record, unless an image is in it by now; gives whether none is. `isAsked`: the controller that
 * writes asks for it, and removes the record. Throws an Error when something is mounted in it.
 */
export async function removeAbandoned(
  context: ImageContext,
  name: string,
  job: Pick<JobContext, 'line'>,
  isAsked = false
): Promise<boolean> {
  const { config, model, intents } = context
  const { directory } = config.image
  const intent: RemovalIntent = {
    ...{ kind: 'removal', id: newIntentId(), target: name },
    ...(isAsked ? { asked: true } : {})
  }
  const { place } = await pathsOf(context, intent)
  await checkNothingMounted(place)
  const stands = await exists(place)
  await intents.write(intent)
  const { view } = model
  if (!view.get('tree', name)?.abandoned || imageIn(view, directory, name) !== undefined) {
    await intents.drop(intent.id)
    return false
  }
  if (stands) await hide(context, intent)
  if (!isAsked) await model.change(theDaemon, tx => tx.remove('tree', name))
  await removeHidden(context, intent)
  job.line(stands ? `${name} removed` : `there is no ${name} to remove`)
  return true
}

async function checkNothingMounted(place: string): Promise<void> {
  const [mounted] = await mountsBelow(place)
  if (mounted !== undefined) throw new Error(`${place} is not removed: something is mounted at ${mounted}`)
}

async function hide(context: ImageContext, intent: RemovalIntent): Promise<void> {
  const { hidden, place } = await pathsOf(context, intent)
  await renaming(context, intent)(place, hidden)
}

/**
 * Gives the directory of a note of an earlier version its hidden name, unless an image is in it or its record is there.
 * Throws an Error when something is mounted in it.
 */
export async function hideLeft(context: ImageContext, intent: RemovalIntent): Promise<void> {
  const { view } = context.model
  const { hidden, place } = await pathsOf(context, intent)
  if (intent.osimage === undefined || view.get('tree', intent.target)) return
  if ((await exists(hidden)) || !(await exists(place))) return
  if (imageIn(view, context.config.image.directory, intent.target) !== undefined) return
  await checkNothingMounted(place)
  await hide(context, intent)
}

/** Whether the directory of an interrupted removal has its hidden name. If so, its record is removed. */
export async function isHidden(context: ImageContext, intent: RemovalIntent): Promise<boolean> {
  const { hidden } = await pathsOf(context, intent)
  if (!(await exists(hidden))) return false
  // Who follows another controller can store nothing, and need not where that one has removed the record.
  const isKept = !intent.asked && context.model.view.get('tree', intent.target) !== undefined
  if (isKept) await forgetTree(context, intent.target)
  return true
}
