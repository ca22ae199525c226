import type { Docs, TypeName } from './docs.js'
import {
  type EffectiveNode,
  groupInForce,
  groupOf,
  interfaceInForce,
  provisionOf,
  type Settings,
  type Sources,
  settingsOf,
  sourcesOf
} from './effective.js'
import type { Field } from './field.js'
import { hidden } from './hidden.js'
import type { GroupDoc } from './types/group.js'
import type { InterfaceDoc } from './types/interface.js'
import type { NodeDoc } from './types/node.js'
import { objectTypes } from './types.js'
import type { ClusterSettings, View } from './view.js'

/** Who reads, and what every answer depends on. */
export interface Reader {
  readonly cluster: ClusterSettings
  /** Passwords are shown as ********. */
  readonly masked: boolean
}

/** An object and what its answer takes from others, all of one moment: a long list is written later than that. */
export interface Seen<K extends TypeName = TypeName> {
  readonly doc: Docs[K]
  /** Of a node. */
  readonly group: GroupDoc | undefined
  /** Last reported state of a node, null before the first. */
  readonly status: string | null
}

/** Takes down what `show` needs of an object as it is now. `status`: last reported state of a node. */
export function see<K extends TypeName>(
  type: K,
  doc: Docs[K],
  view: View,
  status: (node: string) => string | null
): Seen<K> {
  if (type !== 'node') return { doc, group: undefined, status: null }
  return { doc, group: groupOf(view, doc as NodeDoc), status: status(doc.name) }
}

function value(field: Field, stored: unknown, masked: boolean): unknown {
  if (stored === undefined || stored === null) return field.default ?? null
  return field.secret && masked ? hidden : stored
}

/** The fields of a group or a node, and what is told of those that it inherits (rules 3.4). */
function inherited(type: 'group' | 'node', doc: object, settings: Settings, sources: Sources) {
  const stored: Readonly<Record<string, unknown>> = { ...doc, ...settings }
  const shown: Record<string, unknown> = {}
  const tail: Record<string, unknown> = { _override: Object.values(sources).includes(type) }
  for (const field of objectTypes[type].fields) {
    shown[field.name] = value(field, stored[field.name], false)
    if (field.inherited) tail[`_${field.name}_source`] = sources[field.name as keyof Sources]
  }
  return { shown, tail }
}

const groupInterface = (entry: InterfaceDoc) => ({
  interface: entry.interface,
  network: entry.network ?? null,
  options: entry.options ?? ''
})

const nodeInterface = (entry: InterfaceDoc) => ({
  interface: entry.interface,
  network: entry.network ?? null,
  ipaddress: entry.ipaddress ?? null,
  macaddress: entry.macaddress ?? null,
  options: entry.options ?? ''
})

/** A group's interfaces as the interface returns them. */
export const showGroupInterfaces = (group: GroupDoc) => (group.interfaces ?? []).map(groupInterface)

/** The interfaces of a node in `group` as answers show them. */
export const showNodeInterfaces = ({ node, group }: Pick<EffectiveNode, 'node' | 'group'>) =>
  (node.interfaces ?? []).map(entry => nodeInterface(interfaceInForce(entry, group)))

/** An object as the interface returns it: effective values, their sources, `_override` (rules 1.4, 3.4). */
export function show<K extends TypeName>(
  type: K,
  { doc, group, status }: Seen<K>,
  reader: Reader
): Record<string, unknown> {
  if (type === 'group') return showGroup(doc as GroupDoc, reader)
  if (type === 'node') return showNode(doc as NodeDoc, group, status, reader)
  const fields = doc as Readonly<Record<string, unknown>>
  const shown: Record<string, unknown> = { name: doc.name }
  for (const field of objectTypes[type].fields)
    shown[field.name] = value(field, fields[field.name], reader.masked)
  // The range belongs to a network that serves DHCP; elsewhere it is only kept (rules 1.4).
  if (type === 'network' && !shown.dhcp) {
    delete shown.dhcp_range_begin
    delete shown.dhcp_range_end
  }
  return shown
}

/** The JSON text of an object's answer, and what it was made from. */
interface Text extends Omit<Seen, 'doc'>, Reader {
  readonly text: string
}
const texts = new WeakMap<object, Text>()
const longestKept = 8192

/**
 * What `show` gives, as JSON text. It is made once and kept until the object, or what its answer takes from others,
 * is another one: stored objects are replaced, never changed.
 */
export function showText<K extends TypeName>(type: K, seen: Seen<K>, reader: Reader): string {
  const { doc, group, status } = seen
  const { cluster, masked } = reader
  const kept = texts.get(doc)
  if (
    kept !== undefined &&
    kept.group === group &&
    kept.status === status &&
    kept.cluster === cluster &&
    kept.masked === masked
  )
    return kept.text
  const text = JSON.stringify(show(type, seen, reader))
  // A long one holds scripts, which all members of a group would keep a copy of.
  if (text.length <= longestKept) texts.set(doc, { group, status, cluster, masked, text })
  return text
}

function showGroup(group: GroupDoc, reader: Reader): Record<string, unknown> {
  const { settings, sources } = groupInForce(group, reader.cluster)
  const { shown, tail } = inherited('group', group, settings, sources)
  return { name: group.name, ...shown, interfaces: showGroupInterfaces(group), ...tail }
}

function showNode(
  node: NodeDoc,
  group: GroupDoc | undefined,
  status: string | null,
  reader: Reader
): Record<string, unknown> {
  const settings = settingsOf(node, group, reader.cluster)
  const { shown, tail } = inherited('node', node, settings, sourcesOf(node, group, reader.cluster))
  const macaddr = provisionOf(node, settings)?.macaddress ?? null
  const interfaces = showNodeInterfaces({ node, group })
  return { name: node.name, ...shown, macaddr, status, interfaces, ...tail }
}
