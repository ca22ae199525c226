import { clip } from '../base/log.js'

/** Numbers with more digits are not exact. */
const LONGEST_NUMBER = 15
/** Far above what names of machines need. */
export const MOST_BRACKETS = 8

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
export const isZeroed = (digits: string): boolean => digits.length > 1 && digits.startsWith('0')
