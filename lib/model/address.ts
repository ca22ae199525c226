/** An IPv4 address as an unsigned 32-bit number. */
export type Address = number

const DOT = 0x2e
const ZERO = 0x30

/** The addresses from `first` to `last`, both included. */
export interface Range {
  readonly first: Address
  readonly last: Address
}

/** An IPv4 network from its own address to its broadcast address. */
export interface Prefix extends Range {
  readonly length: number
}

/** Parses a dotted quad without leading zeros; undefined for anything else. Fast: each boot needs it. */
export function parseAddress(text: string): Address | undefined {
  if (text.length > 15) return undefined
  let address = 0
  let byte = -1
  let dots = 0
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i)
    if (code === DOT) {
      if (byte < 0 || ++dots > 3) return undefined
      address = address * 256 + byte
      byte = -1
    } else {
      const digit = code - ZERO
      if (digit < 0 || digit > 9 || byte === 0) return undefined
      byte = byte < 0 ? digit : byte * 10 + digit
      if (byte > 255) return undefined
    }
  }
  return dots === 3 && byte >= 0 ? address * 256 + byte : undefined
}

/** Parses a dotted quad that was checked when it was stored; throws TypeError otherwise. */
export function toAddress(text: string): Address {
  const address = parseAddress(text)
  if (address === undefined) throw new TypeError(`${text} is not an IPv4 address`)
  return address
}

/** Returns the dotted quad of an address. */
export const formatAddress = (address: Address): string =>
  `${address >>> 24}.${(address >>> 16) & 255}.${(address >>> 8) & 255}.${address & 255}`

/** Returns the netmask of a prefix length as an unsigned number: 24 → 255.255.255.0. */
export const mask = (length: number): Address => (length === 0 ? 0 : (-1 << (32 - length)) >>> 0)

/** Parses `a.b.c.d/n` and clears host bits; undefined for anything else. */
export function parsePrefix(text: string): Prefix | undefined {
  const match = /^([0-9.]+)\/(0|[1-9][0-9]?)$/.exec(text)
  const address = match?.[1] === undefined ? undefined : parseAddress(match[1])
  const length = Number(match?.[2])
  if (address === undefined || length > 32) return undefined
  const first = (address & mask(length)) >>> 0
  return { first, last: (first | ~mask(length)) >>> 0, length }
}

/** Whether an address lies in a range, or in a network with its network and broadcast address. */
export const contains = ({ first, last }: Range, address: Address): boolean =>
  address >= first && address <= last

/** Returns the first and last address for devices: all but network and broadcast, which /31 and /32 lack. */
export const hosts = (prefix: Prefix): Range =>
  prefix.length >= 31 ? prefix : { first: prefix.first + 1, last: prefix.last - 1 }

/** Whether an address is in 127.0.0.0/8. */
export const isLoopback = (address: Address): boolean => address >>> 24 === 127

/**
 * The used addresses in blocks of 256, a byte for each, with the full blocks in a set of the same kind. So
 * finding a free address depends neither on the size of a network nor on its use (rules 3.7).
 */
export class AddressSet {
  /** By the address without its last byte; a block without a used address is missing. */
  readonly #blocks = new Map<number, Uint8Array>()
  #full: AddressSet | undefined

  add(address: Address): void {
    const block = this.#blocks.get(address >>> 8) ?? new Uint8Array(256)
    this.#blocks.set(address >>> 8, block)
    block[address & 255] = 1
    if (block.includes(0)) return
    this.#full ??= new AddressSet()
    this.#full.add(address >>> 8)
  }

  remove(address: Address): void {
    const block = this.#blocks.get(address >>> 8)
    if (!block) return
    block[address & 255] = 0
    if (!block.includes(1)) this.#blocks.delete(address >>> 8)
    this.#full?.remove(address >>> 8)
  }

  has(address: Address): boolean {
    return this.#blocks.get(address >>> 8)?.[address & 255] === 1
  }

  /** Returns the lowest address from `first` to `last`, both included, that is not in the set. */
  firstFree(first: Address, last: Address): Address | undefined {
    if (first > last) return undefined
    const block = first >>> 8
    const low = first & 255
    const inside = this.#blocks.get(block)?.indexOf(0, low) ?? low
    if (inside >= 0) {
      const free = block * 256 + inside
      return free <= last ? free : undefined
    }
    const next = this.#full ? this.#full.firstFree(block + 1, last >>> 8) : block + 1
    return next === undefined ? undefined : this.firstFree(next * 256, last)
  }
}
