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

/** How many addresses are in ranges that do not overlap. */
export const sizeOf = (ranges: readonly Range[]) =>
  ranges.reduce((sum, { first, last }) => sum + last - first + 1, 0)

/** The ranges without `taken` (in order, not overlapping), the addresses that are not lent. */
export function without(ranges: readonly Range[], taken: readonly Range[]): Range[] {
  return joined(ranges).flatMap(({ first, last }) => {
    const parts: Range[] = []
    let from = first
    for (let at = position(taken, first); at < taken.length; at++) {
      const gone = taken[at] as Range
      if (gone.first > last) break
      if (gone.first > from) parts.push({ first: from, last: gone.first - 1 })
      from = Math.max(from, gone.last + 1)
    }
    if (from <= last) parts.push({ first: from, last })
    return parts
  })
}

/** The index of the first range that does not end before `value`. */
function position(sorted: readonly Range[], value: number): number {
  let [low, high] = [0, sorted.length]
  while (low < high) {
    const middle = (low + high) >>> 1
    if ((sorted[middle] as Range).last < value) low = middle + 1
    else high = middle
  }
  return low
}
