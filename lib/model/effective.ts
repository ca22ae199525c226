import { cachedPerObject, runSync, sortInSteps } from '../base/concurrency.js'
import { addTo } from '../base/lists.js'
import { compareNames } from '../store/order.js'
import type { Prefix } from './address.js'
import type { Docs, TypeName } from './docs.js'
import type { Field, ValueOf } from './field.js'
import type { ClusterSettings, View } from './stored.js'
import { defaultTag, filesOf, findTag } from './tags.js'
import { inheritable } from './types/inheritable.js'
import type { InterfaceDoc } from './types/interface.js'
import { type VariableMap, variableSources } from './variables.js'

type NodeDoc = Docs['node']
type GroupDoc = Docs['group']

/** The level that sets a value in force. */
type SettingLevel = 'node' | 'group' | 'cluster' | 'default'

type InheritedField = Extract<(typeof inheritable)[number], { readonly inherited: string }>

/** The values in force of the fields that a node inherits (rules 3.3); null where no level sets one. */
export type Settings = {
  readonly [F in InheritedField as F['name']]: F extends { readonly default: unknown }
    ? ValueOf<F>
    : ValueOf<F> | null
}

export type SettingLevels = Readonly<Record<keyof Settings, SettingLevel>>

export type VariableLevels = Readonly<Record<string, SettingLevel>>

/** A node with all that it inherits from its group, network, image and the cluster. */
export interface EffectiveNode {
  readonly node: NodeDoc
  readonly group: GroupDoc | undefined
  readonly settings: Settings
  /** Merged from cluster, group and node (rules 3.16). */
  readonly variables: VariableMap
  /** An interface without options of its own has those of the group. */
  readonly interfaces: readonly InterfaceDoc[]
  /** The interface that the node is provisioned over, its network, and that network's prefix. */
  readonly provision: InterfaceDoc | undefined
  readonly network: Docs['network'] | undefined
  readonly prefix: Prefix | undefined
  /** Has the files that the node's tag pins. */
  readonly image: Docs['osimage'] | undefined
  /** '' without a domain (rules 4.2). */
  readonly domain: string
  /** `<node>.<domain>`, or the bare name without a domain. */
  readonly hostname: string
}

const inheritedFields = (inheritable as readonly Field[]).filter(field => field.inherited)
const inheritedNames = new Set(inheritedFields.map(field => field.name))

const noGroup: GroupDoc = Object.freeze({ name: '' })

/** Values that nodes of a group inherit, and the level that sets each. */
export interface InheritedValues {
  readonly settings: Settings
  readonly sources: SettingLevels & { readonly variables: VariableLevels }
  readonly variables: VariableMap
}

function inheritedValuesOf(group: GroupDoc, cluster: ClusterSettings): InheritedValues {
  const values = group as Readonly<Record<string, unknown>>
  const ofCluster = cluster as unknown as Readonly<Record<string, unknown>>
  const settings: Record<string, unknown> = {}
  const sources: Record<string, SettingLevel> = {}
  for (const { name, inherited, default: byDefault } of inheritedFields) {
    // An empty text of the cluster counts as not set.
    const fromCluster = inherited === 'cluster' && ofCluster[name] !== '' ? ofCluster[name] : undefined
    settings[name] = values[name] ?? fromCluster ?? byDefault ?? null
    sources[name] = values[name] !== undefined ? 'group' : fromCluster !== undefined ? 'cluster' : 'default'
  }
  const variables = group.variables ? { ...cluster.variables, ...group.variables } : cluster.variables
  const from = variableSources([['cluster', cluster.variables] as const, ['group', group.variables] as const])
  return { settings, sources: { ...sources, variables: from }, variables } as unknown as InheritedValues
}

/** The values that groups hand down, by cluster settings and group, which are replaced and never changed. */
const handedDown = cachedPerObject((cluster: ClusterSettings) =>
  cachedPerObject((group: GroupDoc) => inheritedValuesOf(group, cluster))
)

/** Returns the settings of a group, or of nodes without a group, and the level that sets each. */
export const effectiveGroup = (group: GroupDoc | undefined, cluster: ClusterSettings): InheritedValues =>
  handedDown(cluster)(group ?? noGroup)

/** Returns `inherited` with `own(field)` for each field that the node sets itself. */
function withOwn<T extends Settings | SettingLevels>(
  inherited: T,
  node: NodeDoc,
  own: (field: string) => unknown
): T {
  let result = inherited
  for (const field in node)
    if (inheritedNames.has(field)) {
      if (result === inherited) result = { ...inherited }
      ;(result as Record<string, unknown>)[field] = own(field)
    }
  return result
}

/** Returns the settings in force for a node in `group` (rules 3.3). */
export const settingsOf = (node: NodeDoc, group: GroupDoc | undefined, cluster: ClusterSettings): Settings =>
  withOwn(effectiveGroup(group, cluster).settings, node, field => node[field as keyof NodeDoc])

