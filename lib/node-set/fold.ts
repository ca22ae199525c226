import { isZeroed } from './expand.js'

/** A name's text (even places) and numbers (odd places); a number is one name's, or ranges of several. */
type Parts = readonly string[]

/**
 * The shortest notation that these names have when their numbers are folded from the last to the first:
 * node001, node002, node004 → `node[001-002,004]`. Evaluated it gives the same names.
 */
export function fold(names: Iterable<string>): string {
  let all: Parts[] = [...new Set(names)].map(name => name.split(/((?<!\d)\d{1,15}(?!\d))/))
  const longest = all.reduce((most, parts) => Math.max(most, parts.length), 0)
  for (let place = longest - 2; place > 0; place -= 2) all = folded(all, place)
  return all
    .map(parts => parts.map((part, i) => (i % 2 === 1 && !/^\d+$/.test(part) ? `[${part}]` : part)).join(''))
    .sort()
    .join(',')
}

/** Puts those together that differ in the number at this place alone. */
function folded(all: readonly Parts[], place: number): Parts[] {
  const has = (parts: Parts) => parts.length > place
  const alike = groups(all, parts => JSON.stringify(has(parts) ? parts.toSpliced(place, 1, '') : parts))
  return [...alike.values()].map(same => {
    const [first] = same as [Parts]
    return has(first) ? first.toSpliced(place, 1, ranges(same.map(parts => parts[place] as string))) : first
  })
}

/**
 * `1-3,5,008-012` of numbers in any order. Where some numbers of a width begin with zeroes, all of that width are counted
 * together.
 */
function ranges(numbers: readonly string[]): string {
  const padded = new Set(numbers.filter(isZeroed).map(({ length }) => length))
  const byWidth = groups(numbers, ({ length }) => (padded.has(length) ? length : 0))
  return [...byWidth.keys()]
    .sort((a, b) => a - b)
    .flatMap(width => consecutive((byWidth.get(width) ?? []).toSorted((a, b) => Number(a) - Number(b))))
    .map(([first, last]) => (first === last ? first : `${first}-${last}`))
    .join(',')
}

/** First and last of each run of numbers that follow one another. */
function consecutive(sorted: readonly string[]): [string, string][] {
  const runs: [string, string][] = []
  for (const number of sorted) {
    const run = runs.at(-1)
    if (run !== undefined && Number(number) === Number(run[1]) + 1) run[1] = number
    else runs.push([number, number])
  }
  return runs
}

function groups<V, K>(values: readonly V[], keyOf: (value: V) => K): Map<K, V[]> {
  const found = new Map<K, V[]>()
  for (const value of values) {
    const group = found.get(keyOf(value))
    if (group) group.push(value)
    else found.set(keyOf(value), [value])
  }
  return found
}
