import { type Address, contains, formatAddress, parseAddress, toAddress } from '../../model/address.js'
import { isBmc } from '../../model/index.js'
import type { NodeDoc } from '../../model/types/node.js'
import { type Captured, type Device, ownName } from '../capture.js'
import { type Group, groupsOf } from './groups.js'
import type { Range } from './ranges.js'
import type { BootScript, DhcpHost } from './variables.js'

/** Gathers the machines, every address in use, and the address of each name. */
export class Hosts {
  readonly hosts: DhcpHost[] = []
  /** Name of a device in lower case, alone, with its network or with its domain behind a dot → address. */
  readonly addresses = new Map<string, string>()
  readonly groups: readonly Group[]
  readonly controller: string
  readonly #groupOf = new Map<string, Group>()
  readonly #taken: Address[] = []

  constructor(readonly captured: Captured) {
    const { networks, cluster, controllers } = captured
    const controller = parseAddress(cluster.controller.address)
    this.controller = controller === undefined ? '' : formatAddress(controller)
    this.groups = groupsOf(networks, controller)
    for (const group of this.groups) for (const { name } of group.networks) this.#groupOf.set(name, group)
    if (controller !== undefined) this.#controller(cluster.controller.name, controller)
    for (const { name, address } of controllers) {
      const other = parseAddress(address)
      if (other !== undefined && other !== controller) this.#controller(name, other)
    }
    for (const { name, gateway, ns_ip, ns_hostname } of networks) {
      for (const address of [gateway, ns_ip]) if (address !== undefined) this.#taken.push(toAddress(address))
      if (ns_ip !== undefined && ns_hostname !== undefined)
        this.#name(ns_hostname.includes('.') ? ns_hostname : `${ns_hostname}.${name}`, ns_ip)
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
    const script: BootScript = !settings.netboot ? 'disk' : settings.bootmenu ? 'menu' : 'short'
    if (provision?.ipaddress !== undefined)
      for (const name of [node.name, `${node.name}.${domain}`]) this.#name(name, provision.ipaddress)
    for (const entry of node.interfaces ?? [])
      this.add(
        { ...entry, title: `node ${node.name} ${entry.interface}`, name: node.name },
        isBmc(entry) ? '' : script
      )
  }

  add(device: Device, boot: BootScript): void {
    const { title, name, network = '', ipaddress = '', macaddress: mac } = device
    if (ipaddress !== '') {
      this.#taken.push(toAddress(ipaddress))
      for (const known of [name, `${name}.${network}`]) this.#name(known, ipaddress)
    }
    const group = this.#groupOf.get(network)
    if (mac === undefined || !group?.dhcp || (ipaddress === '' && boot !== 'short' && boot !== 'disk')) return
    this.hosts.push({ title, mac, ipaddress, boot, subnet: group.id })
  }

  #name(name: string, address: string): void {
    const lower = name.toLowerCase()
    if (!this.addresses.has(lower)) this.addresses.set(lower, address)
  }

  /** Every address that something has, in order. */
  taken(): readonly Range[] {
    return this.#taken.sort((a, b) => a - b).map(address => ({ first: address, last: address }))
  }
}
