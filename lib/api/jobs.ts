import { accountOf, groupsOf, isAdmin } from '../auth/access.js'
import { forbidden, notFound, ServiceError, unavailable } from '../base/errors.js'
import type { Answer } from '../http/route.js'
import { JobStoppedError, type JobSummary, type SubmittedJob } from '../jobs/jobs.js'
import { type ApiRequest, type ApiRoute, actorOf, done, isoTime, ok, type Parts, param } from './context.js'
import { get } from './row.js'
import { at, list, object, orNull, ref, string, time, word } from './schema.js'

/** The acknowledgement of a job. No dry run is added to routes with this very object as output. */
export const acknowledgement = object({ message: string('queued'), request_id: string() }, [
  'message',
  'request_id'
])

/** Acknowledges a job (rules 2.8, 11.16); `/config/status/{request_id}` has its progress. */
export const acknowledge = (
  { source }: Pick<ApiRequest, 'source'>,
  { id }: Pick<SubmittedJob, 'id'>
): Answer => ok({ message: source.isHandedOn ? 'queued on the primary' : 'queued', request_id: id })

/**
 * Answers a request whose work is a job (rules 2.8): waits, then `status` and `message`; with `Prefer:
 * respond-async` it acknowledges at once. Rethrows the job's refusals, and other failures as a 503 with job
 * and reason. The job goes on when the client hangs up.
 */
export async function answerWhenDone(
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
    throw unavailable(
      error instanceof JobStoppedError ? reason : `${job.name}: ${reason}`,
      'unavailable',
      error
    )
  }
  return done(status, message)
}

/** RFC 7240: preferences between commas, each with parameters behind semicolons, in any case. */
function prefersAsync(prefer: string | string[] | undefined): boolean {
  const preferences = [prefer ?? []].flat().join(',').split(',')
  return preferences.some(text => /^\s*respond-async\s*(?:;|$)/i.test(text))
}

/** Whether the caller may see a job: a limited one only its own, which its groups allowed (rules 5.2). */
export const maySeeJob = (request: ApiRequest, job: JobSummary | undefined) =>
  !groupsOf(request.caller) || job?.by === actorOf(request).who

/** Whether the caller may cancel a job: an operator only its own. */
const mayCancel = (request: ApiRequest, job: JobSummary | undefined) =>
  isAdmin(request.caller) || job?.by === actorOf(request).who

/** How far a job is. */
export const running = {
  state: word('queued', 'running', 'done', 'failed'),
  progress: { type: 'number', minimum: 0, maximum: 1 }
}
const summarySchema = {
  request_id: string(),
  kind: string('pack, kernel, clone, delete, grab, push, power on, …'),
  object: string('what it is about'),
  by: string('who asked'),
  ...running,
  queued: orNull(time),
  started: orNull(time),
  ended: orNull(time),
  message: string('queued, running, done, or failed and why')
}

/** Returns the account that calls. Throws TypeError for other callers: the routes are for users alone. */
export function userOf({ caller, path }: ApiRequest): string {
  if (caller.kind !== 'user') throw new TypeError(`${path} is for users`)
  return accountOf(caller)
}

const idOf = (request: ApiRequest) => param(request, 'request_id')

/** Asynchronous requests: their progress, records and cancellation (rules 2.9). */
export const jobRoutes = (parts: Parts): ApiRoute[] => [...progressRoutes(parts), ...recordRoutes(parts)]

function progressRoutes({ jobs }: Parts): ApiRoute[] {
  // It records what it has reported, so it does not answer HEAD.
  const status = (path: string) =>
    get(path, 'reader', {
      limited: 'filtered',
      changes: true,
      summary: "The lines of an asynchronous request since this user's last call; 404 after its end",
      output: object({
        message: string("the lines since this user's last call, joined by ;;"),
        status: { type: 'integer', enum: [200, 500] },
        request_id: string(),
        ...running
      }),
      handler: async request => {
        const [id, user] = [idOf(request), userOf(request)]
        const poll = maySeeJob(request, jobs.summary(id)) && (await jobs.poll(id, user))
        if (!poll)
          throw notFound(`there is no request ${id}, or this user has read its end already`, 'no-job')
        return ok({ request_id: id, ...poll })
      }
    })
  return [
    status('/config/status/{request_id}'),
    status('/service/status/{request_id}'),
    get('/config/status/{request_id}/_cancel', 'user', {
      operator: true,
      limited: 'filtered',
      changes: true,
      summary: 'Cancel an asynchronous request that has not ended',
      output: ref('message'),
      handler: request => {
        const id = idOf(request)
        const job = jobs.summary(id)
        if (job && maySeeJob(request, job) && !mayCancel(request, job))
          throw forbidden(
            `request ${id} is one of ${job.by}: only an admin may cancel it`,
            'role-not-permitted'
          )
        if (!maySeeJob(request, job) || !jobs.cancel(id, actorOf(request).who))
          throw notFound(`there is no request ${id}, or it has ended`, 'no-job')
        return done(200, `request ${id} is cancelled`)
      }
    })
  ]
}

function recordRoutes({ jobs }: Parts): ApiRoute[] {
  return [
    get('/monitor/request', 'user', {
      limited: 'filtered',
      summary: 'The asynchronous requests of the last 7 days, newest first',
      output: at('monitor.request.{request_id}', object(summarySchema)),
      handler: request => {
        const seen = jobs.records().filter(job => maySeeJob(request, job))
        const shown = seen.map(summary => [summary.id, shownSummary(summary)])
        return ok({ monitor: { request: Object.fromEntries(shown) } })
      }
    }),
    get('/monitor/request/{request_id}', 'user', {
      limited: 'filtered',
      summary: 'The whole record of an asynchronous request',
      output: at(
        'monitor.request.{request_id}',
        object({ ...summarySchema, lines: list(string()), results: { type: 'object' } })
      ),
      handler: async request => {
        const record = await jobs.record(idOf(request))
        if (!record || !maySeeJob(request, record))
          throw notFound(`there is no request ${idOf(request)}`, 'no-job')
        const { lines, results } = record
        return ok({ monitor: { request: { [record.id]: { ...shownSummary(record), lines, results } } } })
      }
    })
  ]
}

/** A request as lists and events show it. */
export function shownSummary(job: JobSummary) {
  const { id, kind, object, by, state, progress, message } = job
  const times = { queued: isoTime(job.queued), started: isoTime(job.started), ended: isoTime(job.ended) }
  return { request_id: id, kind, object, by, state, progress, ...times, message }
}
