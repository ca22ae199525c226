import type { Arithmetic, Comparison } from './ast.js'
import { Failure } from './errors.js'
import { compareText } from './text.js'
import {
  float,
  isKey,
  isMap,
  iterate,
  label,
  mapGet,
  mapKeys,
  mapSize,
  Tuple,
  toInteger,
  toNumber,
  Undefined,
  View
} from './values.js'

/** Python's arithmetic. Failure: wrong types, division by zero, an integer over 2^53, which is not exact here. */
export function arithmetic(operator: Arithmetic, a: unknown, b: unknown): unknown {
  if (a instanceof Undefined) throw a.failure()
  if (b instanceof Undefined) throw b.failure()
  const x = toNumber(a)
  const y = toNumber(b)
  if (x !== undefined && y !== undefined) {
    const isInt = toInteger(a) !== undefined && toInteger(b) !== undefined
    return isInt ? integers(operator, x, y) : float(floats(operator, x, y))
  }
  if (operator === '+') {
    if (typeof a === 'string' && typeof b === 'string') return a + b
    if (Array.isArray(a) && Array.isArray(b) && a instanceof Tuple === b instanceof Tuple) return a.concat(b)
  }
  if (operator === '*') {
    const times = toInteger(a) ?? toInteger(b)
    const what = toInteger(a) === undefined ? a : b
    if (times !== undefined && typeof what === 'string') return what.repeat(Math.max(0, times))
    if (times !== undefined && Array.isArray(what)) return repeat(what, times)
  }
  throw new Failure(`cannot compute ${label(a)} ${operator} ${label(b)}`)
}

function repeat(list: unknown[], times: number): unknown[] {
  const out = list.slice(0, 0)
  if (list.length * times > 1_000_000) throw new Failure('the list would be too long')
  for (let i = 0; i < times; i++) out.push(...list)
  return out
}

function integers(operator: Arithmetic, x: number, y: number): unknown {
  if (operator === '/' || (operator === '**' && y < 0)) return float(floats(operator, x, y))
  if ((operator === '//' || operator === '%') && y === 0) throw new Failure('division by zero')
  return safe(operator === '//' ? (x - modulo(x, y)) / y : compute(operator, x, y))
}

function floats(operator: Arithmetic, x: number, y: number): number {
  if ((operator === '/' || operator === '//' || operator === '%') && y === 0) {
    throw new Failure('division by zero')
  }
  if (operator === '//') return floorDivide(x, y)
  const result = compute(operator, x, y)
  if (operator === '**') {
    if (x === 0 && y < 0) throw new Failure('zero cannot be raised to a negative power')
    const isReal = !Number.isNaN(result) || Number.isNaN(x) || Number.isNaN(y)
    if (!isReal) throw new Failure('the power is not a real number')
    if (!Number.isFinite(result) && Number.isFinite(x) && Number.isFinite(y)) {
      throw new Failure('the power is too large')
    }
  }
  return result
}

function compute(operator: Arithmetic, x: number, y: number): number {
  switch (operator) {
    case '+':
      return x + y
    case '-':
      return x - y
    case '*':
      return x * y
    case '/':
      return x / y
    case '%':
      return modulo(x, y)
    case '**':
      // Python, unlike JavaScript, has 1 ** nan = 1 and (-1) ** inf = 1
      return x === 1 || (x === -1 && Math.abs(y) === Number.POSITIVE_INFINITY) ? 1 : x ** y
    case '//':
      return floorDivide(x, y)
  }
}

/** The remainder has the divisor's sign. */
function modulo(x: number, y: number): number {
  const rest = x % y
  if (rest === 0) return y < 0 ? -0 : 0
  return rest < 0 === y < 0 ? rest : rest + y
}

function floorDivide(x: number, y: number): number {
  const quotient = (x - modulo(x, y)) / y
  return Number.isFinite(quotient) ? Math.round(quotient) : quotient
}

function safe(result: number): number {
  if (!Number.isSafeInteger(result)) throw new Failure('the integer is too large')
  return result + 0
}

