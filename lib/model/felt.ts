import { isDeepStrictEqual } from 'node:util'
import { type Difference, differences } from './differences.js'
import { asBooted, type EffectiveNode, effectiveNode, findingMembers, kernelOptionsOf } from './effective.js'
import { hidden } from './field.js'
import type { Change, ClusterSettings, View } from './stored.js'
import { filesInForce } from './types/file.js'
import type { NodeDoc } from './types/node.js'

/** So many nodes are told with their values. */
const mostNodes = 20
/** Characters of a text that is told. */
const mostCharacters = 200

/** The nodes for which other values are in force after a change: how many, and the first of them. */
export interface Felt {
  /**
   * The nodes whose disks are written at their next boot from the network, where the change has to do with
   * it.
   */
  readonly written: readonly string[]
  readonly count: number
  readonly first: readonly { readonly name: string; readonly fields: readonly Difference[] }[]
}

/** A state and its settings. */
interface Side {
  readonly view: Pick<View, 'get'> & { readonly index: Pick<View['index'], 'networks'> }
  readonly cluster: ClusterSettings
}

/**
 * Gives what works out, step by step, which nodes a change may be felt by and what they feel. `after` is the transaction,
 * which is taken back afterwards: what is needed of it is kept.
 */
export function feltBy(
  changes: readonly Change[],
  before: { readonly view: View; readonly cluster: ClusterSettings },
  after: { readonly view: View; readonly cluster: ClusterSettings }
): () => Generator<void, Felt> {
  const changed = new Map(changes.map(change => [`${change.type}/${change.name}`, change]))
  const side = (
    of: 'before' | 'after',
    { view, cluster }: { view: View; cluster: ClusterSettings }
  ): Side => ({
    view: {
      index: { networks: new Map(view.index.networks) },
      get: ((type: 'node', name: string) => {
        const change = changed.get(`${type}/${name}`)
        return change ? change[of] : before.view.get(type, name)
      }) as View['get']
    },
    cluster
  })
  const [now, then] = [side('before', before), side('after', after)]
  return function* () {
    const nodes = yield* candidates(changes, before.view)
    let count = 0
    const first: { name: string; fields: Difference[] }[] = []
    const written: string[] = []
    for (const name of nodes) {
      yield
      const [was, is] = [now.view.get('node', name), then.view.get('node', name)]
      if (!is) continue
      const [had, has] = [was ? valuesOf(now, was) : new Map(), valuesOf(then, is)]
      const fields = difference(had, has)
      if (isWritten(has) && fields.some(({ field }) => installing.test(field))) written.push(name)
      if (!was) continue
      fields.push(...ofReferenced(changed, now, was))
      if (fields.length === 0) continue
      count++
      if (first.length < mostNodes) first.push({ name, fields })
    }
    return { count, first, written }
  }
}

/** The nodes that may feel something, in natural order. */
function* candidates(changes: readonly Change[], view: View): Generator<void, readonly string[]> {
  const found = new Set<string>()
  const add = (names: Iterable<string>) => {
    for (const name of names) found.add(name)
  }
  for (const { type, name, before } of changes) {
    if (type === 'cluster') return [...view.names('node')]
    if (type === 'node') found.add(name)
    if (!before) continue
    if (type === 'group') add(view.index.members(name)?.all.values ?? [])
    else if (type === 'osimage' || type === 'bmcsetup' || type === 'file')
      add(yield* findingMembers(view, type, name, true))
    else if (type === 'osimagetag')
      add(yield* findingMembers(view, 'osimage', (before as { osimage: string }).osimage))
    else if (type === 'network')
      for (const user of view.index.users({ type, name })) if (user.type === 'node') found.add(user.name)
  }
  return [...found]
}

/** The values in force that a node boots, is installed and runs with, by the names that answers give them. */
function valuesOf({ view, cluster }: Side, node: NodeDoc): Map<string, unknown> {
  const target = effectiveNode(view as View, node, cluster)
  const { settings, variables, interfaces } = target
  const booted = asBooted(view as View, target)
  const values = new Map<string, unknown>(Object.entries(settings))
  values.set('hostname', target.hostname)
  values.set('rescue', node.rescue)
  values.set('_kerneloptions', kernelOptionsOf(booted))
  for (const [name, value] of Object.entries(variables)) values.set(`variables.${name}`, value)
  for (const field of ['kernelfile', 'initrdfile', 'imagefile', 'distribution'] as const)
    values.set(`osimage.${field}`, booted.image?.[field])
  for (const { interface: name, own: _, ...entry } of interfaces)
    for (const [field, value] of Object.entries(entry)) values.set(`${name}.${field}`, value)
  values.set('files', fileNames(view as View, target).join(','))
  return values
}

/** Values that decide whether, and with what, a node is installed at its next boot. */
const installing =
  /^(?:(?:netboot|localinstall|partscript|rescue|osimage)\b|netboot_once|osimagetag|.*\.macaddress$)/

/** Whether a node with these values is installed onto a disk at its next boot from the network. */
const isWritten = (values: ReadonlyMap<string, unknown>) =>
  values.get('rescue') === undefined &&
  values.get('netboot') === true &&
  (values.get('partscript') !== '' || values.get('localinstall') === true)

function difference(was: ReadonlyMap<string, unknown>, is: ReadonlyMap<string, unknown>): Difference[] {
  return [...new Set([...was.keys(), ...is.keys()])]
    .filter(field => !isDeepStrictEqual(was.get(field) ?? null, is.get(field) ?? null))
    .map(field => ({ field, before: shown(was.get(field)), after: shown(is.get(field)) }))
}

/** Fields of a network, a BMC set-up or a file that no node gets. */
const unfelt = /^(?:comment|dns_records|type|zone)$/

/** What changes in the networks, the BMC set-up and the files of a node: `network cluster: gateway`. */
function ofReferenced(changed: ReadonlyMap<string, Change>, side: Side, node: NodeDoc): Difference[] {
  const target = effectiveNode(side.view as View, node, side.cluster)
  const { settings } = target
  const names = [
    ...new Set((node.interfaces ?? []).map(({ network }) => `network/${network}`)),
    ...(settings.setupbmc ? [`bmcsetup/${settings.bmcsetupname}`] : []),
    ...fileNames(side.view as View, target).map(name => `file/${name}`)
  ]
  return names.flatMap(key => {
    const change = changed.get(key)
    if (!change?.before || !change.after) return []
    const fields = differences(change).filter(({ field }) => !unfelt.test(field))
    return fields.map(({ field, before, after }) => ({
      field: `${change.type} ${change.name}: ${field}`,
      before: shown(before),
      after: shown(after)
    }))
  })
}

const fileNames = (view: View, { node, group }: EffectiveNode) =>
  filesInForce(view, node, group).map(({ file }) => file.name)

/** A value of an answer: null where there is none, long texts cut. */
function shown(value: unknown): unknown {
  if (typeof value !== 'string' || value === hidden || value.length <= mostCharacters) return value ?? null
  return `${value.slice(0, mostCharacters)}… (${value.length} characters)`
}
