import { isIPv4 } from 'node:net'
import { badRequest } from '../base/errors.js'
import type { JsonObject } from '../base/json.js'
import { boolean, type FieldType, freeText, hosts, oneLine, provisionMethod, type Table } from './field.js'
import { readFields } from './request.js'
import type { AttachedType, ClusterSettings, Tx, View } from './stored.js'
import { limitViolations, objectOf } from './table.js'
import { checkVariables, mergeVariables, type VariableMap, variablesField } from './variables.js'

/** The empty text is a choice too: no time server, whatever the ini says. */
const timeServers: FieldType<string> = {
  ...hosts,
  keepsEmpty: true,
  read: value => (value === '' ? value : hosts.read(value))
}

/** Settings that can be changed over http (rules 3.15). */
export const settingFields = [
  { name: 'ntp_server', type: timeServers, limit: oneLine, meaning: 'time servers' },
  { name: 'debug', type: boolean, meaning: 'the log tells more' },
  { name: 'technical_contacts', type: freeText, meaning: 'whom to call' },
  { name: 'provision_method', type: provisionMethod, meaning: 'how images are fetched' },
  { name: 'provision_fallback', type: provisionMethod, meaning: 'how they are fetched when that fails' }
] as const satisfies Table

export type SettingName = (typeof settingFields)[number]['name']
export const settingNames = settingFields.map(({ name }) => name)

/** The fields of the cluster that a request may change; only the variables have no ini key (rules 3.16). */
export const clusterFields = [...settingFields, variablesField] as const satisfies Table

/** A setting changed over http. It is in force until the ini's value differs from `ini`. */
type SettingDoc = { readonly value: string | boolean; readonly ini: string | boolean }
export type ClusterDoc = {
  readonly name: string
  readonly settings: Readonly<Record<string, SettingDoc>>
  readonly variables?: VariableMap
}

declare module './docs.js' {
  interface AttachedShapes {
    cluster: ClusterDoc
  }
}

type Values = Pick<ClusterSettings, SettingName>
const object = 'cluster'

const stored = (view: View, name: SettingName): SettingDoc | undefined =>
  view.get('cluster', object)?.settings[name]

/** Returns the source of a setting: a change over http wins until the ini's value changes. */
export function settingOrigin(view: View, ini: ClusterSettings, name: SettingName): 'changed' | 'ini' {
  const setting = stored(view, name)
  return setting !== undefined && setting.ini === ini[name] ? 'changed' : 'ini'
}

/** Returns the settings that objects inherit from the ini, and what they need to know of the controller. */
export const iniSettings = (ini: {
  readonly cluster: Pick<ClusterSettings, SettingName>
  readonly controller: ClusterSettings['controller']
  readonly http: { readonly urls: readonly string[] }
  readonly dns: { readonly server: string }
  readonly boot: { readonly loader: 'ipxe' | 'grub' }
  readonly image: { readonly directory: string }
}): ClusterSettings => ({
  ...ini.cluster,
  variables: {},
  controller: ini.controller,
  otherControllers: [],
  urls: ini.http.urls,
  urlAddresses: ini.http.urls.map(url => new URL(url).hostname).filter(isIPv4),
  servesDns: ini.dns.server !== 'none',
  loader: ini.boot.loader,
  imageDirectory: ini.image.directory
})

/** Returns the settings in force: those of the ini with the changes made over http. */
export function effectiveSettings(view: View, ini: ClusterSettings): ClusterSettings {
  const changed = settingNames.filter(name => settingOrigin(view, ini, name) === 'changed')
  const values = changed.map(name => [name, stored(view, name)?.value])
  const { variables = ini.variables } = view.get('cluster', object) ?? {}
  return { ...ini, ...(Object.fromEntries(values) as Partial<Values>), variables }
}

/** Settings of a request; null goes back to the ini's value. */
export type SettingsPatch = ReadonlyMap<SettingName | 'variables', string | boolean | VariableMap | null>

/** Reads settings; throws 400 naming the field. With `inForce`, as for a request, limits apply. */
export function readSettings(given: JsonObject, inForce?: ClusterSettings): SettingsPatch {
  const values = readFields('cluster', clusterFields, given)
  const why = inForce && [...limitViolations(settingFields, inForce, Object.fromEntries(values))][0]
  if (why !== undefined) throw badRequest(`cluster: ${why}`, 'invalid-field')
  return values as SettingsPatch
}

/** Stores settings; null goes back to the ini. With `replace`, so do settings that are not given. */
export function putSettings(tx: Tx, ini: ClusterSettings, given: SettingsPatch, replace = false): void {
  const settings: Record<string, SettingDoc> = {}
  for (const name of settingNames) {
    const isKept = !replace && !given.has(name)
    const value = isKept ? stored(tx, name)?.value : (given.get(name) as SettingDoc['value'] | null)
    const stale = isKept && settingOrigin(tx, ini, name) === 'ini'
    if (value != null && value !== ini[name] && !stale) settings[name] = { value, ini: ini[name] }
  }
  const own = replace ? {} : tx.get('cluster', object)?.variables
  const wanted = given.get('variables')
  const variables = wanted === undefined ? (own ?? {}) : mergeVariables(own, wanted as VariableMap | null)
  checkVariables(variables, object)
  const hasVariables = Object.keys(variables).length > 0
  if (Object.keys(settings).length > 0 || hasVariables)
    tx.put('cluster', object, {
      name: object,
      settings,
      ...(hasVariables ? { variables } : {})
    } as ClusterDoc)
  else if (tx.get('cluster', object)) tx.remove('cluster', object)
}

const iniValue: FieldType<string | boolean> = {
  ...freeText,
  read: value => (value === true || value === false ? value : freeText.read(value))
}

const changedSettings = settingFields.map(field => ({
  ...field,
  type: objectOf<SettingDoc>([
    { ...field, name: 'value', required: true },
    { name: 'ini', type: iniValue, required: true, meaning: 'the value of the ini then' }
  ])
}))

export const cluster: AttachedType<ClusterDoc> = {
  title: 'cluster',
  fields: [
    {
      name: 'settings',
      type: objectOf(changedSettings),
      required: true,
      meaning: 'settings that were changed'
    },
    variablesField
  ],
  *checks(_view, { name }) {
    if (name !== object) yield `only ${object}.json may exist`
  }
}
