import { join } from 'node:path'
import { exists } from '../disk/file.js'
import { mountsBelow } from '../disk/open-directory.js'
import type { JobContext, Jobs, SubmittedJob } from '../jobs/jobs.js'
import { isObject } from '../json.js'
import { type Actor, theDaemon } from '../model/model.js'
import type { Change, View } from '../model/stored.js'
import type { TreeDoc } from '../model/types/osimage.js'
import type { ImageContext } from './context.js'
import type { WorkElsewhere } from './errands/asking.js'
import type { Task } from './errands/errand.js'
import { newIntentId, type RemovalIntent } from './intents.js'
import { pathsOf, removeHidden, renaming } from './place-tree.js'
import { imageIn } from './trees.js'

/** A directory of an image that goes with it. */
export interface RemovedDirectory {
  readonly path: string
  readonly controller?: string
}

interface RemovalsOptions {
  readonly context: ImageContext
  readonly jobs: Pick<Jobs, 'submit'>
  readonly elsewhere: Pick<WorkElsewhere, 'run'>
  /** The lane of a directory right below `[image] directory`. */
  readonly lane: (name: string) => Promise<string>
  /** Runs work that has these lanes. */
  readonly locked: <R>(lanes: readonly string[], signal: AbortSignal, work: () => Promise<R>) => Promise<R>
}

/** A controller that is not there for so long is no longer only started again. */
const AWAY_MS = 60_000
/** What failed there is tried again after so long, then twice as long and so on: each time makes a record. */
const AGAIN_MS = { first: 5000, longest: 600_000 }

/** A directory that is being removed, or could not be: until then it is left alone. */
interface Removing {
  until: number
}

/** When the directories that svcd made for deleted images are removed, and by which controller. */
export class Removals {
  /** Directories that are being removed, or could not be. */
  readonly #removing = new Map<string, Removing>()
  /** Of those that could not be removed, where several controllers share the objects: how long until the next try. */
  readonly #pausesMs = new Map<string, number>()
  /** Why directories could not be removed, as it was logged last. */
  #notRemoved = ''
  /** Directories whose controller is not there → since when; Infinity once that was logged. */
  readonly #away = new Map<string, number>()

  constructor(private readonly o: RemovalsOptions) {}

  /** This controller writes from now on: what it tried when it wrote before is tried anew. */
  promoted(): void {
    this.#removing.clear()
    this.#pausesMs.clear()
  }

  get #context(): ImageContext {
    return this.o.context
  }

  /**
   * The directories that would be removed after these changes, as `submit` has it done, and on which controller, where there are several;
   * `view` is of the time after them.
   */
  foretold(changes: readonly Change[], view: View): RemovedDirectory[] {
    const directory = this.#context.config.image.directory
    const { controllers } = this.#context
    return changes.flatMap(({ type, name, before, after }) => {
      if (type !== 'tree' || !(after as TreeDoc | undefined)?.abandoned || !before) return []
      if (imageIn(view, directory, name) !== undefined) return []
      const { controller } = before as TreeDoc
      return [
        { path: join(directory, name), ...(controllers && controller !== undefined ? { controller } : {}) }
      ]
    })
  }

  /** Has the directories removed that svcd made for deleted images. Resolves with the requests. Never throws. */
  async submit(actor: Actor): Promise<SubmittedJob[]> {
    const { log, ticks, model } = this.#context
    const submitted: SubmittedJob[] = []
    if (model.isFollowing) return submitted
    try {
      this.#tellAway()
      for (const tree of await abandonedTrees(this.#context)) {
        // With one controller alone, one that fails is tried again by the next start.
        if ((this.#removing.get(tree.name)?.until ?? 0) > ticks()) continue
        submitted.push(await this.#submitRemoval(tree, actor))
      }
      this.#notRemoved = ''
    } catch (error) {
      const { message } = error as Error
      const when = this.#context.controllers ? 'later' : 'at the next start'
      if (message !== this.#notRemoved)
        log.warn(`directories of deleted OS images are removed ${when}: ${message}`)
      if (this.#context.controllers) this.#notRemoved = message
    }
    return submitted
  }

  async #submitRemoval({ name, osimage = name, controller }: TreeDoc, actor: Actor): Promise<SubmittedJob> {
    const removing: Removing = { until: Number.POSITIVE_INFINITY }
    this.#removing.set(name, removing)
    const failed = () => this.#notRemovedYet(name, removing)
    try {
      const lanes = [`osimage ${osimage}`, await this.o.lane(name)]
      const own = this.#context.controllers?.own
      const there = controller === own ? undefined : controller
      const run = async (job: JobContext) => {
        if (there === undefined)
          await this.o.locked(lanes, job.signal, () => removeAbandoned(this.#context, name, job))
        else if (!(await this.#removeElsewhere(there, name, osimage, job))) return failed()
        this.#pausesMs.delete(name)
        if (this.#removing.get(name) === removing) this.#removing.delete(name)
      }
      const at = there === undefined ? {} : { at: there }
      const job = await this.o.jobs.submit({
        ...{ kind: 'delete', object: `OS image ${osimage}`, by: actor.who, lanes, run },
        ...at
      })
      // Also one that was stopped before it ran.
      job.done.catch(failed)
      return job
    } catch (error) {
      failed()
      throw error
    }
  }

  /** With several controllers a directory that could not be removed is tried again: who has to do it may be there by then. */
  #notRemovedYet(name: string, removing: Removing): void {
    if (!this.#context.controllers || this.#removing.get(name) !== removing) return
    const pauseMs = this.#pausesMs.get(name) ?? AGAIN_MS.first
    this.#pausesMs.set(name, Math.min(2 * pauseMs, AGAIN_MS.longest))
    removing.until = this.#context.ticks() + pauseMs
  }

  /** Says once for each directory that it waits for a controller which is not there: it may have another name by now. */
  #tellAway(): void {
    const { controllers } = this.#context
    const waiting = stillAbandoned(this.#context)
    for (const name of [...this.#away.keys()])
      if (!waiting.some(tree => tree.name === name)) this.#away.delete(name)
    for (const { name, osimage = name, controller } of waiting) {
      if (controller === undefined) continue
      if ([controllers?.own, ...(controllers?.others() ?? [])].includes(controller)) {
        this.#away.delete(name)
        continue
      }
      const since = this.#away.get(name) ?? this.#context.ticks()
      this.#away.set(name, since)
      if (this.#context.ticks() - since < AWAY_MS) continue
      this.#away.set(name, Number.POSITIVE_INFINITY)
      this.#context.log.warn(
        `OS image ${osimage} is deleted, and its directory ${join(this.#context.config.image.directory, name)} is on controller ${controller}, which is not ` +
          `there: it is removed once svcd runs there with [controller] name = ${controller}`
      )
    }
  }

  /** Gives whether the directory and its record are gone. */
  async #removeElsewhere(there: string, tree: string, osimage: string, job: JobContext): Promise<boolean> {
    const task: Task = { kind: 'removal', osimage, tree, check: false }
    const came = (await mayGo(this.#context, tree)) && (await this.o.elsewhere.run(there, task, job))
    const isRemoved = isObject(came) && came.removed === true
    const isKnown = this.#context.model.view.get('tree', tree) !== undefined
    if ((isRemoved || !isKnown) && (await forgetTree(this.#context, tree))) return true
    job.line(`${tree} stays: an OS image is in it`)
    return false
  }
}

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
async function mayGo({ config, controllers, model }: ImageContext, name: string): Promise<boolean> {
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
