/** Strings and numbers as Python handles and writes them. */

const SPACES = new Set(
  '\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000'
)
const LINE_END = /\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/
const SURROGATE = /[\ud800-\udfff]/

/** The characters of `s`; Python counts and indexes these, not UTF-16 units. */
export function characters(s: string): string[] {
  return SURROGATE.test(s) ? Array.from(s) : s.split('')
}

/** Number of characters of `s`. */
export function characterCount(s: string): number {
  return SURROGATE.test(s) ? Array.from(s).length : s.length
}

/** `str.isspace` of one character. */
export function isSpace(character: string): boolean {
  return SPACES.has(character)
}

/** `str.strip`, `lstrip` and `rstrip`: white space, or the characters of `chars`, off the given sides. */
export function strip(s: string, chars: string | undefined, left: boolean, right: boolean): string {
  const unwanted = chars === undefined ? SPACES : new Set(characters(chars))
  const all = characters(s)
  let from = 0
  let to = all.length
  while (left && from < to && unwanted.has(all[from] ?? '')) from++
  while (right && to > from && unwanted.has(all[to - 1] ?? '')) to--
  return from === 0 && to === all.length ? s : all.slice(from, to).join('')
}

/** `str.split`: at `separator`, or at runs of white space; at most `limit` cuts, all where it is negative. */
export function split(s: string, separator: string | undefined, limit: number): string[] {
  const parts: string[] = []
  let from = 0
  if (separator !== undefined) {
    for (let at = s.indexOf(separator); at >= 0 && parts.length !== limit; at = s.indexOf(separator, from)) {
      parts.push(s.slice(from, at))
      from = at + separator.length
    }
    parts.push(s.slice(from))
    return parts
  }
  for (;;) {
    while (isSpace(s.charAt(from))) from++
    if (from === s.length) return parts
    let to = parts.length === limit ? s.length : from
    while (to < s.length && !isSpace(s.charAt(to))) to++
    parts.push(s.slice(from, to))
    from = to
  }
}

/** `str.splitlines`: a line end at the very end begins no further line. */
export function splitLines(s: string): string[] {
  const lines = s.split(LINE_END)
  if (lines.at(-1) === '') lines.pop()
  return lines
}

/** `str.replace`: at most `limit` replacements, all where it is negative. */
export function replace(s: string, from: string, to: string, limit: number): string {
  if (from !== '') return split(s, from, limit).join(to)
  // Python finds the empty string before every character and at the end
  const gaps = characters(s)
  let out = ''
  gaps.forEach((character, i) => {
    out += (limit < 0 || i < limit ? to : '') + character
  })
  return limit < 0 || gaps.length < limit ? out + to : out
}

/** `str.capitalize` */
export function capitalize(s: string): string {
  const [first = '', ...rest] = characters(s)
  return titleCase(first) + rest.join('').toLowerCase()
}

/** `str.title`: a capital after everything that is not a letter. */
export function title(s: string): string {
  let out = ''
  let inWord = false
  for (const character of characters(s)) {
    out += inWord ? character.toLowerCase() : titleCase(character)
    inWord = character.toLowerCase() !== character.toUpperCase()
  }
  return out
}

function titleCase(character: string): string {
  const [first = '', ...rest] = characters(character.toUpperCase())
  return first + rest.join('').toLowerCase()
}

/** Orders by character, as Python does; UTF-16 order puts U+1F600 before U+FF01. */
export function compareText(a: string, b: string): number {
  const length = Math.min(a.length, b.length)
  for (let i = 0; i < length; i++) {
    const x = a.charCodeAt(i)
    const y = b.charCodeAt(i)
    if (x !== y) return aboveSurrogates(x) - aboveSurrogates(y)
  }
  return a.length - b.length
}

function aboveSurrogates(unit: number): number {
  if (unit < 0xd800) return unit
  return unit < 0xe000 ? unit + 0x2000 : unit - 0x800
}

/** A float as Python's `repr` writes it: 1.0, 1e-05, 1e+16, inf. */
export function formatFloat(x: number): string {
  if (Number.isNaN(x)) return 'nan'
  if (!Number.isFinite(x)) return x > 0 ? 'inf' : '-inf'
  if (x < 0 || Object.is(x, -0)) return `-${formatFloat(-x)}`
  const [mantissa = '', power = ''] = x.toExponential().split('e')
  const exponent = Number(power)
  if (exponent < -4 || exponent >= 16) {
    return `${mantissa}e${exponent < 0 ? '-' : '+'}${String(Math.abs(exponent)).padStart(2, '0')}`
  }
  const digits = mantissa.replace('.', '')
  if (exponent < 0) return `0.${'0'.repeat(-exponent - 1)}${digits}`
  const whole = digits.slice(0, exponent + 1).padEnd(exponent + 1, '0')
  return `${whole}.${digits.slice(exponent + 1) || '0'}`
}

/** Python's `round(x, places)` of a float: exact, and halves to the even neighbour. */
export function roundFloat(x: number, places: number): number {
  if (!Number.isFinite(x) || places > 100) return x
  if (x < 0 || Object.is(x, -0)) return -roundFloat(-x, places)
  if (places < 0) {
    const unit = 10 ** -places
    return Number.isFinite(unit) ? roundFloat(x / unit, 0) * unit : 0
  }
  if (x >= 1e21) return x
  const exact = x.toFixed(100)
  const end = exact.indexOf('.') + 1 + places
  const down = exact.slice(0, end)
  const isHalf = /^50*$/.test(exact.slice(end))
  return Number(isHalf && /[02468]\.?$/.test(down) ? down : x.toFixed(places))
}
