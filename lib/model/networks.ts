import { badRequest, notFound } from '../errors.js'
import {
  type Address,
  contains,
  formatAddress,
  hosts,
  isLoopback,
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

/** The controller's own address where it is one that a device could collide with (rules 3.7). */
export function controllerAddress(cluster: ClusterSettings): Address | undefined {
  const address = parseAddress(cluster.controller.address)
  return address === undefined || isLoopback(address) ? undefined : address
}

/**
 * The name server of a network: its own, else the controller where svcd drives the DNS server there; '' without either.
 * DHCP and the installation go by it (rules 10.7).
 */
export function nameServerOf(network: Docs['network'] | undefined, cluster: ClusterSettings): string {
  const controller = cluster.servesDns ? controllerAddress(cluster) : undefined
  return network?.ns_ip ?? (controller === undefined ? '' : formatAddress(controller))
}

/**
 * The first host address that is not used and not reserved (rules 3.7).
 * Throws 404 naming the network when there is none.
 */
export function nextFree(
  view: View,
  name: string,
  cluster: ClusterSettings,
  also: ReadonlySet<Address> = new Set()
): Address {
  const prefix = view.index.networks.get(name)
  const network = view.get('network', name)
  if (!prefix || !network) throw notFound(`network ${name} does not exist`)
  const range = hosts(prefix)
  const dynamic = dynamicRange(network)
  const controller = controllerAddress(cluster)
  const nameServer = network.ns_ip === undefined ? undefined : toAddress(network.ns_ip)
  let from = range.first
  for (;;) {
    const free = view.index.taken.firstFree(from, range.last)
    if (free === undefined) throw notFound(`network ${name} has no free address`)
    if (dynamic && free >= dynamic.first && free <= dynamic.last) from = dynamic.last + 1
    else if (
      free === controller ||
      free === nameServer ||
      also.has(free) ||
      view.index.gatewayOf(free).length > 0
    )
      from = free + 1
    else return free
    if (from > range.last) throw notFound(`network ${name} has no free address`)
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

/** Whether a device, or the controller, has an address. */
export function isTaken(view: View, address: Address, cluster: ClusterSettings): boolean {
  return view.index.taken.has(address) || controllerAddress(cluster) === address
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
  const [gateway] = view.index.gatewayOf(address)
  if (gateway !== undefined) throw badRequest(`${where}: ${text} is the gateway of network ${gateway}`)
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
  const controller = controllerAddress(cluster)
  if (controller !== undefined && contains(prefix, controller))
    taken.push([controller, cluster.controller.name])
  taken.sort((a, b) => a[0] - b[0])
  return taken.map(([address, device]) => ({ ipaddress: formatAddress(address), device }))
}
