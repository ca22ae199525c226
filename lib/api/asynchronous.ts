import { ServiceError, unavailable } from '../errors.js'
import type { Answer } from '../http/route.js'
import { JobStoppedError, type SubmittedJob } from '../jobs/jobs.js'
import { type ApiRequest, done, ok } from './context.js'
import { object, string } from './schema.js'

/** The schema of an acknowledgement. */
export const acknowledgement = object({ message: string('queued'), request_id: string() }, [
  'message',
  'request_id'
])

/** The acknowledgement of a job (rules 2.8, 11.16); `/config/status/{request_id}` tells what becomes of it. */
export const acknowledge = (
  { source }: Pick<ApiRequest, 'source'>,
  { id, at }: Pick<SubmittedJob, 'id' | 'at'>
): Answer =>
  ok({
    message:
      (source.isHandedOn ? 'queued on the controller that writes' : 'queued') +
      (at === undefined ? '' : `; it runs on controller ${at}`),
    request_id: id
  })

/**
 * The answer to a request whose work is a job (rules 2.8): `status` with `message` when the work is done, or the
 * acknowledgement at once when the client sends `Prefer: respond-async`. A refusal of the job is thrown as it is, any
 * other failure as a 503 that names the job and the reason. The work goes on when the client hangs up.
 */
export async function finish(
  request: Pick<ApiRequest, 'headers' | 'source'>,
  job: SubmittedJob,
  status: number,
  message = 'done'
): Promise<Answer> {
  if (prefersAsync(request.headers.prefer))
    return { ...acknowledge(request, job), headers: { 'Preference-Applied': 'respond-async' } }
  try {
    await job.done
  } catch (error) {
    if (error instanceof ServiceError && error.status !== 503) throw error
    const reason = error instanceof Error ? error.message : String(error)
    throw unavailable(error instanceof JobStoppedError ? reason : `${job.name}: ${reason}`, error)
  }
  return done(status, message)
}

/** RFC 7240: preferences between commas, each with parameters behind semicolons, in any case. */
function prefersAsync(prefer: string | string[] | undefined): boolean {
  const preferences = [prefer ?? []].flat().join(',').split(',')
  return preferences.some(text => /^\s*respond-async\s*(?:;|$)/i.test(text))
}
