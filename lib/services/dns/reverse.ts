import { type Address, formatAddress, type Prefix } from '../../model/address.js'

// Those of every name server, which its own configuration has already.
const everybodys = new Set(['0', '127', '255'])

/**
 * The zones of the addresses of a network, at any prefix length: in-addr.arpa is cut at whole octets, so /12 has the
 * 16 zones of its /16s, and /26 shares its /24's. Loopback and what is no address of a machine have none.
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

/** The smallest of these zones that holds an address, with the address's name in it. */
export function placeOf(
  address: Address,
  zones: ReadonlyMap<string, unknown>
): { readonly zone: string; readonly name: string } | undefined {
  const parts = formatAddress(address).split('.')
  for (const octets of [3, 2, 1]) {
    const zone = zoneOf(address, octets)
    if (zones.has(zone)) return { zone, name: parts.slice(octets).reverse().join('.') }
  }
  return undefined
}
