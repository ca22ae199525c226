import { groupBy } from '../../base/lists.js'
import {
  type Address,
  contains,
  formatAddress,
  mask,
  type Prefix,
  parseAddress,
  parsePrefix,
  type Range,
  toAddress
} from '../../model/address.js'
import { isBmc } from '../../model/cluster-index.js'
import { type Loader, loaderOf } from '../../model/effective.js'
import { isGuid } from '../../model/names.js'
import { dynamicRange, nameServersOf } from '../../model/networks.js'
import type { NetworkDoc } from '../../model/types/network.js'
import type { NodeDoc } from '../../model/types/node.js'
import { type Captured, type Device, domainName, ownName } from '../capture.js'
import type { BootScript, DhcpData, DhcpHost, DhcpSubnet } from './variables.js'

/** Options of the data besides the cluster's objects. */
export type DhcpOptions = Omit<DhcpData, 'variables' | 'controller' | 'subnets' | 'hosts' | 'grub'>

// RFC 3397's option has 255 bytes, and resolvers read six domains.
const mostDomains = 6
const longestSearch = 200

/** The addresses of each network card of this machine. */
export type Cards = readonly (readonly Address[])[]

/** Yields for each node and subnet; returns the data of a DHCP server. A card in two networks joins wires. */
export function* dhcpData(
  captured: Captured,
  options: DhcpOptions,
  cards: Cards = []
): Generator<undefined, DhcpData> {
  const found = new Hosts(captured, options.loader)
  for (const node of captured.nodes) {
    found.node(node)
    yield
  }
  for (const device of captured.devices) found.add(device, '')
  const taken = found.taken()
  const others = firstDomains(captured.networks)
  const subnets: DhcpSubnet[] = []
  const wireOf = wireNumbers(found.groups, cards)
  const ofPorts = new Set(found.hosts.flatMap(({ client_id, subnet }) => (client_id === '' ? [] : [subnet])))
  const wiresOfPorts = new Set(
    found.groups.flatMap(group => (ofPorts.has(group.id) ? [wireOf.get(group)] : []))
  )
  for (const group of found.groups) {
    const wire = wireOf.get(group) ?? 0
    const told = subnet(group, captured, taken, others, found.addresses, options.standby)
    subnets.push({ ...told, loader: found.loaderIn(group), wire, ports: wiresOfPorts.has(wire) })
    yield
  }
  const { variables } = captured.cluster
  const grub = [...subnets, ...found.hosts].some(({ loader }) => loader === 'grub')
  return { ...options, variables, controller: found.controller, grub, subnets, hosts: found.hosts }
}

const asText = ({ first, last }: Range) => ({ first: formatAddress(first), last: formatAddress(last) })

function subnet(
  { id, cidr, prefix, dhcp, here, networks, inside }: SubnetGroup,
  { cluster }: Captured,
  taken: readonly Range[],
  others: readonly string[],
  known: ReadonlyMap<string, string>,
  standby: boolean
): Omit<DhcpSubnet, 'wire' | 'ports' | 'loader'> {
  const set = (field: 'gateway' | 'ntp_server') =>
    networks.find(network => network[field] !== undefined)?.[field] ?? ''
  const ranges = networks.flatMap(network => dynamicRange(network) ?? ([] as Range[]))
  const own = subtractRanges(ranges, inside)
  const lent = subtractRanges(own, taken)
  const servers = nameServersOf(
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
    route_option: routeOption(networks.find(({ routes }) => routes)?.routes ?? [], set('gateway')),
    name_servers: [...servers],
    ntp_servers: [...new Set(ntp.flatMap(name => addressOf(name) ?? []))],
    domain: domains[0] ?? '',
    search: searchList([...domains, ...others]),
    notes: [
      ...(standby && lent.length > 0
        ? ['No range: another controller writes, and its server alone lends these addresses.']
        : []),
      ...(addressCount(own) < addressCount(mergeRanges(ranges))
        ? ['What lies in networks with longer prefixes is left out of the range: they answer for it.']
        : []),
      ...ntp
        .filter(name => addressOf(name) === undefined)
        .map(name => `NTP server ${name} is left out: no address, and no name of the cluster's.`)
    ]
  }
}

