import type { IncomingMessage } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { askController, type Proofs, type Trust, UnansweredError } from '../../ask-controller.js'
import { ServiceError, unavailable } from '../../errors.js'
import type { JobContext } from '../../jobs/jobs.js'
import { INTERRUPTED } from '../../jobs/records.js'
import { isObject, type JsonObject, type JsonValue, objectIn } from '../../json.js'
import { isFileName, isObjectName } from '../../model/names.js'
import { meantTree, type OsimageDoc } from '../../model/types/osimage.js'
import type { ImageContext } from '../context.js'
import type { Outcome } from '../publish.js'
import { ERRANDS, type Errand, failedOn, numbered, type Task } from './errand.js'

/** How another controller is asked to work. */
export interface Asking {
  readonly trust: Trust
  readonly proofs: Proofs
  /** Whether it is still one of the controllers; who has gone is not waited for. Absent: it is. */
  readonly isThere?: () => boolean
}

/** Who works says something every second. */
const SILENT_MS = 20_000
/** One that is cut off from the list of controllers may work on: it is left only if it says nothing either for so long. */
const QUIET_MS = 3000
const LOOK_MS = 1000
/** Of a line: a result has 1 MiB at most. */
const LONGEST = 4 * 1024 * 1024
const LONGEST_REFUSAL = 4096
/** So many lists and objects of a result may be in one another: those of svcd have two. */
const DEEPEST = 4

/** Who is asked cannot be reached: nothing was begun. */
export class UnreachedError extends Error {}

/** Who was asked is gone before it told how it ended. */
export class LostError extends Error {}

/** Who is asked has no place for it now: nothing was begun, and it may be asked again after so many milliseconds. */
export class BusyError extends ServiceError {
  constructor(
    reason: string,
    readonly afterMs: number
  ) {
    super(503, reason, { 'Retry-After': String(Math.ceil(afterMs / 1000)) })
  }
}

/**
 * Has another controller do an errand; what it says meanwhile is told to `job`, whose signal ends it. Gives what came of it. Throws
 * what was thrown there, UnreachedError, LostError or BusyError.
 */
export async function runThere(
  url: string,
  errand: Errand,
  asking: Asking,
  job: Omit<JobContext, 'id'>
): Promise<JsonValue> {
  const body = JSON.stringify(errand)
  const asked = asking.proofs.headersFor(body)
  const answer = await answered(url, body, asked, asking, job.signal)
  let heardMs = performance.now()
  const looking = setInterval(() => {
    const silentMs = performance.now() - heardMs
    if (silentMs >= SILENT_MS) answer.destroy(new Error('it says nothing more'))
    else if (silentMs >= QUIET_MS && asking.isThere?.() === false)
      answer.destroy(new Error('it is not there any more'))
  }, LOOK_MS)
  try {
    if (answer.statusCode !== 200) throw await refusal(errand.to, answer)
    let number = 0
    for await (const { said, proof } of lines(answer)) {
      if (typeof said !== 'string' || !asking.proofs.isProved(asked, numbered(number++, said), String(proof)))
        throw new LostError('what it says is not proved: something else answers there')
      heardMs = performance.now()
      const { line, progress, result, end } = objectIn(said)
      if (typeof line === 'string') job.line(line)
      if (typeof progress === 'number') job.progress(progress)
      if (Array.isArray(result) && typeof result[0] === 'string') {
        const [key, value = null] = result
        if (isDeeper(value, DEEPEST)) job.line(`result ${key}: more than ${DEEPEST} levels deep, left out`)
        else job.result(key, value)
      }
      if (isObject(end)) return ended(end, errand)
    }
    throw new LostError('it broke off')
  } catch (error) {
    job.signal.throwIfAborted()
    if ([LostError, UnreachedError, ServiceError, WorkError].some(known => error instanceof known))
      throw error
    throw new LostError((error as Error).message)
  } finally {
    clearInterval(looking)
    answer.destroy()
  }
}

/** Whether more lists and objects than these are in one another. */
const isDeeper = (value: JsonValue, levels: number): boolean =>
  typeof value === 'object' &&
  value !== null &&
  (levels === 0 || Object.values(value).some(inner => isDeeper(inner, levels - 1)))

/** What the work threw. */
class WorkError extends Error {}

function ended(end: JsonObject, { to, task }: Errand): JsonValue {
  if (end.done !== undefined) return end.done
  const { message, status } = isObject(end.failed) ? end.failed : {}
  const reason = typeof message === 'string' ? message : 'it has failed'
  // What refuses to begin is about what was asked for.
  const told = task.check ? reason : failedOn(to, reason)
  throw typeof status === 'number' ? new ServiceError(status, told) : new WorkError(told)
}

async function answered(
  url: string,
  json: string,
  headers: Record<string, string>,
  { trust, isThere }: Asking,
  signal: AbortSignal
): Promise<IncomingMessage> {
  try {
    return await askController({
      ...{ url, path: ERRANDS, headers, json, trust, answerMs: SILENT_MS, signal },
      ...(isThere ? { isThere } : {})
    })
  } catch (error) {
    if (!(error instanceof UnansweredError)) throw error
    const { message, isReached, certificate } = error
    const reason = certificate === undefined ? message : `${message}: ${certificate}`
    throw isReached ? new LostError(reason) : new UnreachedError(reason)
  }
}

/** The lines of an answer. */
async function* lines(answer: IncomingMessage): AsyncGenerator<JsonObject> {
  let parts: Buffer[] = []
  let size = 0
  for await (const chunk of answer as AsyncIterable<Buffer>) {
    size += chunk.length
    parts.push(chunk)
    if (size > LONGEST) throw new LostError('it says more than it may')
    if (!chunk.includes(10)) continue
    const text = Buffer.concat(parts)
    const last = text.lastIndexOf(10)
    parts = [text.subarray(last + 1)]
    size = text.length - last - 1
    for (const line of text.subarray(0, last).toString().split('\n')) yield objectIn(line)
  }
}

async function refusal(who: string, answer: IncomingMessage): Promise<Error> {
  const { statusCode = 0, headers } = answer
  let text = ''
  for await (const chunk of answer as AsyncIterable<Buffer>) {
    text += chunk.toString()
    if (text.length > LONGEST_REFUSAL) break
  }
  const { message } = objectIn(text)
  if (statusCode === 404) return new UnreachedError('it is of a release that does no work for others')
  const reason = `controller ${who} refuses (${statusCode}): ${message ?? 'look into its log'}`
  const again = headers['retry-after']
  if (statusCode === 503 && again !== undefined) return new BusyError(reason, secondsIn(again) * 1000)
  return unavailable(reason)
}

/** How long a `Retry-After` asks to wait: 1 to 30 s. */
const secondsIn = (text: string) => Math.min(30, Math.max(1, Number(text) || 5))

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
          'image-elsewhere',
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
