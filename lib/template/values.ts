import { Failure, type Source } from './errors.js'
import { characters, formatFloat } from './text.js'

/*
 * Values are JSON's: null (none), booleans, strings, numbers, arrays (lists) and objects (maps). An integral
 * number is Python's int. What JSON has no word for is a Special.
 */

/** A value that templates can hold and data cannot. */
export abstract class Special {
  /** What messages call it. */
  abstract readonly label: string
}

/** What a missing variable, attribute or item gives: every use of it fails, save `is defined` and `default`. */
export class Undefined extends Special {
  readonly label = 'an undefined value'
  readonly reason: string
  readonly origin: { readonly source: Source; readonly at: number } | undefined

  constructor(reason: string, origin?: { readonly source: Source; readonly at: number }) {
    super()
    this.reason = reason
    this.origin = origin
  }

  /** The failure of using it. */
  failure(): Failure {
    return new Failure(this.reason, this.origin)
  }
}

/** What `a if b` without an else gives where b is false: jinja2 prints nothing for it, also when it is strict. */
class Blank extends Special {
  readonly label = 'the missing else of an if'
}

export const BLANK: Special = new Blank()

/** A float without a fraction (1.0), which a JavaScript number cannot tell from the integer. */
export class Float extends Special {
  readonly label = 'a float'
  readonly value: number

  constructor(value: number) {
    super()
    this.value = value
  }
}

/** A tuple: like a list, but not equal to one. */
export class Tuple extends Array<unknown> {}

/** What `map`, `selectattr`, `unique` and `reverse` give: can be gone through once. */
export class Iter extends Special implements Iterable<unknown> {
  readonly label = 'an iterator'
  readonly #items: Iterator<unknown>

  constructor(items: Iterable<unknown>) {
    super()
    this.#items = items[Symbol.iterator]()
  }

  // without `return`, so that who stops early leaves the rest for the next reader
  [Symbol.iterator](): Iterator<unknown> {
    return { next: () => this.#items.next() }
  }
}

/** A map written in a template; unlike data its keys may be numbers, booleans and none. */
export class Dict extends Special {
  readonly label = 'a map'
  readonly entries = new Map<unknown, { readonly key: unknown; value: unknown }>()

  set(key: unknown, value: unknown): void {
    const entry = this.entries.get(keyOf(key))
    if (entry !== undefined) entry.value = value
    else this.entries.set(keyOf(key), { key, value })
  }
}

/** `keys()`, `values()` or `items()` of a map. */
export class View extends Special {
  readonly label = 'a view of a map'
  readonly map: object
  readonly part: 'keys' | 'values' | 'items'

  constructor(map: object, part: 'keys' | 'values' | 'items') {
    super()
    this.map = map
    this.part = part
  }

  items(): unknown[] {
    const keys = mapKeys(this.map)
    if (this.part === 'keys') return keys
    const value = (key: unknown): unknown => defined(mapGet(this.map, key))
    return keys.map(key => (this.part === 'values' ? value(key) : Tuple.of(key, value(key))))
  }
}

/** A method of a string or map that has not been called. */
export class Method extends Special {
  readonly label = 'a method'
  readonly self: string | object
  readonly name: string

  constructor(self: string | object, name: string) {
    super()
    this.self = self
    this.name = name
  }
}

/** The variable `loop`. */
export class Loop extends Special {
  readonly label = 'the loop variable'
  readonly length: number
  index0 = 0

