import { characters, compareText, OperationError, type Origin, unsupported } from './errors.js'

/*
 * Values of templates are those of JSON: null (none), booleans, strings, integers, arrays (lists) and objects
 * (maps). A map written in a template is a Map. All other values are a Special. Each operation names the
 * values that it takes, and throws OperationError for any other.
 */

/** A value that data cannot hold; `label` names it in messages. */
class Special {
  constructor(readonly label: string) {}
}

/** A missing variable, attribute or item. All uses fail, except `is defined` and `default`. */
export class Undefined extends Special {
  constructor(
    readonly reason: string,
    readonly origin?: Origin
  ) {
    super('an undefined value')
  }
}

/** The value of `a if b` without an else if b is false. jinja2 prints nothing for it, even in strict mode. */
export const MISSING_ELSE = new Special('the missing else of an if')

/** The result of filters such as `map`, and of a map's `keys()` and `values()`: it can be iterated once. */
export class Iter extends Special implements Iterable<unknown> {
  #items: Iterable<unknown> | undefined

  /** `maker` is the filter or method that made it. */
  constructor(maker: string, items: Iterable<unknown>) {
    super(`the result of ${maker}`)
    this.#items = items
  }

  [Symbol.iterator](): Iterator<unknown> {
    const items = this.#items
    if (items === undefined) throw new OperationError(`${this.label} can be iterated once; |list keeps it`)
    this.#items = undefined
    return items[Symbol.iterator]()
  }
}

/** The result of a map's `items()`, only for `for key, value in …`, because jinja2's items are tuples. */
export class Pairs extends Special {
  constructor(readonly entries: readonly (readonly [string, unknown])[]) {
    super('the result of items(), which is for `for key, value in …`,')
  }
}

/** The variable `loop`. */
export class Loop extends Special {
  index0 = 0

  constructor(readonly length: number) {
    super('the loop variable')
  }
}

/** Returns the kind of a value for messages, such as 'a list'. */
export function label(value: unknown): string {
  if (value === null) return 'none'
  if (value instanceof Special) return value.label
  if (Array.isArray(value)) return 'a list'
  if (typeof value === 'object') return 'a map'
  if (typeof value !== 'number') return `a ${typeof value}`
  if (Number.isSafeInteger(value)) return 'an integer'
  return Number.isInteger(value) ? 'an integer over 2^53' : 'a float'
}

/** Returns the OperationError of a wrong use: `otherwise`, or why the value is undefined. */
export function wrongUse(value: unknown, otherwise: string): OperationError {
  return value instanceof Undefined
    ? new OperationError(value.reason, value.origin)
    : new OperationError(otherwise)
}

/** Returns a value for a variable or item. Throws OperationError for an undefined one. */
export function defined(value: unknown): unknown {
  if (value instanceof Undefined) throw wrongUse(value, '')
  return value
}

/** Whether a value is a map, of the data or of a template. */
export const isMap = (value: unknown): value is object =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Special)

/** Whether a value is none, a boolean, a string or an integer: Python's possible map keys here. */
export const isSimple = (value: unknown): boolean =>
  value === null || typeof value === 'string' || toInteger(value) !== undefined

/** Returns the own value at `key`; undefined if there is none. */
export function mapGet(map: object, key: unknown): unknown {
  if (map instanceof Map) return map.get(key)
  if (typeof key !== 'string' || !Object.hasOwn(map, key)) return undefined
  return (map as Record<string, unknown>)[key]
}

/** Returns the keys of a map in insertion order. */
export const mapKeys = (map: object): string[] => (map instanceof Map ? [...map.keys()] : Object.keys(map))

/** Iterates over a value; a map gives its keys. Throws OperationError if it cannot be iterated. */
export function iterate(value: unknown): Iterable<unknown> {
  if (Array.isArray(value) || value instanceof Iter) return value
  if (typeof value === 'string') return characters(value)
  if (isMap(value)) return mapKeys(value)
  throw wrongUse(value, `cannot iterate over ${label(value)}`)
}

/** Returns the items as an array, which must not be changed. Throws as iterate() or defined(). */
export const toList = (value: unknown): readonly unknown[] =>
  Array.isArray(value) ? value : Array.from(iterate(value), defined)

