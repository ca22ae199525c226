import type { NodeInventory } from '../inventory/inventories.js'
import type { Inventory } from '../inventory/shape.js'
import { isBmc } from '../model/cluster-index.js'
import { type EffectiveNode, rolesOf, variablesOf } from '../model/effective.js'
import type { ClusterSettings, View } from '../model/stored.js'
import { defaultTag } from '../model/tags.js'
import type { InterfaceDoc } from '../model/types/interface.js'
import { type Captured, ownName } from '../services/capture.js'

/** A node as the exports see it. All of it is of one moment: an answer is made twice from the same nodes. */
export interface ExportNode
  extends Pick<EffectiveNode, 'node' | 'group' | 'settings' | 'variables' | 'provision' | 'hostname'> {
  readonly name: string
  readonly interfaces: readonly InterfaceDoc[]
  /** The last state that it reported. */
  readonly state: string | null
  /** Parses its last report; undefined before the first one. */
  readonly report: (() => NodeInventory) | undefined
}

/** The objects and reports that exports are made from. */
export interface ExportSources {
  readonly view: View
  readonly cluster: ClusterSettings
  readonly state: (node: string) => string | null
  readonly report: (node: string) => (() => NodeInventory) | undefined
}

/** Makes the nodes of these names, one in each step, from what was captured at one moment. */
export function* nodesOf(
  captured: Captured,
  { state, report }: ExportSources,
  names: readonly string[]
): Generator<void, ExportNode[]> {
  const docs = new Map(captured.nodes.map(node => [node.name, node]))
  const nodes: ExportNode[] = []
  for (const name of names) {
    yield
    const node = docs.get(name)
    if (!node) continue
    const { settings, provision, domain } = ownName(captured, node)
    const group = captured.groups.get(node.group ?? '')
    nodes.push({
      ...{ name, node, group, settings, provision, interfaces: node.interfaces ?? [] },
      variables: variablesOf(node, group, captured.cluster),
      hostname: domain === '' ? name : `${name}.${domain}`,
      ...{ state: state(name), report: report(name) }
    })
  }
  return nodes
}

/** Returns the last report of a node; an empty one before the first. */
export const inventoryOf = ({ report }: ExportNode): Inventory => report?.().inventory ?? {}

/** Returns the addresses of a node's own system, that of the provision interface first. */
export function addressesOf({ interfaces, provision }: ExportNode): string[] {
  const own = [provision, ...interfaces.filter(entry => !isBmc(entry))]
  return [...new Set(own.flatMap(entry => entry?.ipaddress ?? []))]
}

const longestState = 64

type Membership = readonly ['group' | 'rack' | 'osimage' | 'osimagetag' | 'role' | 'state', value: string]

/** Yields what a node belongs to. A state is its first word: nodes report any text. */
export function* membershipsOf({ group, variables, settings, state }: ExportNode): Generator<Membership> {
  const { osimage, osimagetag } = settings
  if (group) yield ['group', group.name]
  if (variables.rack) yield ['rack', variables.rack]
  if (osimage !== null) yield ['osimage', osimage]
  if (osimage !== null && osimagetag !== defaultTag) yield ['osimagetag', `${osimage}:${osimagetag}`]
  for (const role of new Set(rolesOf(settings))) if (role !== '') yield ['role', role]
  const [word = ''] = /^[^\s:]+/.exec(state ?? '') ?? []
  if (word !== '') yield ['state', word.slice(0, longestState)]
}
