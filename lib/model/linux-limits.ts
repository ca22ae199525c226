import { badRequest } from '../base/errors.js'
import { isBmc } from './cluster-index.js'
import {
  atNextBoot,
  effectiveKernelOptions,
  effectiveNode,
  findNodesUsing,
  installsPackages
} from './effective.js'
import type { Change, ClusterSettings, Tx, View } from './stored.js'
import { defaultTag } from './tags.js'
import type { GroupDoc } from './types/group.js'
import type { InterfaceDoc } from './types/interface.js'
import type { NodeDoc } from './types/node.js'
import type { OsimageDoc } from './types/osimage.js'

/** Limits of Linux: characters of a host name, bytes of kernel arguments, characters of an interface name. */
const most = { hostName: 64, kernelArguments: 2047, interfaceName: 15 }

/** Returns the length in bytes of the kernel arguments in a boot script (rules 4.2). */
function argumentBytes(
  { urls: [url = '', ...others] = [] }: ClusterSettings,
  options: string,
  { node = '', hostname = '', ip = '', rescue = '' } = {}
): number {
  const more = others.length > 0 ? ` svc.urls=${others.join(',')}` : ''
  return (
    `root=svc svc.bootproto=${ip === '' ? 'dhcp' : 'static'} svc.mac=00:00:00:00:00:00 svc.ip=${ip} ` +
    `svc.url=${url}${more} svc.node=${node} svc.hostname=${hostname} svc.service=0` +
    `${rescue && ' svc.rescue=1'} initrd=initrd.img${options && ` ${options}`}`
  ).length
}

const argumentsTooLong = (bytes: number) =>
  bytes > most.kernelArguments
    ? `its kernel arguments have ${bytes} bytes with those that svcd adds, and Linux reads ` +
      `${most.kernelArguments}: shorten "kerneloptions" of the node, its group or its image`
    : undefined

const packedFiles = ['kernelfile', 'initrdfile', 'imagefile'] as const

/** Returns why the rescue of a node cannot boot: it is needed when there is trouble already (rules 6.15). */
export function rescueProblem(view: View, node: NodeDoc, cluster: ClusterSettings): string | undefined {
  if (node.rescue === undefined) return undefined
  const target = effectiveNode(view, node, cluster)
  const { image, settings } = atNextBoot(view, target)
  if (!image || packedFiles.every(file => image[file])) return undefined
  if (image.name === target.settings.osimage && installsPackages(target.settings.provision_method))
    return (
      `field "rescue": OS image ${image.name} boots an installer, and a rescue needs a packed image: ` +
      `svcctl node rescue ${node.name} --image IMAGE`
    )
  const tag = settings.osimagetag === defaultTag ? '' : settings.osimagetag
  return (
    `field "rescue": OS image ${image.name} has no packed files${tag && ` in its tag ${tag}`}: ` +
    `svcctl osimage pack ${image.name}${tag && ', and tag it again'}`
  )
}

/** Returns why Linux would cut the host name or kernel arguments (rules 3.18), or the rescue cannot boot. */
function linuxProblems(view: View, node: NodeDoc, cluster: ClusterSettings) {
  const target = effectiveNode(view, node, cluster)
  const { group, provision, prefix, hostname, domain } = target
  const { text } = effectiveKernelOptions(atNextBoot(view, target).image, group, node)
  const ip = provision?.ipaddress === undefined ? '' : `${provision.ipaddress}/${prefix?.length ?? 0}`
  return {
    rescue: rescueProblem(view, node, cluster),
    hostName:
      hostname.length > most.hostName
        ? `its host name ${hostname} has ${hostname.length} characters, and Linux takes ${most.hostName}: ` +
          `give the node a shorter name, or it or its group a "domain" that is shorter than ${domain}`
        : undefined,
    kernel: argumentsTooLong(
      argumentBytes(cluster, text, { node: node.name, hostname, ip, rescue: node.rescue ?? '' })
    )
  }
}

/** Returns a sentence for each value of a stored node that Linux would cut or that cannot boot. */
export const linuxProblemsOf = (view: View, node: NodeDoc, cluster: ClusterSettings): string[] =>
  Object.values(linuxProblems(view, node, cluster)).filter(why => why !== undefined)

/**
 * Refuses values that a change makes too long for Linux, and impossible host names (rules 3.18). Old values
 * stay, and an import accepts them (rules 3.11). One step per affected node; throws 400.
 */
