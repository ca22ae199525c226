import { type JsonObject, type JsonValue, within } from '../base/json.js'
import type { Part } from '../model/bmc-commands.js'
import { pollRequest } from './change.js'
import { outcomeLines } from './render.js'
import { csvCell, type Session } from './session.js'
import { namesNone, noController, refused } from './terminal.js'

interface Outcome {
  readonly failed: boolean
  readonly message: string
}

/** Sends an action to the BMCs of a node set; returns each node's outcome, and how the request ended. */
export async function askBmcs(session: Session, part: Part, set: string, action: string) {
  const { controller } = session
  const outcomes = new Map<string, Outcome>()
  const body = { control: { [part]: { [action]: { hostlist: set } } } }
  const asked = controller.json('POST', `/control/action/${part}/_${action}`, {}, body)
  const first = await asked.catch((error: Error) => {
    // The controller's message names a field that the user has not typed.
    const isEmpty = error.message === `${part} ${action}: field "hostlist" names no node`
    throw isEmpty ? namesNone(set) : error
  })
  const { request_id: id } = first
  if (typeof id !== 'string') throw noController(`no svcd at ${controller.name}: it gives no request_id`)
  const answer = await pollRequest(session, `/control/status/${encodeURIComponent(id)}`, first, told => {
    gather(outcomes, told, part)
    return `${outcomes.size} nodes`
  })
  return { outcomes, id, state: answer.state }
}

/** Sends an action to the BMCs of a node set and shows all outcomes. Throws Failure 1 if one failed. */
export async function runBmcAction(session: Session, part: Part, set: string, action: string): Promise<void> {
  const { format, paint } = session
  const { outcomes, id, state } = await askBmcs(session, part, set, action)
  const rows = [...outcomes].map(([name, { failed, message }]) => ({
    ...{ name, result: failed ? 'failed' : 'ok', message }
  }))
  if (format === 'json')
    await session.json(Object.fromEntries(rows.map(({ name, ...outcome }) => [name, outcome])))
  else if (format === 'csv')
    await session.csv([
      'name,result,message\r',
      ...rows.map(row => `${Object.values(row).map(csvCell).join(',')}\r`)
    ])
  else await session.lines(outcomeLines(outcomes, paint))
  const failed = [...outcomes.values()].filter(one => one.failed).length
  if (failed > 0) throw refused(`${part} ${action}: ${failed} of ${outcomes.size} nodes failed`)
  if (state === 'failed') throw refused(`${part} ${action} has failed: see /monitor/request/${id}`)
}

/** Adds the outcomes of an answer. The controller reports each outcome once. */
function gather(outcomes: Map<string, Outcome>, { control }: JsonObject, part: Part): void {
  const add = (names: JsonValue | undefined, failed: boolean) => {
    for (const [node, message] of Object.entries(within(names)))
      outcomes.set(node, { failed, message: String(message) })
  }
  for (const names of Object.values(within(control, part))) add(names, false)
  add(within(control).failed, true)
}
