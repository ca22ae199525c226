import type { Field } from './field.js'
import { type GroupDoc, groupFields, type NodeDoc, nodeFields } from './tables.js'
import type { ClusterSettings, View } from './view.js'

export type Source = 'node' | 'group' | 'cluster' | 'default'

/** A value in force and who sets it. */
export interface InForce {
  readonly value: unknown
  readonly source: Source
}

type Holder = readonly [Source, object | undefined]

/** The value in force of one field along cluster → group → node (rules 3.3); null where nobody sets it. */
function inForce(field: Field, holders: readonly Holder[]): InForce {
  for (const [source, doc] of holders) {
    const value = (doc as Readonly<Record<string, unknown>> | undefined)?.[field.name]
    if (value !== undefined && !(source === 'cluster' && (field.inherited !== 'cluster' || value === '')))
      return { value, source }
  }
  return { value: field.default ?? null, source: 'default' }
}

/** Values in force of a group, by field name. */
export function groupInForce(group: GroupDoc | undefined, cluster: ClusterSettings): Map<string, InForce> {
  return new Map(
    groupFields.map(field => [
      field.name,
      inForce(field, [
        ['group', group],
        ['cluster', cluster]
      ])
    ])
  )
}

/** Values in force of a node whose group is `group`, by field name. */
export function nodeInForce(
  node: NodeDoc | undefined,
  group: GroupDoc | undefined,
  cluster: ClusterSettings
): Map<string, InForce> {
  return new Map(
    nodeFields.map((field: Field) => [
      field.name,
      inForce(
        field,
        field.inherited
          ? [
              ['node', node],
              ['group', group],
              ['cluster', cluster]
            ]
          : [['node', node]]
      )
    ])
  )
}

const inheritedFields: readonly Field[] = nodeFields.filter((field: Field) => field.inherited)

/** What a node boots and installs with; null where nobody sets it. */
export interface Settings {
  readonly osimage: string | null
  readonly osimagetag: string
  readonly domain: string | null
  readonly prescript: string
  readonly partscript: string
  readonly postscript: string
  readonly netboot: boolean
  readonly bootmenu: boolean
  readonly localinstall: boolean
  readonly setupbmc: boolean
  readonly bmcsetupname: string | null
  readonly unmanaged_bmc_users: string | null
  readonly roles: string | null
  readonly provision_interface: string
  readonly provision_method: string
  readonly provision_fallback: string
}

/** Values in force for a node (rules 3.3); its cost does not grow with the number of nodes. */
export function settingsOf(view: View, node: NodeDoc, cluster: ClusterSettings): Settings {
  const group = node.group === undefined ? undefined : view.get('group', node.group)
  const holders: Holder[] = [
    ['node', node],
    ['group', group],
    ['cluster', cluster]
  ]
  const settings: Record<string, unknown> = {}
  for (const field of inheritedFields) settings[field.name] = inForce(field, holders).value
  return settings as unknown as Settings
}
