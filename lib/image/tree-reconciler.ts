import { join } from 'node:path'
import { Background, Grace } from '../base/background.js'
import { exists } from '../disk/file.js'
import type { JobContext, Jobs } from '../jobs/jobs.js'
import { meet } from '../jobs/work.js'
import { type Actor, daemonActor } from '../model/model.js'
import { type Change, docsOf, type View } from '../model/stored.js'
import type { TreeDoc } from '../model/types/osimage.js'
import { tryLockDirectory } from '../program/system.js'
import { type ImageContext, unusable } from './context.js'
import { parentOf } from './notes.js'
import { decide, forgetTree, removeHidden, removeTree } from './tree-changes.js'
import { imageIn, noteFound, realPlace } from './trees.js'

/** A directory that is removed with its image. */
export interface RemovedDirectory {
  readonly path: string
  readonly controller?: string
}

/** A removal that runs, or has failed. */
interface Attempt {
  /** The next one may begin then. */
  until: number
  readonly pauseMs: number
}

/** Changes are gathered for so long. */
const SOON_MS = 50
/** Interval of the looks among several controllers, while there is something to do. */
const LOOK_MS = 10_000
const RETRY_MS = { first: 1000, longest: LOOK_MS }
/** Pauses between tries of a removal that fails: each try makes a record. */
const AGAIN_MS = { first: 5000, longest: 600_000 }
/** A controller that is away for less time may only be starting again. */
const AWAY_MS = 60_000

/**
 * Makes the directories on the disk what the objects say (rules 3.12, 9.15): settles notes, removes
 * directories of deleted images, and notes this controller in images that are here. The leader removes its
 * own directories. A follower hides its own and announces that; without a record it removes what it has
 * hidden.
 */
export class TreeReconciler {
  readonly #locks = new TreeLocks()
  readonly #background: Background
  readonly #attempts = new Map<string, Attempt>()
  readonly #away: Grace
  /** Directories of which it was logged that their controller is away. */
  #loggedAway: ReadonlySet<string> = new Set()
  /** The failure that was logged last. */
  #logged = ''
  /** The directories of this follower that are hidden or gone: their records may go. */
  outOfPlace: readonly string[] = []

