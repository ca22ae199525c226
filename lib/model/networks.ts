import { didYouMean } from '../base/did-you-mean.js'
import { badRequest, notFound, refusalsOf } from '../base/errors.js'
import {
  type Address,
  contains,
  formatAddress,
  hosts,
  isLoopback,
  type Prefix,
  parseAddress,
  type Range,
  toAddress
} from './address.js'
import type { Docs } from './docs.js'
import { groupOf } from './effective.js'
import type { CallerRights, ChangeContext, InterfacePatch } from './object-type.js'
import type { ClusterSettings, Tx, View } from './stored.js'
import { type InterfaceDoc, interfaceFields, renamedOptions } from './types/interface.js'

/** Returns the dynamic range of a network that serves DHCP; undefined for any other network. */
export function dynamicRange(network: Docs['network']): Range | undefined {
  if (!network.dhcp || network.dhcp_range_begin === undefined || network.dhcp_range_end === undefined)
    return undefined
  return { first: toAddress(network.dhcp_range_begin), last: toAddress(network.dhcp_range_end) }
}

/** Parses an address that a device can have; undefined for loopback and for anything else. */
function deviceAddress(text: string): Address | undefined {
  const address = parseAddress(text)
  return address === undefined || isLoopback(address) ? undefined : address
}

/** Maps the address of each controller to the controller's name (rules 3.7). */
export function controllerAddresses({ controller, otherControllers }: ClusterSettings): Map<Address, string> {
  const found = new Map<Address, string>()
  for (const { name, address } of [controller, ...otherControllers]) {
    const one = deviceAddress(address)
    if (one !== undefined && !found.has(one)) found.set(one, name)
  }
  return found
}

const namedServers = (network: Docs['network'] | undefined) => network?.ns_ip?.split(',') ?? []

/** Returns a network's own name servers, else the controller if svcd drives its DNS server (rules 10.7). */
export function nameServersOf(
  network: Docs['network'] | undefined,
  cluster: ClusterSettings
): readonly string[] {
  const controller = cluster.servesDns ? deviceAddress(cluster.controller.address) : undefined
  const own = namedServers(network)
  return own.length > 0 || controller === undefined ? own : [formatAddress(controller)]
}

/** Whether no device may have an address: the network's, a gateway, name server or controller (rules 3.7). */
function isReserved(
  view: View,
  name: string,
  prefix: Prefix,
  address: Address,
  cluster: ClusterSettings
): boolean {
  return (
    !contains(hosts(prefix), address) ||
    controllerAddresses(cluster).has(address) ||
    cluster.urlAddresses.some(text => parseAddress(text) === address) ||
    namedServers(view.get('network', name)).some(text => address === toAddress(text)) ||
    view.index.gatewayOf(address) !== undefined
  )
}

/** Returns the first free host address (rules 3.7) above `after` and not in `also`; throws 404. */
export function nextFree(
  view: View,
  name: string,
  cluster: ClusterSettings,
  also: ReadonlySet<Address> = new Set(),
  after = -1
): Address {
  const prefix = view.index.networks.get(name)
  const network = view.get('network', name)
  if (!prefix || !network) throw notFound(`network ${name} does not exist`, 'no-object')
  const dynamic = dynamicRange(network)
  const { first, last } = hosts(prefix)
  let from = Math.max(first, after + 1)
  for (;;) {
    const free = view.index.usedAddresses.firstFree(from, last)
    if (free === undefined) throw notFound(`network ${name} has no free address`, 'no-free-address')
    const isDynamic = dynamic && contains(dynamic, free)
    if (!isDynamic && !also.has(free) && !isReserved(view, name, prefix, free, cluster)) return free
    from = (isDynamic ? dynamic.last : free) + 1
  }
}

/** Returns the network that answers for an address: the longest prefix, then the first name (rules 3.6). */
export function networkOf(view: View, address: Address): string | undefined {
  let best: readonly [name: string, length: number] | undefined
  for (const [name, prefix] of view.index.networks) {
    if (!contains(prefix, address)) continue
    const [first, length] = best ?? ['', -1]
    if (prefix.length > length || (prefix.length === length && name < first)) best = [name, prefix.length]
  }
  return best?.[0]
}

