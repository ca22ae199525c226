import { Failure } from './errors.js'
import type { Filter } from './filter.js'
import { listFilters } from './filters-list.js'
import { numberFilters } from './filters-number.js'
import { toJson } from './json.js'
import { capitalize, replace, splitLines, strip } from './text.js'
import { BLANK, label, text, toInteger, truth, Undefined } from './values.js'

const WORD_START = /([-\s({[<]+)/

const simple = (run: (value: unknown) => unknown): Filter => ({ params: [], needs: 0, run })

/** jinja2's filters that templates may use, and `quote`, `b64encode`, `b64decode`. */
export const FILTERS: ReadonlyMap<string, Filter> = new Map<string, Filter>([
  ['default', { params: ['default_value', 'boolean'], needs: 0, run: orDefault }],
  ['d', { params: ['default_value', 'boolean'], needs: 0, run: orDefault }],
  ['upper', simple(value => text(value).toUpperCase())],
  ['lower', simple(value => text(value).toLowerCase())],
  ['capitalize', simple(value => capitalize(text(value)))],
  ['title', simple(value => text(value).split(WORD_START).map(capitalFirst).join(''))],
  ['string', simple(text)],
  ['trim', { params: ['chars'], needs: 0, run: trim }],
  ['replace', { params: ['old', 'new', 'count'], needs: 2, run: replaceText }],
  ['indent', { params: ['width', 'first', 'blank'], needs: 0, run: indent }],
  [
    'tojson',
    { params: ['indent'], needs: 0, run: (value, [width]) => toJson(value, optionalInteger(width)) }
  ],
  ['quote', simple(quote)],
  ['b64encode', simple(value => Buffer.from(text(value), 'utf8').toString('base64'))],
  ['b64decode', simple(decodeBase64)],
  ...numberFilters,
  ...listFilters
])

function orDefault(value: unknown, [fallback = '', boolean = false]: readonly unknown[]): unknown {
  if (value instanceof Undefined || value === BLANK) return fallback
  return truth(boolean) && !truth(value) ? fallback : value
}

function capitalFirst(word: string): string {
  const [first = ''] = word
  return first.toUpperCase() + word.slice(first.length).toLowerCase()
}

function trim(value: unknown, [chars]: readonly unknown[]): unknown {
  const all = text(value)
  if (chars !== undefined && chars !== null && typeof chars !== 'string') {
    throw new Failure(`trim takes a string of characters, not ${label(chars)}`)
  }
  return strip(all, chars ?? undefined, true, true)
}

function replaceText(value: unknown, [from, to, count]: readonly unknown[]): unknown {
  return replace(text(value), text(from), text(to), optionalInteger(count) ?? -1)
}

function indent(value: unknown, [width = 4, first = false, blank = false]: readonly unknown[]): unknown {
  if (value instanceof Undefined) throw value.failure()
  if (typeof value !== 'string') throw new Failure(`indent takes a string, not ${label(value)}`)
  const margin = typeof width === 'string' ? width : ' '.repeat(Math.max(0, optionalInteger(width) ?? 0))
  const isBlankToo = truth(blank)
  const lines = splitLines(`${value}\n`)
  const indented = lines.map((line, i) => (i > 0 && (line !== '' || isBlankToo) ? margin + line : line))
  return (truth(first) ? margin : '') + indented.join('\n')
}

/**
 * One word for a POSIX shell, always in single quotes, whatever the text holds: `it's` is `'it'"'"'s'`.
 * Failure: a NUL, which no shell word can hold.
 */
function quote(value: unknown): string {
  const word = text(value)
  if (word.includes('\0')) throw new Failure('a text with a NUL cannot be quoted for a shell')
  return `'${word.replaceAll("'", `'"'"'`)}'`
}

function decodeBase64(value: unknown): string {
  const encoded = text(value)
  if (encoded.length % 4 !== 0 || !/^[A-Za-z0-9+/]*={0,2}$/.test(encoded)) {
    throw new Failure('the text is not base64')
  }
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(Buffer.from(encoded, 'base64'))
  } catch {
    throw new Failure('the base64 does not hold UTF-8 text')
  }
}

function optionalInteger(value: unknown): number | undefined {
  if (value === undefined || value === null) return undefined
  if (value instanceof Undefined) throw value.failure()
  const integer = toInteger(value)
  if (integer === undefined) throw new Failure(`expected an integer, not ${label(value)}`)
  return integer
}
