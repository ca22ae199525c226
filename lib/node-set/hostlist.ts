import { runSync, sortInSteps } from '../base/concurrency.js'
import { addTo } from '../base/lists.js'
import { clip } from '../base/log.js'

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

/** Numbers with more digits are not exact. */
const LONGEST_NUMBER = 15
/** Far above what names of machines need. */
const MOST_BRACKETS = 8

/** Numbers from `low` to `high` in steps of `by`, padded with zeros to `width`. */
interface Range {
  readonly low: number
  readonly high: number
  readonly by: number
  readonly width: number
}

/**
 * Expands a pattern such as `node[001-100,120]` or `rack[1-4]node[0-31/2]`, in order; undefined is a pause.
 * Throws the error that `wrong` makes of a reason: for a malformed pattern before the first name, for a name
 * longer than `longest` when it comes up.
 */
export function* expand(
  pattern: string,
  longest: number,
  wrong: (reason: string) => Error
): Generator<string | undefined> {
  const brackets = pattern.replace(/[^[\]]/g, '')
  if (!/^(?:\[\])*$/.test(brackets)) throw wrong('its brackets do not match')
  if (brackets.length > 2 * MOST_BRACKETS) throw wrong(`it has more than ${MOST_BRACKETS} pairs of brackets`)
  // Even places are text, odd ones the contents of brackets.
  const parts = pattern.split(/[[\]]/)
  const all: (string | Range[])[] = []
  for (const [i, part] of parts.entries()) all.push(i % 2 === 0 ? part : yield* rangesOf(part, wrong))
  const tooLong = (name: string) =>
    wrong(`${forMessage(name)} would be a name of more than ${longest} characters`)
  const text = all.filter(part => typeof part === 'string').join('')
  if (text.length > longest) throw tooLong(parts.join(''))
  for (const name of joined(all, 0, '')) {
    if (name.length > longest) throw tooLong(name)
    yield name
  }
}

/** Yields the names that begin with `before` and go on with the parts from `at`. */
function* joined(parts: readonly (string | Range[])[], at: number, before: string): Generator<string> {
  const part = parts[at]
  if (part === undefined) yield before
  else if (typeof part === 'string') yield* joined(parts, at + 1, before + part)
  else
    for (const { low, high, by, width } of part)
      for (let number = low; number <= high; number += by)
        yield* joined(parts, at + 1, before + String(number).padStart(width, '0'))
}

/** Parses the contents of brackets: `1-3`, `008-012`, `0-10/2`, separated by commas. */
function* rangesOf(text: string, wrong: (reason: string) => Error): Generator<undefined, Range[]> {
  const ranges: Range[] = []
  for (const range of text.split(',')) {
    yield
    const [, first, last = first, step = '1'] = /^\s*(\d+)(?:-(\d+)(?:\/(\d+))?)?\s*$/.exec(range) ?? []
    if (first === undefined || last === undefined)
      throw wrong(`[${forMessage(text)}] must hold numbers such as 1-10 or 001-100, with commas between them`)
    if (last.length > LONGEST_NUMBER)
      throw wrong(`${forMessage(range.trim())}: a number has ${LONGEST_NUMBER} digits at most`)
    const [low, high, by] = [Number(first), Number(last), Number(step)]
    if (low > high || by === 0)
      throw wrong(
        `${forMessage(range.trim())} names no number: write the smaller one first, and a step of 1 or more`
      )
    const isPadded = isZeroed(first) || isZeroed(last)
    if (isPadded && first.length !== last.length)
      throw wrong(`${forMessage(range.trim())}: both numbers must have as many digits, as in 001-100`)
    ranges.push({ low, high, by, width: isPadded ? first.length : 0 })
  }
  return ranges
}

/** Returns a text for a message, cut if long. */
export const forMessage = (text: string) => clip(text, 200)

/** Whether a number has leading zeros. */
const isZeroed = (digits: string): boolean => digits.length > 1 && digits.startsWith('0')
