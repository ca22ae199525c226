import ipaddr from 'ipaddr.js'

/** Where a request comes from, after `[http] trusted_proxies` has been applied (rules 4.5). */
export interface Source {
  /** IPv4 or IPv6 address in canonical text; an IPv4-mapped IPv6 address is given as IPv4. */
  readonly address: string
  /** True for 127.0.0.0/8 and ::1, unless the request carries X-Forwarded-For that no trusted proxy vouches for. */
  readonly loopback: boolean
  /** Another controller has handed the request on, and says from where it was asked (rules 11.16). */
  readonly isHandedOn?: true
}

/** What a handler that may leave a trace goes by. */
export interface Visit {
  readonly source: Source
  /** A HEAD: it is answered like the GET, but nothing is given, noted or begun for it (rules 2.5). */
  readonly headOnly: boolean
}

/** How an answer with a file ended. */
export interface Sent {
  /**
   * `whole`: to its last byte; `part`: a range of it, to its last byte; `cut`: the client went before; `front`: the front
   * server sends it, and svcd does not see how that ends; `refused`: nothing of the file was sent.
   */
  readonly end: 'whole' | 'part' | 'cut' | 'front' | 'refused'
  /** Bytes that were handed to the system, and that should have been. */
  readonly bytes: number
  readonly of: number
}

/** What counts as one address: an IPv4 address, or the 64 bits of IPv6 that belong to one network. */
export function networkOf(address: string): string {
  if (!address.includes(':')) return address
  const [groups = ''] = address.split('%')
  if (!ipaddr.IPv6.isValid(groups)) return address
  const parsed = ipaddr.process(groups)
  return parsed instanceof ipaddr.IPv6 ? parsed.parts.slice(0, 4).join(':') : parsed.toString()
}

/**
 * Addresses that take one turn together: the /24 of an IPv4 address, the /64 of an IPv6 one. A slash parts it from the /16 or
 * the /48 before it, whose networks share their turns.
 */
export const neighbours = (address: string) =>
  networkOf(address)
    .replace(/^(\d+\.\d+)\.(\d+)\.\d+$/, '$1/$2')
    .replace(/^(\w+:\w+:\w+):(\w+)$/, '$1/$2')
