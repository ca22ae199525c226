import { badRequest, notFound } from '../errors.js'
import { formatAddress, toAddress } from './address.js'
import { groupOf, interfaceInForce } from './effective.js'
import { dynamicRange, nextFree } from './networks.js'
import type { GivenInterface } from './request.js'
import type { DeviceDoc, GroupDoc, InterfaceDoc, NodeDoc } from './tables.js'
import type { ClusterSettings, Tx } from './view.js'

type Entries = readonly InterfaceDoc[]

const find = (entries: Entries | undefined, name: string) => entries?.find(entry => entry.interface === name)

/** An entry without the keys that are undefined or null, in table order. */
function entry(fields: { [K in keyof InterfaceDoc]?: InterfaceDoc[K] | null | undefined }): InterfaceDoc {
  const { interface: name, network, ipaddress, macaddress, options, own } = fields
  const clean = { interface: name, network, ipaddress, macaddress, options: options || undefined, own }
  return Object.fromEntries(
    Object.entries(clean).filter(([, value]) => value != null)
  ) as unknown as InterfaceDoc
}

/** A free address for one more interface of a node whose other entries are `entries`. */
function assign(tx: Tx, network: string, cluster: ClusterSettings, entries: Entries): string {
  const mine = entries.flatMap(({ ipaddress }) => (ipaddress === undefined ? [] : [toAddress(ipaddress)]))
  return formatAddress(nextFree(tx, network, cluster, new Set(mine)))
}

/**
 * A node's interfaces after its group, or its group's interfaces, changed from `before` to `after`
 * (rules 3.5). `moved`: the node changes its group, so what was deleted on it counts no
 * more. Throws 404 naming a network that has no free address.
 */
export function followGroup(
  tx: Tx,
  node: NodeDoc,
  before: GroupDoc | undefined,
  after: GroupDoc | undefined,
  cluster: ClusterSettings
): NodeDoc {
  const moved = before?.name !== after?.name
  const removed = moved ? [] : (node.removed ?? []).filter(name => find(after?.interfaces, name))
  let entries: InterfaceDoc[] = (node.interfaces ?? []).filter(
    ({ interface: name, own }) => own || find(after?.interfaces, name) || !find(before?.interfaces, name)
  )
  for (const wanted of after?.interfaces ?? []) {
    if (removed.includes(wanted.interface)) continue
    const has = find(entries, wanted.interface)
    const network = wanted.network
    // Inside one group an entry that deviates from the group's old network was set on the node by hand.
    const follows = moved || has?.network === find(before?.interfaces, wanted.interface)?.network
    // In the same network an address is kept; a move gives one where there is none.
    const stays = has?.network === network && (has?.ipaddress !== undefined || !moved)
    if (has && (stays || !follows)) continue
    const rest = entries.filter(other => other !== has)
    const ipaddress = network === undefined ? undefined : assign(tx, network, cluster, rest)
    const next = entry({ ...has, interface: wanted.interface, network, ipaddress })
    entries = has ? entries.map(other => (other === has ? next : other)) : [...entries, next]
  }
  return withInterfaces(node, entries, removed)
}

function withInterfaces(node: NodeDoc, interfaces: Entries, removed: readonly string[]): NodeDoc {
  const { interfaces: _, removed: __, ...rest } = node
  return {
    ...rest,
    ...(interfaces.length > 0 ? { interfaces } : {}),
    ...(removed.length > 0 ? { removed } : {})
  }
}

/** Who asks: an admin may take an address from another node by force, a node may not (rules 3.8). */
export interface Power {
  readonly takesAddresses: boolean
}

/**
 * A node with the given interface entries merged in (rules 1.9, 3.5, 3.8). An interface that is new gets
 * the next free address of its network unless the entry says which, or null. Taking an address by force
 * changes its former owner in the same transaction.
 */
export function mergeNodeInterfaces(
  tx: Tx,
  node: NodeDoc,
  given: readonly GivenInterface[],
  cluster: ClusterSettings,
  power: Power
): NodeDoc {
  let entries = [...(node.interfaces ?? [])]
  const group = groupOf(tx, node)
  for (const wanted of given) {
    const has = find(entries, wanted.interface)
    const ofGroup = find(group?.interfaces, wanted.interface)
    const rest = entries.filter(other => other !== has)
    const network = wanted.network === undefined ? (has ?? ofGroup)?.network : (wanted.network ?? undefined)
    const where = `node ${node.name}: interface ${wanted.interface}`
    if (network !== undefined && !tx.get('network', network))
      throw badRequest(`${where}: network ${network} does not exist`)
    let ipaddress = wanted.ipaddress === undefined ? has?.ipaddress : (wanted.ipaddress ?? undefined)
    if (wanted.ipaddress === undefined && network !== undefined && (!has || has.network !== network))
      ipaddress = assign(tx, network, cluster, rest)
    if (network === undefined && wanted.ipaddress) throw badRequest(`${where}: an address needs a network`)
    if (network === undefined) ipaddress = undefined
    // Options as they are read, the group's maybe, are left where they are (rules 3.4).
    const shown = interfaceInForce(has ?? { interface: wanted.interface }, group).options ?? ''
    const asShown = wanted.options === undefined || (wanted.options ?? '') === shown
    if (wanted.ipaddress && wanted.ipaddress !== has?.ipaddress)
      claim(tx, node.name, network, wanted, where, power)
    const next = entry({
      interface: wanted.interface,
      network,
      ipaddress,
      macaddress: wanted.macaddress === undefined ? has?.macaddress : wanted.macaddress,
      options: asShown ? has?.options : wanted.options,
      own: has ? has.own : ofGroup ? undefined : true
    })
    entries = has ? entries.map(other => (other === has ? next : other)) : [...entries, next]
  }
  const removed = (node.removed ?? []).filter(name => !given.some(wanted => wanted.interface === name))
  return withInterfaces(node, entries, removed)
}

