import { Failure } from './errors.js'
import type { Filter } from './filter.js'
import { equals } from './operators.js'
import { roundFloat, strip } from './text.js'
import { BLANK, float, label, toInteger, toNumber, Undefined } from './values.js'

const FLOAT = /^[+-]?(?:\d+(?:_\d+)*\.?(?:\d+(?:_\d+)*)?|\.\d+(?:_\d+)*)(?:e[+-]?\d+(?:_\d+)*)?$/i
const DIGITS = /^[0-9a-z]+(?:_[0-9a-z]+)*$/i
const PREFIXES = new Map([
  ['0b', 2],
  ['0o', 8],
  ['0x', 16]
])

/** `int`, `abs` and `round`. */
export const numberFilters: readonly [string, Filter][] = [
  ['int', { params: ['default', 'base'], needs: 0, run: toInt }],
  ['abs', { params: [], needs: 0, run: absolute }],
  ['round', { params: ['precision', 'method'], needs: 0, run: round }]
]

function toInt(value: unknown, [fallback = 0, base = 10]: readonly unknown[]): unknown {
  if (value instanceof Undefined) throw value.failure()
  if (typeof value !== 'string') {
    if (value === BLANK) throw new Failure(`${label(value)} has no integer`)
    const number = toNumber(value)
    return number === undefined ? fallback : (truncate(number) ?? fallback)
  }
  const radix = toInteger(base)
  if (radix === undefined) throw new Failure(`the base is ${label(base)}, not an integer`)
  const digits = strip(value, undefined, true, true)
  const integer = parseInteger(digits, radix)
  if (integer !== undefined) return exact(integer)
  // "42.7"|int is 42
  if (/^[+-]?inf(inity)?$/i.test(digits)) throw new Failure('infinity has no integer')
  return FLOAT.test(digits) ? truncate(Number(digits.replaceAll('_', ''))) : fallback
}

function truncate(x: number): number | undefined {
  if (Number.isNaN(x)) return undefined
  if (!Number.isFinite(x)) throw new Failure('infinity has no integer')
  return exact(Math.trunc(x) + 0)
}

function exact(x: number): number {
  if (!Number.isSafeInteger(x)) throw new Failure('the integer is too large')
  return x
}

function parseInteger(signedDigits: string, base: number): number | undefined {
  if (base !== 0 && (base < 2 || base > 36)) return undefined
  const sign = signedDigits.startsWith('-') ? -1 : 1
  const written = signedDigits.replace(/^[+-]/, '').toLowerCase()
  const prefix = PREFIXES.get(written.slice(0, 2))
  const isPrefixed = prefix !== undefined && (base === 0 || base === prefix)
  const radix = isPrefixed ? prefix : base || 10
  const digits = isPrefixed ? written.slice(2).replace(/^_/, '') : written
  if (!DIGITS.test(digits)) return undefined
  // in base 0 a number does not begin with 0, as in Python's own source
  if (base === 0 && !isPrefixed && /^0[0_]*[1-9]/.test(digits)) return undefined
  let value = 0
  for (const digit of digits.replaceAll('_', '')) {
    const amount = Number.parseInt(digit, 36)
    if (amount >= radix) return undefined
    value = value * radix + amount
  }
  return sign * value + 0
}

function absolute(value: unknown): unknown {
  if (value instanceof Undefined) throw value.failure()
  const x = toNumber(value)
  if (x === undefined) throw new Failure(`abs takes a number, not ${label(value)}`)
  return toInteger(value) === undefined ? float(Math.abs(x)) : Math.abs(x)
}

function round(value: unknown, [precision = 0, method = 'common']: readonly unknown[]): unknown {
  if (value instanceof Undefined) throw value.failure()
  const x = toNumber(value)
  const places = toInteger(precision)
  if (x === undefined || places === undefined) {
    throw new Failure(`round takes numbers, not ${label(x === undefined ? value : precision)}`)
  }
  const direction = ['common', 'ceil', 'floor'].find(name => equals(name, method))
  if (direction === undefined) throw new Failure('the method of round is common, ceil or floor')
  if (direction !== 'common') {
    const unit = 10 ** places
    const scaled = x * unit
    if (!Number.isFinite(scaled)) throw new Failure('the number is too large to round')
    return float((direction === 'ceil' ? Math.ceil(scaled) : Math.floor(scaled)) / unit + 0)
  }
  if (toInteger(value) === undefined) return float(roundFloat(x, places))
  return places >= 0 ? x : exact(roundFloat(x, places) + 0)
}
