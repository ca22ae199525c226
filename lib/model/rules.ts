import { badRequest, type ServiceError } from '../errors.js'
import { contains, formatAddress, hosts, parsePrefix, toAddress } from './address.js'
import type { TypeName } from './docs.js'
import { groupInForce, groupOf, type Settings, settingsOf } from './effective.js'
import { type Owner, ownerText } from './index.js'
import { members } from './members.js'
import { checkDeviceAddress, controllerAddress } from './networks.js'
import { type Mention, type Ref, referencesOf } from './references.js'
import type { DeviceDoc, GroupDoc, InterfaceDoc, NetworkDoc, NodeDoc, OsimagetagDoc } from './tables.js'
import { findTag, untagged } from './tags.js'
import { objectTypes, typeNames } from './types.js'
import type { ClusterSettings, Tx, View } from './view.js'

/**
 * Checks what a transaction has changed against every rule between objects (rules 2.4, 3.6, 3.9, 3.13): run inside the
 * transaction, so that no two changes can break a rule together. Throws 400 naming the offender.
 */
export function checkChanges(tx: Tx, cluster: ClusterSettings): void {
  for (const { type, name, before, after } of tx.changes()) {
    if (type === 'osimagetag' && !after) checkTagUnused(tx, before as OsimagetagDoc, cluster)
    if (!Object.hasOwn(objectTypes, type)) continue
    const ref: Ref = { type: type as TypeName, name }
    if (after) checkObject(tx, ref, after, cluster)
    else checkRemoved(tx, ref)
    if (!before || !after) continue
    if (type === 'network') checkStranded(tx, name, before as NetworkDoc, after as NetworkDoc)
    if (type === 'group') checkMemberTags(tx, before as GroupDoc, after as GroupDoc, cluster)
  }
}

/** Checks every object, for files changed by hand and for imports; at most `limit` problems. */
export function checkState(
  view: View,
  cluster: ClusterSettings,
  limit = Number.POSITIVE_INFINITY
): { type: TypeName; name: string; message: string }[] {
  const problems: { type: TypeName; name: string; message: string }[] = []
  for (const type of typeNames)
    for (const name of view.names(type)) {
      for (const check of checksOf(view, { type, name }, view.get(type, name) as object, cluster)) {
        if (problems.length >= limit) return problems
        try {
          check()
        } catch (error) {
          problems.push({ type, name, message: (error as ServiceError).message })
        }
      }
    }
  return problems
}

function checkObject(view: View, ref: Ref, doc: object, cluster: ClusterSettings): void {
  for (const check of checksOf(view, ref, doc, cluster)) check()
}

/** What one object is checked for: each throws 400 for itself. */
function* checksOf(view: View, ref: Ref, doc: object, cluster: ClusterSettings): Generator<() => void> {
  const title = `${objectTypes[ref.type].title} ${ref.name}`
  for (const target of referencesOf(objectTypes[ref.type].fields, doc))
    yield () => checkReference(view, target, title)
  if (ref.type === 'network') yield () => checkNetwork(view, doc as NetworkDoc, title, cluster)
  if (ref.type === 'switch' || ref.type === 'otherdev')
    yield () => checkInterface(view, ref, doc as DeviceDoc, title, cluster)
  if (ref.type === 'group') yield () => checkTag(view, groupInForce(doc as GroupDoc, cluster).settings, title)
  if (ref.type === 'node') yield* nodeChecks(view, doc as NodeDoc, title, cluster)
}

function checkReference(view: View, { type, name, soft }: Mention, title: string): void {
  if (!soft && !view.get(type, name))
    throw badRequest(`${title}: ${objectTypes[type].title} ${name} does not exist`)
}

function* nodeChecks(
  view: View,
  node: NodeDoc,
  title: string,
  cluster: ClusterSettings
): Generator<() => void> {
  const group = groupOf(view, node)
  yield () => checkTag(view, settingsOf(node, group, cluster), title)
  const ref: Ref = { type: 'node', name: node.name }
  for (const entry of node.interfaces ?? [])
    yield () => checkInterface(view, ref, entry, `${title}: interface ${entry.interface}`, cluster)
  for (const { interface: name } of group?.interfaces ?? [])
    yield () => {
      if (!node.interfaces?.some(entry => entry.interface === name) && !node.removed?.includes(name))
        throw badRequest(`${title}: interface ${name} of its group ${node.group} is missing`)
    }
}

function checkTag(view: View, { osimage, osimagetag: tag }: Settings, title: string): void {
  if (tag === untagged) return
  if (osimage === null) throw badRequest(`${title}: OS image tag ${tag} needs an OS image`)
  if (!findTag(view, osimage, tag)) throw badRequest(`${title}: OS image ${osimage} has no tag ${tag}`)
}

/** A group's image or tag must suit the members that inherit one of them. */
function checkMemberTags(tx: Tx, before: GroupDoc, after: GroupDoc, cluster: ClusterSettings): void {
  if (before.osimage === after.osimage && before.osimagetag === after.osimagetag) return
  for (const name of tx.index.members(after.name)?.all.values ?? []) {
    const node = tx.get('node', name)
    if (node) checkTag(tx, settingsOf(node, after, cluster), `group ${after.name}: node ${name}`)
  }
}