/** Whether the installer of a distribution writes the disk of a node with this `provision_method`. */
export const isInstaller = (method: unknown): boolean => method === 'kickstart' || installsPackages(method)

/** Whether that installer installs packages of its distribution, and no packed image. */
export const installsPackages = (method: unknown): boolean => method === 'preseed' || method === 'autoinstall'

/** Returns the file that stands for what a node installs: the packed image, or the installer's initramfs. */
export const installedFile = (
  { provision_method }: Pick<Settings, 'provision_method'>,
  { imagefile, initrdfile }: Docs['osimage']
): string | undefined => (installsPackages(provision_method) ? initrdfile : imagefile)

/** Replaces all settings with which a rescue could write to a disk. */
const rescueSettings = {
  ...{ netboot: true, localinstall: false, setupbmc: false, roles: null },
  ...{ prescript: '', partscript: '', postscript: '', disklayout: null, root_format: null }
} satisfies Partial<Settings>

/** Returns the node as its next network boot sees it: with settings and image of its rescue (rules 6.15). */
export function atNextBoot(view: View, target: EffectiveNode): EffectiveNode {
  const { rescue } = target.node
  if (rescue === undefined) return target
  const osimagetag = rescue === target.settings.osimage ? target.settings.osimagetag : defaultTag
  const { provision_method: method, provision_fallback } = target.settings
  // Nobody knows how long a rescue reads from a root that it streams.
  const provision_method = isInstaller(method) || method === 'stream' ? provision_fallback : method
  const settings = { ...target.settings, ...rescueSettings, osimage: rescue, osimagetag, provision_method }
  return { ...target, settings, image: imageOf(view, settings) }
}

/**
 * Returns the disk layout that a node is installed by (rules 4.39): the node's own setting comes before its
 * group's, and on one level a partscript comes before a layout. undefined: a partscript, neither, or an
 * installer that partitions the disk itself.
 */
export function layoutOf(
  view: Pick<View, 'get'>,
  { node, settings }: Pick<EffectiveNode, 'node' | 'settings'>
): Docs['disklayout'] | undefined {
  const { disklayout, partscript } = settings
  const isScript = partscript !== '' && (node.disklayout === undefined || (node.partscript ?? '') !== '')
  if (disklayout === null || isScript || installsPackages(settings.provision_method)) return undefined
  return view.get('disklayout', disklayout)
}

/** Returns the level that sets each setting and each variable of a node in `group`. */
export function sourcesOf(
  node: NodeDoc,
  group: GroupDoc | undefined,
  cluster: ClusterSettings
): InheritedValues['sources'] {
  const { sources } = effectiveGroup(group, cluster)
  const variables = { ...sources.variables, ...variableSources([['node', node.variables]]) }
  return { ...withOwn(sources, node, () => 'node'), variables }
}

/** Returns the variables in force for a node in `group`: node wins over group, group over cluster. */
export function variablesOf(
  { variables: own }: NodeDoc,
  group: GroupDoc | undefined,
  cluster: ClusterSettings
): VariableMap {
  const { variables } = effectiveGroup(group, cluster)
  return own ? { ...variables, ...own } : variables
}

/** Returns the group of a node; undefined without one. */
export const groupOf = (view: View, { group }: NodeDoc): GroupDoc | undefined =>
  group === undefined ? undefined : view.get('group', group)

/** Returns the interfaces of an object in `group`, with the group's options as defaults (rules 3.4). */
export function effectiveInterfaces(
  { interfaces = [] }: { readonly interfaces?: readonly InterfaceDoc[] },
  group: GroupDoc | undefined
): readonly InterfaceDoc[] {
  const withOptions = group?.interfaces?.filter(({ options }) => options !== undefined) ?? []
  if (withOptions.length === 0) return interfaces
  const ofGroup = new Map(withOptions.map(({ interface: name, options }) => [name, { options }]))
  return interfaces.map(entry => ({ ...ofGroup.get(entry.interface), ...entry }) as InterfaceDoc)
}

/** Returns the interface that a node with these settings is provisioned over. */
export const provisionOf = (
  { interfaces }: Pick<NodeDoc, 'interfaces'>,
  settings: Settings
): InterfaceDoc | undefined => {
  // V8 is slow at `find` on a frozen list, and thousands of machines ask.
  for (const entry of interfaces ?? []) if (entry.interface === settings.provision_interface) return entry
  return undefined
}

/** Returns the node's own domain, else the name of its provision network, else '' (rules 4.2). */
export const domainOf = (settings: Settings, provision: InterfaceDoc | undefined): string =>
  settings.domain ?? provision?.network ?? ''

/** Kernel options in force, and the levels that set a part of them, such as `image+group+node`. */
export interface KernelOptions {
  readonly text: string
  readonly source: string
}