/** Checks an address that is asked for by name, and frees it where force allows. */
function claim(
  tx: Tx,
  node: string,
  network: string | undefined,
  wanted: GivenInterface,
  where: string,
  power: Power
): void {
  const address = toAddress(wanted.ipaddress as string)
  const dynamic = network === undefined ? undefined : dynamicRange(tx.get('network', network) as never)
  if (!wanted.force && dynamic && address >= dynamic.first && address <= dynamic.last)
    throw badRequest(
      `${where}: ${wanted.ipaddress} lies in the dynamic range of network ${network}; "force": true allows it`
    )
  for (const owner of tx.index.addressOwners(address)) {
    if (!wanted.force || !power.takesAddresses || owner.type !== 'node' || owner.name === node) continue
    const other = tx.get('node', owner.name)
    if (other) tx.put('node', other.name, withoutAddress(other, owner.interface ?? ''))
  }
}

function withoutAddress(node: NodeDoc, name: string): NodeDoc {
  const entries = (node.interfaces ?? []).map(other =>
    other.interface === name ? entry({ ...other, ipaddress: undefined }) : other
  )
  return withInterfaces(node, entries, node.removed ?? [])
}

/** A node without one interface; one that its group has is remembered as removed (rules 3.5). */
export function removeNodeInterface(tx: Tx, node: NodeDoc, name: string): NodeDoc {
  if (!find(node.interfaces, name)) throw notFound(`node ${node.name} has no interface ${name}`)
  const group = groupOf(tx, node)
  const removed = node.removed ?? []
  return withInterfaces(
    node,
    (node.interfaces ?? []).filter(other => other.interface !== name),
    find(group?.interfaces, name) ? [...removed, name] : removed
  )
}

/** A node with this MAC (or none) on one interface, which is made when missing (rules 3.9). */
export function withMac(node: NodeDoc, name: string, macaddress: string | null): NodeDoc {
  const has = find(node.interfaces, name)
  if ((has?.macaddress ?? null) === macaddress) return node
  const entries = node.interfaces ?? []
  const next = entry({ ...has, interface: name, macaddress, own: has ? has.own : true })
  return withInterfaces(
    node,
    has ? entries.map(other => (other === has ? next : other)) : [...entries, next],
    (node.removed ?? []).filter(other => other !== name)
  )
}

/** The interfaces of a clone: the same networks with the next free addresses, and no MAC (rules 3.2). */
export function cloneInterfaces(tx: Tx, node: NodeDoc, cluster: ClusterSettings): NodeDoc {
  const entries: InterfaceDoc[] = []
  for (const { macaddress: _, ...other } of node.interfaces ?? []) {
    const { network, ipaddress } = other
    const fresh =
      network === undefined || ipaddress === undefined ? undefined : assign(tx, network, cluster, entries)
    entries.push(entry({ ...other, ipaddress: fresh }))
  }
  return withInterfaces(node, entries, node.removed ?? [])
}

/** The copy of a switch or another device: the next free address of its network, and no MAC. */
export function cloneDevice(tx: Tx, device: DeviceDoc, name: string, cluster: ClusterSettings): DeviceDoc {
  const { macaddress: _, ipaddress, ...rest } = device
  if (device.network === undefined || ipaddress === undefined) return { ...rest, name }
  return { ...rest, name, ipaddress: assign(tx, device.network, cluster, []) }
}

/** A group's interfaces with the given entries merged in. */
export function mergeGroupInterfaces(group: GroupDoc, given: readonly GivenInterface[]): GroupDoc {
  let entries = [...(group.interfaces ?? [])]
  for (const wanted of given) {
    const has = find(entries, wanted.interface)
    const next = entry({
      interface: wanted.interface,
      network: wanted.network === undefined ? has?.network : wanted.network,
      options: wanted.options === undefined ? has?.options : wanted.options
    })
    if (next.network === undefined)
      throw badRequest(`group ${group.name}: interface ${wanted.interface}: field "network" is missing`)
    entries = has ? entries.map(other => (other === has ? next : other)) : [...entries, next]
  }
  return entries.length > 0 ? { ...group, interfaces: entries } : group
}
