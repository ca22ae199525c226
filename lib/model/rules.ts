import { badRequest, type ServiceError } from '../http/errors.js'
import { contains, formatAddress, hosts, parsePrefix, toAddress } from './address.js'
import type { TypeName } from './field.js'
import { checkDeviceAddress, controllerAddress } from './networks.js'
import { type Ref, referencesOf } from './references.js'
import type { GroupDoc, InterfaceDoc, NetworkDoc, NodeDoc } from './tables.js'
import { objectTypes } from './types.js'
import type { ClusterSettings, Tx, View } from './view.js'

/**
 * Checks what a transaction has changed against every rule between objects (decisions 2.4, 3): run inside the
 * transaction, so that no two changes can break a rule together. Throws 400 naming the offender.
 */
export function checkChanges(tx: Tx, cluster: ClusterSettings): void {
  for (const change of tx.changes()) {
    if (!(change.type in objectTypes)) continue
    const ref: Ref = { type: change.type as TypeName, name: change.name }
    if (change.after) checkObject(tx, ref, change.after, cluster)
    else checkRemoved(tx, ref)
    if (ref.type === 'network' && change.before && change.after)
      checkStranded(tx, ref.name, change.before as NetworkDoc, change.after as NetworkDoc)
  }
}

/** Checks every object: the rules a state directory has to keep at start. */
export function checkState(
  view: View,
  cluster: ClusterSettings
): { type: TypeName; name: string; message: string }[] {
  const problems: { type: TypeName; name: string; message: string }[] = []
  for (const type of Object.keys(objectTypes) as TypeName[])
    for (const name of view.names(type)) {
      try {
        checkObject(view, { type, name }, view.get(type, name) as object, cluster)
      } catch (error) {
        problems.push({ type, name, message: (error as ServiceError).message })
      }
    }
  return problems
}

function checkObject(view: View, ref: Ref, doc: object, cluster: ClusterSettings): void {
  const title = `${objectTypes[ref.type].title} ${ref.name}`
  for (const target of referencesOf(ref.type, doc))
    if (!view.get(target.type, target.name))
      throw badRequest(`${title}: ${objectTypes[target.type].title} ${target.name} does not exist`)
  if (ref.type === 'network') checkNetwork(view, doc as NetworkDoc, title, cluster)
  if (ref.type === 'node' || ref.type === 'group') checkTag(doc as NodeDoc | GroupDoc, title)
  if (ref.type === 'node')
    for (const entry of (doc as NodeDoc).interfaces ?? [])
      checkInterface(view, ref, entry, `${title}: interface ${entry.interface}`, cluster)
}

function checkTag(doc: NodeDoc | GroupDoc, title: string): void {
  if (doc.osimagetag !== undefined && doc.osimagetag !== 'default')
    throw badRequest(`${title}: OS image tag ${doc.osimagetag} does not exist`)
}

function checkInterface(
  view: View,
  ref: Ref,
  entry: InterfaceDoc,
  where: string,
  cluster: ClusterSettings
): void {
  const other = (owners: readonly (Ref & { readonly interface: string })[]) =>
    owners.find(o => o.type !== ref.type || o.name !== ref.name || o.interface !== entry.interface)
  if (entry.macaddress !== undefined) {
    const owner = other(view.index.macOwners(entry.macaddress))
    if (owner)
      throw badRequest(
        `${where}: MAC ${entry.macaddress} belongs to ${owner.type} ${owner.name} (${owner.interface})`
      )
  }
  if (entry.ipaddress === undefined) return
  const network = entry.network === undefined ? undefined : view.get('network', entry.network)
  if (!network) throw badRequest(`${where}: an address needs a network`)
  checkDeviceAddress(view, network, entry.ipaddress, where)
  const address = toAddress(entry.ipaddress)
  const owner = other(view.index.addressOwners(address))
  if (owner)
    throw badRequest(
      `${where}: ${entry.ipaddress} belongs to ${owner.type} ${owner.name} (${owner.interface})`
    )
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
  if (owner)
    throw badRequest(
      `${title}: field "gateway": ${network.gateway} belongs to ${owner.type} ${owner.name} (${owner.interface})`
    )
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

/** A changed prefix must still hold the addresses of the devices on the network (decisions 3.6). */
function checkStranded(tx: Tx, name: string, before: NetworkDoc, after: NetworkDoc): void {
  if (before.network === after.network && before.gateway === after.gateway) return
  for (const user of tx.index.users({ type: 'network', name })) {
    if (user.type !== 'node') continue
    for (const entry of tx.get('node', user.name)?.interfaces ?? [])
      if (entry.network === name && entry.ipaddress !== undefined)
        checkDeviceAddress(
          tx,
          after,
          entry.ipaddress,
          `network ${name}: field "network": node ${user.name}, interface ${entry.interface}`
        )
  }
}

function checkRemoved(tx: Tx, ref: Ref): void {
  const users = tx.index.users(ref)
  if (users.length === 0) return
  const first = users.slice(0, 10).map(user => `${user.type} ${user.name}`)
  const rest = users.length > 10 ? ` and ${users.length - 10} more` : ''
  throw badRequest(
    `${objectTypes[ref.type].title} ${ref.name} is in use by ${users.length}: ${first.join(', ')}${rest}`
  )
}
