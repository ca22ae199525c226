/** More digits than these are exact in no number. */
const LONGEST_NUMBER = 15

/**
 * The names of a pattern such as `node[001-100,120]` or `rack[1-4]node[0-31/2]`, in order. `wrong` makes the error that is
 * thrown for what is none, from the reason.
 */
export function* expand(pattern: string, wrong: (reason: string) => Error): Generator<string> {
  const parts = /^([^[\]]*)(?:\[([^[\]]*)\](.*))?$/s.exec(pattern)
  if (!parts) throw wrong('its brackets do not match')
  const [, before = '', ranges, rest = ''] = parts
  if (ranges === undefined) {
    yield before
    return
  }
  // The rest is read first: what is wrong there is told before a million names are made.
  for (const end of expand(rest, wrong)) {
    expand(end, wrong)
    break
  }
  for (const number of numbers(ranges, wrong))
    for (const end of expand(rest, wrong)) yield before + number + end
}

/** The numbers between two brackets, with their zeroes: `1-3`, `008-012`, `0-10/2`, with commas between them. */
function* numbers(text: string, wrong: (reason: string) => Error): Generator<string> {
  for (const range of text.split(',')) {
    const [, first, last = first, step = '1'] = /^\s*(\d+)(?:-(\d+)(?:\/(\d+))?)?\s*$/.exec(range) ?? []
    if (first === undefined || last === undefined)
      throw wrong(`[${text}] must hold numbers such as 1-10 or 001-100, with commas between them`)
    if (last.length > LONGEST_NUMBER)
      throw wrong(`${range.trim()}: a number has ${LONGEST_NUMBER} digits at most`)
    const [low, high, by] = [Number(first), Number(last), Number(step)]
    if (low > high || by === 0) throw wrong(`${range.trim()} counts to nowhere`)
    const isPadded = isZeroed(first) || isZeroed(last)
    if (isPadded && first.length !== last.length)
      throw wrong(`${range.trim()}: both numbers must have as many digits, as in 001-100`)
    const width = isPadded ? first.length : 0
    for (let number = low; number <= high; number += by) yield String(number).padStart(width, '0')
  }
}

/** Whether a number is written with zeroes before it. */
export const isZeroed = (digits: string): boolean => digits.length > 1 && digits.startsWith('0')
