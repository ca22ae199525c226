import {
  type Address,
  formatAddress,
  mask,
  parseAddress,
  parsePrefix,
  toAddress
} from '../../model/address.js'
import { isBmc } from '../../model/index.js'
import { dynamicRange } from '../../model/networks.js'
import type { NetworkDoc, NodeDoc } from '../../model/tables.js'
import { type Captured, domainName, ownName } from '../capture.js'
import { type Range, without } from './ranges.js'

/** The script of a machine's boot case (contract, "Boot template selection"); '' for what is no machine of a node. */
export type BootScript = '' | 'menu' | 'short' | 'disk'

/** A machine that the server knows. */
export interface DhcpHost {
  /** "node node001 BOOTIF", of letters, digits and . _ - alone: for comments. */
  readonly title: string
  readonly mac: string
  /** '': one of the dynamic range. */
  readonly ipaddress: string
  /** All but `short` and `disk` get what an unknown machine gets (cases 2 and 4). */
  readonly boot: BootScript
  /** The `id` of its subnet. */
  readonly subnet: number
}

/** One CIDR with what its networks say of it: networks with equal CIDRs are one subnet. */
export interface DhcpSubnet {
  /** The same for a CIDR for ever: leases refer to it. */
  readonly id: number
  readonly cidr: string
  readonly network: string
  readonly netmask: string
  /** Names of its networks, with blanks between them. */
  readonly names: string
  /** False: nobody is answered there. */
  readonly dhcp: boolean
  readonly ranges: readonly { readonly first: string; readonly last: string }[]
  /** '' without one. */
  readonly router: string
  readonly name_servers: readonly string[]
  readonly ntp_servers: readonly string[]
  readonly domain: string
  readonly search: readonly string[]
}

/** What the templates of DHCP servers see. */
export interface DhcpData {
  /** Node-facing URL. */
  readonly url: string
  /** TFTP server, '' without one. */
  readonly next_server: string
  readonly bios: string
  readonly efi_x64: string
  readonly efi_arm64: string
  readonly lease_seconds: number
  readonly interfaces: readonly string[]
  /** The same server is the name server too (dnsmasq). */
  readonly dns_too: boolean
  /** Those with the longest prefix first, as the one that holds an address answers for it (decisions 3.6). */
  readonly subnets: readonly DhcpSubnet[]
  readonly hosts: readonly DhcpHost[]
}

/** What the data needs besides the cluster's objects. */
export interface DhcpOptions
  extends Pick<
    DhcpData,
    'url' | 'next_server' | 'bios' | 'efi_x64' | 'efi_arm64' | 'lease_seconds' | 'interfaces' | 'dns_too'
  > {
  /** Name server of networks that name none, '' without one. */
  readonly name_server: string
}

// RFC 3397's option has 255 bytes, and resolvers read six domains.
const mostDomains = 6
const longestSearch = 200

/** Everything a DHCP server is to know; yields for each node. */
export function* dhcpData(captured: Captured, options: DhcpOptions): Generator<undefined, DhcpData> {
  const { name_server, ...rest } = options
  const found = new Hosts(captured)
  for (const node of captured.nodes) {
    found.node(node)
    yield
  }
  for (const device of captured.switches) found.add(`switch ${device.name}`, device, '')
  for (const device of captured.otherdevs) found.add(`otherdev ${device.name}`, device, '')
  const taken = found.taken()
  const subnets = found.groups.map(group => subnet(group, captured, name_server, taken, found.addresses))
  return { ...rest, subnets, hosts: found.hosts }
}

/** The networks of one CIDR, those that serve DHCP first. */
interface Group {
  readonly id: number
  readonly cidr: string
  readonly dhcp: boolean
  readonly networks: readonly NetworkDoc[]
}

/** Kea's bound. */
const largestId = 2 ** 32 - 2

/** Every prefix up to /31 has its own place in a heap; the few of one address share the places of long ones. */
function subnetId(cidr: string): number {
  const { first = 0, length = 0 } = parsePrefix(cidr) ?? {}
  const place =
    length === 32 ? 2 ** 31 + (first % 2 ** 31) : 2 ** length + Math.floor(first / 2 ** (32 - length))
  return Math.min(place, largestId)
}

