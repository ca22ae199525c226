import { Resolver } from 'node:dns/promises'
import {
  type Address,
  contains,
  formatAddress,
  type Prefix,
  parseAddress,
  parsePrefix
} from '../../model/address.js'
import type { NetworkDoc } from '../../model/types/network.js'
import type { Captured } from '../capture.js'
import { Names } from './names.js'
import type { DnsData, DnsRecord, DnsZone } from './variables.js'

/** Yields for each node and each name, and returns all data of a name server. */
export function* dnsData(captured: Captured): Generator<undefined, DnsData> {
  const names = new Names(captured)
  for (const node of captured.nodes) {
    names.node(node)
    yield
  }
  for (const device of captured.devices) names.device(device)
  for (const network of captured.networks) names.records(network)
  names.aliases()
  const servers = new NameServers(captured, names)
  // Made first: a name server may have its address in another zone.
  const serverOf = new Map<string, Servers>()
  for (const zone of names.zones.keys()) {
    serverOf.set(zone, servers.of(zone))
    yield
  }
  const records = new Map<string, DnsRecord[]>([...names.zones.keys()].map(zone => [zone, []]))
  for (const [full, { target }] of names.all) {
    const { zone, label } = names.zoneAndLabelOf(full) ?? { zone: '', label: '' }
    // In a partial zone each name is a zone, which cannot be an alias: it gets the target's address.
    const address = names.addressOf(full)
    if (target !== undefined && !names.partial.has(zone))
      records.get(zone)?.push({ name: label, type: 'CNAME', data: `${target}.` })
    else if (address !== '')
      records.get(zone)?.push({ name: label, type: address.includes(':') ? 'AAAA' : 'A', data: address })
    yield
  }
  const forward = [...names.zones].sort(byName).flatMap(([zone, notes]) => {
    const whole = { ...head(zone, serverOf.get(zone)), records: records.get(zone) ?? [], notes }
    return names.partial.has(zone) ? ofNames(whole) : [whole]
  })
  const reverse = yield* reverseOf(captured, names, serverOf, servers)
  const { hosts, notes } = yield* hostsOf(names)
  return { variables: captured.cluster.variables, zones: [...forward, ...reverse], hosts, notes }
}

const byName = ([a]: readonly [string, unknown], [b]: readonly [string, unknown]) => (a < b ? -1 : 1)

type NamedController = Captured['controllers'][number]

/** Full names of the name servers of a zone; the first is its source (SOA). */
type Servers = readonly string[]

const head = (name: string, [server = '', ...others]: Servers = []) => ({
  name,
  single: false,
  name_server: `${server}.`,
  other_name_servers: others.map(other => `${other}.`),
  hostmaster: `hostmaster.${server}.`
})

/** Makes a zone of each name of a zone, but not of the zone's own name, which would hide all others. */
const ofNames = ({ records, ...zone }: DnsZone): DnsZone[] =>
  records
    .filter(({ name }) => name !== '@')
    .map(({ name, ...record }) => ({
      ...zone,
      ...{ name: `${name}.${zone.name}`, single: true, notes: [] },
      records: [{ ...record, name: '@' }]
    }))

/** The name servers of each zone: the network's own, else the controllers. */
class NameServers {
  readonly #networks: ReadonlyMap<string, NetworkDoc>

  constructor(
    readonly captured: Captured,
    readonly names: Names
  ) {
    const networks = [...captured.networks].reverse()
    this.#networks = new Map(networks.map(network => [names.zoneOf(network.name) ?? '', network]))
  }

  /** Returns the name servers of a zone, and gives them addresses where they lie in one of our zones. */
  of(zone: string): Servers {
    const [controller, ...others] = this.#controllers
    const network = this.#networks.get(zone)
    const given = network?.ns_hostname?.toLowerCase()
    const host = given === undefined || parseAddress(given) !== undefined ? undefined : given
    const address = network?.ns_ip?.split(',')[0] ?? (host === undefined ? given : undefined)
    const known =
      address === undefined ? undefined : this.names.canonicalNames.get(parseAddress(address) ?? -1)
    const fallback = address === undefined ? nameOf(controller.name) : 'ns'
    const name = host?.includes('.')
      ? host
      : host === undefined && known
        ? known
        : `${host ?? fallback}.${zone}`
    this.#address(name, address ?? controller.address)
    if (address !== undefined || host !== undefined) return [name]
    const more = others.map(other => {
      const full = `${nameOf(other.name)}.${zone}`
      this.#address(full, other.address)
      return full
    })
    return [...new Set([name, ...more])]
  }

  /** The controller's name, for when no zone has a name server. */
  get last(): Servers {
    return [nameOf(this.#controllers[0].name)]
  }

  get #controllers(): readonly [NamedController, ...NamedController[]] {
    const { controllers, cluster } = this.captured
    const [first = cluster.controller, ...others] = controllers
    return [first, ...others]
  }

  #address(name: string, address: string): void {
    const place = this.names.zoneAndLabelOf(name)
    // A made-up name in a partial zone could hide somebody else's. BIND refuses an alias as a name server.
    if (place && !this.names.partial.has(place.zone) && !this.names.all.get(name)?.address)
      this.names.all.set(name, { address, of: 'the name server' })
  }
}

const nameOf = (name: string) =>
  name
    .toLowerCase()
    .replace(/[^a-z0-9-]+/g, '-')
    .replace(/-+$/, '') || 'controller'

