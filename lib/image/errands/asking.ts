import type { IncomingMessage } from 'node:http'
import { askController, type Proofs, UnansweredError } from '../../ask-controller.js'
import { ServiceError, unavailable } from '../../errors.js'
import type { JobContext } from '../../jobs/jobs.js'
import { isObject, type JsonObject, type JsonValue } from '../../json.js'
import { ERRANDS, type Errand, numbered } from './errand.js'

/** How another controller is asked to work. */
export interface Asking {
  /** Whether its certificate has to be one that the system trusts. */
  readonly verified: boolean
  readonly proofs: Proofs
}

/** Who works says something every second. */
const SILENT_MS = 20_000
/** Of a line: a result has 1 MiB at most. */
const LONGEST = 4 * 1024 * 1024
const LONGEST_REFUSAL = 4096

/** Who is asked cannot be reached: nothing was begun. */
export class UnreachedError extends Error {}

/** Who was asked is gone before it told how it ended. */
export class LostError extends Error {}

/**
 * Has another controller do an errand; what it says meanwhile is told to `job`, whose signal ends it. Gives what came of it. Throws
 * what was thrown there, UnreachedError or LostError.
 */
export async function runThere(
  url: string,
  errand: Errand,
  asking: Asking,
  job: Omit<JobContext, 'id'>
): Promise<JsonValue> {
  const body = JSON.stringify(errand)
  const asked = asking.proofs.headersFor(body)
  const answer = await answered(url, body, asked, asking.verified, job.signal)
  const silence = setTimeout(() => answer.destroy(new Error('it says nothing more')), SILENT_MS)
  try {
    if (answer.statusCode !== 200) throw await refusal(errand.to, answer)
    let number = 0
    for await (const { said, proof } of lines(answer)) {
      if (typeof said !== 'string' || !asking.proofs.isProved(asked, numbered(number++, said), String(proof)))
        throw new LostError('what it says is not proved: something else answers there')
      silence.refresh()
      const { line, progress, result, end } = parsed(said)
      if (typeof line === 'string') job.line(line)
      if (typeof progress === 'number') job.progress(progress)
      if (Array.isArray(result) && typeof result[0] === 'string') job.result(result[0], result[1] ?? null)
      if (isObject(end)) return ended(end)
    }
    throw new LostError('it broke off')
  } catch (error) {
    job.signal.throwIfAborted()
    if (error instanceof LostError || error instanceof ServiceError || error instanceof WorkError) throw error
    throw new LostError((error as Error).message)
  } finally {
    clearTimeout(silence)
    answer.destroy()
  }
}

/** What the work threw. */
class WorkError extends Error {}

function ended(end: JsonObject): JsonValue {
  if (end.done !== undefined) return end.done
  const { message, status } = isObject(end.failed) ? end.failed : {}
  const reason = typeof message === 'string' ? message : 'it has failed'
  throw typeof status === 'number' ? new ServiceError(status, reason) : new WorkError(reason)
}

async function answered(
  url: string,
  json: string,
  headers: Record<string, string>,
  verified: boolean,
  signal: AbortSignal
): Promise<IncomingMessage> {
  try {
    return await askController({ url, path: ERRANDS, headers, json, verified, answerMs: SILENT_MS, signal })
  } catch (error) {
    if (!(error instanceof UnansweredError)) throw error
    const { message, isReached, isUntrusted } = error
    const reason = `${message}${isUntrusted ? ', [node] verify_certificate has its certificate checked' : ''}`
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
    for (const line of text.subarray(0, last).toString().split('\n')) yield parsed(line)
  }
}

async function refusal(who: string, answer: IncomingMessage): Promise<Error> {
  const { statusCode = 0 } = answer
  let text = ''
  for await (const chunk of answer as AsyncIterable<Buffer>) {
    text += chunk.toString()
    if (text.length > LONGEST_REFUSAL) break
  }
  const { message } = parsed(text)
  if (statusCode === 404) return new UnreachedError('it is of a release that does no work for others')
  return unavailable(`controller ${who} refuses (${statusCode}): ${message ?? 'look into its log'}`)
}

function parsed(text: string): JsonObject {
  try {
    const json: unknown = JSON.parse(text)
    return isObject(json) ? json : {}
  } catch {
    return {}
  }
}
