import { isDeepStrictEqual } from 'node:util'
import { type Difference, differences } from './differences.js'
import type { Docs } from './docs.js'
import {
  atNextBoot,
  type EffectiveNode,
  effectiveNode,
  findNodesUsing,
  isInstaller,
  kernelOptionsOf,
  layoutOf
} from './effective.js'
import { secretMask } from './field.js'
import type { Change, ClusterSettings, View } from './stored.js'
import { effectiveFiles } from './types/file.js'
import type { NodeDoc } from './types/node.js'

/** Affected nodes that are listed with their values. */
const mostNodes = 20
/** Reinstalled nodes whose disk layouts are checked. */
const mostLayouts = 50
/** Characters after which a listed text is cut. */
const mostCharacters = 200

/** The nodes for which a change alters values in force: how many, and the first of them. */
export interface Impact {
  /** Nodes whose disks are written at their next network boot, if the change affects that. */
  readonly reinstalled: readonly string[]
  /** The disk layouts that the first of them are installed by. */
  readonly layouts: readonly (readonly [node: string, layout: Docs['disklayout']])[]
  /** Nodes that have to prove themselves by a TPM, and had not to. */
  readonly required: readonly string[]
  readonly count: number
  readonly examples: readonly { readonly name: string; readonly fields: readonly Difference[] }[]
}

/** A state with its settings. */
interface State {
  readonly view: View
  readonly cluster: ClusterSettings
}

/** A state before or after the change, as far as nodes need it. */
interface Side {
  readonly view: Pick<View, 'get'> & { readonly index: Pick<View['index'], 'networks'> }
  readonly cluster: ClusterSettings
}

/** Returns a generator that finds the affected nodes; `after` may be rolled back before it runs. */
export function findImpact(
  changes: readonly Change[],
  before: State,
  after: State
): () => Generator<void, Impact> {
  const changed = new Map(changes.map(change => [`${change.type}/${change.name}`, change]))
  const side = (of: 'before' | 'after', { view, cluster }: State): Side => {
    const get = (type: 'node', name: string) => {
      const change = changed.get(`${type}/${name}`)
      return change ? change[of] : before.view.get(type, name)
    }
    return { view: { index: { networks: new Map(view.index.networks) }, get: get as View['get'] }, cluster }
  }
  const [now, then] = [side('before', before), side('after', after)]
  return function* () {
    const nodes = yield* affectedCandidates(changes, before.view)
    let count = 0
    const first: { name: string; fields: Difference[] }[] = []
    const written: string[] = []
    const required: string[] = []
    const layouts: (readonly [string, Docs['disklayout']])[] = []
    for (const name of nodes) {
      yield
      const [was, is] = [now.view.get('node', name), then.view.get('node', name)]
      if (!is) continue
      const [had, has] = [was ? valuesOf(now, was) : new Map(), valuesOf(then, is)]
      const fields = difference(had, has)
      if (was) fields.push(...ofReferenced(changed, now, was))
      if (has.get('trust') === 'require' && had.get('trust') !== 'require') required.push(name)
      if (isReinstalled(has) && fields.some(({ field }) => installing.test(field))) {
        written.push(name)
        const layout = layoutOf(then.view, targetOf(then, is))
        if (layout && layouts.length < mostLayouts) layouts.push([name, layout])
      }
      if (!was || fields.length === 0) continue
      count++
      if (first.length < mostNodes) first.push({ name, fields })
    }
    return { count, examples: first, reinstalled: written, required, layouts }
  }
}

/** Returns the nodes that a change may affect, in natural order. */
function* affectedCandidates(changes: readonly Change[], view: View): Generator<void, readonly string[]> {
  const found = new Set<string>()
  const add = (names: Iterable<string>) => {
    for (const name of names) found.add(name)
  }
  for (const { type, name, before } of changes) {
    if (type === 'cluster') return [...view.names('node')]
    if (type === 'node') found.add(name)
    if (!before) continue
    if (type === 'group') add(view.index.members(name)?.all.values ?? [])
    else if (type === 'osimage' || type === 'bmcsetup' || type === 'file' || type === 'disklayout')
      add(yield* findNodesUsing(view, type, name, true))
    else if (type === 'osimagetag')
      add(yield* findNodesUsing(view, 'osimage', (before as { osimage: string }).osimage))
    else if (type === 'network')
      for (const user of view.index.referrers({ type, name })) if (user.type === 'node') found.add(user.name)
  }
  return [...found]
}

