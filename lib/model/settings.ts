import { badRequest } from '../errors.js'
import type { JsonObject, JsonValue } from '../json.js'
import { boolean, type FieldType, freeText, hosts, provisionMethod, type Reads, ValueError } from './field.js'
import { readValue } from './request.js'
import { plainKind, storedObject } from './stored.js'
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

/** A cluster setting changed over http: in force until the ini's value is another one than it was then. */
export type SettingDoc = { readonly value: string | boolean; readonly ini: string | boolean }
export type ClusterDoc = { readonly name: string; readonly settings: Readonly<Record<string, SettingDoc>> }

declare module './docs.js' {
  interface AttachedShapes {
    cluster: ClusterDoc
  }
}

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

/** A cluster setting as it is stored; no NTP server is a choice too. */
function readSetting(name: SettingName, value: JsonValue): unknown {
  const type: Reads<unknown> = settingTypes[name]
  if (name === 'ntp_server' && value === '') return value
  try {
    return type.read(value)
  } catch {
    throw new ValueError(`holds "${name}", whose value must be ${type.expected}`)
  }
}

const settings: Reads<unknown> = {
  expected: 'an object of settings {value, ini}',
  read: value => {
    const read: Record<string, unknown> = {}
    for (const [name, entry] of Object.entries(storedObject(value, ['settings'], 'cluster')) as [
      SettingName,
      JsonValue
    ][]) {
      const { value: changed, ini } = storedObject(entry, ['settings', name], 'cluster')
      if (!Object.hasOwn(settingTypes, name) || changed === undefined || ini === undefined)
        throw new ValueError(`holds "${name}", which is no setting`)
      read[name] = { value: readSetting(name, changed), ini }
    }
    return read
  }
}

export const cluster = plainKind<ClusterDoc>('cluster', { settings })
