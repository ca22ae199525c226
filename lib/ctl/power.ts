import type { Part } from '../control/commands.js'
import { isObject, type JsonObject, type JsonValue } from '../json.js'
import { noController, refused } from './failure.js'
import { follow } from './progress.js'
import { outcomeLines } from './render.js'
import type { Session } from './session.js'
import { clean } from './terminal.js'

/** What came of one node. */
interface Outcome {
  readonly failed: boolean
  readonly message: string
}

/**
 * Asks the BMCs of a node set, and follows until each has an outcome, with a bar on a terminal.
 * @throws Failure 1 when one has failed
 */
export async function act(session: Session, part: Part, set: string, action: string): Promise<void> {
  const { controller, format, paint } = session
  const outcomes = new Map<string, Outcome>()
  const body = { control: { [part]: { [action]: { hostlist: set } } } }
  const asked = controller.json('POST', `/control/action/${part}/_${action}`, {}, body)
  const first = await asked.catch((error: Error) => {
    // The controller speaks of a field that nobody has typed here.
    const isEmpty = error.message === `${part} ${action}: field "hostlist" names no node`
    throw isEmpty ? refused(`${clean(set)} names no node: nothing was done`) : error
  })
  const { request_id: id } = first
  if (typeof id !== 'string') throw noController(`no svcd at ${controller.name}: it gives no request_id`)
  const answer = await follow(session, `/control/status/${encodeURIComponent(id)}`, first, told => {
    gather(outcomes, told, part)
    return `${outcomes.size} nodes`
  })
  if (format === 'json') await session.json(Object.fromEntries(jsonOf(outcomes)))
  else if (format === 'csv') await session.csv(csvOf(outcomes))
  else await session.lines(outcomeLines(outcomes, paint))
  const failed = [...outcomes.values()].filter(one => one.failed).length
  if (failed > 0) throw refused(`${part} ${action}: ${failed} of ${outcomes.size} nodes failed`)
  if (answer.state === 'failed') throw refused(`${part} ${action} has failed: see /monitor/request/${id}`)
}

/** Adds what this answer tells: the controller tells each outcome once. */
function gather(outcomes: Map<string, Outcome>, { control }: JsonObject, part: Part): void {
  const { failed, [part]: well } = isObject(control) ? control : {}
  const add = (names: JsonValue | undefined, hasFailed: boolean) => {
    for (const [node, message] of Object.entries(isObject(names) ? names : {}))
      outcomes.set(node, { failed: hasFailed, message: String(message) })
  }
  for (const names of Object.values(isObject(well) ? well : {})) add(names, false)
  add(failed, true)
}

function* jsonOf(outcomes: ReadonlyMap<string, Outcome>): Generator<[string, JsonObject]> {
  for (const [node, { failed, message }] of outcomes)
    yield [node, { result: failed ? 'failed' : 'ok', message }]
}

function* csvOf(outcomes: ReadonlyMap<string, Outcome>): Generator<string> {
  const cell = (text: string) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text)
  yield 'name,result,message\r'
  for (const [node, { failed, message }] of outcomes)
    yield `${[node, failed ? 'failed' : 'ok', message].map(cell).join(',')}\r`
}
