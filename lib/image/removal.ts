import { join } from 'node:path'
import { exists } from '../disk/missing.js'
import { mountsBelow } from '../disk/mounts.js'
import type { JobContext } from '../jobs/jobs.js'
import { theDaemon } from '../model/model.js'
import type { TreeDoc } from '../model/types/osimage.js'
import type { View } from '../model/view.js'
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

/** The directories of deleted images that are still there, as far as controllers share the objects: they may have to be tried again. */
export function stillAbandoned({
  controllers,
  model
}: Pick<ImageContext, 'controllers' | 'model'>): TreeDoc[] {
  if (!controllers) return []
  return [...model.view.names('tree')].flatMap(name => {
    const tree = model.view.get('tree', name)
    return tree?.abandoned ? [tree] : []
  })
}

/** Whether a directory may be removed: its record says so, and no image is in it. */
const isFree = (view: View, directory: string, name: string): boolean =>
  view.get('tree', name)?.abandoned === true && imageIn(view, directory, name) === undefined

/**
 * Whether the directory `name` may be removed, as the controller that writes has it. With several controllers this one is known to
 * write when this resolves: who was cut off, or stood still, may hold an image for deleted that another one has by now. Throws
 * StoreError where that is not known.
 */
export async function mayGo({ config, controllers, model }: ImageContext, name: string): Promise<boolean> {
  const goes = await model.change(theDaemon, tx => isFree(tx, config.image.directory, name))
  if (goes && controllers) await model.known()
  return goes
}

/**
 * Removes the record of a directory that has its hidden name, or is gone; gives whether the record is gone. It stays where an image is
 * in the directory by now.
 */
export const forgetTree = (
  { config, model }: Pick<ImageContext, 'config' | 'model'>,
  name: string
): Promise<boolean> =>
  model.change(theDaemon, tx => {
    if (!tx.get('tree', name)) return true
    if (!isFree(tx, config.image.directory, name)) return false
    tx.remove('tree', name)
    return true
  })

/**
 * Removes the directory `name` and its record, unless an image is in it by now; gives whether none is. `isAsked`: the controller that
 * writes asks for it, and removes the record. The directory only gets its hidden name then, and goes when it is heard that the record
 * has gone. Throws an Error when something is mounted in it.
 */
export async function removeAbandoned(
  context: ImageContext,
  name: string,
  job: Pick<JobContext, 'line' | 'signal'>,
  isAsked = false
): Promise<boolean> {
  const { config, controllers, model, intents } = context
  const at = model.view.get('tree', name)?.at
  const intent: RemovalIntent = {
    ...{ kind: 'removal', id: newIntentId(), target: name },
    ...(at === undefined ? {} : { at })
  }
  const { place } = await pathsOf(context, intent)
  await checkNothingMounted(place)
  const stands = await exists(place)
  await intents.write(intent)
  let goes = false
  try {
    goes = isAsked ? isFree(model.view, config.image.directory, name) : await mayGo(context, name)
    job.signal.throwIfAborted()
  } catch (error) {
    await intents.drop(intent.id)
    throw error
  }
  if (!goes || (isAsked && !stands)) {
    await intents.drop(intent.id)
    if (goes) job.line(`there is no ${name} to remove`)
    return goes
  }
  try {
    if (stands) await hide(context, intent)
    if (isAsked) {
      intents.undecided.add(intent)
      job.line(`${name} is out of the way, and is removed once that is stored`)
      return true
    }
    if (!(await forgetTree(context, name))) {
      if (stands) await putBack(context, intent)
      else await intents.drop(intent.id)
      return false
    }
    await removeHidden(context, intent)
  } catch (error) {
    if (controllers) intents.undecided.add(intent)
    throw error
  }
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

/** Gives the directory of a removal its name again: it is not to be removed. Throws an Error where something else has that name. */
async function putBack(context: ImageContext, intent: RemovalIntent): Promise<void> {
  const { hidden, place } = await pathsOf(context, intent)
  if (await exists(place))
    throw new Error(
      `${place} is there anew, and an OS image is in it; what it held before is ${hidden}: remove one of the two`
    )
  await renaming(context, intent)(hidden, place)
  await context.intents.drop(intent.id)
}

/**
 * Decides by what is stored about the directory of a removal that has not come to its end. `gone`: its record is gone, so what has the
 * hidden name is to be removed. `over`: nothing is left to do; an image is in it, and it has its name again, or nothing was hidden.
 * `later`: its record is there, and another controller writes. The hidden directory is whole while the record is there.
 */
export async function decideRemoval(
  context: ImageContext,
  intent: RemovalIntent
): Promise<'gone' | 'over' | 'later'> {
  const { config, intents, model } = context
  const { hidden } = await pathsOf(context, intent)
  if (!(await exists(hidden))) {
    await intents.drop(intent.id)
    return 'over'
  }
  const tree = model.view.get('tree', intent.target)
  if (!tree || (intent.at !== undefined && intent.at !== tree.at)) return 'gone'
  if (isFree(model.view, config.image.directory, intent.target)) {
    if (model.isFollowing) return 'later'
    if (await forgetTree(context, intent.target)) return 'gone'
  }
  await putBack(context, intent)
  return 'over'
}