/** Returns the number of characters, items or entries. Throws OperationError for other values. */
export function lengthOf(value: unknown): number {
  if (Array.isArray(value) || typeof value === 'string' || isMap(value)) return toList(value).length
  throw wrongUse(value, `${label(value)} has no length`)
}

/** Returns Python's truth of a value. Throws OperationError for undefined, and for all but data and BLANK. */
export function truth(value: unknown): boolean {
  if (typeof value === 'boolean') return value
  if (typeof value === 'string') return value !== ''
  if (value === null || value === MISSING_ELSE) return false
  if (Array.isArray(value)) return value.length > 0
  if (isMap(value)) return mapKeys(value).length > 0
  const integer = toInteger(value)
  if (integer !== undefined) return integer !== 0
  throw wrongUse(value, `${label(value)} is neither true nor false`)
}

/** Returns a value as `{{ }}` prints it: strings, integers, booleans and none; throws OperationError. */
export function text(value: unknown): string {
  if (typeof value === 'string') return value
  if (typeof value === 'boolean') return value ? 'True' : 'False'
  if (Number.isSafeInteger(value)) return String(value)
  if (value === null) return 'None'
  if (value === MISSING_ELSE) return ''
  throw wrongUse(value, `${label(value)} cannot be printed`)
}

/** Returns an integer, or a boolean as Python's integer; undefined for anything else. */
export function toInteger(value: unknown): number | undefined {
  if (typeof value === 'boolean') return Number(value)
  return Number.isSafeInteger(value) ? (value as number) : undefined
}

/** Returns an integer argument, or `otherwise` if it is missing. Throws OperationError for other values. */
export function integerOr(otherwise: number, value: unknown): number {
  if (value === undefined) return otherwise
  const integer = toInteger(value)
  if (integer === undefined) throw wrongUse(value, `expected an integer, not ${label(value)}`)
  return integer
}

/** Returns an exact integer. Throws OperationError above 2^53. */
export function exact(result: number): number {
  if (!Number.isSafeInteger(result)) throw new OperationError('the integer is too large')
  // Turns -0 into 0.
  return result + 0
}

type Binary = (a: unknown, b: unknown) => unknown

/** Bounds the depth of compared values; data may contain itself. */
const DEEPEST = 100

/** Python's comparisons. They throw OperationError for values that Python cannot compare. */
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

/** The binary operators. They throw OperationError for values they do not take, and division by zero. */
export const OPERATORS: Readonly<Record<string, Binary>> = {
  ...COMPARISONS,
  '+': add,
  '-': integers('-', (x, y) => x - y),
  '*': integers('*', (x, y) => x * y),
  // Python rounds down, JavaScript towards zero.
  '//': integers('//', (x, y) => (x - (x % y)) / y - (isBelow(x, y) ? 1 : 0)),
  '%': integers('%', (x, y) => (x % y) + (isBelow(x, y) ? y : 0)),
  '~': (a, b) => text(a) + text(b)
}

function integers(operator: string, compute: (x: number, y: number) => number): Binary {
  return (a, b) => {
    const x = toInteger(a)
    const y = toInteger(b)
    if (x === undefined || y === undefined)
      throw wrongUse(a instanceof Undefined ? a : b, `cannot compute ${label(a)} ${operator} ${label(b)}`)
    if (y === 0 && '//%'.includes(operator)) throw new OperationError('division by zero')
    return exact(compute(x, y))
  }
}

/** Whether JavaScript's remainder has another sign than the divisor. */
const isBelow = (x: number, y: number): boolean => x % y !== 0 && x < 0 !== y < 0

function add(a: unknown, b: unknown): unknown {
  if (typeof a === 'string' && typeof b === 'string') return a + b
  if (Array.isArray(a) && Array.isArray(b)) return a.concat(b)
  return integers('+', (x, y) => x + y)(a, b)
}

/** Unary minus and plus. Throws OperationError for all but integers. */
export function signed(operator: '-' | '+', value: unknown): number {
  const x = toInteger(value)
  if (x === undefined) throw wrongUse(value, `cannot compute ${operator} of ${label(value)}`)
  return operator === '-' ? 0 - x : x
}

/** Python's `==` of data. Throws OperationError for undefined and for values that are not data. */
export function equals(a: unknown, b: unknown, depth = 0): boolean {
  if (typeof a === 'string' && typeof b === 'string') return a === b
  for (const value of [a, b])
    if (!isSimple(value) && !Array.isArray(value) && !isMap(value))
      throw wrongUse(value, `cannot compare ${label(value)}`)
  if (depth > DEEPEST) throw new OperationError(`the values are nested over ${DEEPEST} deep`)
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
  // 1 and true are equal.
  return (toInteger(a) ?? a) === (toInteger(b) ?? b)
}