/** Whether an address of a network is used or reserved; throws 404 for an address outside (rules 3.7). */
export function isTaken(view: View, name: string, address: Address, cluster: ClusterSettings): boolean {
  const prefix = view.index.networks.get(name)
  if (!prefix || !contains(prefix, address))
    throw notFound(
      `${formatAddress(address)} lies outside network ${name} (${view.get('network', name)?.network})`,
      'no-address'
    )
  return view.index.usedAddresses.has(address) || isReserved(view, name, prefix, address, cluster)
}

/** Throws 400 for an address that no device of the network may have; the message begins with `where`. */
export function checkDeviceAddress(view: View, network: string, text: string, where: string): void {
  const no = refusalsOf(where)
  const prefix = view.index.networks.get(network)
  const address = toAddress(text)
  if (!prefix || !contains(prefix, address))
    throw no(
      `${text} lies outside network ${network} (${view.get('network', network)?.network})`,
      'address-outside-network'
    )
  if (!contains(hosts(prefix), address))
    throw no(
      `${text} is the ${address === prefix.first ? 'network' : 'broadcast'} address of network ${network}`,
      'address-reserved'
    )
  const gateway = view.index.gatewayOf(address)
  if (gateway !== undefined) throw no(`${text} is the gateway of network ${gateway}`, 'address-reserved')
}

/** Lists the addresses in use inside a network in ascending order, each with its device. */
export function takenIn(
  view: View,
  name: string,
  cluster: ClusterSettings
): { ipaddress: string; device: string }[] {
  const prefix = view.index.networks.get(name)
  if (!prefix) throw notFound(`network ${name} does not exist`, 'no-object')
  const controllers = [...controllerAddresses(cluster)].filter(([address]) => contains(prefix, address))
  return [...view.index.devicesIn(prefix), ...controllers]
    .sort(([a], [b]) => a - b)
    .map(([address, device]) => ({ ipaddress: formatAddress(address), device }))
}

type NodeDoc = Docs['node']
type GroupDoc = Docs['group']

/**
 * An interface of a node that is not stored yet. With `assignOrder` it still needs an address: the next free
 * one, after all addresses that the request names (rules 3.14) and after entries with a lower number.
 */
type Entry = InterfaceDoc & { readonly assignOrder?: number }

/** Returns a function that numbers the entries that still need an address. */
function orderCounter(entries: Iterable<Entry>): () => number {
  let last = 0
  for (const { assignOrder = 0 } of entries) last = Math.max(last, assignOrder)
  return () => ++last
}

/** Maps interface names to entries in their order; replacing an entry keeps its position. */
const byName = (holder: { readonly interfaces?: readonly Entry[] } | undefined): Map<string, Entry> =>
  new Map(holder?.interfaces?.map(entry => [entry.interface, entry]))

const entryFields = [...interfaceFields.map(({ name }) => name), 'own', 'assignOrder'] as const

/** Makes an entry in table order, without keys that are undefined, null or empty. */
function entry(fields: { [K in keyof Entry]?: Entry[K] | null | undefined }): Entry {
  const values = entryFields.map(name => [name, fields[name] ?? ''] as const)
  return Object.fromEntries(values.filter(([, value]) => value !== '')) as unknown as Entry
}

function withInterfaces(node: NodeDoc, entries: Iterable<Entry>, removed = node.removed ?? []): NodeDoc {
  const { interfaces: _, removed: __, ...rest } = node
  const interfaces = [...entries]
  return {
    ...rest,
    ...(interfaces.length > 0 ? { interfaces } : {}),
    ...(removed.length > 0 ? { removed } : {})
  }
}