export function* checkLinuxLimits(tx: Tx, change: Change, cluster: ClusterSettings): Generator<void> {
  const { type, name } = change
  if (!change.after || (type !== 'node' && type !== 'group' && type !== 'osimage')) return
  const after = change.after as NodeDoc & GroupDoc & OsimageDoc
  const before = renamed(tx, change.before as typeof after | undefined, after)
  const title = type === 'osimage' ? `OS image ${name}` : `${type} ${name}`
  if (type === 'node' && before?.name !== name) checkHostName(name)
  if (type !== 'osimage') checkInterfaces(title, before, after)
  if (type === 'node') {
    refuseNew(tx, tx, before, after, cluster, '')
    return
  }
  if (!affectsMembers(before, after)) return
  const { kerneloptions: own = '' } = after
  const why = argumentsTooLong(argumentBytes(cluster, own))
  if (why !== undefined && own !== before?.kerneloptions) throw badRequest(`${title}: ${why}`, 'too-long')
  if (!before) return
  const get = (of: string, named: string) =>
    of === type && named === name ? before : tx.get(of as 'node', named)
  const was = { index: tx.index, get } as unknown as View
  const nodes =
    type === 'group'
      ? [...(tx.index.members(name)?.all.values ?? [])]
      : yield* findNodesUsing(tx, 'osimage', name, true)
  for (const member of nodes) {
    yield
    const node = tx.get('node', member)
    if (node) refuseNew(was, tx, node, node, cluster, `${title}: `)
  }
}

/** Returns the former object with today's names of its group and image, which may have been renamed. */
function renamed<D extends NodeDoc>(tx: Tx, before: D | undefined, after: D): D | undefined {
  const gone = (['group', 'osimage'] as const).filter(field => {
    const old = before?.[field]
    return old !== undefined && !tx.get(field, old)
  })
  return before && { ...before, ...Object.fromEntries(gone.map(field => [field, after[field]])) }
}

/** Whether a change of a group or image can lengthen a value of its nodes or remove files of their rescue. */
const affectsMembers = (before: (GroupDoc & OsimageDoc) | undefined, after: GroupDoc & OsimageDoc) =>
  (['kerneloptions', 'domain', 'provision_interface', 'osimage', 'osimagetag'] as const).some(
    field => before?.[field] !== after[field]
  ) || packedFiles.some(file => before?.[file] && !after[file])

/** Refuses problems of a node that it did not have before. */
function refuseNew(
  was: View,
  is: View,
  before: NodeDoc | undefined,
  after: NodeDoc,
  cluster: ClusterSettings,
  where: string
): void {
  const now = linuxProblems(is, after, cluster)
  for (const what of ['hostName', 'kernel', 'rescue'] as const)
    if (now[what] !== undefined && (!before || linuxProblems(was, before, cluster)[what] === undefined))
      throw badRequest(
        `${where}node ${after.name}: ${now[what]}`,
        what === 'rescue' ? 'invalid-field' : 'too-long'
      )
}

function checkHostName(name: string): void {
  if (/^(?:localhost[46]?|ip6-(?:localhost|loopback))$/.test(name))
    throw badRequest(`node ${name}: each system gives this name to itself: take another one`, 'invalid-name')
  if (/^(?:\d+|0x[0-9a-f]+)$/.test(name))
    throw badRequest(
      `node ${name}: programs take a name of digits alone for an address: take one such as node${name}`,
      'invalid-name'
    )
}

interface Holder {
  readonly interfaces?: readonly Pick<InterfaceDoc, 'interface' | 'options'>[]
}

/** Refuses interface names that are too long for a VLAN, bond or bridge, or for the interface below it. */
function checkInterfaces(title: string, before: Holder | undefined, { interfaces = [] }: Holder): void {
  const had = new Set(before?.interfaces?.map(entry => `${entry.interface} ${entry.options ?? ''}`))
  const taken = new Set(interfaces.map(entry => entry.interface))
  for (const entry of interfaces) {
    const { interface: name, options = '' } = entry
    if (options === '' || isBmc(entry) || had.has(`${name} ${options}`)) continue
    const words = new Map(
      options.split(/\s+/).map(word => [word.replace(/=.*/, ''), word.replace(/^[^=]*=?/, '')])
    )
    const kind = (['vlan', 'bond', 'bridge'] as const).find(word => words.has(word))
    const takes = `Linux takes ${most.interfaceName} characters for the name of an interface, and`
    for (const word of ['link', 'bond', 'bridge'])
      for (const lower of words.get(word)?.split(',') ?? [])
        if (lower.length > most.interfaceName)
          throw badRequest(
            `${title}: interface ${name}: ${takes} ${lower} in its options has ${lower.length}`,
            'too-long'
          )
    if (kind === undefined || name.length <= most.interfaceName) continue
    const base = { vlan: `vlan${words.get('vlan')}`, bond: 'bond0', bridge: 'br0' }[kind]
    let better = base
    for (let n = 1; taken.has(better); n++)
      better = kind === 'vlan' ? `${base}-${n}` : base.replace('0', `${n}`)
    const link =
      kind === 'vlan' && !words.has('link')
        ? `, with link=${name.replace(/\.[^.]*$/, '')} in its options`
        : ''
    throw badRequest(
      `${title}: interface ${name}: ${takes} this ${kind} has ${name.length}: call it ${better}${link}`,
      'too-long'
    )
  }
}
