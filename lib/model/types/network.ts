import { refusalsOf } from '../../base/errors.js'
import { contains, formatAddress, hosts as hostsOf, parsePrefix, toAddress } from '../address.js'
import { ownerText } from '../cluster-index.js'
import {
  address,
  addresses,
  boolean,
  comment,
  freeText,
  host,
  hosts,
  objectName,
  oneLine,
  oneOf,
  prefix,
  recordName,
  routes,
  type Stored,
  type Table
} from '../field.js'
import { isNetworkName, objectNameRule } from '../names.js'
import { checkDeviceAddress, controllerAddresses } from '../networks.js'
import type { ObjectType } from '../object-type.js'
import type { ClusterSettings, View } from '../stored.js'
import { listOf } from '../table.js'

const fields = [
  { name: 'network', type: prefix, meaning: 'CIDR' },
  { name: 'gateway', type: address, meaning: 'default gateway' },
  { name: 'ns_hostname', type: host, meaning: 'name server, host name' },
  { name: 'ns_ip', otherSpellings: ['nameserver_ip'], type: addresses, meaning: 'name servers, addresses' },
  { name: 'ntp_server', type: hosts, limit: oneLine, meaning: "NTP servers, which replace the cluster's" },
  comment,
  {
    name: 'dhcp',
    otherSpellings: ['dhcp_enable'],
    type: boolean,
    default: false,
    meaning: 'DHCP is served here'
  },
  {
    name: 'dhcp_range_begin',
    otherSpellings: ['dhcp_begin'],
    type: address,
    meaning: 'dynamic range, first address'
  },
  {
    name: 'dhcp_range_end',
    otherSpellings: ['dhcp_end'],
    type: address,
    meaning: 'dynamic range, last address'
  },
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
  { name: 'zone', type: freeText, default: '', meaning: 'such as internal, which svcd only keeps' },
  {
    name: 'routes',
    type: routes,
    meaning: 'static routes, such as 10.9.0.0/16 via 10.141.0.254, with commas between them'
  },
  {
    name: 'loader',
    type: oneOf('ipxe', 'grub'),
    meaning: 'what UEFI firmware starts here: `ipxe`, or `grub` behind shim, for Secure Boot'
  }
] as const satisfies Table

/** A DNS record in the zone of a network: an address or an alias (rules 10.15). */
export const recordFields = [
  { name: 'host', type: recordName, required: true, meaning: 'name in the zone of the network' },
  { name: 'ipaddress', type: address, meaning: 'address that it is the name of' },
  {
    name: 'alias',
    type: recordName,
    meaning: 'or the name that it stands for: one of the zone, or a full one'
  }
] as const satisfies Table
export type DnsRecordDoc = Stored<typeof recordFields>

const records = listOf<DnsRecordDoc>('DNS record', recordFields)
const hidden = [
  { name: 'dns_records', type: records, default: [], meaning: 'names of its own' }
] as const satisfies Table

export type NetworkDoc = { readonly name: string; readonly network: string } & Omit<
  Stored<typeof fields>,
  'network'
> &
  Stored<typeof hidden>

declare module '../docs.js' {
  interface ObjectShapes {
    network: NetworkDoc
  }
}

/** An IPv4 network, for the addresses of interfaces and devices. */
export const network: ObjectType<NetworkDoc> = {
  type: 'network',
  title: 'network',
  fields,
  internalFields: hidden,
  newName: ['newnetname'],
  isName: isNetworkName,
  nameRule: `${objectNameRule}, and not like an address`,
  network: doc => doc,
  lookupKeys: ({ dns_records = [] }) => dns_records.map(({ host }) => `record/${host}`),
  // The range is shown only for a network that serves DHCP, and kept for others (rules 1.4).
  omittedFields: doc => [
    ...(doc.dhcp ? [] : ['dhcp_range_begin', 'dhcp_range_end', 'dhcp_nodes_only']),
    ...(['shared_with', 'dns', 'type', 'zone', 'routes', 'loader'] as const).filter(name => !doc[name])
  ],

  *checks(view, doc, title, cluster) {
    yield () => checkNetwork(view, doc, title, cluster)
    yield () => checkRoutes(doc, title)
    yield () => checkRecords(view, doc, title, cluster)
  },
  /** Checks that a new prefix still holds all addresses of the network (rules 3.6). */
  *checkChange(tx, before, { name, ...after }) {
    if (before.network === after.network && before.gateway === after.gateway) return
    for (const user of tx.index.referrers({ type: 'network', name })) {
      yield
      for (const { owner, network, ipaddress } of tx.index.connectionsOf(user, tx.get(user.type, user.name)))
        if (network === name && ipaddress !== undefined)
          checkDeviceAddress(tx, name, ipaddress, `network ${name}: field "network": ${ownerText(owner)}`)
    }
  }
}

