import type { Address } from './address.js'

/** 256 members of one byte of the address: which are wholly taken, and the inner nodes below the others. */
interface Block {
  readonly full: Uint32Array
  fullCount: number
  readonly below: Map<number, Block> | undefined
}

const block = (level: number): Block => ({
  full: new Uint32Array(8),
  fullCount: 0,
  below: level === 3 ? undefined : new Map()
})
const has = (bits: Uint32Array, i: number) => ((bits[i >>> 5] ?? 0) & (1 << (i & 31))) !== 0
const byteOf = (address: Address, level: number) => (address >>> (24 - 8 * level)) & 255
const mark = (at: Block, i: number, taken: boolean) => {
  at.full[i >>> 5] = taken
    ? (at.full[i >>> 5] ?? 0) | (1 << (i & 31))
    : (at.full[i >>> 5] ?? 0) & ~(1 << (i & 31))
  at.fullCount += taken ? 1 : -1
}

/** The first index at or after `from` whose bit is clear, 256 when there is none. */
function firstClear(bits: Uint32Array, from: number): number {
  for (let word = from >>> 5, low = from & 31; word < 8; word++, low = 0) {
    const free = ~(bits[word] ?? 0) & (-1 << low)
    if (free !== 0) return (word << 5) + (31 - Math.clz32(free & -free))
  }
  return 256
}

/**
 * The addresses in use: a tree of four bytes in which wholly taken blocks are marked, so that the first free
 * address is found in a time that depends neither on the network's size nor on how many are taken
 * (rules 3.7).
 */
export class AddressSet {
  readonly #root = block(0)

  add(address: Address): void {
    const path: Block[] = []
    let at = this.#root
    for (let level = 0; level < 3; level++) {
      path.push(at)
      const i = byteOf(address, level)
      let next = at.below?.get(i)
      if (!next) {
        next = block(level + 1)
        at.below?.set(i, next)
      }
      at = next
    }
    if (has(at.full, address & 255)) return
    mark(at, address & 255, true)
    for (let level = 2; level >= 0 && at.fullCount === 256; level--) {
      const parent = path[level] as Block
      mark(parent, byteOf(address, level), true)
      at = parent
    }
  }

  remove(address: Address): void {
    const path: Block[] = []
    let at: Block | undefined = this.#root
    for (let level = 0; level < 3; level++) {
      path.push(at)
      at = at.below?.get(byteOf(address, level))
      if (!at) return
    }
    if (!has(at.full, address & 255)) return
    mark(at, address & 255, false)
    for (let level = 2; level >= 0; level--) {
      const parent = path[level] as Block
      if (has(parent.full, byteOf(address, level))) mark(parent, byteOf(address, level), false)
    }
  }

  has(address: Address): boolean {
    let at: Block | undefined = this.#root
    for (let level = 0; level < 3 && at; level++) at = at.below?.get(byteOf(address, level))
    return at !== undefined && has(at.full, address & 255)
  }

  /** The lowest address from `first` to `last`, both included, that is not in the set. */
  firstFree(first: Address, last: Address): Address | undefined {
    const found = this.#search(this.#root, 0, 0, first)
    return found === undefined || found > last ? undefined : found
  }

  #search(at: Block, level: number, base: number, from: Address): Address | undefined {
    const size = 2 ** (24 - 8 * level)
    let i = from <= base ? 0 : Math.floor((from - base) / size)
    for (i = firstClear(at.full, i); i < 256; i = firstClear(at.full, i + 1)) {
      const start = base + i * size
      const next = at.below?.get(i)
      if (!next) return Math.max(start, from)
      const found = this.#search(next, level + 1, start, from)
      if (found !== undefined) return found
      if (i === 255) return undefined
    }
    return undefined
  }
}
