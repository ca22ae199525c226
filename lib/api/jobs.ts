import { notFound } from '../errors.js'
import type { JobRecord, JobSummary } from '../jobs/jobs.js'
import { type ApiRoute, actorOf, type Parts, param } from './context.js'
import { shapes } from './shapes.js'

/** Asynchronous requests: what each tells its callers, their records, and how one is cancelled (rules 2.9). */
export function jobRoutes({ jobs }: Parts): ApiRoute[] {
  const get = { method: 'GET', body: 'ignored' } as const
  const status = (path: string): ApiRoute => ({
    ...get,
    path,
    // It notes what it has told, so it does not answer HEAD.
    effect: 'changes',
    access: 'reader',
    codes: [200, 401, 404, 503],
    summary: 'What an asynchronous request has to tell that this user was not told yet; 404 after its end',
    output: shapes.requestStatus,
    handler: async request => {
      const id = param(request, 'request_id')
      const { caller } = request
      if (caller.kind !== 'user') throw new TypeError(`${request.path} is for users`)
      const poll = await jobs.poll(id, caller.user)
      if (!poll) throw notFound(`there is no request ${id}, or you were told its end already`)
      return { status: 200, body: { request_id: id, ...poll } }
    }
  })
  return [
    status('/config/status/{request_id}'),
    status('/service/status/{request_id}'),
    {
      ...get,
      path: '/config/status/{request_id}/_cancel',
      effect: 'changes',
      access: 'user',
      codes: [200, 401, 403, 404, 503],
      summary: 'Cancel an asynchronous request that has not ended',
      output: shapes.message,
      handler: request => {
        const id = param(request, 'request_id')
        if (!jobs.cancel(id, actorOf(request).who))
          throw notFound(`there is no request ${id}, or it has ended`)
        return { status: 200, body: { message: `request ${id} is cancelled` } }
      }
    },
    {
      ...get,
      path: '/monitor/request',
      effect: 'reads',
      access: 'user',
      codes: [200, 401, 503],
      summary: 'The asynchronous requests of the last 7 days, newest first',
      output: shapes.requests,
      handler: () => {
        const shown = jobs.records().map(summary => [summary.id, shownSummary(summary)] as const)
        return { status: 200, body: { monitor: { request: Object.fromEntries(shown) } } }
      }
    },
    {
      ...get,
      path: '/monitor/request/{request_id}',
      effect: 'reads',
      access: 'user',
      codes: [200, 401, 404, 503],
      summary: 'The whole record of an asynchronous request',
      output: shapes.request,
      handler: async request => {
        const id = param(request, 'request_id')
        const record = await jobs.record(id)
        if (!record) throw notFound(`there is no request ${id}`)
        return { status: 200, body: { monitor: { request: { [id]: shownRecord(record) } } } }
      }
    }
  ]
}

const time = (ms: number | undefined) => (ms === undefined ? null : new Date(ms).toISOString())

const shownSummary = ({
  id,
  queued,
  started,
  ended,
  kind,
  object,
  by,
  state,
  progress,
  message
}: JobSummary) => ({
  request_id: id,
  ...{ kind, object, by, state, progress },
  ...{ queued: time(queued), started: time(started), ended: time(ended) },
  message
})

const shownRecord = (record: JobRecord) => ({
  ...shownSummary(record),
  lines: record.lines,
  results: record.results
})
