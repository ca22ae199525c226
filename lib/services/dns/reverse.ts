import { type Address, formatAddress, type Prefix } from '../../model/address.js'

// Every name server has these zones in its own configuration already.
const everybodys = new Set(['0', '127', '255'])

/**
 * The zones of a network's addresses, for any prefix length. in-addr.arpa is cut at whole octets, so a /12 has the 16
 * zones of its /16s, and a /26 shares that of its /24. Loopback, and addresses that no machine can have, have none.
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

/** The smallest of these zones that holds an address, and the name of the address inside it. */
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