function* reverseOf(
  { networks }: Captured,
  names: Names,
  serverOf: ReadonlyMap<string, Servers>,
  servers: NameServers
): Generator<undefined, DnsZone[]> {
  const [first] = serverOf.values()
  const zones = new Map<string, { server: Servers; records: [Address, DnsRecord][] }>()
  const partial: { prefix: Prefix; server: Servers }[] = []
  for (const { name, network, dns } of networks) {
    const prefix = parsePrefix(network)
    const server = serverOf.get(names.zoneOf(name) ?? '') ?? first ?? servers.last
    if (prefix && dns === 'hosts') partial.push({ prefix, server })
    else
      for (const zone of prefix ? reverseZones(prefix) : [])
        if (!zones.has(zone)) zones.set(zone, { server, records: [] })
  }
  const single: DnsZone[] = []
  for (const [address, name] of names.canonicalNames) {
    const place = reverseNameOf(address, zones)
    const of = place ? undefined : partial.find(({ prefix }) => contains(prefix, address))
    const data = `${name}.`
    if (of)
      single.push({
        ...head(zoneOf(address, 4), of.server),
        ...{ single: true, records: [{ name: '@', type: 'PTR', data }], notes: [] }
      })
    if (place) zones.get(place.zone)?.records.push([address, { name: place.name, type: 'PTR', data }])
    yield
  }
  const whole = [...zones].sort(byName).map(([zone, { server, records }]) => ({
    ...head(zone, server),
    records: records.sort((a, b) => a[0] - b[0]).map(([, record]) => record),
    notes: []
  }))
  return [...whole, ...single]
}

function* hostsOf(names: Names): Generator<undefined, Pick<DnsData, 'hosts' | 'notes'>> {
  const notes: string[] = []
  const hosts = new Map<string, string[]>()
  for (const [address, name] of names.canonicalNames) {
    hosts.set(formatAddress(address), [name])
    yield
  }
  for (const [full, { target }] of names.all) {
    yield
    const address = names.addressOf(full)
    const list = hosts.get(address) ?? []
    if (address === '')
      notes.push(`${full}: dnsmasq gives no alias of ${target}, whose address svcd does not know`)
    else if (!list.includes(full)) hosts.set(address, [...list, full])
  }
  return { hosts: [...hosts].map(([address, list]) => ({ address, names: list })), notes }
}

// Every name server has these zones in its own configuration already.
const everybodys = new Set(['0', '127', '255'])

/**
 * Returns the reverse zones of a network. in-addr.arpa is cut at whole octets, so a /12 has the 16 zones of
 * its /16s, and a /26 shares that of its /24. Loopback and addresses that no machine can have get none.
 */
export function reverseZones({ first, length }: Prefix): string[] {
  const octets = Math.max(1, Math.min(3, Math.ceil(length / 8)))
  const step = 2 ** (32 - octets * 8)
  const count = Math.max(1, 2 ** (octets * 8 - length))
  return Array.from({ length: count }, (_, i) => zoneOf(first + i * step, octets)).filter(
    zone => !everybodys.has(zone.split('.').at(-3) ?? '')
  )
}

const zoneOf = (address: Address, octets: number) =>
  `${formatAddress(address).split('.').slice(0, octets).reverse().join('.')}.in-addr.arpa`

/** Finds the smallest of these zones that holds an address, and the address's name inside it. */
export function reverseNameOf(address: Address, zones: ReadonlyMap<string, unknown>) {
  const parts = formatAddress(address).split('.')
  for (const octets of [3, 2, 1]) {
    const zone = zoneOf(address, octets)
    if (zones.has(zone)) return { zone, name: parts.slice(octets).reverse().join('.') }
  }
  return undefined
}

/** Most zones that are looked up, and the time limit of each resolver. */
const MOST_ASKED = 20
const ANSWER_MS = 1000

/** Returns the zones that svcd serves as a whole → their name servers, separated by blanks. */
export function* ownedZones(captured: Captured): Generator<undefined, Map<string, string>> {
  const { zones } = yield* dnsData(captured)
  return new Map(
    zones.flatMap(({ name, single, name_server: first, other_name_servers: others }) =>
      single ? [] : [[name, [first, ...others].join(' ')] as const]
    )
  )
}

/** Warns of zones with names in this machine's resolvers that svcd would hide (rules 10.14). */
export async function foreignNameWarnings(zones: ReadonlyMap<string, string>, servers?: readonly string[]) {
  // `servers` replace those of /etc/resolv.conf. A zone without an answer is skipped.
  const resolver = new Resolver({ timeout: ANSWER_MS, tries: 1 })
  if (servers) resolver.setServers(servers)
  const told = [...zones].slice(0, MOST_ASKED).map(async ([zone, own]) => {
    // A name that does not exist has none below it (RFC 8020); one without an SOA record may have.
    const server = await resolver.resolveSoa(zone).then(
      ({ nsname }) => nsname,
      ({ code }: NodeJS.ErrnoException) => (code === 'ENODATA' ? 'a zone around it' : undefined)
    )
    // A resolver's built-in empty zone of private addresses names itself as its server (RFC 6303).
    if (
      server === undefined ||
      [...own.split(' '), `${zone}.`, 'localhost.'].includes(`${server.toLowerCase()}.`)
    )
      return []
    return [
      `DNS zone ${zone}: others have names there today (${server}), and svcd's server would hide those ` +
        'that svcd does not know: give the network "dns": "hosts", or choose a domain of the cluster\'s own'
    ]
  })
  return (await Promise.all(told)).flat()
}
