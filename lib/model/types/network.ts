import { badRequest } from '../../errors.js'
import { contains, formatAddress, hosts as hostsOf, parsePrefix, toAddress } from '../address.js'
import {
  address,
  boolean,
  comment,
  freeText,
  host,
  hosts,
  objectName,
  oneLine,
  oneOf,
  prefix,
  type Stored,
  type Table
} from '../field.js'
import { ownerText } from '../index.js'
import { isNetworkName, objectNameRule } from '../names.js'
import { checkDeviceAddress, controllerAddresses } from '../networks.js'
import type { ObjectType } from '../object-type.js'
import type { ClusterSettings, View } from '../stored.js'

const fields = [
  { name: 'network', type: prefix, meaning: 'CIDR' },
  { name: 'gateway', type: address, meaning: 'default gateway' },
  { name: 'ns_hostname', type: host, meaning: 'name server, host name' },
  { name: 'ns_ip', also: ['nameserver_ip'], type: address, meaning: 'name server, address' },
  { name: 'ntp_server', type: hosts, limit: oneLine, meaning: "NTP servers, which replace the cluster's" },
  comment,
  { name: 'dhcp', also: ['dhcp_enable'], type: boolean, default: false, meaning: 'DHCP is served here' },
  { name: 'dhcp_range_begin', also: ['dhcp_begin'], type: address, meaning: 'dynamic range, first address' },
  { name: 'dhcp_range_end', also: ['dhcp_end'], type: address, meaning: 'dynamic range, last address' },
  {
    name: 'dhcp_nodes_only',
    type: boolean,
    default: false,
    meaning: 'the dynamic range is for machines of nodes and devices; unknown machines get no address'
  },
  {
    name: 'dns',
    type: oneOf('authoritative', 'hosts'),
    default: 'authoritative',
    meaning: 'whether svcd answers for its zones as a whole, or for the names alone that it knows'
  },
  { name: 'shared_with', type: objectName, refers: 'network', meaning: 'a network on the same wire' },
  { name: 'type', type: freeText, default: '', meaning: 'such as ethernet, which svcd only keeps' },
  { name: 'zone', type: freeText, default: '', meaning: 'such as internal, which svcd only keeps' }
] as const satisfies Table

export type NetworkDoc = { readonly name: string; readonly network: string } & Omit<
  Stored<typeof fields>,
  'network'
>

declare module '../docs.js' {
  interface ObjectShapes {
    network: NetworkDoc
  }
}

/** An IPv4 network: interfaces and devices have their addresses in one. */
export const network: ObjectType<NetworkDoc> = {
  type: 'network',
  title: 'network',
  fields,
  newName: ['newnetname'],
  isName: isNetworkName,
  nameRule: `${objectNameRule}, and not like an address`,
  network: doc => doc,
  // The range belongs to a network that serves DHCP; elsewhere it is only kept (rules 1.4).
  leavesOut: doc => [
    ...(doc.dhcp ? [] : ['dhcp_range_begin', 'dhcp_range_end', 'dhcp_nodes_only']),
    ...(['shared_with', 'dns', 'type', 'zone'] as const).filter(name => !doc[name])
  ],

  *checks(view, doc, title, cluster) {
    yield () => checkNetwork(view, doc, title, cluster)
  },
  /** A changed prefix must still hold the addresses of the devices on the network (rules 3.6). */
  *checkChange(tx, before, { name, ...after }) {
    if (before.network === after.network && before.gateway === after.gateway) return
    for (const user of tx.index.users({ type: 'network', name })) {
      yield
      for (const { owner, network, ipaddress } of tx.index.connectionsOf(user, tx.get(user.type, user.name)))
        if (network === name && ipaddress !== undefined)
          checkDeviceAddress(tx, name, ipaddress, `network ${name}: field "network": ${ownerText(owner)}`)
    }
  }
}

/** What a network keeps (rules 3.13). */
function checkNetwork(view: View, network: NetworkDoc, title: string, cluster: ClusterSettings): void {
  const range = parsePrefix(network.network)
  if (!range) throw badRequest(`${title}: field "network" is missing`)
  if (network.shared_with === network.name)
    throw badRequest(
      `${title}: field "shared_with" is the network itself: name another one on its wire, or null`
    )
  const inside = (field: 'gateway' | 'dhcp_range_begin' | 'dhcp_range_end') => {
    const value = network[field]
    if (value === undefined) return undefined
    const address = toAddress(value)
    if (!contains(range, address))
      throw badRequest(`${title}: field "${field}": ${value} lies outside ${network.network}`)
    const { first, last } = hostsOf(range)
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
  if (begin === undefined || end === undefined) return
  for (const [address, controller] of controllerAddresses(cluster))
    if (address >= begin && address <= end)
      throw badRequest(
        `${title}: field "dhcp_range_begin": the range holds ${formatAddress(address)}, the address of controller ${controller}`
      )
}