/** Assigns every pending address. Throws 404 naming a network that has no free address. */
export function assignAddresses(tx: Tx, node: NodeDoc, cluster: ClusterSettings): NodeDoc {
  const entries = byName(node)
  const open = [...entries.values()].filter(({ assignOrder }) => assignOrder !== undefined)
  if (open.length === 0) return node
  const mine = new Set(
    [...entries.values()].flatMap(({ ipaddress }) => (ipaddress === undefined ? [] : toAddress(ipaddress)))
  )
  // The search continues behind the last address: no address becomes free meanwhile.
  const last = new Map<string, Address>()
  open.sort((a, b) => (a.assignOrder ?? 0) - (b.assignOrder ?? 0))
  // Entries that need an address have a network: see mergeNodeInterfaces.
  for (const { assignOrder: _, network = '', ...other } of open) {
    const address = nextFree(tx, network, cluster, mine, last.get(network))
    last.set(network, address)
    entries.set(other.interface, entry({ ...other, network, ipaddress: formatAddress(address) }))
  }
  return withInterfaces(node, entries.values())
}

/**
 * Applies a change of a node's group, or of the group's interfaces, to the node (rules 3.5). New addresses
 * are left pending. A node that changes its group forgets which interfaces were deleted on it.
 */
export function applyGroupInterfaces(
  node: NodeDoc,
  before: GroupDoc | undefined,
  after: GroupDoc | undefined
): NodeDoc {
  const moved = before?.name !== after?.name
  const [entries, old, now] = [byName(node), byName(before), byName(after)]
  const turn = orderCounter(entries.values())
  const removed = moved ? [] : (node.removed ?? []).filter(name => now.has(name))
  for (const { interface: name, own } of entries.values())
    if (!own && !now.has(name) && old.has(name)) entries.delete(name)
  for (const name of removed) now.delete(name)
  for (const { interface: name, network } of now.values()) {
    const has = entries.get(name)
    // Inside one group, an entry outside the group's old network was set on the node by hand.
    const follows = moved || has?.network === old.get(name)?.network
    // An address is kept while the network stays the same; a move assigns a missing one.
    const stays = has?.network === network && ((has?.ipaddress ?? has?.assignOrder) !== undefined || !moved)
    if (has && (stays || !follows)) continue
    entries.set(name, entry({ ...has, interface: name, network, ipaddress: undefined, assignOrder: turn() }))
  }
  return withInterfaces(node, entries.values(), removed)
}

/**
 * Merges the given interfaces into a node (rules 1.9, 3.5, 3.8). An interface that is new, or moves to
 * another network, gets an address unless its entry names one or null. Taking an address by force also
 * changes its former owner, in the same transaction.
 */
export function mergeNodeInterfaces(
  { tx, callerRights }: Pick<ChangeContext, 'tx' | 'callerRights'>,
  node: NodeDoc,
  given: readonly InterfacePatch[]
): NodeDoc {
  const entries = byName(node)
  const turn = orderCounter(entries.values())
  const removed = new Set(node.removed)
  const groups = byName(groupOf(tx, node))
  for (const wanted of given) {
    const has = entries.get(wanted.interface)
    const ofGroup = groups.get(wanted.interface)
    const network = wanted.network === undefined ? (has ?? ofGroup)?.network : (wanted.network ?? undefined)
    const where = `node ${node.name}: interface ${wanted.interface}`
    const no = refusalsOf(where)
    if (network !== undefined && !tx.get('network', network))
      throw no(`network ${network} does not exist`, 'unknown-reference')
    if (network === undefined && wanted.ipaddress)
      throw no(
        `an address needs a network, and ${missingNetworkReason(tx, node, ofGroup !== undefined)}`,
        'network-needed'
      )
    const stays = has !== undefined && has.network === network
    const open = network !== undefined && wanted.ipaddress === undefined
    const kept = wanted.ipaddress === undefined ? has?.ipaddress : wanted.ipaddress
    // Options that equal what answers show may be the group's: they do not become the node's own (rules 3.4).
    const shown = has?.options ?? ofGroup?.options ?? ''
    const asShown = wanted.options === undefined || (wanted.options ?? '') === shown
    if (network !== undefined && wanted.ipaddress && wanted.ipaddress !== has?.ipaddress) {
      // Only an admin may assign it (rules 3.8).
      const isReserved = namedServers(tx.get('network', network)).includes(wanted.ipaddress)
      if (isReserved && !callerRights.mayTakeAddresses)
        throw no(`${wanted.ipaddress} is the name server of network ${network}`, 'address-reserved')
      takeAddress(tx, node.name, network, wanted, where, callerRights)
    }
    const next = entry({
      interface: wanted.interface,
      network,
      ipaddress: network === undefined || (open && !stays) ? undefined : kept,
      macaddress: wanted.macaddress === undefined ? has?.macaddress : wanted.macaddress,
      options: asShown ? has?.options : wanted.options,
      own: has ? has.own : ofGroup ? undefined : true,
      assignOrder: open ? (stays ? has.assignOrder : turn()) : undefined
    })
    entries.set(wanted.interface, next)
    removed.delete(wanted.interface)
  }
  return withInterfaces(node, entries.values(), [...removed])
}