/** Unary minus and plus. Failure: not a number. */
export function signed(operator: '-' | '+', value: unknown): unknown {
  if (value instanceof Undefined) throw value.failure()
  const x = toNumber(value)
  if (x === undefined) throw new Failure(`cannot compute ${operator} of ${label(value)}`)
  if (toInteger(value) === undefined) return float(operator === '-' ? -x : x)
  return operator === '-' ? 0 - x : x
}

/** Python's `==`. Failure: undefined. */
export function equals(a: unknown, b: unknown): boolean {
  if (typeof a === 'string' && typeof b === 'string') return a === b
  if (a instanceof Undefined) throw a.failure()
  if (b instanceof Undefined) throw b.failure()
  const x = toNumber(a)
  if (x !== undefined) return x === toNumber(b)
  if (Array.isArray(a) && Array.isArray(b)) {
    if (a instanceof Tuple !== b instanceof Tuple || a.length !== b.length) return false
    return a.every((item, i) => same(item, b[i]))
  }
  if (isMap(a) && isMap(b)) {
    if (mapSize(a) !== mapSize(b)) return false
    return mapKeys(a).every(key => {
      const other = mapGet(b, key)
      return other !== undefined && same(mapGet(a, key), other)
    })
  }
  if (a instanceof View && b instanceof View && a.part !== 'values' && b.part !== 'values') {
    return mapSize(a.map) === mapSize(b.map) && a.items().every(item => contains(b, item))
  }
  return a === b
}

/** Equality of items: the same object is equal to itself, even undefined. */
function same(a: unknown, b: unknown): boolean {
  return (a === b && typeof a !== 'number') || equals(a, b)
}

/** Python's `<`. Failure: types that have no order. */
export function less(a: unknown, b: unknown): boolean {
  if (typeof a === 'string' && typeof b === 'string') return compareText(a, b) < 0
  if (a instanceof Undefined) throw a.failure()
  if (b instanceof Undefined) throw b.failure()
  const x = toNumber(a)
  const y = toNumber(b)
  if (x !== undefined && y !== undefined) return x < y
  if (Array.isArray(a) && Array.isArray(b) && a instanceof Tuple === b instanceof Tuple) {
    const i = a.findIndex((item, at) => at >= b.length || !same(item, b[at]))
    if (i < 0) return a.length < b.length
    return i < b.length && less(a[i], b[i])
  }
  throw new Failure(`cannot order ${label(a)} and ${label(b)}`)
}

function atMost(a: unknown, b: unknown): boolean {
  // not the same as `not b < a`, for nan
  const x = toNumber(a)
  const y = toNumber(b)
  return x !== undefined && y !== undefined ? x <= y : !less(b, a)
}

/** Python's `in`. Failure: the container holds nothing, or a number is looked for in a string. */
export function contains(container: unknown, item: unknown): boolean {
  if (typeof container === 'string') {
    if (item instanceof Undefined) throw item.failure()
    if (typeof item !== 'string') throw new Failure(`cannot look for ${label(item)} in a string`)
    return container.includes(item)
  }
  if (isMap(container)) {
    if (item instanceof Tuple) return false
    if (!isKey(item)) throw new Failure(`${label(item)} cannot be the key of a map`)
    return mapGet(container, item) !== undefined
  }
  if (container instanceof View) {
    // asks the map, so that what is no key, or no pair, is not compared
    if (container.part === 'keys') return contains(container.map, item)
    if (container.part === 'items') return containsPair(container.map, item)
  }
  for (const candidate of iterate(container)) {
    if (same(candidate, item)) return true
  }
  return false
}

function containsPair(map: object, pair: unknown): boolean {
  if (!(pair instanceof Tuple) || pair.length !== 2 || !contains(map, pair[0])) return false
  return same(mapGet(map, pair[0]), pair[1])
}

/** One comparison. Failure as equals(), less() and contains(). */
export function compare(operator: Comparison, a: unknown, b: unknown): boolean {
  switch (operator) {
    case '==':
      return equals(a, b)
    case '!=':
      return !equals(a, b)
    case '<':
      return less(a, b)
    case '>':
      return less(b, a)
    case '<=':
      return atMost(a, b)
    case '>=':
      return atMost(b, a)
    case 'in':
      return contains(b, a)
    case 'not in':
      return !contains(b, a)
  }
}