function groupsOf(networks: readonly NetworkDoc[]): Group[] {
  const byCidr = new Map<string, NetworkDoc[]>()
  for (const network of networks)
    byCidr.set(network.network, [...(byCidr.get(network.network) ?? []), network])
  const length = (cidr: string) => parsePrefix(cidr)?.length ?? 0
  const used = new Set<number>()
  const groups = [...byCidr].map(([cidr, members]) => {
    const sorted = [...members.filter(({ dhcp }) => dhcp), ...members.filter(({ dhcp }) => !dhcp)]
    return { cidr, dhcp: sorted[0]?.dhcp ?? false, networks: sorted }
  })
  groups.sort((a, b) => length(a.cidr) - length(b.cidr) || toFirst(a.cidr) - toFirst(b.cidr))
  const numbered = groups.map(group => {
    let id = subnetId(group.cidr)
    while (used.has(id)) id -= 1
    used.add(id)
    return { ...group, id }
  })
  return numbered.sort((a, b) => length(b.cidr) - length(a.cidr))
}

const toFirst = (cidr: string) => parsePrefix(cidr)?.first ?? 0

/** Gathers the machines, every address in use, and which name stands for which address. */
class Hosts {
  readonly hosts: DhcpHost[] = []
  /** Name of a device, alone and with its network behind a dot → address. */
  readonly addresses = new Map<string, string>()
  readonly groups: readonly Group[]
  readonly #groupOf = new Map<string, Group>()
  readonly #taken: Address[] = []

  constructor(readonly captured: Captured) {
    const { networks, cluster } = captured
    this.groups = groupsOf(networks)
    for (const group of this.groups) for (const { name } of group.networks) this.#groupOf.set(name, group)
    for (const { gateway, ns_ip } of networks)
      for (const address of [gateway, ns_ip]) if (address !== undefined) this.#taken.push(toAddress(address))
    const controller = parseAddress(cluster.controller.address)
    if (controller === undefined) return
    this.#taken.push(controller)
    this.addresses.set(cluster.controller.name, cluster.controller.address)
  }

  node(node: NodeDoc): void {
    const { settings, provision } = ownName(this.captured, node)
    const script: BootScript = !settings.netboot ? 'disk' : settings.bootmenu ? 'menu' : 'short'
    if (provision?.ipaddress !== undefined) this.addresses.set(node.name, provision.ipaddress)
    for (const entry of node.interfaces ?? [])
      this.add(
        `node ${node.name} ${entry.interface}`,
        { ...entry, name: node.name },
        isBmc(entry) ? '' : script
      )
  }

  add(
    title: string,
    device: { name: string; network?: string; ipaddress?: string; macaddress?: string },
    boot: BootScript
  ): void {
    const { name, network = '', ipaddress = '', macaddress: mac } = device
    if (ipaddress !== '') {
      this.#taken.push(toAddress(ipaddress))
      for (const known of [name, `${name}.${network}`])
        if (!this.addresses.has(known)) this.addresses.set(known, ipaddress)
    }
    const group = this.#groupOf.get(network)
    if (mac === undefined || !group?.dhcp || (ipaddress === '' && boot !== 'short' && boot !== 'disk')) return
    this.hosts.push({ title, mac, ipaddress, boot, subnet: group.id })
  }

  /** Every address that is somebody's, in order. */
  taken(): readonly Address[] {
    return this.#taken.sort((a, b) => a - b)
  }
}

function subnet(
  { id, cidr, dhcp, networks }: Group,
  { networks: all, cluster }: Captured,
  nameServer: string,
  taken: readonly Address[],
  known: ReadonlyMap<string, string>
): DhcpSubnet {
  const prefix = parsePrefix(cidr)
  const set = (field: 'gateway' | 'ns_ip' | 'ntp_server') =>
    networks.find(network => network[field] !== undefined)?.[field] ?? ''
  const ranges = networks.flatMap(network => dynamicRange(network) ?? ([] as Range[]))
  const server = set('ns_ip') || nameServer
  const domains = (list: readonly NetworkDoc[]) => list.flatMap(({ name }) => domainName(name) ?? [])
  const [domain = ''] = domains(networks)
  return {
    id,
    cidr,
    network: formatAddress(prefix?.first ?? 0),
    netmask: formatAddress(mask(prefix?.length ?? 0)),
    names: networks.map(({ name }) => name).join(' '),
    dhcp,
    ranges: without(ranges, taken).map(({ first, last }) => ({
      first: formatAddress(first),
      last: formatAddress(last)
    })),
    router: set('gateway'),
    name_servers: server === '' ? [] : [server],
    ntp_servers: (set('ntp_server') || cluster.ntp_server)
      .split(/[\s,]+/)
      .flatMap(name => (parseAddress(name) === undefined ? (known.get(name) ?? []) : name)),
    domain,
    search: searchList([...domains(networks), ...domains(all)])
  }
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