/** Encodes option 121 in hexadecimal. The gateway is in it: its readers ignore option 3 (RFC 3442). */
function routeOption(routes: readonly string[], gateway: string): string {
  if (routes.length === 0) return ''
  const all = gateway === '' ? routes : [...routes, `0.0.0.0/0 via ${gateway}`]
  const bytes = all.flatMap(route => {
    const [to = '', via = ''] = route.split(' via ')
    const [first = '', length = ''] = to.split('/')
    return [length, ...first.split('.').slice(0, Math.ceil(Number(length) / 8)), ...via.split('.')]
  })
  return bytes.map(byte => Number(byte).toString(16).padStart(2, '0')).join(':')
}

/** Returns the domains of the networks, as many as a search list has room for. */
const firstDomains = (networks: readonly NetworkDoc[]): string[] =>
  [...new Set(networks.flatMap(({ name }) => domainName(name) ?? []))].slice(0, mostDomains)

/** Puts the subnet's own domain first, then those of other networks while there is room. */
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

/** dhclient and iPXE send these bytes before the GUID of an InfiniBand port (RFC 4390). */
const guidClient = 'ff:00:00:00:00:00:02:00:00:02:c9:00:'

/** Gathers the machines, every address in use, and the address of each name. */
class Hosts {
  readonly hosts: DhcpHost[] = []
  /** Lower-case name of a device, alone or with its network or domain → address. */
  readonly addresses = new Map<string, string>()
  readonly groups: readonly SubnetGroup[]
  readonly controller: string
  readonly #groupOf = new Map<string, SubnetGroup>()
  readonly #networks: ReadonlyMap<string, NetworkDoc>
  readonly #taken: Address[] = []

  constructor(
    readonly captured: Captured,
    readonly fallback: Loader
  ) {
    const { networks, cluster, controllers } = captured
    this.#networks = new Map(networks.map(network => [network.name, network]))
    const controller = parseAddress(cluster.controller.address)
    this.controller = controller === undefined ? '' : formatAddress(controller)
    this.groups = subnetGroups(networks, controller)
    for (const group of this.groups) for (const { name } of group.networks) this.#groupOf.set(name, group)
    if (controller !== undefined) this.#controller(cluster.controller.name, controller)
    for (const { name, address } of controllers) {
      const other = parseAddress(address)
      if (other !== undefined && other !== controller) this.#controller(name, other)
    }
    for (const { name, gateway, ns_ip, ns_hostname } of networks) {
      const servers = ns_ip?.split(',') ?? []
      for (const address of [gateway ?? [], servers].flat()) this.#taken.push(toAddress(address))
      if (servers[0] !== undefined && ns_hostname !== undefined)
        this.#name(ns_hostname.includes('.') ? ns_hostname : `${ns_hostname}.${name}`, servers[0])
    }
  }