/** Refuses a router outside the network and a second route to one destination (rules 3.20). */
function checkRoutes({ network, routes = [] }: NetworkDoc, title: string): void {
  const seen = new Set<string>()
  for (const route of routes) {
    const [to = '', gateway = ''] = route.split(' via ')
    const no = refusalsOf(`${title}: field "routes": ${route}`)
    const [range, address] = [parsePrefix(network), toAddress(gateway)]
    if (range && !contains(hostsOf(range), address))
      throw no(`${gateway} is no address of a machine in ${network}`, 'address-outside-network')
    if (to === '0.0.0.0/0') throw no('set the default route in field "gateway"')
    if (seen.has(to)) throw no(`there is another route to ${to}`, 'given-twice')
    seen.add(to)
  }
}

/** DNS records of one network. */
export const MOST_RECORDS = 1000

/** Refuses records with the name of a device or controller, and aliases of aliases (rules 10.15). */
function checkRecords(view: View, network: NetworkDoc, title: string, cluster: ClusterSettings): void {
  const { name, dns_records: records = [] } = network
  const count = records.length
  if (count > MOST_RECORDS)
    throw refusalsOf(title)(`${count} DNS records; at most ${MOST_RECORDS} are allowed`, 'too-many')
  const aliases = new Set(records.flatMap(({ host, alias }) => (alias === undefined ? [] : [host])))
  const range = parsePrefix(network.network)
  const zone = `.${name.toLowerCase()}`
  const named = [...controllerAddresses(cluster)].map(([at, one]) => [at, one.toLowerCase()] as const)
  const servers = ['ns', network.ns_hostname?.toLowerCase(), ...named.map(([, one]) => one)]
  const controllers = named.flatMap(([at, one]) => (range && contains(range, at) ? one : []))
  for (const { host, ipaddress, alias } of records) {
    const no = refusalsOf(`${title}: DNS record ${host}`)
    if ((ipaddress === undefined) === (alias === undefined))
      throw no('give it field "ipaddress" or field "alias", one of them', 'missing-field')
    if (controllers.includes(host))
      throw no('that is the name of a controller: choose another one', 'already-exists')
    if (alias !== undefined && servers.includes(host))
      throw no('a name server has that name, and cannot be an alias: give field "ipaddress"')
    const target = alias?.endsWith(zone) ? alias.slice(0, -zone.length) : alias
    if (target !== undefined && aliases.has(target))
      throw no(`field "alias": ${alias} is an alias itself: name its target`)
  }
  const hosts = new Set(records.map(({ host }) => host))
  // Names of nodes and records are in lower case.
  for (const type of ['node', 'switch', 'otherdev'] as const)
    for (const device of type === 'node' ? hosts : view.names(type)) {
      const host = device.toLowerCase()
      if (!hosts.has(host)) continue
      const there = view.index.connectionsOf({ type, name: device }, view.get(type, device))
      const one = there.find(entry => entry.network === name && entry.ipaddress !== undefined)
      if (one)
        throw refusalsOf(`${title}: DNS record ${host}`)(
          `that is the name of ${one.owner.title} ${device}: choose another one`,
          'already-exists'
        )
    }
}

/** Checks the fields of a network against each other (rules 3.13). */
function checkNetwork(view: View, network: NetworkDoc, title: string, cluster: ClusterSettings): void {
  const no = refusalsOf(title)
  const range = parsePrefix(network.network)
  if (!range) throw no('field "network" is missing', 'missing-field')
  if (network.shared_with === network.name)
    throw no('field "shared_with" is the network itself: name another one on its wire, or null')
  const inside = (field: 'gateway' | 'dhcp_range_begin' | 'dhcp_range_end') => {
    const value = network[field]
    if (value === undefined) return undefined
    const address = toAddress(value)
    if (!contains(range, address))
      throw no(`field "${field}": ${value} lies outside ${network.network}`, 'address-outside-network')
    if (!contains(hostsOf(range), address))
      throw no(`field "${field}": ${value} is the network or broadcast address`, 'address-reserved')
    return address
  }
  const gateway = inside('gateway')
  const [owner] = gateway === undefined ? [] : view.index.addressOwners(gateway)
  if (owner) throw no(`field "gateway": ${network.gateway} belongs to ${ownerText(owner)}`, 'address-taken')
  const begin = inside('dhcp_range_begin')
  const end = inside('dhcp_range_end')
  if ((begin === undefined) !== (end === undefined))
    throw no('fields "dhcp_range_begin" and "dhcp_range_end" go together', 'invalid-range')
  if (network.dhcp && begin === undefined)
    throw no('field "dhcp" needs "dhcp_range_begin" and "dhcp_range_end"', 'invalid-range')
  if (begin !== undefined && end !== undefined && begin > end)
    throw no(
      `field "dhcp_range_begin": ${network.dhcp_range_begin} comes after the end, ${network.dhcp_range_end}`,
      'invalid-range'
    )
  if (begin === undefined || end === undefined) return
  for (const [address, controller] of controllerAddresses(cluster))
    if (address >= begin && address <= end)
      throw no(
        `field "dhcp_range_begin": the range holds ${formatAddress(address)}, ` +
          `the address of controller ${controller}`,
        'address-taken'
      )
}
