import { join } from 'node:path'
import { exists } from '../disk/file.js'
import { mountsBelow } from '../disk/open-directory.js'
import type { JobContext, Jobs, SubmittedJob } from '../jobs/jobs.js'
import { type Actor, daemonActor } from '../model/model.js'
import type { Change, View } from '../model/stored.js'
import type { TreeDoc } from '../model/types/osimage.js'
import type { ImageContext } from './context.js'
import { newIntentId, type RemovalIntent } from './intents.js'
import { pathsOf, removeHidden, renaming } from './place-tree.js'
import { imageIn } from './trees.js'

/** A directory that is removed with its image. */
export interface RemovedDirectory {
  readonly path: string
  readonly controller?: string
}

interface RemovalsOptions {
  readonly context: ImageContext
  readonly jobs: Pick<Jobs, 'submit'>
  /** Returns the lane of a directory right below `[image] directory`. */
  readonly lane: (name: string) => Promise<string>
  /** Runs `work` once nothing else runs in these lanes. */
  readonly locked: <R>(lanes: readonly string[], signal: AbortSignal, work: () => Promise<R>) => Promise<R>
}

/** A controller that is away for less time may only be starting again. */
const AWAY_MS = 60_000
/** Pauses between tries of a removal that fails: each try makes a record. */
const AGAIN_MS = { first: 5000, longest: 600_000 }

/** A directory is left alone until this time. */
interface Removing {
  until: number
}

/**
 * Removes the directories that svcd made for deleted images (rules 3.12, 9.15). The record of a directory
 * names its controller. The leader removes its own directories. A follower hides its own and announces that;
 * the leader then removes their records, and without a record the follower removes what it has hidden.
 */
export class Removals {
  /** Directories that are being removed, or could not be. */
  readonly #removing = new Map<string, Removing>()
  /** With several controllers: the pause after the next failure of a directory. */
  readonly #pausesMs = new Map<string, number>()
  /** The failure that was logged last. */
  #notRemoved = ''
  /** Directories whose controller is away, with the time since; Infinity once that was logged. */
  readonly #away = new Map<string, number>()
  /** As `outOfPlace`. */
  #outOfPlace: readonly string[] = []

  constructor(private readonly o: RemovalsOptions) {}

  /** This controller became the leader: failed removals are tried again at once. */
  becameLeader(): void {
    this.#removing.clear()
    this.#pausesMs.clear()
  }

  /** The directories of this follower that are hidden or gone: their records may go. */
  get outOfPlace(): readonly string[] {
    return this.#outOfPlace
  }