  #controller(name: string, address: Address): void {
    this.#taken.push(address)
    this.#name(name, formatAddress(address))
    for (const { prefix, networks } of this.groups)
      if (contains(prefix, address))
        for (const network of networks) this.#name(`${name}.${network.name}`, formatAddress(address))
  }

  node(node: NodeDoc): void {
    const { settings, provision, domain } = ownName(this.captured, node)
    const netboots = settings.netboot || node.rescue !== undefined
    const network = this.#networks.get(provision?.network ?? '')
    const loader = loaderOf({ settings, network }, this.fallback)
    const script: BootScript = !netboots ? 'disk' : settings.bootmenu ? 'menu' : 'short'
    if (provision?.ipaddress !== undefined)
      for (const name of [node.name, `${node.name}.${domain}`]) this.#name(name, provision.ipaddress)
    for (const entry of node.interfaces ?? [])
      this.add(
        { ...entry, title: `node ${node.name} ${entry.interface}`, name: node.name },
        isBmc(entry) ? '' : script,
        isBmc(entry) ? undefined : loader
      )
  }

  /** Returns the loader of unknown machines there. */
  loaderIn({ networks }: SubnetGroup): Loader {
    return networks.find(({ loader }) => loader !== undefined)?.loader ?? this.fallback
  }

  add(device: Device, boot: BootScript, own?: Loader): void {
    const { title, name, network = '', ipaddress = '', macaddress: mac } = device
    if (ipaddress !== '') {
      this.#taken.push(toAddress(ipaddress))
      for (const known of [name, `${name}.${network}`]) this.#name(known, ipaddress)
    }
    const group = this.#groupOf.get(network)
    const isAsUnknown = boot !== 'short' && boot !== 'disk' && (own ?? this.fallback) === this.fallback
    if (mac === undefined || !group?.dhcp || (ipaddress === '' && isAsUnknown)) return
    const client_id = isGuid(mac) ? `${guidClient}${mac}` : ''
    const loader = own === undefined || own === this.loaderIn(group) ? '' : own
    this.hosts.push({ title, mac, client_id, ipaddress, boot, loader, subnet: group.id })
  }

  #name(name: string, address: string): void {
    const lower = name.toLowerCase()
    if (!this.addresses.has(lower)) this.addresses.set(lower, address)
  }

  /** Returns every address in use, in order. */
  taken(): readonly Range[] {
    return this.#taken.sort((a, b) => a - b).map(address => ({ first: address, last: address }))
  }
}

/** Merges ranges that overlap or touch, in order. */
function mergeRanges(ranges: readonly Range[]): Range[] {
  const result: Range[] = []
  for (const range of [...ranges].sort((a, b) => a.first - b.first)) {
    const before = result.at(-1)
    if (before && range.first <= before.last + 1)
      result[result.length - 1] = { first: before.first, last: Math.max(before.last, range.last) }
    else result.push(range)
  }
  return result
}

/** Counts the addresses of ranges that do not overlap. */
export const addressCount = (ranges: readonly Range[]) =>
  ranges.reduce((sum, { first, last }) => sum + last - first + 1, 0)

/** Subtracts addresses that are `taken` (in order) from ranges. */
export function subtractRanges(ranges: readonly Range[], taken: readonly Range[]): Range[] {
  let at = 0
  return mergeRanges(ranges).flatMap(({ first, last }) => {
    const parts: Range[] = []
    let from = first
    while (at < taken.length && (taken[at] as Range).last < first) at++
    for (let i = at; i < taken.length; i++) {
      const gone = taken[i] as Range
      if (gone.first > last) break
      if (gone.first > from) parts.push({ first: from, last: gone.first - 1 })
      from = Math.max(from, gone.last + 1)
    }
    if (from <= last) parts.push({ first: from, last })
    return parts
  })
}

/** The networks of one CIDR, those that serve DHCP first. */
interface SubnetGroup {
  readonly id: number
  readonly cidr: string
  readonly prefix: Prefix
  readonly dhcp: boolean
  readonly networks: readonly NetworkDoc[]
  /** Prefixes of networks inside it, which answer for their own addresses (rules 3.6). */
  readonly inside: readonly Prefix[]
  /** The controller's address is in it, and in no smaller group. */
  readonly here: boolean
}

/** Groups the networks by CIDR, the longest prefix first. */
export function subnetGroups(
  networks: readonly NetworkDoc[],
  controller: Address | undefined
): SubnetGroup[] {
  const groups = [...groupBy(networks, ({ network }) => network)].flatMap(([cidr, members]) => {
    const prefix = parsePrefix(cidr)
    const sorted = [...members.filter(({ dhcp }) => dhcp), ...members.filter(({ dhcp }) => !dhcp)]
    return prefix ? [{ cidr, prefix, dhcp: sorted[0]?.dhcp ?? false, networks: sorted }] : []
  })
  groups.sort((a, b) => a.prefix.length - b.prefix.length || a.prefix.first - b.prefix.first)
  const ids = idsOf(groups.map(({ prefix }) => prefix))
  const inside = largestInside(groups)
  const here =
    controller === undefined ? undefined : groups.findLast(({ prefix }) => contains(prefix, controller))
  return groups
    .map((group, i) => ({
      ...group,
      id: ids[i] ?? 0,
      inside: (inside.get(group) ?? []).map(({ prefix }) => prefix),
      here: group === here
    }))
    .reverse()
}

