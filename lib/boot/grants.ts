import { type Address, parseAddress } from '../model/address.js'
import { dynamicRange } from '../model/networks.js'
import type { NetworkDoc } from '../model/types/network.js'
import type { Visit } from '../source.js'

const grantMs = 3_600_000

interface Grant {
  /** The machine that it was made for. It ends when the node gets another MAC. */
  readonly mac: string
  readonly address: Address
  readonly until: number
}

/**
 * Knows which dynamic address belongs to which node (rules 4.6). It is the address that the DHCP server's lease file gives
 * to the node's MAC. If svcd manages no DHCP server, it is the first address of the range that fetched the node's boot
 * script, for one hour.
 */
export class Grants {
  readonly #grants = new Map<string, Grant>()

  constructor(
    readonly now: () => number,
    readonly onGrant: (node: string, address: string) => void,
    /** Whether the DHCP server has lent an address to a MAC; absent if svcd manages no DHCP server. */
    readonly hasLease?: (mac: string, address: string) => Promise<boolean>
  ) {}

  /** Notes that `source` has fetched the node's boot script. It gets the grant, unless another address has it. */
  offer(node: string, mac: string, network: NetworkDoc, source: string): void {
    const address = dynamicAddress(network, source)
    if (this.hasLease || address === undefined || this.#live(node, mac)) return
    this.#grant(node, mac, address, source)
  }

  /** Whether a request comes from the node's dynamic address. If there is a DHCP server, its leases decide. */
  async holds(node: string, mac: string, network: NetworkDoc, { source, headOnly }: Visit): Promise<boolean> {
    const address = dynamicAddress(network, source.address)
    if (address === undefined) return false
    const holds = this.#live(node, mac)?.address === address
    if (!this.hasLease || mac === '') return holds
    const leased = await this.hasLease(mac, source.address)
    if (leased && !holds && !headOnly) this.#grant(node, mac, address, source.address)
    if (!leased && !headOnly) this.#grants.delete(node)
    return leased
  }

  #grant(node: string, mac: string, address: Address, source: string): void {
    this.#forgetOld()
    this.#grants.delete(node)
    this.#grants.set(node, { mac, address, until: this.now() + grantMs })
    this.onGrant(node, source)
  }

  #live(node: string, mac: string): Grant | undefined {
    const grant = this.#grants.get(node)
    return grant?.mac === mac && grant.until > this.now() ? grant : undefined
  }

  /** Grants end in the order in which they were made, so the old ones come first. */
  #forgetOld(): void {
    for (const [node, grant] of this.#grants) {
      if (grant.until > this.now()) return
      this.#grants.delete(node)
    }
  }
}

/** An address of the network's dynamic range, undefined for any other. */
function dynamicAddress(network: NetworkDoc, source: string): Address | undefined {
  const range = dynamicRange(network)
  const address = parseAddress(source)
  return range && address !== undefined && address >= range.first && address <= range.last
    ? address
    : undefined
}