/** For the questions of one node, which need no more of a view. */
const viewOf = ({ view }: Side) => view as View
const targetOf = (side: Side, node: NodeDoc) => effectiveNode(viewOf(side), node, side.cluster)

/** Returns the values in force that a node boots, is installed and runs with, by their names in answers. */
function valuesOf(side: Side, node: NodeDoc): Map<string, unknown> {
  const target = targetOf(side, node)
  const { settings, variables, interfaces } = target
  const booted = atNextBoot(viewOf(side), target)
  const values = new Map<string, unknown>(Object.entries(settings))
  values.set('hostname', target.hostname)
  values.set('rescue', node.rescue)
  values.set('_kerneloptions', kernelOptionsOf(booted))
  for (const [name, value] of Object.entries(variables)) values.set(`variables.${name}`, value)
  for (const field of ['kernelfile', 'initrdfile', 'imagefile', 'distribution'] as const)
    values.set(`osimage.${field}`, booted.image?.[field])
  for (const { interface: name, own: _, ...entry } of interfaces)
    for (const [field, value] of Object.entries(entry)) values.set(`${name}.${field}`, value)
  values.set('files', fileNames(side, target).join(','))
  return values
}

/** Fields that decide whether and with what a node is installed at its next boot. */
const installing =
  /^(?:(?:netboot|localinstall|partscript|disklayout|rescue|osimage|provision_method|root_format)\b|netboot_once|osimagetag|.*\.macaddress$)/

/** Whether a node with these values is installed onto a disk at its next network boot. */
const isReinstalled = (values: ReadonlyMap<string, unknown>) =>
  values.get('rescue') === undefined &&
  values.get('netboot') === true &&
  (values.get('partscript') !== '' ||
    values.get('disklayout') !== null ||
    values.get('localinstall') === true ||
    isInstaller(values.get('provision_method')))

function difference(was: ReadonlyMap<string, unknown>, is: ReadonlyMap<string, unknown>): Difference[] {
  return [...new Set([...was.keys(), ...is.keys()])]
    .filter(field => !isDeepStrictEqual(was.get(field) ?? null, is.get(field) ?? null))
    .map(field => ({ field, before: shown(was.get(field)), after: shown(is.get(field)) }))
}

/** Fields of a network, BMC set-up or file that do not reach a node. */
const withoutImpact = /^(?:comment|dns_records|type|zone)$/

/** Returns changes of a node's networks, BMC set-up and files; a field is `network cluster: gateway`. */
function ofReferenced(changed: ReadonlyMap<string, Change>, side: Side, node: NodeDoc): Difference[] {
  const target = targetOf(side, node)
  const { settings } = target
  const names = [
    ...new Set((node.interfaces ?? []).map(({ network }) => `network/${network}`)),
    ...(settings.setupbmc ? [`bmcsetup/${settings.bmcsetupname}`] : []),
    ...fileNames(side, target).map(name => `file/${name}`),
    ...(settings.disklayout === null ? [] : [`disklayout/${settings.disklayout}`])
  ]
  return names.flatMap(key => {
    const change = changed.get(key)
    if (!change?.before || !change.after) return []
    const fields = differences(change).filter(({ field }) => !withoutImpact.test(field))
    return fields.map(({ field, before, after }) => ({
      field: `${change.type} ${change.name}: ${field}`,
      before: shown(before),
      after: shown(after)
    }))
  })
}

const fileNames = (side: Side, { node, group }: EffectiveNode) =>
  effectiveFiles(viewOf(side), node, group).map(({ file }) => file.name)

/** Returns a value for an answer: null if not set, long texts cut. */
function shown(value: unknown): unknown {
  if (typeof value !== 'string' || value === secretMask || value.length <= mostCharacters)
    return value ?? null
  return `${value.slice(0, mostCharacters)}… (${value.length} characters)`
}