/** Kea takes no larger id of a subnet. */
const largestId = 2 ** 32 - 2
/** Number of /31 networks in 224.0.0.0/3, where no machine has its address. */
const singles = 2 ** 28

/**
 * Numbers prefixes. A prefix always gets the same number, and a longer one a lower number, as Kea takes the
 * first subnet that holds an address. Each up to /31 has its own place in a heap, counted from the end;
 * single addresses use the places of /31 in 224.0.0.0/3, and collide if only their first four bits differ.
 */
function idsOf(prefixes: readonly Prefix[]): number[] {
  const used = new Set<number>()
  return prefixes.map(({ first, length }) => {
    const place = 2 ** length + Math.floor(first / 2 ** (32 - length))
    let id = length === 32 ? singles - (first % singles) : Math.min(2 ** 32 - place, largestId)
    while (used.has(id)) id -= 1
    used.add(id)
    return id
  })
}

/** Maps each distinct prefix to the largest ones inside it, in order. Overlapping ones are nested. */
function largestInside<T extends { readonly prefix: Prefix }>(all: readonly T[]): Map<T, T[]> {
  const inside = new Map<T, T[]>()
  const around: T[] = []
  const sorted = all.toSorted((a, b) => a.prefix.first - b.prefix.first || a.prefix.length - b.prefix.length)
  for (const one of sorted) {
    while (around[0] && around[0].prefix.last < one.prefix.first) around.shift()
    if (around[0]) inside.get(around[0])?.push(one)
    inside.set(one, [])
    around.unshift(one)
  }
  return inside
}

/** Numbers wires: networks share one if they overlap with DHCP, by `shared_with`, or by one card. */
function wireNumbers(groups: readonly SubnetGroup[], cards: Cards): Map<SubnetGroup, number> {
  const parent = new Map<SubnetGroup, SubnetGroup>()
  const root = (group: SubnetGroup): SubnetGroup => {
    let at = group
    for (let up = parent.get(at); up; up = parent.get(at)) at = up
    if (at !== group) parent.set(group, at)
    return at
  }
  const join = (together: readonly (SubnetGroup | undefined)[]) => {
    const [first, ...others] = together.flatMap(group => group ?? [])
    for (const other of others) if (first && root(first) !== root(other)) parent.set(root(other), root(first))
  }
  for (const nest of largestInside(groups.filter(({ dhcp }) => dhcp))) join(nest.flat())
  const named = new Map(groups.flatMap(group => group.networks.map(({ name }) => [name, group])))
  for (const group of groups)
    join([group, ...group.networks.map(({ shared_with = '' }) => named.get(shared_with))])
  // Groups are sorted: the first match has the longest prefix, which answers for the address.
  for (const card of cards) join(card.map(address => groups.find(({ prefix }) => contains(prefix, address))))
  return new Map(groups.map(group => [group, root(group).id]))
}

/** Groups subnets by wire, outer wires first, the longest prefix first in each (rules 3.6). */
export function wires(subnets: readonly DhcpSubnet[]): DhcpSubnet[][] {
  const lengthOf = (subnet: DhcpSubnet | undefined) => parsePrefix(subnet?.cidr ?? '')?.length ?? 0
  const sorted = subnets.toSorted(
    (a, b) => lengthOf(b) - lengthOf(a) || toAddress(a.network) - toAddress(b.network)
  )
  const all = [...groupBy(sorted, ({ wire }) => wire).values()]
  return all.sort((a, b) => lengthOf(a.at(-1)) - lengthOf(b.at(-1)))
}
