/** An IPv4 address as an unsigned 32-bit number. */
export type Address = number

/** The addresses of a network: from `first`, the network address, to `last`, the broadcast address. */
export interface Prefix {
  readonly first: Address
  readonly last: Address
  readonly length: number
}

const quad = /^(0|[1-9]\d{0,2})\.(0|[1-9]\d{0,2})\.(0|[1-9]\d{0,2})\.(0|[1-9]\d{0,2})$/

/** The number of a dotted quad; undefined for anything else (no leading zeros, no short forms). */
export function parseAddress(text: string): Address | undefined {
  const match = quad.exec(text)
  if (!match) return undefined
  let address = 0
  for (let i = 1; i <= 4; i++) {
    const byte = Number(match[i])
    if (byte > 255) return undefined
    address = address * 256 + byte
  }
  return address
}

/** The number of a dotted quad that was checked when it was stored. */
export function toAddress(text: string): Address {
  const address = parseAddress(text)
  if (address === undefined) throw new TypeError(`${text} is not an IPv4 address`)
  return address
}

/** The dotted quad of an address. */
export function formatAddress(address: Address): string {
  return `${address >>> 24}.${(address >>> 16) & 255}.${(address >>> 8) & 255}.${address & 255}`
}

/** Bits of a prefix length as an unsigned number: 24 → 255.255.255.0. */
export function mask(length: number): Address {
  return length === 0 ? 0 : (-1 << (32 - length)) >>> 0
}

/** The prefix of `a.b.c.d/n`; host bits may be set (`first` is masked). Undefined for anything else. */
export function parsePrefix(text: string): Prefix | undefined {
  const match = /^([0-9.]+)\/(0|[1-9][0-9]?)$/.exec(text)
  const address = match?.[1] === undefined ? undefined : parseAddress(match[1])
  const length = Number(match?.[2])
  if (address === undefined || length > 32) return undefined
  const first = (address & mask(length)) >>> 0
  return { first, last: (first | ~mask(length)) >>> 0, length }
}

/** Whether an address lies in a network, its network and broadcast address included. */
export function contains(prefix: Prefix, address: Address): boolean {
  return address >= prefix.first && address <= prefix.last
}

/** First and last address a device may have: without network and broadcast, which /31 and /32 do not have. */
export function hosts(prefix: Prefix): { first: Address; last: Address } {
  return prefix.length >= 31
    ? { first: prefix.first, last: prefix.last }
    : { first: prefix.first + 1, last: prefix.last - 1 }
}

/** Whether an address is in 127.0.0.0/8. */
export function isLoopback(address: Address): boolean {
  return address >>> 24 === 127
}
