import { type JsonObject, within } from '../base/json.js'
import { fold } from '../node-set/hostlist.js'
import { awaitResult } from './change.js'
import { pathOf, type Session, type Verb } from './session.js'
import { clean, Failure, namesNone, refused, wrongUsage } from './terminal.js'

const MOST_NODES = 32

/** Boots in a virtual machine what each node would get next, in turn; fails unless all come up well. */
export const rehearse: Verb = {
  operands: 'SET',
  summary:
    'boot in a virtual machine on the controller what nodes would get next; --image, --tag: another one',
  options: ['output', 'image', 'tag'],
  onlyTypes: ['node'],
  async run(session, _type, [set = '']) {
    const names = await session.nodes(set)
    if (names.length === 0) throw namesNone(set)
    if (names.length > MOST_NODES)
      throw wrongUsage(`${names.length} nodes are many: rehearse ${MOST_NODES} at most, one of each kind`)
    const { image, tag } = session.options
    const other = { ...(image ? { osimage: image } : {}), ...(tag ? { osimagetag: tag } : {}) }
    const bad: string[] = []
    for (const name of names) if (!(await bootsWell(session, name, other))) bad.push(name)
    if (bad.length > 0) throw refused(clean(`not well: ${fold(bad)}`))
  }
}

/** Rehearses a node with `other` image or tag; returns whether it is well. Throws Failure if not tried. */
export async function bootsWell(session: Session, name: string, other: JsonObject): Promise<boolean> {
  const { controller, format } = session
  const answer = await controller.json('POST', `${pathOf('node', name)}/_rehearse`, {}, other)
  const id = String(answer.request_id)
  const failure = await awaitResult(session, answer).then(
    () => undefined,
    error => error
  )
  if (failure && !(failure instanceof Failure && failure.code === 1)) throw failure
  const told = await controller.json('GET', `/monitor/request/${encodeURIComponent(id)}`)
  const record = within(told, 'monitor', 'request', id)
  if (format === 'json') await session.json({ [name]: within(record.results) })
  else {
    const lines = Array.isArray(record.lines) ? record.lines.map(String) : []
    await session.lines(
      [...lines, ...(failure ? [String(record.message)] : [])].map(line => clean(`${name}: ${line}`))
    )
  }
  return failure === undefined
}