  get #context(): ImageContext {
    return this.o.context
  }

  /**
   * Returns the directories that these changes would remove, and among several controllers that of each.
   * `view`: the objects after the changes.
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

  /** Has the directories of deleted images removed. Resolves with the requests. Never throws. */
  async submit(actor: Actor): Promise<SubmittedJob[]> {
    const { log, ticks, model, controllers } = this.#context
    const submitted: SubmittedJob[] = []
    try {
      if (model.isReadOnly) {
        await this.#hideOwn()
        return submitted
      }
      this.#warnOfAbsent()
      for (const tree of await abandonedTrees(this.#context)) {
        if (isElsewhere(this.#context, tree)) {
          await this.#forgetHidden(tree)
          continue
        }
        // With one controller alone the next start tries again.
        if ((this.#removing.get(tree.name)?.until ?? 0) > ticks()) continue
        submitted.push(await this.#submitRemoval(tree, actor))
      }
      this.#notRemoved = ''
    } catch (error) {
      const { message } = error as Error
      if (message !== this.#notRemoved)
        log.warn(
          `directories of deleted OS images are removed ${controllers ? 'later' : 'at the next start'}: ` +
            `${message}`
        )
      if (controllers) this.#notRemoved = message
    }
    return submitted
  }

  async #submitRemoval({ name, osimage = name }: TreeDoc, actor: Actor): Promise<SubmittedJob> {
    const removing: Removing = { until: Number.POSITIVE_INFINITY }
    this.#removing.set(name, removing)
    const failed = () => this.#notRemovedYet(name, removing)
    try {
      const lanes = [`osimage ${osimage}`, await this.o.lane(name)]
      const run = async (job: JobContext) => {
        await this.o.locked(lanes, job.signal, () => removeAbandoned(this.#context, name, job))
        this.#pausesMs.delete(name)
        if (this.#removing.get(name) === removing) this.#removing.delete(name)
      }
      const job = await this.o.jobs.submit({
        ...{ kind: 'delete', object: `OS image ${osimage}`, by: actor.who, lanes, run }
      })
      // A job that is stopped before it runs fails too.
      job.done.catch(failed)
      return job
    } catch (error) {
      failed()
      throw error
    }
  }

  /** With several controllers svcd tries again without a restart. */
  #notRemovedYet(name: string, removing: Removing): void {
    if (!this.#context.controllers || this.#removing.get(name) !== removing) return
    const pauseMs = this.#pausesMs.get(name) ?? AGAIN_MS.first
    this.#pausesMs.set(name, Math.min(2 * pauseMs, AGAIN_MS.longest))
    removing.until = this.#context.ticks() + pauseMs
  }

  /** Hides the directories of this follower. Tries all, then throws the first failure. */
  async #hideOwn(): Promise<void> {
    const out: string[] = []
    const failures: unknown[] = []
    const { signal } = new AbortController()
    for (const tree of ownAbandoned(this.#context)) {
      const { name, osimage = name } = tree
      const lanes = [`osimage ${osimage}`, await this.o.lane(name)]
      await this.o
        .locked(lanes, signal, () => hideAbandoned(this.#context, name))
        .then(
          isOut => void (isOut && out.push(markOf(tree))),
          error => void failures.push(error)
        )
    }
    this.#outOfPlace = out
    if (failures.length > 0) throw failures[0]
  }

  /** Removes the record of a directory that its controller has hidden. */
  async #forgetHidden(tree: TreeDoc): Promise<void> {
    const { controllers, log } = this.#context
    const { name, osimage = name, controller = '' } = tree
    if (!controllers?.outOfPlace(controller).includes(markOf(tree))) return
    if (await forgetTree(this.#context, name))
      log.info(`OS image ${osimage} is deleted: controller ${controller} removes its directory ${name}`)
  }

  /** Logs once for each directory that its controller is away: it may have another name by now. */
  #warnOfAbsent(): void {
    const { controllers, config, log, ticks } = this.#context
    const waiting = stillAbandoned(this.#context)
    for (const name of [...this.#away.keys()])
      if (!waiting.some(tree => tree.name === name)) this.#away.delete(name)
    for (const { name, osimage = name, controller } of waiting) {
      if (controller === undefined) continue
      if ([controllers?.own, ...(controllers?.others() ?? [])].includes(controller)) {
        this.#away.delete(name)
        continue
      }
      const since = this.#away.get(name) ?? ticks()
      this.#away.set(name, since)
      if (ticks() - since < AWAY_MS) continue
      this.#away.set(name, Number.POSITIVE_INFINITY)
      log.warn(
        `OS image ${osimage} is deleted, and its directory ${join(config.image.directory, name)} is on ` +
          `controller ${controller}, which is not there: it is removed once svcd runs there with ` +
          `[controller] name = ${controller}`
      )
    }
  }
}

/** Names a directory and its record: a later directory of the same name has another mark. */
const markOf = ({ name, at }: TreeDoc) => `${name} ${at ?? ''}`

/** Whether a directory is on another controller. */
const isElsewhere = ({ controllers }: ImageContext, { controller }: TreeDoc): boolean =>
  controllers !== undefined && controller !== undefined && controller !== controllers.own

/**
 * Returns the directories that svcd made for deleted images (rules 3.12). A directory that an image is in
 * again belongs to that image from now on.
 */
export async function abandonedTrees({ config, controllers, model }: ImageContext): Promise<TreeDoc[]> {
  const { directory } = config.image
  // A record from before there were several controllers names none.
  const isReached = async ({ name, controller }: TreeDoc) =>
    !controllers ||
    (controller === undefined
      ? exists(join(directory, name))
      : [controllers.own, ...controllers.others()].includes(controller))
  const names: string[] = []
  for (const name of model.view.names('tree')) {
    const tree = model.view.get('tree', name)
    if (tree?.abandoned && (await isReached(tree))) names.push(name)
  }
  if (names.length === 0) return []
  return model.change(daemonActor, tx =>
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

/** Returns the records of directories of deleted images; none where there is one controller alone. */
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

/** Returns those of this controller. */
const ownAbandoned = (context: ImageContext): TreeDoc[] =>
  stillAbandoned(context).filter(({ controller }) => controller === context.controllers?.own)

/** Whether svcd has to look again after a while for directories to remove. */
export const hasRemovals = (context: ImageContext): boolean =>
  (context.model.isReadOnly ? ownAbandoned(context) : stillAbandoned(context)).length > 0

/** Whether a directory is abandoned, and no image is in it. */
const isFree = (view: View, directory: string, name: string): boolean =>
  view.get('tree', name)?.abandoned === true && imageIn(view, directory, name) === undefined

/**
 * Whether the directory `name` may be removed. This controller is still the leader when this resolves,
 * because a former leader may not know of an image that uses the directory again. Throws StoreError where
 * that is not known.
 */
async function mayGo({ config, controllers, model }: ImageContext, name: string): Promise<boolean> {
  const goes = await model.change(daemonActor, tx => isFree(tx, config.image.directory, name))
  if (goes && controllers) await model.readBarrier()
  return goes
}

/**
 * Removes the record of a hidden or missing directory, unless an image is in it; returns whether the record
 * is gone.
 */
export const forgetTree = (
  { config, model }: Pick<ImageContext, 'config' | 'model'>,
  name: string
): Promise<boolean> =>
  model.change(daemonActor, tx => {
    if (!tx.get('tree', name)) return true
    if (!isFree(tx, config.image.directory, name)) return false
    tx.remove('tree', name)
    return true
  })

const intentFor = ({ model }: ImageContext, name: string): RemovalIntent => {
  const at = model.view.get('tree', name)?.at
  return { kind: 'removal', id: newIntentId(), target: name, ...(at === undefined ? {} : { at }) }
}

/**
 * Removes the directory `name` and its record, unless an image is in it; returns whether none is. Throws an
 * Error when something is mounted in it.
 */
export async function removeAbandoned(
  context: ImageContext,
  name: string,
  job: Pick<JobContext, 'line' | 'signal'>
): Promise<boolean> {
  const { controllers, intents } = context
  const intent = intentFor(context, name)
  const { place } = await pathsOf(context, intent)
  await checkNothingMounted(place)
  const stands = await exists(place)
  await intents.write(intent)
  let goes = false
  try {
    goes = await mayGo(context, name)
    job.signal.throwIfAborted()
  } finally {
    if (!goes || job.signal.aborted) await intents.drop(intent.id)
  }
  if (!goes) return false
  try {
    if (stands) await hide(context, intent)
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

/**
 * Hides the directory `name` of a follower, unless an image is in it; returns whether nothing has the name.
 * `decideRemoval` removes the directory without its record. Throws an Error when something is mounted in it.
 */
export async function hideAbandoned(context: ImageContext, name: string): Promise<boolean> {
  const { config, intents, model } = context
  const intent = intentFor(context, name)
  const { place } = await pathsOf(context, intent)
  if (!(await exists(place))) return true
  if (!isFree(model.view, config.image.directory, name)) return false
  await checkNothingMounted(place)
  await intents.write(intent)
  try {
    await hide(context, intent)
  } finally {
    intents.undecided.add(intent)
  }
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
 * Hides the directory of a note of an earlier version, unless an image is in it or its record is there.
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

/** Gives a hidden directory its name again. Throws an Error where something else has that name. */
async function putBack(context: ImageContext, intent: RemovalIntent): Promise<void> {
  const { hidden, place } = await pathsOf(context, intent)
  if (await exists(place))
    throw new Error(
      `${place} is there anew, and an OS image is in it; what it held before is ${hidden}: remove one of ` +
        'the two'
    )
  await renaming(context, intent)(hidden, place)
  await context.intents.drop(intent.id)
}

/**
 * Decides about an unfinished removal by the stored record. `gone`: there is none, so the hidden directory is
 * to be removed. `over`: nothing was hidden, or an image is in the directory, which has its name again.
 * `later`: this is a follower, and the leader has not removed the record.
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
    if (model.isReadOnly) return 'later'
    if (await forgetTree(context, intent.target)) return 'gone'
  }
  await putBack(context, intent)
  return 'over'
}
