import {
  type Address,
  contains,
  formatAddress,
  parseAddress,
  parsePrefix,
  toAddress
} from '../../model/address.js'
import { isBmc } from '../../model/cluster-index.js'
import type { InterfaceDoc } from '../../model/types/interface.js'
import type { NetworkDoc } from '../../model/types/network.js'
import type { NodeDoc } from '../../model/types/node.js'
import { type Captured, type Device, domainName, ownName } from '../capture.js'

interface NameEntry {
  readonly address: string
  /** "node node001": for notes. */
  readonly of: string
  /** The full name that it is an alias of; its own `address` is ''. */
  readonly target?: string
}

/** All names, their zones, and the canonical name of each address. */
export class Names {
  /** Full name without the final dot → its address or target. */
  readonly all = new Map<string, NameEntry>()
  /** Forward zone → sentences about names that could not be written. */
  readonly zones = new Map<string, string[]>()
  /** Zones that exist elsewhere too: svcd answers only for the names that it knows. */
  readonly partial = new Set<string>()
  /** Address → its canonical full name. */
  readonly canonicalNames = new Map<Address, string>()
  readonly #networks = new Map<string, string>()
  readonly #isNetwork = new Set<string>()
  /** Names that are assigned after all others. */
  readonly #aliases: (NameEntry & { readonly zone: string; readonly name: string })[] = []

  constructor(readonly captured: Captured) {
    for (const { name, dns } of captured.networks) {
      const zone = domainName(name)
      if (zone === undefined || zone === 'localhost') continue
      this.#networks.set(name, zone)
      this.#isNetwork.add(zone)
      if (dns === 'hosts') this.partial.add(zone)
      this.#zone(zone)
    }
    for (const controller of captured.controllers) this.#controller(controller)
  }

  /** Returns the zone of a network; undefined for one whose name cannot be a domain. */
  zoneOf(network: string | undefined): string | undefined {
    return network === undefined ? undefined : this.#networks.get(network)
  }

  /** Finds the smallest zone that a full name lies in, and the name inside it. */
  zoneAndLabelOf(full: string): { readonly zone: string; readonly label: string } | undefined {
    if (this.zones.has(full)) return { zone: full, label: '@' }
    for (let dot = full.indexOf('.'); dot > 0; dot = full.indexOf('.', dot + 1))
      if (this.zones.has(full.slice(dot + 1))) return { zone: full.slice(dot + 1), label: full.slice(0, dot) }
    return undefined
  }

  #zone(name: string): string[] {
    const notes = this.zones.get(name) ?? []
    this.zones.set(name, notes)
    return notes
  }

  #controller({ name: own, address: given }: Captured['controllers'][number]): void {
    const { networks, controllers } = this.captured
    const address = parseAddress(given)
    if (address === undefined) return
    const of = controllers.length > 1 ? `controller ${own}` : 'the controller'
    const around = networks.flatMap(({ name, network }) => {
      const prefix = parsePrefix(network)
      return prefix && contains(prefix, address) ? [{ name, length: prefix.length }] : []
    })
    for (const { name } of around.sort((a, b) => b.length - a.length))
      this.#add(this.zoneOf(name), own, formatAddress(address), of)
  }

  /** Adds a node's own name, `<node>.<domain>`, and a name for each interface in the zone of its network. */
  node(node: NodeDoc): void {
    const of = `node ${node.name}`
    const { provision, domain } = ownName(this.captured, node)
    const own = domainName(domain)
    if (provision?.ipaddress !== undefined && own !== undefined && own !== 'localhost') {
      // A domain without a network is partial where the network of its nodes is.
      if (!this.#isNetwork.has(own) && this.partial.has(this.zoneOf(provision.network) ?? ''))
        this.partial.add(own)
      this.#zone(own)
      this.#add(own, node.name, provision.ipaddress, of)
    }
    for (const entry of inOrder(node.interfaces ?? [], provision)) {
      const zone = this.zoneOf(entry.network)
      if (zone === undefined || entry.ipaddress === undefined) continue
      const address = entry.ipaddress
      const first = this.all.get(`${node.name}.${zone}`)
      const name = `${node.name}-${entry.interface.replace(/[^A-Za-z0-9_]+/g, '-')}`
      if (first === undefined) this.#add(zone, node.name, address, of)
      else if (first.address !== address || first.of !== of) this.#aliases.push({ zone, name, address, of })
    }
  }

  device({ title, name, network, ipaddress }: Device): void {
    if (ipaddress !== undefined) this.#add(this.zoneOf(network), name, ipaddress, title)
  }

  /** Adds the admin's records of a network, after the names of devices (rules 10.15). */
  records({ name: network, dns_records = [] }: NetworkDoc): void {
    const zone = this.zoneOf(network)
    for (const { host, ipaddress, alias = '' } of zone === undefined ? [] : dns_records) {
      const [full, of] = [`${host}.${zone}`, `DNS record ${host}`]
      if (ipaddress !== undefined) this.#add(zone, host, ipaddress, of)
      // A zone cannot be an alias.
      else if (this.all.has(full) || this.zones.has(full))
        this.#zone(zone ?? '').push(`${of}: the name is that of ${this.all.get(full)?.of ?? `zone ${full}`}`)
      else this.all.set(full, { address: '', of, target: alias.includes('.') ? alias : `${alias}.${zone}` })
    }
  }

  /** Returns the address of a full name (of an alias: of its target); '' where it is not known. */
  addressOf(full: string): string {
    const { address = '', target } = this.all.get(full) ?? {}
    return target === undefined ? address : (this.all.get(target)?.address ?? '')
  }

  /** Adds the names of further interfaces last, so that no device loses its own name to one. */
  aliases(): void {
    for (const { zone, name, address, of } of this.#aliases) this.#add(zone, name, address, of)
  }

  #add(zone: string | undefined, name: string, address: string, of: string): void {
    if (zone === undefined) return
    const label = domainName(name)
    const full = `${label}.${zone}`
    const there = this.all.get(full)
    if (label === undefined) this.#zone(zone).push(`${of}: ${name} is no name for ${address} in DNS`)
    else if (there && there.address !== address)
      this.#zone(zone).push(`${of}: the name ${label} for ${address} is that of ${there.of}`)
    else {
      this.all.set(full, { address, of })
      const number = toAddress(address)
      if (!this.canonicalNames.has(number)) this.canonicalNames.set(number, full)
    }
  }
}

/** Sorts the provision interface first and the BMC last: the first in a zone gets the node's plain name. */
function inOrder(entries: readonly InterfaceDoc[], provision: InterfaceDoc | undefined): InterfaceDoc[] {
  const rank = (entry: InterfaceDoc) => (entry === provision ? 0 : isBmc(entry) ? 2 : 1)
  return [...entries].sort((a, b) => rank(a) - rank(b))
}
