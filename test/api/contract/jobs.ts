import { ended, endedLines } from '../../support/planted-request.js'
import type { Cases } from './case.js'

const unknown = 'f'.repeat(32)
const missing = (path: string) => ({
  what: 'an unknown one',
  ask: [path] as const,
  status: 404,
  says: new RegExp(`no request ${unknown}`)
})
const iso = (ms: number | undefined) => new Date(ms ?? 0).toISOString()
const shown = {
  request_id: ended.id,
  kind: 'pack',
  object: 'OS image compute',
  by: 'user admin',
  state: 'done',
  progress: 1,
  queued: iso(ended.queued),
  started: iso(ended.started),
  ended: iso(ended.ended),
  message: 'done'
}
const told = {
  message: endedLines.join(';;'),
  status: 200,
  request_id: ended.id,
  state: 'done',
  progress: 1
}

/** Asynchronous requests (rules 2.9). */
export const jobs: Cases = {
  'GET /config/status/{request_id}': [
    { what: 'all it has to tell', ask: [`/config/status/${ended.id}`], status: 200, body: told },
    { what: 'no more for that user', ask: [`/config/status/${ended.id}`], status: 404, says: /read its end/ },
    { what: 'a viewer too', ask: [`/config/status/${ended.id}`], by: 'viewer', status: 200, body: told },
    { what: 'not for a node', ask: [`/config/status/${ended.id}`], by: 'n1', status: 403 },
    missing(`/config/status/${unknown}`)
  ],
  'GET /config/status/{request_id}/_cancel': [
    missing(`/config/status/${unknown}/_cancel`),
    {
      what: 'one that has ended',
      ask: [`/config/status/${ended.id}/_cancel`],
      status: 404,
      says: /has ended/
    },
    {
      what: 'one that runs',
      ask: ['/config/status/{running}/_cancel'],
      status: 200,
      shows: { message: /^request [\da-f]{32} is cancelled$/ }
    }
  ],
  'GET /monitor/request': [
    {
      what: 'the records, without what is long in them',
      ask: ['/monitor/request'],
      by: 'viewer',
      status: 200,
      shows: { monitor: { request: { [ended.id]: shown } } }
    }
  ],
  'GET /monitor/request/{id}': [
    {
      what: 'the whole record',
      ask: [`/monitor/request/${ended.id}`],
      by: 'viewer',
      status: 200,
      body: {
        monitor: { request: { [ended.id]: { ...shown, lines: endedLines, results: { bytes: 7 } } } }
      }
    },
    missing(`/monitor/request/${unknown}`)
  ]
}
