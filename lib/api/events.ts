import { accountOf, type Caller, groupsOf, isAdmin } from '../auth/access.js'
import { runFairly } from '../base/concurrency.js'
import type { Answer } from '../http/route.js'
import type { EventReader } from '../monitor/events.js'
import { nodeColumns } from '../monitor/overview.js'
import { type ApiRequest, type ApiRoute, ok, type Parts } from './context.js'
import { choice, isPretty, takesGzip } from './listing.js'
import { get } from './row.js'
import { at, list, object, plainText, string, word } from './schema.js'

/** Keeps front servers from buffering events, and caches from storing them. */
const headers = { 'Cache-Control': 'no-store', 'X-Accel-Buffering': 'no' }
/** Status, type and headers of an answer with server-sent events, to which its feed or text is added. */
export const eventStream = { status: 200, type: 'text/event-stream; charset=utf-8', headers }

/** Events as they happen, the overview to start from, the audit log (rules 6.9 to 6.11). */
export function eventRoutes(parts: Parts): ApiRoute[] {
  return [
    get('/monitor/events', 'user', {
      limited: 'filtered',
      summary: 'Events as server-sent events; with Last-Event-ID also the missed ones',
      query: { follow: word('yes', 'no') },
      output: plainText,
      handler: request => {
        const reader = readerFor(parts, request)
        if (choice(request.query, 'follow', ['yes', 'no']) === 'yes')
          return { ...eventStream, feed: reader, ...subscriberOf(request.caller) }
        let text = ''
        for (let piece = reader.next(); piece !== ''; piece = reader.next()) text += piece
        return { ...eventStream, text }
      }
    }),
    get('/monitor/overview', 'user', {
      limited: 'filtered',
      summary: 'State, last boot step and running image of all nodes; a list of values for each',
      output: at(
        'monitor.overview',
        object({
          mark: string('follow /monitor/events from this Last-Event-ID'),
          columns: list(word(...nodeColumns)),
          nodes: list(list({}))
        })
      ),
      handler: request => overviewAnswer(parts, request)
    }),
    get('/monitor/audit', 'admin', {
      summary:
        'The last changes that users made, or machines, newest first: ' +
        '200 lines of the audit log at most, of all controllers together',
      query: { by: word('users', 'machines') },
      output: at(
        'monitor',
        object({
          audit: list({ type: 'object' }),
          missing: list(
            object({ controller: string('a controller whose lines are missing'), reason: string() })
          )
        })
      ),
      handler: async request => {
        const by = choice(request.query, 'by', ['users', 'machines'])
        const { lines, missing } = await parts.audit.last(by as 'users' | 'machines')
        return ok({ monitor: { audit: lines, ...(missing ? { missing } : {}) } })
      }
    })
  ]
}

/** A reader from the last event of the client on; of a limited caller, with the nodes of its groups alone. */
function readerFor({ events, model }: Parts, { headers, caller }: ApiRequest): EventReader {
  const { 'last-event-id': lastId = '' } = headers
  const role = caller.kind === 'user' ? caller.role : 'viewer'
  const groups = groupsOf(caller)
  const sees = (node: string) => groups?.includes(model.view.get('node', node)?.group ?? '') === true
  return events.reader(String(lastId) || undefined, role, groups && sees)
}

async function overviewAnswer({ overview }: Parts, request: ApiRequest): Promise<Answer> {
  const groups = groupsOf(request.caller)
  const indent = isPretty(request.query) ? 2 : 0
  const { text, zipped = undefined } =
    groups || indent > 0
      ? { text: await runFairly(overview.textOf(groups, indent), request) }
      : await overview.text()
  if (!zipped || !takesGzip(request.headers['accept-encoding'])) return { status: 200, json: text }
  const coded = { 'Content-Encoding': 'gzip', Vary: 'Accept-Encoding' }
  return { status: 200, bytes: await zipped(), type: 'application/json', headers: coded }
}

/** Streams are counted per user, and some are reserved for admins (rules 2.20). */
export const subscriberOf = (caller: Caller) =>
  caller.kind === 'user' ? { subscriber: { name: accountOf(caller), first: isAdmin(caller) } } : {}
