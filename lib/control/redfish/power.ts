import { isObject, type JsonObject } from '../../json.js'
import { cleanLine } from '../words.js'
import { type Connection, isPath, linkOf, objectAt, textAt } from './connection.js'
import type { Resource } from './system.js'

/** What the actions mean as a ResetType, the best one first. */
const resetTypes = {
  'power on': ['On', 'ForceOn'],
  'power off': ['ForceOff', 'GracefulShutdown'],
  'power cycle': ['PowerCycle', 'ForceRestart'],
  'power reset': ['ForceRestart', 'PowerCycle', 'GracefulRestart']
} as const

export type PowerChange = keyof typeof resetTypes

/** `on` or `off`. A machine on its way is on: it draws power. */
export function powerState({ body }: Resource): 'on' | 'off' {
  const state = textAt(body, 'PowerState') ?? ''
  if (state === 'Off') return 'off'
  if (['On', 'PoweringOn', 'PoweringOff', 'Paused'].includes(state)) return 'on'
  throw new Error(`tells a state of the power that is none: ${cleanLine(state, 40)}`)
}

/** Switches the power of a system, if it is not as it is to be. Throws an Error that tells what is refused. */
export async function switchPower(
  connection: Connection,
  system: Resource,
  change: PowerChange,
  signal: AbortSignal
): Promise<void> {
  const state = textAt(system.body, 'PowerState')
  // Some services refuse to switch on what is on.
  if ((change === 'power on' && state === 'On') || (change === 'power off' && state === 'Off')) return
  const action = objectAt(objectAt(system.body, 'Actions'), '#ComputerSystem.Reset')
  const target = textAt(action, 'target')
  if (target === undefined || !isPath(target))
    throw new Error(`its system ${cleanLine(system.path, 100)} has no action ComputerSystem.Reset`)
  const allowed = await allowedTypes(connection, action, signal)
  const type = resetTypes[change].find(type => allowed?.includes(type) ?? true)
  if (type === undefined)
    throw new Error(`cannot do ${change}: its system takes ${cleanLine(allowed?.join(', ') ?? '', 200)}`)
  await connection.change('POST', target, signal, { ResetType: type })
}

/** The reset types that a system takes, as the action or its ActionInfo tells them; undefined where nothing does. */
async function allowedTypes(
  connection: Connection,
  action: JsonObject,
  signal: AbortSignal
): Promise<readonly unknown[] | undefined> {
  const told = action['ResetType@Redfish.AllowableValues']
  if (Array.isArray(told)) return told
  const at = action['@Redfish.ActionInfo']
  const path = typeof at === 'string' && isPath(at) ? at : linkOf(at)
  if (path === undefined) return undefined
  const { Parameters: parameters } = await connection.get(path, signal)
  const type = Array.isArray(parameters)
    ? parameters.filter(isObject).find(({ Name: name }) => name === 'ResetType')
    : undefined
  return Array.isArray(type?.AllowableValues) ? type.AllowableValues : undefined
}