/** Checks a requested address, and takes it from its owner if force is set. */
function takeAddress(
  tx: Tx,
  node: string,
  network: string,
  wanted: InterfacePatch,
  where: string,
  power: CallerRights
): void {
  const address = toAddress(wanted.ipaddress as string)
  const dynamic = dynamicRange(tx.get('network', network) as never)
  if (!wanted.force && dynamic && contains(dynamic, address))
    throw badRequest(
      `${where}: ${wanted.ipaddress} lies in the dynamic range of network ${network}; ` +
        '"force": true allows it',
      'address-in-dynamic-range'
    )
  for (const owner of tx.index.addressOwners(address)) {
    if (!wanted.force || !power.mayTakeAddresses || owner.type !== 'node' || owner.name === node) continue
    const other = tx.get('node', owner.name)
    const entries = other?.interfaces?.map(one =>
      one.interface === owner.interface ? entry({ ...one, ipaddress: undefined }) : one
    )
    if (other && entries) tx.put('node', other.name, withInterfaces(other, entries))
  }
}

/** Removes an interface of a node; an interface of its group is remembered as removed (rules 3.5). */
export function removeNodeInterface(tx: Tx, node: NodeDoc, name: string): NodeDoc {
  const left = otherInterfaces(node, `node ${node.name}`, name)
  const removed = node.removed ?? []
  return withInterfaces(node, left, byName(groupOf(tx, node)).has(name) ? [...removed, name] : removed)
}

/** Returns the interfaces other than `name`; throws 404 if there is no such interface. */
function otherInterfaces(holder: NodeDoc | GroupDoc, title: string, name: string): readonly InterfaceDoc[] {
  const left = (holder.interfaces ?? []).filter(entry => entry.interface !== name)
  if (left.length === (holder.interfaces ?? []).length)
    throw notFound(`${title} has no interface ${name}`, 'no-interface')
  return left
}

/** Sets or clears the MAC of one interface, and creates the interface if it is missing (rules 3.9). */
export function withMac(node: NodeDoc, name: string, macaddress: string | null): NodeDoc {
  const entries = byName(node)
  const has = entries.get(name)
  if ((has?.macaddress ?? null) === macaddress) return node
  entries.set(name, entry({ ...has, interface: name, macaddress, own: has ? has.own : true }))
  const removed = (node.removed ?? []).filter(other => other !== name)
  return withInterfaces(node, entries.values(), removed)
}

/** Returns a clone's interfaces: the same networks, pending addresses, no MAC (rules 3.2). */
export function cloneInterfaces(node: NodeDoc): NodeDoc {
  const entries = (node.interfaces ?? []).map(({ macaddress: _, ipaddress, ...other }, i) =>
    entry({ ...other, assignOrder: ipaddress === undefined ? undefined : i })
  )
  return withInterfaces(node, entries)
}

/** Old interface names mapped to new ones. */
export type Renames = ReadonlyMap<string, string>

