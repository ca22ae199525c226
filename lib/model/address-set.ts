import type { Address } from './address.js'

/** The first index at or after `from` whose bit is clear, 256 when there is none. */
function firstClear(bits: Uint32Array | undefined, from: number): number {
  for (let word = from >>> 5, low = from & 31; word < 8; word++, low = 0) {
    const free = ~(bits?.[word] ?? 0) & (-1 << low)
    if (free !== 0) return (word << 5) + (31 - Math.clz32(free & -free))
  }
  return 256
}

/**
 * The addresses in use: a bit for each, in blocks of 256, and the full blocks in a set of the same kind. So the time to
 * find the first free address depends neither on the network's size nor on how many are taken (rules 3.7).
 */
export class AddressSet {
  /** By the address without its last byte; a block without an address in use is not there. */
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

  /** The lowest address from `first` to `last`, both included, that is not in the set. */
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
