import { setTimeout as sleep } from 'node:timers/promises'
import { ServiceError, unavailable } from '../../errors.js'
import type { JobContext } from '../../jobs/jobs.js'
import { INTERRUPTED } from '../../jobs/records.js'
import { isObject, type JsonValue } from '../../json.js'
import { isFileName, isObjectName } from '../../model/names.js'
import { meantTree, type OsimageDoc } from '../../model/types/osimage.js'
import type { ImageContext } from '../context.js'
import type { Outcome } from '../publish.js'
import { BusyError, LostError, UnreachedError } from './asking.js'
import type { Task } from './errand.js'

/** A client waits for a check. Of a push it takes as long as a node takes to answer. */
const CHECK_MS = 30_000
/** Work for which there is no place is asked for again for so long. There are more places than one controller needs. */
const BUSY_MS = 600_000

/** Work that other controllers do, as the one that writes sees it. */
export class WorkElsewhere {
  constructor(private readonly context: Pick<ImageContext, 'config' | 'controllers'>) {}

  /**
   * Asks the controller that has the directory of an image whether work on it can begin. Throws what is thrown there, and unavailable
   * (503) with the way out where that one cannot be asked.
   */
  async check(there: string, image: OsimageDoc, task: Task, stop?: AbortSignal): Promise<void> {
    const signal = AbortSignal.any([AbortSignal.timeout(CHECK_MS), ...(stop ? [stop] : [])])
    const nothing = () => undefined
    await this.#ask(there, task, { signal, line: nothing, progress: nothing, result: nothing }).catch(
      error => {
        if (error instanceof ServiceError) throw error
        const { config, controllers } = this.context
        const path = meantTree(config.image.directory, image)
        const reason = signal.aborted ? 'it does not answer' : (error as Error).message
        throw unavailable(
          `OS image ${image.name}: its directory ${path} is on controller ${there}, which cannot be asked (${reason}): look whether svcd ` +
            `runs there and is reached by its [store] url or [http] url; or stop svcd on ${there}, bring the directory to controller ` +
            `${controllers?.own}, and set path again: svcctl osimage set ${image.name} path=${path}`,
          error
        )
      }
    )
  }

  /** Has the work done. Throws what was thrown there, and Error that names a controller that was lost, or cannot be asked. */
  async run(there: string, task: Task, job: JobContext): Promise<JsonValue> {
    job.line(`it runs on controller ${there}, which has the directory`)
    try {
      return await this.#ask(there, task, job)
    } catch (error) {
      if (error instanceof LostError) {
        job.line(`controller ${there}: ${error.message}`)
        throw new Error(`${INTERRUPTED}: controller ${there}, which ran it, was lost`)
      }
      if (error instanceof UnreachedError || error instanceof BusyError)
        throw new Error(
          `controller ${there}, which has the directory, cannot be asked (${error.message}): nothing was done`
        )
      throw error
    }
  }

  /** Where there is no place for it now, nothing was begun: it is asked again. */
  async #ask(there: string, task: Task, job: Omit<JobContext, 'id'>): Promise<JsonValue> {
    const { controllers } = this.context
    if (!controllers) throw new TypeError('there are no other controllers')
    let isTold = false
    for (const giveUp = performance.now() + BUSY_MS; ; ) {
      try {
        return await controllers.ask(there, task, job)
      } catch (error) {
        if (!(error instanceof BusyError) || performance.now() > giveUp) throw error
        if (!isTold) job.line(`it waits for a place: ${error.message}`)
        isTold = true
        await sleep(error.afterMs, undefined, { signal: job.signal }).catch(() => {
          throw error
        })
      }
    }
  }
}

/** What another controller has packed of this image. Throws Error for what no controller of this release says. */
export function outcomeIn(came: JsonValue, osimage: string): Outcome {
  const { path, kept, version, pack } = isObject(came) ? came : {}
  const isText = (value: unknown) => typeof value === 'string'
  const maybe = (value: unknown) => value === undefined || isText(value)
  const isFile = (value: unknown) => value === undefined || (isText(value) && isFileName(value as string))
  const isCount = (value: unknown) => Number.isSafeInteger(value) && (value as number) >= 0
  const fits =
    isObject(pack) &&
    pack.osimage === osimage &&
    isObjectName(osimage) &&
    [pack.name, pack.sha256, pack.packer].every(isText) &&
    [pack.name, pack.kernelfile, pack.initrdfile].every(isFile) &&
    [pack.bytes, pack.time].every(isCount) &&
    [pack.kernel, pack.kernelversion, pack.initrd, path, version].every(maybe) &&
    Array.isArray(kept) &&
    kept.every(isText)
  if (!fits) throw new Error('the other controller tells a pack that this release does not know')
  return came as unknown as Outcome
}