/** Python's `<` of two integers or two strings. Throws OperationError for other values. */
export function less(a: unknown, b: unknown): boolean {
  if (typeof a === 'string' && typeof b === 'string') return compareText(a, b) < 0
  const x = toInteger(a)
  const y = toInteger(b)
  if (x !== undefined && y !== undefined) return x < y
  throw wrongUse(a instanceof Undefined ? a : b, `cannot order ${label(a)} and ${label(b)}`)
}

/** Python's `in`. Throws OperationError for a container without values, or no string in a string. */
function contains(container: unknown, item: unknown): boolean {
  if (typeof container === 'string') {
    if (typeof item !== 'string') throw wrongUse(item, `cannot look for ${label(item)} in a string`)
    return container.includes(item)
  }
  if (!Array.isArray(container) && !isSimple(item))
    throw wrongUse(item, `cannot look for ${label(item)} in ${label(container)}`)
  if (isMap(container)) return mapGet(container, item) !== undefined
  if (!Array.isArray(container) && !(container instanceof Iter))
    throw wrongUse(container, `cannot look for something in ${label(container)}`)
  for (const candidate of iterate(container)) if (equals(candidate, item)) return true
  return false
}

/** The attributes of `loop`. */
const LOOP = new Map<string, (loop: Loop) => unknown>([
  ['index', loop => loop.index0 + 1],
  ['index0', loop => loop.index0],
  ['revindex', loop => loop.length - loop.index0],
  ['revindex0', loop => loop.length - loop.index0 - 1],
  ['first', loop => loop.index0 === 0],
  ['last', loop => loop.index0 === loop.length - 1],
  ['length', loop => loop.length]
])

/** Attributes of Python's maps, which jinja2 finds before an item of the same name. */
const OF_MAPS =
  /^(?:clear|copy|fromkeys|get|items|keys|pop|popitem|setdefault|update|values|__(?!proto)[a-z_]+__)$/

/** Returns a reader of `value.name`; OperationError: neither map nor `loop`, or a method of maps. */
export function attribute(name: string, origin?: Origin): (value: unknown) => unknown {
  const isOfMaps = OF_MAPS.test(name)
  return value => {
    if (isMap(value)) {
      if (isOfMaps)
        throw new OperationError(`${name} is a method of maps: write ['${name}'] for the item of that name`)
      const found = mapGet(value, name)
      return found === undefined ? new Undefined(`the map has no item '${name}'`, origin) : found
    }
    const read = value instanceof Loop ? LOOP.get(name) : undefined
    if (value instanceof Loop && read !== undefined) return read(value)
    throw wrongUse(value, unsupported(`the attribute ${name} of ${label(value)}`))
  }
}

/** Reads `value[key]`. Throws OperationError for a value that has no items, or a key of the wrong kind. */
export function item(value: unknown, key: unknown, origin?: Origin): unknown {
  if (isMap(value) && isSimple(key)) {
    const found = mapGet(value, key)
    if (found !== undefined) return found
    if (typeof key === 'string') return attribute(key, origin)(value)
    return new Undefined('the map has no such item', origin)
  }
  const items = typeof value === 'string' ? characters(value) : value
  const index = toInteger(key)
  if (!Array.isArray(items) || index === undefined)
    throw wrongUse(isSimple(key) ? value : key, `${label(value)} has no item for ${label(key)}`)
  const found = items.at(index)
  return found === undefined ? new Undefined(`${label(value)} has no item ${index}`, origin) : found
}

/** Reads `value[from:to]`; null is an open end. Throws OperationError for other values and bounds. */
export function slice(value: unknown, from: unknown, to: unknown): unknown {
  const [start, end] = [from, to].map(bound => {
    const index = toInteger(bound)
    if (index === undefined && bound !== null)
      throw wrongUse(bound, `a slice counts in integers, not ${label(bound)}`)
    return index
  })
  if (typeof value === 'string') return characters(value).slice(start, end).join('')
  if (Array.isArray(value)) return value.slice(start, end)
  throw wrongUse(value, `cannot take a slice of ${label(value)}`)
}
