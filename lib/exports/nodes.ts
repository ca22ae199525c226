import { createHash } from 'node:crypto'
import { addTo } from '../base/lists.js'
import type { Inventory } from '../inventory/facts.js'
import type { NodeInventory } from '../inventory/inventories.js'
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

/** Returns a text as a word of one line, without a character that means something in any of the formats. */
export const asWord = (text: string): string => text.replace(/[^A-Za-z0-9_.-]/g, '_')

/** Returns a text as an identifier of Python, which the name of an Ansible group has to be. */
export const asIdentifier = (text: string): string =>
  text.replace(/[^A-Za-z0-9_]/g, '_').replace(/^(?=\d)/, '_')

/** How a program writes the names of groups. */
interface NameRule {
  /** Returns a name that the program takes. */
  readonly clean: (text: string) => string
  /** The sign between a kind and a name, as in `rack_r1`; a group has its own name. */
  readonly joint: string
  /** Whether the program uses a name for something else. */
  readonly isReserved: (name: string) => boolean
}

/** A group of nodes under a name that a program takes. */
interface NamedGroup {
  readonly name: string
  /** The name as svcd writes it: `compute`, `rack=r 1`. */
  readonly original: string
  readonly nodes: readonly string[]
}

const digest = (text: string) => createHash('sha256').update(text).digest('hex').slice(0, 8)

/** Gathers the groups, racks, images, tags, roles and states of nodes, in steps; no two share a name. */
export function* groupsOf(nodes: readonly ExportNode[], rule: NameRule): Generator<void, NamedGroup[]> {
  const members = new Map<string, string[]>()
  const proposed = new Map<string, string>()
  for (const node of nodes) {
    yield
    for (const [kind, value] of membershipsOf(node)) {
      const original = kind === 'group' ? value : `${kind}=${value}`
      addTo(members, original, node.name)
      if (proposed.has(original)) continue
      const name = rule.clean(value)
      proposed.set(original, kind === 'group' ? name : `${kind}${rule.joint}${name}`)
    }
  }
  const named = distinct(proposed, rule.isReserved)
  return [...members].map(([original, nodes]) => ({ original, name: named.get(original) ?? '', nodes }))
}

/** Returns names for these originals: a reserved one, or a changed one that is not alone, gets a digest. */
export function distinct(
  proposed: ReadonlyMap<string, string>,
  isReserved: (name: string) => boolean = () => false
): Map<string, string> {
  const counts = new Map<string, number>()
  for (const name of proposed.values()) counts.set(name, (counts.get(name) ?? 0) + 1)
  const nameOf = ([original, name]: readonly [string, string]) => {
    const isAlone = name === original || counts.get(name) === 1
    return isAlone && !isReserved(name) ? name : `${name}_${digest(original)}`
  }
  return new Map([...proposed].map(entry => [entry[0], nameOf(entry)]))
}
