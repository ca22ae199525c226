import { badRequest } from '../errors.js'
import type { JsonObject } from '../json.js'
import { boolean, type FieldType, freeText, hosts, provisionMethod } from './field.js'
import { readValue } from './request.js'
import type { ClusterDoc, SettingDoc } from './tables.js'
import type { ClusterSettings, Tx, View } from './view.js'

/** The cluster's settings that can be changed over http (rules 3.15). */
export const settingTypes = {
  ntp_server: hosts,
  debug: boolean,
  technical_contacts: freeText,
  provision_method: provisionMethod,
  provision_fallback: provisionMethod
} as const satisfies Record<string, FieldType<string | boolean>>

export type SettingName = keyof typeof settingTypes
export const settingNames = Object.keys(settingTypes) as SettingName[]

type Values = Pick<ClusterSettings, SettingName>
const object = 'cluster'

const stored = (view: View, name: SettingName): SettingDoc | undefined =>
  view.get('cluster', object)?.settings[name]

/** Who sets a setting: a change over http wins until the ini's value is another one than it was then. */
export function sourceOf(view: View, ini: ClusterSettings, name: SettingName): 'changed' | 'ini' {
  const setting = stored(view, name)
  return setting !== undefined && setting.ini === ini[name] ? 'changed' : 'ini'
}

/** The settings in force, given those of the ini. */
export function settingsInForce(view: View, ini: ClusterSettings): ClusterSettings {
  const changed = settingNames.filter(name => sourceOf(view, ini, name) === 'changed')
  const values = changed.map(name => [name, stored(view, name)?.value])
  return { ...ini, ...(Object.fromEntries(values) as Partial<Values>) }
}

/** Reads settings of a request; null goes back to the ini's value. Throws 400 naming the field. */
export function readSettings(given: JsonObject): Map<SettingName, string | boolean | null> {
  const values = new Map<SettingName, string | boolean | null>()
  for (const [key, value] of Object.entries(given)) {
    if (!Object.hasOwn(settingTypes, key)) throw badRequest(`cluster: field "${key}" cannot be changed here`)
    const name = key as SettingName
    // No NTP server is a choice too, other than the ini's.
    const none = name === 'ntp_server' && value === ''
    const read = none ? '' : readValue(settingTypes[name], value, `cluster: field "${key}"`)
    values.set(name, read as string | boolean | null)
  }
  return values
}

/** Stores settings; one that equals the ini's, or is null, is the ini's again. */
export function putSettings(
  tx: Tx,
  ini: ClusterSettings,
  given: ReadonlyMap<SettingName, string | boolean | null>
): void {
  const settings: Record<string, SettingDoc> = {}
  for (const name of settingNames) {
    const value = given.has(name) ? given.get(name) : stored(tx, name)?.value
    const stale = !given.has(name) && sourceOf(tx, ini, name) === 'ini'
    if (value != null && value !== ini[name] && !stale) settings[name] = { value, ini: ini[name] }
  }
  if (Object.keys(settings).length > 0) tx.put('cluster', object, { name: object, settings } as ClusterDoc)
  else if (tx.get('cluster', object)) tx.remove('cluster', object)
}
