import { type Address, parseAddress } from '../model/address.js'
import { dynamicRange } from '../model/networks.js'
import type { NetworkDoc } from '../model/tables.js'

const grantMs = 3_600_000

interface Grant {
  /** The machine it was made for: a node that gets another MAC, or is made anew, has no part in it. */
  readonly mac: string
  readonly address: Address
  readonly until: number
}

/**
 * Which dynamic address stands for which node, where svcd manages no DHCP server (decisions 4.6): the first
 * address of the range that fetched the node's boot script, for one hour.
 */
export class Grants {
  readonly #grants = new Map<string, Grant>()

  constructor(
    readonly now: () => number,
    readonly onGrant: (node: string, address: string) => void
  ) {}

  /** Notes that `source` fetched the node's boot script; it gets the grant unless another holds it. */
  offer(node: string, mac: string, network: NetworkDoc, source: string): void {
    const range = dynamicRange(network)
    const address = parseAddress(source)
    if (!range || address === undefined || address < range.first || address > range.last) return
    if (this.#live(node, mac)) return
    this.#forgetOld()
    this.#grants.delete(node)
    this.#grants.set(node, { mac, address, until: this.now() + grantMs })
    this.onGrant(node, source)
  }

  has(node: string, mac: string, source: string): boolean {
    const grant = this.#live(node, mac)
    return grant !== undefined && grant.address === parseAddress(source)
  }

  #live(node: string, mac: string): Grant | undefined {
    const grant = this.#grants.get(node)
    return grant?.mac === mac && grant.until > this.now() ? grant : undefined
  }

  /** Grants are made in the order they end, so the old ones stand first. */
  #forgetOld(): void {
    for (const [node, grant] of this.#grants) {
      if (grant.until > this.now()) return
      this.#grants.delete(node)
    }
  }
}