  constructor(
    private readonly context: ImageContext,
    private readonly jobs: Pick<Jobs, 'submit'>
  ) {
    const { controllers, log, notes, ticks } = context
    this.#away = new Grace(AWAY_MS, ticks)
    this.#background = new Background({
      work: async signal => {
        await this.removeAbandoned(daemonActor, signal)
        await noteFound(context)
        await this.#decide(signal)
      },
      // The controller that has a directory may come back, and failures are tried again.
      everyMs: () =>
        controllers && (notes.undecided.size > 0 || abandonedTrees(context).length > 0) ? LOOK_MS : undefined,
      ...(controllers ? { retryMs: RETRY_MS } : {}),
      onFailure: reason =>
        log.warn(`not all directories of OS images are looked after; it goes on: ${reason}`)
    })
  }

  /** Looks at all directories soon. */
  soon(): void {
    this.#background.wake(SOON_MS)
  }

  /** Looks at all directories now. Throws an Error with what has failed. */
  run(): Promise<void> {
    return this.#background.run()
  }

  /** This controller became the leader: failed removals are tried again at once. */
  becameLeader(): void {
    this.#attempts.clear()
    this.soon()
  }

  close(): Promise<void> {
    return this.#background.close()
  }

  /** Returns the directories that changes would remove; `view`: the objects after them. */
  foretold(changes: readonly Change[], view: View): RemovedDirectory[] {
    const { controllers, config } = this.context
    const { directory } = config.image
    return changes.flatMap(({ type, name, before, after }) => {
      if (type !== 'tree' || !(after as TreeDoc | undefined)?.abandoned || !before) return []
      if (imageIn(view, directory, name) !== undefined) return []
      const { controller } = before as TreeDoc
      return [
        { path: join(directory, name), ...(controllers && controller !== undefined ? { controller } : {}) }
      ]
    })
  }

  async laneOf(path: string): Promise<string> {
    return `tree ${await realPlace(path)}`
  }

  /** Runs work in these lanes while no shell is open there; soon decides what it left undecided. */
  locked<R>(lanes: readonly string[], signal: AbortSignal, work: () => Promise<R>): Promise<R> {
    return this.#locks
      .run(lanes, signal, () => heldTrees(lanes, work))
      .finally(() => this.context.notes.undecided.size > 0 && this.soon())
  }

  /** Has the directories of deleted images removed, by requests of the actor. Never throws. */
  async removeAbandoned(actor: Actor, signal = new AbortController().signal): Promise<void> {
    const { controllers, ownsObjects, log } = this.context
    try {
      await (ownsObjects() ? this.#submitRemovals(actor) : this.#hideOwn(signal))
      this.#logged = ''
    } catch (error) {
      const { message } = error as Error
      const when = controllers ? 'later' : 'at the next start'
      if (message !== this.#logged && !signal.aborted)
        log.warn(`directories of deleted OS images are removed ${when}: ${message}`)
      if (controllers) this.#logged = message
    }
  }

  async #submitRemovals(actor: Actor): Promise<void> {
    this.#warnOfAway()
    await giveBack(this.context, abandonedTrees(this.context))
    for (const tree of abandonedTrees(this.context))
      if (!(await this.#isHere(tree))) await this.#forgetHidden(tree)
      else if ((this.#attempts.get(tree.name)?.until ?? 0) <= this.context.ticks())
        await this.#submitRemoval(tree, actor)
  }

  async #submitRemoval(tree: TreeDoc, actor: Actor): Promise<void> {
    const { controllers, ticks } = this.context
    const { name, osimage = name } = tree
    const { pauseMs = AGAIN_MS.first / 2 } = this.#attempts.get(name) ?? {}
    const attempt: Attempt = {
      until: Number.POSITIVE_INFINITY,
      pauseMs: Math.min(2 * pauseMs, AGAIN_MS.longest)
    }
    this.#attempts.set(name, attempt)
    // With one controller alone the next start tries again.
    const failed = () => {
      if (controllers) attempt.until = ticks() + attempt.pauseMs
    }
    try {
      const lanes = await this.#lanesOf(tree)
      const run = async (job: JobContext) => {
        await this.locked(lanes, job.signal, () => removeTree(this.context, name, job))
        if (this.#attempts.get(name) === attempt) this.#attempts.delete(name)
      }
      const job = await this.jobs.submit({
        ...{ kind: 'delete', object: `OS image ${osimage}`, by: actor.who, lanes, run }
      })
      // A job that is stopped before it runs fails too.
      job.done.catch(failed)
    } catch (error) {
      failed()
      throw error
    }
  }

  /** Whether this controller has a directory. A record from before there were several names none. */
  async #isHere({ name, controller }: TreeDoc): Promise<boolean> {
    const { config, controllers } = this.context
    if (!controllers) return true
    if (controller !== undefined) return controller === controllers.own
    return exists(join(config.image.directory, name))
  }

  async #lanesOf({ name, osimage = name }: TreeDoc): Promise<string[]> {
    return [`osimage ${osimage}`, await this.laneOf(join(this.context.config.image.directory, name))]
  }

  /** Hides the directories of this follower. Throws as `forEach`. */
  async #hideOwn(signal: AbortSignal): Promise<void> {
    const out: string[] = []
    await forEach(abandonedTrees(this.context), async tree => {
      const lanes = await this.#lanesOf(tree)
      const hide = () => removeTree(this.context, tree.name, { signal, line: () => {} })
      if (await this.#locks.run(lanes, signal, () => heldTrees(lanes, hide))) out.push(treeId(tree))
    }).finally(() => {
      this.outOfPlace = out
    })
  }

  /** Removes the record of a directory that its controller has hidden. */
  async #forgetHidden(tree: TreeDoc): Promise<void> {
    const { controllers, log } = this.context
    const { name, osimage = name, controller = '' } = tree
    if (!controllers?.outOfPlace(controller).includes(treeId(tree))) return
    if (await forgetTree(this.context, name))
      log.info(`OS image ${osimage} is deleted: controller ${controller} removes its directory ${name}`)
  }

  /** Logs once for each directory that its controller is away: it may have another name by now. */
  #warnOfAway(): void {
    const { controllers, config, log } = this.context
    const there = [undefined, controllers?.own, ...(controllers?.others() ?? [])]
    const away = abandonedTrees(this.context).filter(({ controller }) => !there.includes(controller))
    const over = new Set(this.#away.over(away.map(({ name }) => name)))
    for (const { name, osimage = name, controller } of away)
      if (over.has(name) && !this.#loggedAway.has(name))
        log.warn(
          `OS image ${osimage} is deleted, and its directory ${join(config.image.directory, name)} is on ` +
            `controller ${controller}, which is not there: it is removed once svcd runs there with ` +
            `[controller] name = ${controller}`
        )
    this.#loggedAway = over
  }

  /** Settles the undecided notes. Throws as `forEach`. */
  async #decide(signal: AbortSignal): Promise<void> {
    const { config, log, notes } = this.context
    await forEach([...notes.undecided], async note => {
      const lanes = [await this.laneOf(join(config.image.directory, parentOf(note), note.target))]
      // The end of that work looks again.
      if (this.#locks.isHeld(lanes)) return
      const goes = await this.#locks.run(lanes, signal, () => decide(this.context, note))
      // Not awaited: it may take long, and a note holds the hidden name.
      if (goes)
        void removeHidden(this.context, note).catch(error =>
          log.error(`what is left of directory ${note.target} is removed at the next start: ${error.message}`)
        )
    })
  }
}

/** Works on all items, and throws the first failure at the end. */
async function forEach<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  const failures: unknown[] = []
  for (const item of items) await work(item).catch(error => failures.push(error))
  if (failures.length > 0) throw failures[0]
}

/** Names a directory and its record: a later directory of the same name differs. */
const treeId = ({ name, at }: TreeDoc) => `${name} ${at ?? ''}`

/** Returns the records of directories of deleted images; a follower looks after its own alone. */
const abandonedTrees = ({ controllers, ownsObjects, model: { view } }: ImageContext): TreeDoc[] =>
  docsOf(view, 'tree').filter(
    ({ abandoned, controller }) => abandoned && (ownsObjects() || controller === controllers?.own)
  )

/** A directory of a deleted image that an image is in again belongs to that image from now on. */
async function giveBack({ config, model }: ImageContext, trees: readonly TreeDoc[]): Promise<void> {
  const imageOf = (view: View, { name }: TreeDoc) => imageIn(view, config.image.directory, name)
  const used = trees.filter(tree => imageOf(model.view, tree) !== undefined)
  if (used.length === 0) return
  await model.change(daemonActor, tx => {
    for (const { name } of used) {
      const tree = tx.get('tree', name)
      const osimage = tree && imageOf(tx, tree)
      if (!tree?.abandoned || osimage === undefined) continue
      const { abandoned: _, ...rest } = tree
      tx.put('tree', name, { ...rest, osimage })
    }
  })
}

/** Locks of directories in this process: they also keep jobs from removals and from `decide`. */
export class TreeLocks {
  readonly #holders = new Set<{ readonly lanes: readonly string[]; readonly done: Promise<void> }>()

  /** Whether something runs in one of these lanes, or waits to. */
  isHeld(lanes: readonly string[]): boolean {
    return [...this.#holders].some(holder => meet(holder.lanes, lanes))
  }

  /** Runs `work` once nothing else runs in these lanes. Rejects as it, or with the signal's reason. */
  async run<R>(lanes: readonly string[], signal: AbortSignal, work: () => Promise<R>): Promise<R> {
    const before = [...this.#holders].filter(holder => meet(holder.lanes, lanes)).map(({ done }) => done)
    let end = () => {}
    const holder = { lanes, done: new Promise<void>(resolve => (end = resolve)) }
    this.#holders.add(holder)
    try {
      await ended(before, signal)
      return await work()
    } finally {
      this.#holders.delete(holder)
      end()
    }
  }
}

async function ended(before: readonly Promise<void>[], signal: AbortSignal): Promise<void> {
  signal.throwIfAborted()
  if (before.length === 0) return
  let stop = () => {}
  const aborted = new Promise<never>((_, reject) => {
    stop = () => reject(signal.reason)
    signal.addEventListener('abort', stop)
  })
  await Promise.race([Promise.all(before), aborted]).finally(() => signal.removeEventListener('abort', stop))
}

/** Keeps shells of root out of these directories. Throws 503 where one is open (rules 9.13). */
async function heldTrees<R>(lanes: readonly string[], work: () => Promise<R>): Promise<R> {
  const named = (kind: string) =>
    lanes.flatMap(lane => (lane.startsWith(`${kind} `) ? lane.slice(kind.length + 1) : []))
  const [image] = named('osimage')
  const releases: (() => Promise<void>)[] = []
  try {
    for (const tree of new Set(named('tree'))) {
      // One that is not there yet, or that this user may not open, is left to the work.
      const release = await tryLockDirectory(tree).catch(error => {
        if (['ENOENT', 'ENOTDIR', 'EACCES'].includes(error.code)) return async () => {}
        throw error
      })
      if (release === undefined)
        throw unusable(
          `${image}`,
          `a shell is open in its directory ${tree} (svcd osimage shell ${image}): end it, and ask again; ` +
            'nothing was done'
        )
      releases.push(release)
    }
    return await work()
  } finally {
    await Promise.all(releases.map(release => release()))
  }
}
