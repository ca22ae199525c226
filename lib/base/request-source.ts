import ipaddr from 'ipaddr.js'

/** The origin of a request, after `[http] trusted_proxies` (rules 4.5). */
export interface RequestSource {
  /** IPv4 or IPv6 address in canonical form; IPv4-mapped IPv6 becomes IPv4. */
  readonly address: string
  /** True for 127.0.0.0/8 and ::1, unless X-Forwarded-For comes from a proxy that is not trusted. */
  readonly loopback: boolean
  /** Another controller handed the request on and vouches for its origin (rules 11.16). */
  readonly isHandedOn?: true
}

/** The origin of a request that may leave a trace. */
export interface RequestContext {
  readonly source: RequestSource
  /** A HEAD is answered like a GET, but nothing is granted, recorded or started for it (rules 2.5). */
  readonly headOnly: boolean
}

/** The end of an answer with a file. */
export interface FileDelivery {
  /**
   * `whole`: all bytes were sent; `part`: all bytes of a range; `cut`: the client left before; `front`: the
   * front server sends the file, unseen by svcd; `refused`: nothing was sent.
   */
  readonly end: 'whole' | 'part' | 'cut' | 'front' | 'refused'
  /** Bytes handed to the system, out of `bytesTotal`. */
  readonly bytes: number
  readonly bytesTotal: number
}

/** Whether a URL names an address of this machine: plain text does not leave it. A name may mean any. */
export const isThisMachine = ({ hostname }: URL): boolean => /^127(?:\.\d{1,3}){3}$|^\[::1\]$/.test(hostname)

/** Returns the address for counting: an IPv4 address, or the first 64 bits of IPv6, which are one network. */
export function clientNetworkOf(address: string): string {
  if (!address.includes(':')) return address
  const [groups = ''] = address.split('%')
  if (!ipaddr.IPv6.isValid(groups)) return address
  const parsed = ipaddr.process(groups)
  return parsed instanceof ipaddr.IPv6 ? parsed.parts.slice(0, 4).join(':') : parsed.toString()
}

/** Returns the group of addresses that share a turn (/24, IPv6 /64), with a slash after the /16 or /48. */
export const addressBlockOf = (address: string) =>
  clientNetworkOf(address)
    .replace(/^(\d+\.\d+)\.(\d+)\.\d+$/, '$1/$2')
    .replace(/^(\w+:\w+:\w+):(\w+)$/, '$1/$2')