function checkTagUnused(tx: Tx, { osimage, tag }: OsimagetagDoc, cluster: ClusterSettings): void {
  const users: string[] = []
  for (const user of tx.index.users({ type: 'osimage', name: osimage })) {
    const group = user.type === 'group' ? tx.get('group', user.name) : undefined
    if (group && groupInForce(group, cluster).settings.osimagetag === tag) users.push(`group ${user.name}`)
  }
  for (const name of members(tx, 'osimage', osimage)) {
    const node = tx.get('node', name)
    if (node && settingsOf(node, groupOf(tx, node), cluster).osimagetag === tag) users.push(`node ${name}`)
  }
  if (users.length > 0) throw badRequest(`OS image tag ${tag} of ${osimage} is ${inUse(users)}`)
}

const inUse = (users: readonly string[]) =>
  `in use by ${users.length}: ${users.slice(0, 10).join(', ')}${users.length > 10 ? ` and ${users.length - 10} more` : ''}`

function checkInterface(
  view: View,
  ref: Ref,
  entry: InterfaceDoc | DeviceDoc,
  where: string,
  cluster: ClusterSettings
): void {
  const on = 'interface' in entry ? entry.interface : undefined
  const other = (owners: readonly Owner[]) =>
    owners.find(o => o.type !== ref.type || o.name !== ref.name || o.interface !== on)
  if (entry.macaddress !== undefined) {
    const owner = other(view.index.macOwners(entry.macaddress))
    if (owner) throw badRequest(`${where}: MAC ${entry.macaddress} belongs to ${ownerText(owner)}`)
  }
  if (entry.ipaddress === undefined) return
  const network = entry.network === undefined ? undefined : view.get('network', entry.network)
  // One that does not exist is told as such, once.
  if (!network && entry.network !== undefined) return
  if (!network) throw badRequest(`${where}: an address needs a network`)
  checkDeviceAddress(view, network, entry.ipaddress, where)
  const address = toAddress(entry.ipaddress)
  const owner = other(view.index.addressOwners(address))
  if (owner) throw badRequest(`${where}: ${entry.ipaddress} belongs to ${ownerText(owner)}`)
  if (controllerAddress(cluster) === address)
    throw badRequest(`${where}: ${entry.ipaddress} belongs to controller ${cluster.controller.name}`)
}

function checkNetwork(view: View, network: NetworkDoc, title: string, cluster: ClusterSettings): void {
  const range = parsePrefix(network.network)
  if (!range) throw badRequest(`${title}: field "network" is missing`)
  const inside = (field: 'gateway' | 'dhcp_range_begin' | 'dhcp_range_end') => {
    const value = network[field]
    if (value === undefined) return undefined
    const address = toAddress(value)
    if (!contains(range, address))
      throw badRequest(`${title}: field "${field}": ${value} lies outside ${network.network}`)
    const { first, last } = hosts(range)
    if (address < first || address > last)
      throw badRequest(`${title}: field "${field}": ${value} is the network or broadcast address`)
    return address
  }
  const gateway = inside('gateway')
  const [owner] = gateway === undefined ? [] : view.index.addressOwners(gateway)
  if (owner) throw badRequest(`${title}: field "gateway": ${network.gateway} belongs to ${ownerText(owner)}`)
  const begin = inside('dhcp_range_begin')
  const end = inside('dhcp_range_end')
  if ((begin === undefined) !== (end === undefined))
    throw badRequest(`${title}: fields "dhcp_range_begin" and "dhcp_range_end" go together`)
  if (network.dhcp && begin === undefined)
    throw badRequest(`${title}: field "dhcp" needs "dhcp_range_begin" and "dhcp_range_end"`)
  if (begin !== undefined && end !== undefined && begin > end)
    throw badRequest(
      `${title}: field "dhcp_range_begin": ${network.dhcp_range_begin} comes after the end, ${network.dhcp_range_end}`
    )
  const controller = controllerAddress(cluster)
  if (
    controller !== undefined &&
    begin !== undefined &&
    end !== undefined &&
    controller >= begin &&
    controller <= end
  )
    throw badRequest(
      `${title}: field "dhcp_range_begin": the range holds ${formatAddress(controller)}, the address of controller ${cluster.controller.name}`
    )
}

/** A changed prefix must still hold the addresses of the devices on the network (rules 3.6). */
function checkStranded(tx: Tx, name: string, before: NetworkDoc, after: NetworkDoc): void {
  if (before.network === after.network && before.gateway === after.gateway) return
  for (const user of tx.index.users({ type: 'network', name }))
    for (const { ipaddress, on } of addressesIn(tx, user, name))
      checkDeviceAddress(
        tx,
        after,
        ipaddress,
        `network ${name}: field "network": ${ownerText({ ...user, title: objectTypes[user.type].title, interface: on })}`
      )
}

function addressesIn(
  view: View,
  user: Ref,
  network: string
): { ipaddress: string; on: string | undefined }[] {
  const entries: readonly (InterfaceDoc | DeviceDoc)[] =
    user.type === 'node'
      ? (view.get('node', user.name)?.interfaces ?? [])
      : user.type === 'switch' || user.type === 'otherdev'
        ? [view.get(user.type, user.name) as DeviceDoc]
        : []
  return entries.flatMap(entry =>
    entry.network === network && entry.ipaddress !== undefined
      ? [{ ipaddress: entry.ipaddress, on: 'interface' in entry ? entry.interface : undefined }]
      : []
  )
}

function checkRemoved(tx: Tx, ref: Ref): void {
  const users = tx.index.users(ref)
  if (users.length > 0)
    throw badRequest(
      `${objectTypes[ref.type].title} ${ref.name} is ${inUse(users.map(user => `${objectTypes[user.type].title} ${user.name}`))}`
    )
}
