import { characters, compareText, Failure, type Origin } from './errors.js'

/*
 * The values of templates are JSON's: null (none), booleans, strings, integers, arrays (lists) and objects
 * (maps). A map that a template writes is a Map. What JSON has no word for is a Special. Each operation names
 * the values that it takes; any other value is a Failure.
 */

/** A value that templates can hold and data cannot; `label` is what messages call it. */
export class Special {
  constructor(readonly label: string) {}
}

/** What a missing variable, attribute or item gives. Every use of it fails, save `is defined` and `default`. */
export class Undefined extends Special {
  constructor(
    readonly reason: string,
    readonly origin?: Origin
  ) {
    super('an undefined value')
  }
}

/** What `a if b` without an else gives where b is false. jinja2 prints nothing for it, also when it is strict. */
export const BLANK = new Special('the missing else of an if')

/** What filters such as `map`, and `keys()` and `values()` of a map, give: it can be gone through, once. */
export class Iter extends Special implements Iterable<unknown> {
  #items: Iterable<unknown> | undefined

  /** `maker` is the filter or method that gave it. */
  constructor(maker: string, items: Iterable<unknown>) {
    super(`what ${maker} gives`)
    this.#items = items
  }

  [Symbol.iterator](): Iterator<unknown> {
    const items = this.#items
    if (items === undefined) throw new Failure(`${this.label} can be gone through once; |list keeps it`)
    this.#items = undefined
    return items[Symbol.iterator]()
  }
}

/** What `items()` of a map gives, for `for key, value in …` alone: jinja2's items are tuples. */
export class Pairs extends Special {
  constructor(readonly entries: readonly (readonly [string, unknown])[]) {
    super('what items() gives, which is for `for key, value in …`,')
  }
}

/** The variable `loop`. */
export class Loop extends Special {
  index0 = 0

  constructor(readonly length: number) {
    super('the loop variable')
  }
}

/** What messages call a value: 'a list'. */
export function label(value: unknown): string {
  if (value === null) return 'none'
  if (value instanceof Special) return value.label
  if (Array.isArray(value)) return 'a list'
  if (typeof value === 'object') return 'a map'
  if (typeof value !== 'number') return `a ${typeof value}`
  if (Number.isSafeInteger(value)) return 'an integer'
  return Number.isInteger(value) ? 'an integer over 2^53' : 'a float'
}

/** The Failure of a use that `value` is not for: `otherwise`, or why it is undefined. */
export function misuse(value: unknown, otherwise: string): Failure {
  return value instanceof Undefined ? new Failure(value.reason, value.origin) : new Failure(otherwise)
}

/** A value that is to be kept, as a variable or an item. Failure: undefined. */
export function defined(value: unknown): unknown {
  if (value instanceof Undefined) throw misuse(value, '')
  return value
}

/** Is it a map, of the data or of a template? */
export function isMap(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Special)
}

/** Is it none, a boolean, a string or an integer? Python can look these up in a map, and lists and maps not. */
export function isSimple(value: unknown): boolean {
  return value === null || typeof value === 'string' || toInteger(value) !== undefined
}

/** The value at `key`; undefined where there is none. Only own properties count. */
export function mapGet(map: object, key: unknown): unknown {
  if (map instanceof Map) return map.get(key)
  if (typeof key !== 'string' || !Object.hasOwn(map, key)) return undefined
  return (map as Record<string, unknown>)[key]
}

/** The keys of a map, in the order they were put in. */
export function mapKeys(map: object): string[] {
  return map instanceof Map ? [...map.keys()] : Object.keys(map)
}

/** What a value goes through as, in order; of a map these are the keys. Failure: it cannot be gone through. */
export function iterate(value: unknown): Iterable<unknown> {
  if (Array.isArray(value) || value instanceof Iter) return value
  if (typeof value === 'string') return characters(value)
  if (isMap(value)) return mapKeys(value)
  throw misuse(value, `cannot go through ${label(value)}`)
}

/** The items as an array, which may be the value itself: not to be changed. Failure as iterate(); undefined items. */
export function toList(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : Array.from(iterate(value), defined)
}

/** How many characters, items or entries a value has. Failure: it has no length. */
export function lengthOf(value: unknown): number {
  if (Array.isArray(value) || typeof value === 'string' || isMap(value)) return toList(value).length
  throw misuse(value, `${label(value)} has no length`)
}

/** Python's truth. Failure: undefined, and what is neither data nor BLANK. */
export function truth(value: unknown): boolean {
  if (typeof value === 'boolean') return value
  if (typeof value === 'string') return value !== ''
  if (value === null || value === BLANK) return false
  if (Array.isArray(value)) return value.length > 0
  if (isMap(value)) return mapKeys(value).length > 0
  const integer = toInteger(value)
  if (integer !== undefined) return integer !== 0
  throw misuse(value, `${label(value)} is neither true nor false`)
}

/** As `{{ }}` prints it. Failure: undefined, and all but strings, integers, booleans and none. */
export function text(value: unknown): string {
  if (typeof value === 'string') return value
  if (typeof value === 'boolean') return value ? 'True' : 'False'
  if (Number.isSafeInteger(value)) return String(value)
  if (value === null) return 'None'
  if (value === BLANK) return ''
  throw misuse(value, `${label(value)} cannot be printed`)
}

/** An integer, or a boolean, which Python takes for one; undefined for anything else. */
export function toInteger(value: unknown): number | undefined {
  if (typeof value === 'boolean') return Number(value)
  return Number.isSafeInteger(value) ? (value as number) : undefined
}

/** An argument that is an integer; `otherwise` where it is left out. Failure: it is something else. */
export function integerOr(otherwise: number, value: unknown): number {
  if (value === undefined) return otherwise
  const integer = toInteger(value)
  if (integer === undefined) throw misuse(value, `expected an integer, not ${label(value)}`)
  return integer
}

/** An integer that is still exact. Failure: it is over 2^53. */
export function exact(result: number): number {
  if (!Number.isSafeInteger(result)) throw new Failure('the integer is too large')
  // -0 is 0
  return result + 0
}

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
