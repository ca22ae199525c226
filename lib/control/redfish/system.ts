import type { JsonObject } from '../../json.js'
import type { Bmc } from '../bmc.js'
import { cleanLine } from '../words.js'
import { type Connection, linkOf, linksOf, textAt } from './connection.js'

/** A resource and where it is. */
export interface Resource {
  readonly path: string
  readonly body: JsonObject
}

/** Of a chassis with several machines, each has a system. */
const MOST_SYSTEMS = 32

/**
 * The system of a service that is the node: the one that its BMC set-up names, else the only one with a state of the power.
 * Throws an Error that names the systems when there are several.
 */
export async function systemOf(
  connection: Connection,
  root: JsonObject,
  { system: wanted, setup }: Bmc,
  signal: AbortSignal
): Promise<Resource> {
  const collection = linkOf(root.Systems)
  if (collection === undefined) throw new Error('its Redfish service has no systems')
  const systems: Resource[] = []
  for (const path of linksOf((await connection.get(collection, signal)).Members, MOST_SYSTEMS))
    systems.push({ path, body: await connection.get(path, signal) })
  const named = (body: JsonObject) => textAt(body, 'Id') ?? ''
  const switched = systems.filter(({ body }) => textAt(body, 'PowerState') !== undefined)
  const found =
    wanted === undefined
      ? physical(switched)
      : switched.filter(({ path, body }) => named(body) === wanted || path.endsWith(`/${wanted}`))
  if (found.length === 1) return found[0] as Resource
  const ids = cleanLine(switched.map(({ body }) => named(body)).join(', '), 200)
  if (wanted !== undefined)
    throw new Error(`has no system ${wanted}: set "system" of BMC set-up ${setup} to one of ${ids}`)
  throw new Error(
    found.length === 0
      ? 'none of its systems tells a state of the power'
      : `has several systems: set "system" of BMC set-up ${setup} to one of ${ids}`
  )
}

/** Those that are machines, where it is told which ones are. */
function physical(systems: readonly Resource[]): readonly Resource[] {
  const machines = systems.filter(({ body }) => (textAt(body, 'SystemType') ?? 'Physical') === 'Physical')
  return machines.length > 0 ? machines : systems
}
