import { join } from 'node:path'
import type { JobContext, Jobs, SubmittedJob } from '../jobs/jobs.js'
import { isObject } from '../json.js'
import type { Actor } from '../model/model.js'
import type { TreeDoc } from '../model/types/osimage.js'
import type { Change, View } from '../model/view.js'
import type { ImageContext } from './context.js'
import type { WorkElsewhere } from './errands/elsewhere.js'
import type { Task } from './errands/errand.js'
import { abandonedTrees, forgetTree, mayGo, removeAbandoned, stillAbandoned } from './removal.js'
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
  readonly #o: RemovalsOptions
  /** Directories that are being removed, or could not be. */
  readonly #removing = new Map<string, Removing>()
  /** Of those that could not be removed, where several controllers share the objects: how long until the next try. */
  readonly #pausesMs = new Map<string, number>()
  /** Why directories could not be removed, as it was logged last. */
  #notRemoved = ''
  /** Directories whose controller is not there → since when; Infinity once that was logged. */
  readonly #away = new Map<string, number>()

  constructor(options: RemovalsOptions) {
    this.#o = options
  }

  /** This controller writes from now on: what it tried when it wrote before is tried anew. */
  promoted(): void {
    this.#removing.clear()
    this.#pausesMs.clear()
  }

  get #context(): ImageContext {
    return this.#o.context
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
      const lanes = [`osimage ${osimage}`, await this.#o.lane(name)]
      const own = this.#context.controllers?.own
      const there = controller === own ? undefined : controller
      const run = async (job: JobContext) => {
        if (there === undefined)
          await this.#o.locked(lanes, job.signal, () => removeAbandoned(this.#context, name, job))
        else if (!(await this.#removeElsewhere(there, name, osimage, job))) return failed()
        this.#pausesMs.delete(name)
        if (this.#removing.get(name) === removing) this.#removing.delete(name)
      }
      const at = there === undefined ? {} : { at: there }
      const job = await this.#o.jobs.submit({
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
    const came = (await mayGo(this.#context, tree)) && (await this.#o.elsewhere.run(there, task, job))
    const isRemoved = isObject(came) && came.removed === true
    const isKnown = this.#context.model.view.get('tree', tree) !== undefined
    if ((isRemoved || !isKnown) && (await forgetTree(this.#context, tree))) return true
    job.line(`${tree} stays: an OS image is in it`)
    return false
  }
}
