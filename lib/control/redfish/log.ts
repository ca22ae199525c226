import { isObject, type JsonObject } from '../../json.js'
import { cleanLine } from '../words.js'
import { type Connection, isPath, linkOf, linksOf, objectAt, textAt } from './connection.js'
import type { Resource } from './system.js'

const MOST_SERVICES = 16
const MOST_ENTRIES = 1000

/** The entries of the system event log, a line each, in the order of the service: at most 1,000. */
export async function listLog(
  connection: Connection,
  system: Resource,
  signal: AbortSignal
): Promise<string> {
  const service = await logService(connection, system, signal)
  const lines: string[] = []
  let next = linkOf(service.body.Entries)
  while (next !== undefined && lines.length < MOST_ENTRIES) {
    const page: JsonObject = await connection.get(next, signal)
    const members = Array.isArray(page.Members) ? page.Members.filter(isObject) : []
    for (const member of members.slice(0, MOST_ENTRIES - lines.length)) {
      const path = linkOf(member)
      // Some services list references only.
      const isBare = member.Id === undefined && path !== undefined
      lines.push(lineOf(isBare ? await connection.get(path, signal) : member))
    }
    const link = page['Members@odata.nextLink'] ?? page['@odata.nextLink']
    const after = typeof link === 'string' && isPath(link) ? link : undefined
    next = after === next || members.length === 0 ? undefined : after
  }
  if (lines.length >= MOST_ENTRIES && next !== undefined)
    lines.push(`… the log goes on after ${MOST_ENTRIES} entries …`)
  return lines.join('\n')
}

/** Empties the system event log. */
export async function clearLog(connection: Connection, system: Resource, signal: AbortSignal): Promise<void> {
  const { path, body } = await logService(connection, system, signal)
  const target = textAt(objectAt(objectAt(body, 'Actions'), '#LogService.ClearLog'), 'target')
  if (target === undefined || !isPath(target))
    throw new Error(`its log ${cleanLine(path, 100)} cannot be cleared`)
  await connection.change('POST', target, signal, {})
}

/** As ipmitool writes an entry. */
const lineOf = (entry: JsonObject) =>
  [entry.Id, entry.Created, entry.Severity, entry.Message ?? entry.MessageId ?? entry.Name]
    .map(value => cleanLine(typeof value === 'string' ? value : ''))
    .join(' | ')

/** The log service that holds the system's events, of the system or of its manager: the one that says that it is the SEL. */
async function logService(connection: Connection, system: Resource, signal: AbortSignal): Promise<Resource> {
  const managers = linksOf(objectAt(system.body, 'Links').ManagedBy, 4)
  const found: Resource[] = []
  const gather = async (collection: string | undefined) => {
    if (collection === undefined) return
    for (const path of linksOf((await connection.get(collection, signal)).Members, MOST_SERVICES))
      found.push({ path, body: await connection.get(path, signal) })
  }
  await gather(linkOf(system.body.LogServices))
  if (!found.some(isSel))
    for (const path of managers) await gather(linkOf((await connection.get(path, signal)).LogServices))
  const service = found.find(isSel) ?? found.find(holdsEvents) ?? found.find(hasEntries)
  if (!service) throw new Error('neither its system nor its manager has a log')
  return service
}

const isSel = ({ body }: Resource) => body.LogEntryType === 'SEL' || /^sel$/i.test(textAt(body, 'Id') ?? '')
const hasEntries = ({ body }: Resource) => linkOf(body.Entries) !== undefined
const holdsEvents = (service: Resource) =>
  hasEntries(service) &&
  (['Event', 'Multiple'].includes(textAt(service.body, 'LogEntryType') ?? '') ||
    /event/i.test(textAt(service.body, 'Id') ?? ''))
