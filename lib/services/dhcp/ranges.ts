import type { Address } from '../../model/address.js'

/** Addresses in a row, both ends included. */
export interface Range {
  readonly first: Address
  readonly last: Address
}

/** Ranges that overlap or touch as one, in order. */
function joined(ranges: readonly Range[]): Range[] {
  const result: Range[] = []
  for (const range of [...ranges].sort((a, b) => a.first - b.first)) {
    const before = result.at(-1)
    if (before && range.first <= before.last + 1)
      result[result.length - 1] = { first: before.first, last: Math.max(before.last, range.last) }
    else result.push(range)
  }
  return result
}

/** What is left of ranges when addresses (sorted) are taken out: those have an owner and are not lent to others. */
export function without(ranges: readonly Range[], taken: readonly Address[]): Range[] {
  return joined(ranges).flatMap(({ first, last }) => {
    const parts: Range[] = []
    let from = first
    for (let at = position(taken, first); at < taken.length && (taken[at] as Address) <= last; at++) {
      const address = taken[at] as Address
      if (address > from) parts.push({ first: from, last: address - 1 })
      from = Math.max(from, address + 1)
    }
    if (from <= last) parts.push({ first: from, last })
    return parts
  })
}

/** Where the first number that is not less than `value` stands. */
function position(sorted: readonly number[], value: number): number {
  let [low, high] = [0, sorted.length]
  while (low < high) {
    const middle = (low + high) >>> 1
    if ((sorted[middle] as number) < value) low = middle + 1
    else high = middle
  }
  return low
}