  constructor(length: number) {
    super()
    this.length = length
  }
}

/** undefined in data is a missing value. */
export function defined(value: unknown): unknown {
  return value === undefined ? new Undefined('the value is undefined') : value
}

/** What messages call a value: 'a list'. */
export function label(value: unknown): string {
  if (value === null) return 'none'
  if (value instanceof Special) return value.label
  if (Array.isArray(value)) return value instanceof Tuple ? 'a tuple' : 'a list'
  if (typeof value === 'number') return Number.isInteger(value) ? 'an integer' : 'a float'
  return typeof value === 'object' ? 'a map' : `a ${typeof value}`
}

/** Is it a map, from data or from a template? */
export function isMap(value: unknown): value is object {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false
  return !(value instanceof Special) || value instanceof Dict
}

/** Can it be a key of a map? Undefined is a Failure. */
export function isKey(value: unknown): boolean {
  if (value instanceof Undefined) throw value.failure()
  return value === null || value instanceof Float || value === BLANK || typeof value !== 'object'
}

/** Python takes 1, 1.0 and true for the same key. */
function keyOf(value: unknown): unknown {
  if (!isKey(value)) throw new Failure(`${label(value)} cannot be the key of a map`)
  if (typeof value === 'boolean') return Number(value)
  return value instanceof Float ? value.value : value
}

/** The value at `key`; undefined where there is none. Only own properties count. Failure: not a key. */
export function mapGet(map: object, key: unknown): unknown {
  if (map instanceof Dict) return map.entries.get(keyOf(key))?.value
  if (typeof key === 'string')
    return Object.hasOwn(map, key) ? (map as Record<string, unknown>)[key] : undefined
  keyOf(key)
  return undefined
}

/** The keys of a map, in the order they were put in. */
export function mapKeys(map: object): unknown[] {
  return map instanceof Dict ? Array.from(map.entries.values(), entry => entry.key) : Object.keys(map)
}

/** How many entries a map has. */
export function mapSize(map: object): number {
  return map instanceof Dict ? map.entries.size : Object.keys(map).length
}

/** What a value goes through as, in order. Failure: it cannot be gone through. */
export function iterate(value: unknown): Iterable<unknown> {
  if (Array.isArray(value)) return value
  if (typeof value === 'string') return characters(value)
  if (value instanceof Iter) return value
  if (value instanceof View) return value.items()
  if (value instanceof Undefined) throw value.failure()
  if (isMap(value)) return mapKeys(value)
  if (value === BLANK) return []
  throw new Failure(`cannot go through ${label(value)}`)
}

/** The items as an array, which may be the value itself: not to be changed. Failure as iterate(). */
export function toArray(value: unknown): readonly unknown[] {
  const items = iterate(value)
  return Array.isArray(items) ? items : Array.from(items)
}

/** Python's truth. Failure: undefined. */
export function truth(value: unknown): boolean {
  if (typeof value !== 'object') return Boolean(value)
  if (value === null) return false
  if (Array.isArray(value)) return value.length > 0
  if (value instanceof Undefined) throw value.failure()
  if (value instanceof Float) return value.value !== 0
  if (value instanceof View) return mapSize(value.map) > 0
  if (value === BLANK) return false
  return !isMap(value) || mapSize(value) > 0
}

/** As `{{ }}` prints it. Failure: undefined, and everything but strings, numbers, booleans and none. */
export function text(value: unknown): string {
  if (typeof value === 'string') return value
  if (typeof value === 'number') return Number.isInteger(value) ? String(value) : formatFloat(value)
  if (typeof value === 'boolean') return value ? 'True' : 'False'
  if (value === null) return 'None'
  if (value instanceof Float) return formatFloat(value.value)
  if (value instanceof Undefined) throw value.failure()
  if (value === BLANK) return ''
  throw new Failure(`${label(value)} cannot be printed`)
}

/** A number, 0 or 1 for a boolean, undefined for anything else. */
export function toNumber(value: unknown): number | undefined {
  if (typeof value === 'number') return value
  if (typeof value === 'boolean') return Number(value)
  return value instanceof Float ? value.value : undefined
}

/** An int or a boolean, which Python takes for one; undefined for anything else. */
export function toInteger(value: unknown): number | undefined {
  if (typeof value === 'boolean') return Number(value)
  return typeof value === 'number' && Number.isInteger(value) ? value : undefined
}

/** The float `x` as a value. */
export function float(x: number): unknown {
  return Number.isInteger(x) ? new Float(x) : x
}
