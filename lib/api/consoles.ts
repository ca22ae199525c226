import { badRequest } from '../base/errors.js'
import { MOST_LINES } from '../consoles/logs.js'
import { boolean, freeText } from '../model/field.js'
import { type ApiRoute, actorOf, isoTime, ok, type Parts, param } from './context.js'
import { eventStream, subscriberOf } from './events.js'
import { bodyOf, get, post } from './row.js'
import { at, list, object, orNull, plainText, string, time } from './schema.js'

/** Bytes of a text that is pasted into a console. */
const LONGEST_INPUT = 64 * 1024

/** Serial consoles of nodes (rules 13.6). The leader has them, so others hand these requests on to it. */
export function consoleRoutes({ consoles, model }: Parts): ApiRoute[] {
  return [
    get('/control/console/{node}', 'admin', {
      operator: true,
      limited: 'node',
      changes: true,
      summary:
        'Attach to the console of a node: server-sent events, each a piece of its text as a JSON string; ' +
        'the first names the session, which is needed to type',
      output: plainText,
      handler: async request => ({
        ...eventStream,
        feed: await consoles.attach(model.get('node', param(request, 'node')).name, actorOf(request)),
        ...subscriberOf(request.caller)
      })
    }),
    post('/control/console/{node}', 'admin', {
      operator: true,
      limited: 'node',
      answers: [204],
      refuses: [403, 404],
      summary: 'Type into a console that this user has attached',
      maxBody: LONGEST_INPUT,
      body: bodyOf(
        { about: 'console of {node}', at: 'control.consoles.{node}' },
        {
          session: { type: freeText, required: true, meaning: 'the session of the stream' },
          input: { type: freeText, meaning: 'what is typed; control characters too' },
          break: { type: boolean, meaning: 'sends a serial break after it' }
        }
      ),
      handler: (request, { session, input, break: isBreak }) => {
        consoles.type(param(request, 'node'), actorOf(request), session, input ?? '', isBreak ?? false)
        return { status: 204 }
      }
    }),
    get('/monitor/console/{node}', 'admin', {
      operator: true,
      limited: 'node',
      summary: `The last lines of a node's console, the oldest first; at most ${MOST_LINES}`,
      query: { lines: string(`how many, 1 to ${MOST_LINES}; default: 100`) },
      output: at(
        'monitor.consoles.{node}',
        object({ lines: list(object({ time: orNull(time), text: string('without control characters') })) })
      ),
      handler: async request => {
        const { name } = model.get('node', param(request, 'node'))
        const lines = await consoles.lines(name, linesOf(request.query.get('lines')))
        const shown = lines.map(({ time, text }) => ({ time: isoTime(time), text }))
        return ok({ monitor: { consoles: { [name]: { lines: shown } } } })
      }
    })
  ]
}

function linesOf(given: string | null): number {
  if (given === null) return 100
  const lines = /^\d{1,4}$/.test(given) ? Number(given) : 0
  if (lines < 1 || lines > MOST_LINES)
    throw badRequest(`query "lines" must be a number from 1 to ${MOST_LINES}`, 'unknown-query')
  return lines
}
