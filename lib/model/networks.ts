import { badRequest, notFound } from '../errors.js'
import {
  type Address,
  contains,
  formatAddress,
  hosts,
  isLoopback,
  type Prefix,
  parseAddress,
  toAddress
} from './address.js'
import type { Docs } from './docs.js'
import type { ClusterSettings, View } from './view.js'

/** The dynamic range of a network that serves DHCP. */
export function dynamicRange(network: Docs['network']): { first: Address; last: Address } | undefined {
  if (!network.dhcp || network.dhcp_range_begin === undefined || network.dhcp_range_end === undefined)
    return undefined
  return { first: toAddress(network.dhcp_range_begin), last: toAddress(network.dhcp_range_end) }
}

/** An address where it is one that a device could have. */
function deviceAddress(text: string): Address | undefined {
  const address = parseAddress(text)
  return address === undefined || isLoopback(address) ? undefined : address
}

/** The addresses of the controllers, and whose they are (rules 3.7). */
export function controllerAddresses({ controller, otherControllers }: ClusterSettings): Map<Address, string> {
  const found = new Map<Address, string>()
  for (const { name, address } of [controller, ...otherControllers]) {
    const one = deviceAddress(address)
    if (one !== undefined && !found.has(one)) found.set(one, name)
  }
  return found
}

/**
 * The name server of a network: its own, else the controller where svcd drives the DNS server there; '' without either.
 * DHCP and the installation go by it (rules 10.7).
 */
export function nameServerOf(network: Docs['network'] | undefined, cluster: ClusterSettings): string {
  const controller = cluster.servesDns ? deviceAddress(cluster.controller.address) : undefined
  return network?.ns_ip ?? (controller === undefined ? '' : formatAddress(controller))
}

/** Whether an address is nobody's to have: the network's own ones, its name server's, those of controllers (rules 3.7). */
function isReserved(
  view: View,
  name: string,
  prefix: Prefix,
  address: Address,
  cluster: ClusterSettings
): boolean {
  const { first, last } = hosts(prefix)
  const nameServer = view.get('network', name)?.ns_ip
  return (
    address < first ||
    address > last ||
    controllerAddresses(cluster).has(address) ||
    cluster.urlAddresses.some(text => parseAddress(text) === address) ||
    (nameServer !== undefined && address === toAddress(nameServer)) ||
    view.index.gatewayOf(address) !== undefined
  )
}

/**
 * The first host address that is not used and not reserved (rules 3.7). `also`: more that are used. `after`: the
 * address to look behind. Throws 404 naming the network when there is none.
 */
export function nextFree(
  view: View,
  name: string,
  cluster: ClusterSettings,
  also: ReadonlySet<Address> = new Set(),
  after = -1
): Address {
  const prefix = view.index.networks.get(name)
  const network = view.get('network', name)
  if (!prefix || !network) throw notFound(`network ${name} does not exist`)
  const dynamic = dynamicRange(network)
  const { first, last } = hosts(prefix)
  let from = Math.max(first, after + 1)
  for (;;) {
    const free = view.index.taken.firstFree(from, last)
    if (free === undefined) throw notFound(`network ${name} has no free address`)
    const isDynamic = dynamic && free >= dynamic.first && free <= dynamic.last
    if (!isDynamic && !also.has(free) && !isReserved(view, name, prefix, free, cluster)) return free
    from = (isDynamic ? dynamic.last : free) + 1
  }
}

/** The network that answers for an address: the longest prefix that holds it, then by name (rules 3.6). */
export function networkOf(view: View, address: Address): string | undefined {
  let best: { name: string; length: number } | undefined
  for (const [name, prefix] of view.index.networks)
    if (
      contains(prefix, address) &&
      (!best || prefix.length > best.length || (prefix.length === best.length && name < best.name))
    )
      best = { name, length: prefix.length }
  return best?.name
}

/** Whether an address of a network is somebody's, or nobody's to have; throws 404 for one outside (rules 3.7). */
export function isTaken(view: View, name: string, address: Address, cluster: ClusterSettings): boolean {
  const prefix = view.index.networks.get(name)
  if (!prefix || !contains(prefix, address))
    throw notFound(
      `${formatAddress(address)} lies outside network ${name} (${view.get('network', name)?.network})`
    )
  return view.index.taken.has(address) || isReserved(view, name, prefix, address, cluster)
}

/** Refuses an address that no device of the network may have; `where` opens the message. */
export function checkDeviceAddress(view: View, network: string, text: string, where: string): void {
  const prefix = view.index.networks.get(network)
  const address = toAddress(text)
  if (!prefix || !contains(prefix, address))
    throw badRequest(
      `${where}: ${text} lies outside network ${network} (${view.get('network', network)?.network})`
    )
  const range = hosts(prefix)
  if (address < range.first || address > range.last)
    throw badRequest(
      `${where}: ${text} is the ${address < range.first ? 'network' : 'broadcast'} address of network ${network}`
    )
  const gateway = view.index.gatewayOf(address)
  if (gateway !== undefined) throw badRequest(`${where}: ${text} is the gateway of network ${gateway}`)
}

/** Refuses the address of the network's name server, which an admin alone may give to a device (rules 3.8). */
export function checkNotNameServer(view: View, network: string, text: string, where: string): void {
  const nameServer = view.get('network', network)?.ns_ip
  if (nameServer !== undefined && toAddress(nameServer) === toAddress(text))
    throw badRequest(`${where}: ${text} is the name server of network ${network}`)
}

/** The addresses in use inside a network, in order, with the device of each. */
export function takenIn(
  view: View,
  name: string,
  cluster: ClusterSettings
): { ipaddress: string; device: string }[] {
  const prefix = view.index.networks.get(name)
  if (!prefix) throw notFound(`network ${name} does not exist`)
  const taken: [Address, string][] = []
  for (const [address, device] of view.index.devicesIn(prefix)) taken.push([address, device])
  for (const [address, controller] of controllerAddresses(cluster))
    if (contains(prefix, address)) taken.push([address, controller])
  taken.sort((a, b) => a[0] - b[0])
  return taken.map(([address, device]) => ({ ipaddress: formatAddress(address), device }))
}
