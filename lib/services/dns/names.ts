import {
  type Address,
  contains,
  formatAddress,
  parseAddress,
  parsePrefix,
  toAddress
} from '../../model/address.js'
import { isBmc } from '../../model/index.js'
import type { DeviceDoc, InterfaceDoc, NodeDoc } from '../../model/tables.js'
import { type Captured, domainName, ownName } from '../capture.js'

interface Named {
  readonly address: string
  /** "node node001": for notes. */
  readonly of: string
}

/** A forward zone while it is filled. */
export interface Forward {
  /** Name in the zone → what it stands for. */
  readonly names: Map<string, Named>
  /** What could not be written, one sentence each. */
  readonly notes: string[]
}

/** Which names there are, in which zones, and which of them an address is called by. */
export class Names {
  readonly forward = new Map<string, Forward>()
  /** Address → its own name in full, without the dot at the end. */
  readonly called = new Map<Address, string>()
  readonly #networks = new Map<string, string>()

  constructor(readonly captured: Captured) {
    for (const { name } of captured.networks) {
      const zone = domainName(name)
      if (zone === undefined || zone === 'localhost') continue
      this.#networks.set(name, zone)
      this.zone(zone)
    }
    this.#controller()
  }

  /** The zone of a network; undefined for one whose name cannot be a domain. */
  zoneOf(network: string | undefined): string | undefined {
    return network === undefined ? undefined : this.#networks.get(network)
  }

  zone(name: string): Forward {
    const there = this.forward.get(name)
    if (there) return there
    const made: Forward = { names: new Map(), notes: [] }
    this.forward.set(name, made)
    return made
  }

  #controller(): void {
    const { networks, cluster } = this.captured
    const address = parseAddress(cluster.controller.address)
    if (address === undefined) return
    const around = networks
      .map(({ name, network }) => ({ name, prefix: prefixOf(network) }))
      .filter(({ prefix }) => contains(prefix, address))
      .sort((a, b) => b.prefix.length - a.prefix.length)
    for (const { name } of around)
      this.#add(this.zoneOf(name), cluster.controller.name, formatAddress(address), 'the controller')
  }

  /** The name of each of its interfaces in the zone of its network, and its own, `<node>.<domain>`. */
  node(node: NodeDoc): void {
    const of = `node ${node.name}`
    const { provision, domain } = ownName(this.captured, node)
    const own = domainName(domain)
    if (provision?.ipaddress !== undefined && own !== undefined && own !== 'localhost') {
      this.zone(own)
      this.#add(own, node.name, provision.ipaddress, of)
    }
    for (const entry of inOrder(node.interfaces ?? [], provision)) {
      const zone = this.zoneOf(entry.network)
      if (zone === undefined || entry.ipaddress === undefined) continue
      const first = this.forward.get(zone)?.names.get(node.name)
      if (first === undefined) this.#add(zone, node.name, entry.ipaddress, of)
      else if (first.address !== entry.ipaddress || first.of !== of)
        this.#add(
          zone,
          `${node.name}-${entry.interface.replace(/[^A-Za-z0-9_]+/g, '-')}`,
          entry.ipaddress,
          of
        )
    }
  }

  device(what: string, { name, network, ipaddress }: DeviceDoc): void {
    if (ipaddress !== undefined) this.#add(this.zoneOf(network), name, ipaddress, `${what} ${name}`)
  }

  #add(zone: string | undefined, name: string, address: string, of: string): void {
    if (zone === undefined) return
    const { names, notes } = this.zone(zone)
    const label = domainName(name)
    const there = label === undefined ? undefined : names.get(label)
    if (label === undefined) notes.push(`${of}: ${name} is no name for ${address} in DNS`)
    else if (there && there.address !== address)
      notes.push(`${of}: the name ${label} for ${address} is that of ${there.of}`)
    else {
      names.set(label, { address, of })
      const number = toAddress(address)
      if (!this.called.has(number)) this.called.set(number, `${label}.${zone}`)
    }
  }
}

/** The provision interface before the others, the BMC's last: the first one in a zone has the node's plain name. */
function inOrder(entries: readonly InterfaceDoc[], provision: InterfaceDoc | undefined): InterfaceDoc[] {
  const rank = (entry: InterfaceDoc) => (entry === provision ? 0 : isBmc(entry) ? 2 : 1)
  return [...entries].sort((a, b) => rank(a) - rank(b))
}

function prefixOf(cidr: string) {
  const prefix = parsePrefix(cidr)
  if (!prefix) throw new TypeError(`${cidr} is not a network`)
  return prefix
}