/** Joins the options of an image, a group and a node, in this order (rules 4.2). */
export function effectiveKernelOptions(
  image: Docs['osimage'] | undefined,
  group: GroupDoc | undefined,
  node?: NodeDoc
): KernelOptions {
  const parts = Object.entries({ image, group, node }).filter(([, doc]) => doc?.kerneloptions)
  return {
    text: parts.map(([, doc]) => doc?.kerneloptions).join(' '),
    source: parts.map(([who]) => who).join('+') || 'default'
  }
}

/** Returns the kernel options of a node; '' without any (rules 4.2). */
export function kernelOptionsOf({ image, group, node }: EffectiveNode): string {
  // Fast path: most nodes only have the options of their image, and thousands of machines ask.
  if (!group?.kerneloptions && !node.kerneloptions) return image?.kerneloptions ?? ''
  return effectiveKernelOptions(image, group, node).text
}

/** The program that UEFI firmware starts. */
export type Loader = 'ipxe' | 'grub'

/** Returns a node's loader: its own or its group's, else its network's, else the ini's (rules 4.42). */
export const loaderOf = (
  { settings, network }: Pick<EffectiveNode, 'settings' | 'network'>,
  fallback: Loader
): Loader => settings.loader ?? network?.loader ?? fallback

/** Splits a node's comma-separated roles. */
export const rolesOf = ({ roles }: Pick<Settings, 'roles'>): string[] =>
  roles === null ? [] : roles.split(',').map(role => role.trim())

/** Looks up all that a node depends on, in time independent of the number of nodes. */
export function effectiveNode(view: View, node: NodeDoc, cluster: ClusterSettings): EffectiveNode {
  const group = groupOf(view, node)
  const settings = settingsOf(node, group, cluster)
  const interfaces = effectiveInterfaces(node, group)
  const provision = provisionOf({ interfaces }, settings)
  const network = provision?.network === undefined ? undefined : view.get('network', provision.network)
  const domain = domainOf(settings, provision)
  return {
    node,
    group,
    settings,
    variables: variablesOf(node, group, cluster),
    interfaces,
    provision,
    network,
    prefix: network && view.index.networks.get(network.name),
    image: imageOf(view, settings),
    domain,
    hostname: domain === '' ? node.name : `${node.name}.${domain}`
  }
}

/** Images with the files of a tag. Each is made once, because callers cache by object identity. */
const pinned = new WeakMap<object, { readonly image: Docs['osimage']; readonly made: Docs['osimage'] }>()

/** Returns the image of a node with these settings, with the files and options of its tag (rules 1.2). */
export function imageOf(
  view: View,
  { osimage, osimagetag }: Pick<Settings, 'osimage' | 'osimagetag'>
): Docs['osimage'] | undefined {
  const image = osimage === null ? undefined : view.get('osimage', osimage)
  if (!image || osimagetag === defaultTag) return image
  const tag = findTag(view, image.name, osimagetag)
  const kept = tag && pinned.get(tag)
  if (kept?.image === image) return kept.made
  const { kernelfile: _, initrdfile: __, imagefile: ___, ...rest } = image
  const { kerneloptions } = tag ?? {}
  const made = { ...rest, ...filesOf(tag ?? {}), ...(kerneloptions === undefined ? {} : { kerneloptions }) }
  if (tag) pinned.set(tag, { image, made })
  return made
}

/** Returns the nodes with this object in force, sorted; a node's own file hides its group's (rules 3.10). */
export const nodesUsing = (view: View, type: TypeName, name: string): string[] =>
  runSync(findNodesUsing(view, type, name))

/** As `nodesUsing`, in steps; may miss concurrent changes. `booting` adds nodes with this rescue image. */
export function* findNodesUsing(
  view: View,
  type: TypeName,
  name: string,
  booting = false
): Generator<void, string[]> {
  const field = inheritedFields.find(({ refers }) => refers === type)?.name as keyof NodeDoc | undefined
  const path = type === 'file' ? view.get('file', name)?.path : undefined
  const hasOwn = (node: NodeDoc | undefined) =>
    field
      ? node?.[field] !== undefined
      : node?.files?.some(own => view.get('file', own)?.path === path) === true
  const nodes = new Set<string>()
  for (const user of [...view.index.referrers({ type, name })]) {
    yield
    if (user.type === 'node' && (booting || !field || view.get('node', user.name)?.[field] === name))
      nodes.add(user.name)
    if (user.type === 'group' && (field || type === 'file'))
      for (const member of [...(view.index.members(user.name)?.all.values ?? [])]) {
        yield
        if (!hasOwn(view.get('node', member))) nodes.add(member)
      }
  }
  return yield* sortInSteps([...nodes], compareNames)
}

/** Returns the nodes of an image for which there is a sentence, in steps, by their sentences. */
export function* nodesBySentence(
  view: View,
  image: string,
  sentenceOf: (node: string) => string | undefined
): Generator<void, Map<string, string[]>> {
  const found = new Map<string, string[]>()
  for (const node of yield* findNodesUsing(view, 'osimage', image)) {
    yield
    const sentence = sentenceOf(node)
    if (sentence !== undefined) addTo(found, sentence, node)
  }
  return found
}