/** Returns the interfaces of a request under their new names, and the renames (rules 1.9). */
export function renaming(given: readonly InterfacePatch[]): [readonly InterfacePatch[], Renames] {
  const named = given.filter(({ newinterfacename: to, interface: from }) => to && to !== from)
  const renames = new Map(named.map(({ interface: from, newinterfacename: to }) => [from, String(to)]))
  return [given.map(entry => ({ ...entry, interface: entry.newinterfacename || entry.interface })), renames]
}

/** Renames interfaces, in options and the provision interface `over` too; throws 404, or 400 if taken. */
export function withRenamed<D extends NodeDoc | GroupDoc>(
  doc: D,
  title: string,
  renames: Renames,
  over = doc.provision_interface
): D {
  if (renames.size === 0) return doc
  const names = new Set(byName(doc).keys())
  for (const [from, to] of renames) {
    if (!names.has(from)) throw notFound(`${title} has no interface ${from}`, 'no-interface')
    if (names.has(to))
      throw badRequest(`${title}: interface ${from}: the new name ${to} is taken`, 'already-exists')
    names.add(to)
  }
  const now = (name: string) => renames.get(name) ?? name
  const interfaces = (doc.interfaces ?? []).map(one =>
    entry({ ...one, interface: now(one.interface), options: renamedOptions(one.options, renames) })
  )
  return { ...doc, interfaces, ...(over && renames.has(over) ? { provision_interface: now(over) } : {}) }
}

/** Renames a node's interfaces: these, and options with them, become its own, old names count as removed. */
export function withNodeRenamed(tx: Tx, node: NodeDoc, renames: Renames, over: string): NodeDoc {
  if (renames.size === 0) return node
  const groups = byName(groupOf(tx, node))
  const was = new Set(renames.values())
  const inherited = (node.interfaces ?? []).map(one => {
    const options = one.options ?? groups.get(one.interface)?.options
    const follows = renames.has(one.interface) || options !== renamedOptions(options, renames)
    return follows ? entry({ ...one, options }) : one
  })
  const renamed = withRenamed({ ...node, interfaces: inherited }, `node ${node.name}`, renames, over)
  const interfaces = (renamed.interfaces ?? []).map(one =>
    was.has(one.interface) ? entry({ ...one, own: groups.has(one.interface) ? undefined : true }) : one
  )
  const gone = [...(node.removed ?? []), ...[...renames.keys()].filter(name => groups.has(name))]
  const removed = gone.filter(name => !was.has(name))
  return withInterfaces(renamed, interfaces, removed)
}

/** Merges the given interfaces into a group. Throws 400 for one without a network. */
export function mergeGroupInterfaces(group: GroupDoc, given: readonly InterfacePatch[]): GroupDoc {
  const entries = byName(group)
  for (const wanted of given) {
    const has = entries.get(wanted.interface)
    const next = entry({
      interface: wanted.interface,
      network: wanted.network === undefined ? has?.network : wanted.network,
      options: wanted.options === undefined ? has?.options : wanted.options
    })
    if (next.network === undefined)
      throw badRequest(
        `group ${group.name}: interface ${wanted.interface}: field "network" is missing`,
        'missing-field'
      )
    entries.set(wanted.interface, next)
  }
  return entries.size > 0 ? { ...group, interfaces: [...entries.values()] } : group
}

/** Removes an interface of a group; throws 404 if the group has no such interface. */
export function removeGroupInterface(group: GroupDoc, name: string): GroupDoc {
  const { interfaces: _, ...rest } = group
  const left = otherInterfaces(group, `group ${group.name}`, name)
  return left.length > 0 ? { ...rest, interfaces: left } : rest
}

const missingNetworkReason = (view: View, { group }: NodeDoc, isOfGroup: boolean) =>
  isOfGroup
    ? 'this interface has none'
    : group === undefined
      ? 'neither this interface nor a group of the node names one'
      : view.get('group', group)
        ? `its group ${group} has no such interface`
        : `its group ${group} does not exist${didYouMean(group, view.names('group'))}`
