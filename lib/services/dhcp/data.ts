import { formatAddress, mask, parseAddress } from '../../model/address.js'
import { dynamicRange, nameServerOf } from '../../model/networks.js'
import type { NetworkDoc } from '../../model/types/network.js'
import { type Captured, domainName } from '../capture.js'
import type { Group } from './groups.js'
import { Hosts } from './hosts.js'
import { type Range, sizeOf, without } from './ranges.js'
import type { DhcpData, DhcpSubnet } from './variables.js'

/** What the data needs besides the cluster's objects. */
export type DhcpOptions = Omit<DhcpData, 'variables' | 'controller' | 'subnets' | 'hosts'>

// RFC 3397's option has 255 bytes, and resolvers read six domains.
const mostDomains = 6
const longestSearch = 200

/** Everything that a DHCP server has to know. Yields for each node and each subnet. */
export function* dhcpData(captured: Captured, options: DhcpOptions): Generator<undefined, DhcpData> {
  const found = new Hosts(captured)
  for (const node of captured.nodes) {
    found.node(node)
    yield
  }
  for (const device of captured.devices) found.add(device, '')
  const taken = found.taken()
  const others = firstDomains(captured.networks)
  const subnets: DhcpSubnet[] = []
  for (const group of found.groups) {
    subnets.push(subnet(group, captured, taken, others, found.addresses, options.standby))
    yield
  }
  const { variables } = captured.cluster
  return { ...options, variables, controller: found.controller, subnets, hosts: found.hosts }
}

const asText = ({ first, last }: Range) => ({ first: formatAddress(first), last: formatAddress(last) })

function subnet(
  { id, cidr, prefix, dhcp, here, networks, inside }: Group,
  { cluster }: Captured,
  taken: readonly Range[],
  others: readonly string[],
  known: ReadonlyMap<string, string>,
  standby: boolean
): DhcpSubnet {
  const set = (field: 'gateway' | 'ntp_server') =>
    networks.find(network => network[field] !== undefined)?.[field] ?? ''
  const ranges = networks.flatMap(network => dynamicRange(network) ?? ([] as Range[]))
  const own = without(ranges, inside)
  const lent = without(own, taken)
  const server = nameServerOf(
    networks.find(({ ns_ip }) => ns_ip !== undefined),
    cluster
  )
  const domains = networks.flatMap(({ name }) => domainName(name) ?? [])
  const ntp = (set('ntp_server') || cluster.ntp_server).split(/[\s,]+/).filter(Boolean)
  const addressOf = (name: string) =>
    parseAddress(name) === undefined ? known.get(name.toLowerCase()) : name
  return {
    id,
    cidr,
    network: formatAddress(prefix.first),
    netmask: formatAddress(mask(prefix.length)),
    names: networks.map(({ name }) => name).join(' '),
    dhcp,
    here,
    ranges: standby ? [] : lent.map(asText),
    nodes_only: networks.some(network => network.dhcp && network.dhcp_nodes_only),
    router: set('gateway'),
    name_servers: server === '' ? [] : [server],
    ntp_servers: [...new Set(ntp.flatMap(name => addressOf(name) ?? []))],
    domain: domains[0] ?? '',
    search: searchList([...domains, ...others]),
    notes: [
      ...(standby && lent.length > 0
        ? ['No range: another controller writes, and its server alone lends these addresses.']
        : []),
      ...(sizeOf(own) < sizeOf(without(ranges, []))
        ? ['What lies in networks with longer prefixes is left out of the range: they answer for it.']
        : []),
      ...ntp
        .filter(name => addressOf(name) === undefined)
        .map(name => `NTP server ${name} is left out: no address, and no name of the cluster's.`)
    ]
  }
}

/** The domains of the networks, as many as a search list may need. */
function firstDomains(networks: readonly NetworkDoc[]): string[] {
  const found = new Set<string>()
  for (const { name } of networks) {
    if (found.size === mostDomains) break
    const domain = domainName(name)
    if (domain !== undefined) found.add(domain)
  }
  return [...found]
}

/** The subnet's own domain, then those of the other networks, as many as there is room for. */
function searchList(domains: readonly string[]): string[] {
  const list: string[] = []
  let room = longestSearch
  for (const domain of new Set(domains)) {
    if (list.length === mostDomains || domain.length + 2 > room) break
    room -= domain.length + 2
    list.push(domain)
  }
  return list
}
