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
export function formatAddress(address: Address): string {
  return `${address >>> 24}.${(address >>> 16) & 255}.${(address >>> 8) & 255}.${address & 255}`
}

/** Returns the netmask of a prefix length as an unsigned number: 24 → 255.255.255.0. */
export function mask(length: number): Address {
  return length === 0 ? 0 : (-1 << (32 - length)) >>> 0
}

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
export function contains({ first, last }: Range, address: Address): boolean {
  return address >= first && address <= last
}

/** Returns the first and last address for devices: all but network and broadcast, which /31 and /32 lack. */
export function hosts(prefix: Prefix): Range {
  return prefix.length >= 31 ? prefix : { first: prefix.first + 1, last: prefix.last - 1 }
}

/** Whether an address is in 127.0.0.0/8. */
export function isLoopback(address: Address): boolean {
  return address >>> 24 === 127
}

/** Returns the first clear bit at or after `from`; 256 if there is none. */
function firstClear(bits: Uint32Array | undefined, from: number): number {
  for (let word = from >>> 5, low = from & 31; word < 8; word++, low = 0) {
    const free = ~(bits?.[word] ?? 0) & (-1 << low)
    if (free !== 0) return (word << 5) + (31 - Math.clz32(free & -free))
  }
  return 256
}

/**
 * A bitmap of used addresses in blocks of 256, with the full blocks in a set of the same kind. So finding a
 * free address depends neither on the size of a network nor on its use (rules 3.7).
 */
export class AddressSet {
  /** Bitmaps by the address without its last byte; a block without a used address is missing. */
  readonly #blocks = new Map<number, Uint32Array>()
  #full: AddressSet | undefined

  add(address: Address): void {
    const bits = this.#blocks.get(address >>> 8) ?? new Uint32Array(8)
    this.#blocks.set(address >>> 8, bits)
    const word = (address & 255) >>> 5
    bits[word] = (bits[word] ?? 0) | (1 << (address & 31))
    if (firstClear(bits, 0) === 256) {
      this.#full ??= new AddressSet()
      this.#full.add(address >>> 8)
    }
  }

  remove(address: Address): void {
    const bits = this.#blocks.get(address >>> 8)
    if (!bits) return
    const word = (address & 255) >>> 5
    bits[word] = (bits[word] ?? 0) & ~(1 << (address & 31))
    if (bits.every(word => word === 0)) this.#blocks.delete(address >>> 8)
    this.#full?.remove(address >>> 8)
  }

  has(address: Address): boolean {
    const word = this.#blocks.get(address >>> 8)?.[(address & 255) >>> 5] ?? 0
    return (word & (1 << (address & 31))) !== 0
  }

  /** Returns the lowest address from `first` to `last`, both included, that is not in the set. */
  firstFree(first: Address, last: Address): Address | undefined {
    if (first > last) return undefined
    let block: number | undefined = first >>> 8
    let inside = firstClear(this.#blocks.get(block), first & 255)
    if (inside === 256) {
      block = this.#full ? this.#full.firstFree(block + 1, last >>> 8) : block + 1
      if (block === undefined) return undefined
      inside = firstClear(this.#blocks.get(block), 0)
    }
    const free = block * 256 + inside
    return free <= last ? free : undefined
  }
}
