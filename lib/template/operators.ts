import { Failure } from './errors.js'
import { compareText } from './text.js'
import {
  exact,
  Iter,
  isMap,
  isSimple,
  iterate,
  label,
  mapGet,
  mapKeys,
  misuse,
  text,
  toInteger,
  Undefined
} from './values.js'

type Binary = (a: unknown, b: unknown) => unknown

/** Compared values may be nested this deep; data may hold itself. */
const DEEPEST = 100

/** Python's comparisons. Failure: values that it cannot compare. */
export const COMPARISONS = {
  '==': (a, b) => equals(a, b),
  '!=': (a, b) => !equals(a, b),
  '<': (a, b) => less(a, b),
  '>': (a, b) => less(b, a),
  '<=': (a, b) => !less(b, a),
  '>=': (a, b) => !less(a, b),
  in: (a, b) => contains(b, a),
  'not in': (a, b) => !contains(b, a)
} as const satisfies Record<string, Binary>

/** The operators between two values. Failure: other values than they take, division by zero. */
export const OPERATORS: Readonly<Record<string, Binary>> = {
  ...COMPARISONS,
  '+': add,
  '-': integers('-', (x, y) => x - y),
  '*': integers('*', (x, y) => x * y),
  // Python rounds down, where JavaScript rounds to zero
  '//': integers('//', (x, y) => (x - (x % y)) / y - (isBelow(x, y) ? 1 : 0)),
  '%': integers('%', (x, y) => (x % y) + (isBelow(x, y) ? y : 0)),
  '~': (a, b) => text(a) + text(b)
}

function integers(operator: string, compute: (x: number, y: number) => number): Binary {
  return (a, b) => {
    const x = toInteger(a)
    const y = toInteger(b)
    if (x === undefined || y === undefined)
      throw misuse(a instanceof Undefined ? a : b, `cannot compute ${label(a)} ${operator} ${label(b)}`)
    if (y === 0 && '//%'.includes(operator)) throw new Failure('division by zero')
    return exact(compute(x, y))
  }
}

/** Is the remainder, as JavaScript has it, of the other sign than the divisor? */
function isBelow(x: number, y: number): boolean {
  return x % y !== 0 && x < 0 !== y < 0
}

function add(a: unknown, b: unknown): unknown {
  if (typeof a === 'string' && typeof b === 'string') return a + b
  if (Array.isArray(a) && Array.isArray(b)) return a.concat(b)
  return integers('+', (x, y) => x + y)(a, b)
}

/** Unary minus and plus. Failure: not an integer. */
export function signed(operator: '-' | '+', value: unknown): number {
  const x = toInteger(value)
  if (x === undefined) throw misuse(value, `cannot compute ${operator} of ${label(value)}`)
  return operator === '-' ? 0 - x : x
}

/** Python's `==` of data. Failure: undefined, and what is no data. */
export function equals(a: unknown, b: unknown, depth = 0): boolean {
  if (typeof a === 'string' && typeof b === 'string') return a === b
  for (const value of [a, b])
    if (!isSimple(value) && !Array.isArray(value) && !isMap(value))
      throw misuse(value, `cannot compare ${label(value)}`)
  if (depth > DEEPEST) throw new Failure(`the values are nested over ${DEEPEST} deep`)
  if (Array.isArray(a) && Array.isArray(b))
    return a.length === b.length && a.every((item, i) => equals(item, b[i], depth + 1))
  if (isMap(a) && isMap(b)) {
    const keys = mapKeys(a)
    if (keys.length !== mapKeys(b).length) return false
    return keys.every(key => {
      const other = mapGet(b, key)
      return other !== undefined && equals(mapGet(a, key), other, depth + 1)
    })
  }
  // 1 and true are the same
  return (toInteger(a) ?? a) === (toInteger(b) ?? b)
}

/** Python's `<` of two integers or two strings. Failure: other values. */
export function less(a: unknown, b: unknown): boolean {
  if (typeof a === 'string' && typeof b === 'string') return compareText(a, b) < 0
  const x = toInteger(a)
  const y = toInteger(b)
  if (x !== undefined && y !== undefined) return x < y
  throw misuse(a instanceof Undefined ? a : b, `cannot order ${label(a)} and ${label(b)}`)
}

/** Python's `in`. Failure: the container holds nothing, or a string is to hold something else than a string. */
function contains(container: unknown, item: unknown): boolean {
  if (typeof container === 'string') {
    if (typeof item !== 'string') throw misuse(item, `cannot look for ${label(item)} in a string`)
    return container.includes(item)
  }
  if (!Array.isArray(container) && !isSimple(item))
    throw misuse(item, `cannot look for ${label(item)} in ${label(container)}`)
  if (isMap(container)) return mapGet(container, item) !== undefined
  if (!Array.isArray(container) && !(container instanceof Iter))
    throw misuse(container, `cannot look for something in ${label(container)}`)
  for (const candidate of iterate(container)) if (equals(candidate, item)) return true
  return false
}
