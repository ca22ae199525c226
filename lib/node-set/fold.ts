import { atOnce } from '../concurrency.js'
import { isZeroed } from './expand.js'

/** A name's text (even places) and numbers (odd places); a number is one name's, or ranges of several. */
type Parts = readonly string[]

/**
 * The shortest notation that these names have when their numbers are folded from the last to the first:
 * node001, node002, node004 → `node[001-002,004]`. Evaluated it gives the same names.
 */
export const fold = (names: Iterable<string>): string => atOnce(folding(names))

/** The same, name by name. */
export function* folding(names: Iterable<string>): Generator<void, string> {
  let all: Parts[] = []
  for (const name of new Set(names)) yield void all.push(name.split(/((?<!\d)\d{1,15}(?!\d))/))
  const longest = all.reduce((most, parts) => Math.max(most, parts.length), 0)
  for (let place = longest - 2; place > 0; place -= 2) all = yield* folded(all, place)
  return all
    .map(parts => parts.map((part, i) => (i % 2 === 1 && !/^\d+$/.test(part) ? `[${part}]` : part)).join(''))
    .sort()
    .join(',')
}

/** Puts those together that differ in the number at this place alone. */
function* folded(all: readonly Parts[], place: number): Generator<void, Parts[]> {
  const has = (parts: Parts) => parts.length > place
  const alike = new Map<string, Parts[]>()
  for (const parts of all)
    yield addTo(alike, JSON.stringify(has(parts) ? parts.toSpliced(place, 1, '') : parts), parts)
  const folded: Parts[] = []
  for (const same of alike.values()) {
    const [first] = same as [Parts]
    yield
    folded.push(
      has(first) ? first.toSpliced(place, 1, ranges(same.map(parts => parts[place] as string))) : first
    )
  }
  return folded
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
  for (const value of values) addTo(found, keyOf(value), value)
  return found
}

function addTo<V, K>(groups: Map<K, V[]>, key: K, value: V): void {
  const group = groups.get(key)
  if (group) group.push(value)
  else groups.set(key, [value])
}
