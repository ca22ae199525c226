import { runSync, sortInSteps } from '../base/concurrency.js'
import { addTo } from '../base/lists.js'
import { isZeroed, MOST_BRACKETS } from './expand.js'

/** The parts of a name: text at even places, a number or ranges of numbers at odd ones. */
type Parts = readonly string[]

/** Folds names, last number first: node001, node002, node004 → `node[001-002,004]`. `evaluate` undoes it. */
export const fold = (names: Iterable<string>): string => runSync(foldSliced(names))

/** As `fold`, one name per step. */
export function* foldSliced(names: Iterable<string>): Generator<void, string> {
  let all: Parts[] = []
  // Filled one by one: a set made of 100,000 names at once blocks the event loop.
  const seen = new Set<string>()
  for (const name of names) {
    yield
    if (seen.has(name)) continue
    seen.add(name)
    const parts = name.split(/((?<!\d)\d{1,15}(?!\d))/)
    // A pattern has at most this many brackets; later numbers are text.
    const rest = parts.splice(2 * MOST_BRACKETS).join('')
    // Text stands at the end, even where that many numbers end the name.
    all.push(parts.length % 2 === 1 ? parts : [...parts, rest])
  }
  const longest = all.reduce((most, parts) => Math.max(most, parts.length), 0)
  for (let place = longest - 2; place > 0; place -= 2) all = yield* folded(all, place)
  const patterns: string[] = []
  for (const parts of all)
    yield void patterns.push(
      parts.map((part, i) => (i % 2 === 1 && !/^\d+$/.test(part) ? `[${part}]` : part)).join('')
    )
  return (yield* sortInSteps(patterns, (a, b) => (a < b ? -1 : a > b ? 1 : 0))).join(',')
}

/** Joins entries that differ only in the number at `place`. */
function* folded(all: readonly Parts[], place: number): Generator<void, Parts[]> {
  const has = (parts: Parts) => parts.length > place
  const alike = new Map<string, Parts[]>()
  for (const parts of all)
    yield addTo(alike, JSON.stringify(has(parts) ? parts.toSpliced(place, 1, '') : parts), parts)
  const folded: Parts[] = []
  for (const same of alike.values()) {
    const [first] = same as [Parts]
    yield
    folded.push(has(first) ? first.toSpliced(place, 1, yield* ranges(same, place)) : first)
  }
  return folded
}

/** Returns the numbers at a place as `1-3,5,008-012`; with leading zeros, a width is padded as a whole. */
function* ranges(all: readonly Parts[], place: number): Generator<void, string> {
  const padded = new Set<number>()
  for (const parts of all) {
    const number = parts[place] as string
    yield
    if (isZeroed(number)) padded.add(number.length)
  }
  const byWidth = new Map<number, number[]>()
  for (const parts of all) {
    const number = parts[place] as string
    yield addTo(byWidth, padded.has(number.length) ? number.length : 0, Number(number))
  }
  const found: string[] = []
  for (const width of [...byWidth.keys()].sort((a, b) => a - b)) {
    const text = (number: number) => String(number).padStart(width, '0')
    // Typed arrays sort numerically: 100,000 take a few milliseconds.
    for (const [first, last] of consecutive(Float64Array.from(byWidth.get(width) ?? []).sort()))
      yield void found.push(first === last ? text(first) : `${text(first)}-${text(last)}`)
  }
  return found.join(',')
}

/** Yields the first and last number of each run of consecutive numbers. */
function* consecutive(sorted: Iterable<number>): Generator<readonly [number, number]> {
  let run: [number, number] | undefined
  for (const number of sorted) {
    if (run && number === run[1] + 1) run[1] = number
    else {
      if (run) yield run
      run = [number, number]
    }
  }
  if (run) yield run
}
