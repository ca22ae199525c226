import { Failure } from './errors.js'
import { isMapMethod, isTextMethod } from './methods.js'
import { characterCount, characters } from './text.js'
import {
  BLANK,
  defined,
  Iter,
  isKey,
  isMap,
  iterate,
  Loop,
  label,
  Method,
  mapGet,
  mapSize,
  Tuple,
  toInteger,
  Undefined,
  View
} from './values.js'

/** What a missing attribute or item gives; made only then. */
export type Missing = (reason: string) => Undefined

/** `value.name`: a method before an item of that name, as in jinja2. Failure: the value is undefined. */
export function attribute(value: unknown, name: string, missing: Missing): unknown {
  reject(value)
  if (isMap(value)) {
    if (isMapMethod(name)) return new Method(value, name)
    const item = mapGet(value, name)
    return item === undefined ? missing(`the map has no item '${name}'`) : item
  }
  return ownAttribute(value, name) ?? missing(`${label(value)} has no attribute '${name}'`)
}

/** `value[key]`: an item before a method of that name. Failure: the value is undefined. */
export function item(value: unknown, key: unknown, missing: Missing): unknown {
  reject(value)
  if (isMap(value)) {
    const found = isKey(key) ? mapGet(value, key) : undefined
    if (found !== undefined) return found
    if (typeof key === 'string' && isMapMethod(key)) return new Method(value, key)
    return missing(typeof key === 'string' ? `the map has no item '${key}'` : 'the map has no such item')
  }
  const index = toInteger(key)
  if (index !== undefined && (typeof value === 'string' || Array.isArray(value))) {
    const items = typeof value === 'string' ? characters(value) : value
    const found = index < items.length ? items.at(index) : undefined
    return found === undefined ? missing(`${label(value)} has no item ${index}`) : found
  }
  const found = typeof key === 'string' ? ownAttribute(value, key) : undefined
  return found ?? missing(`${label(value)} has no such item`)
}

function reject(value: unknown): void {
  if (value instanceof Undefined) throw value.failure()
  if (value === BLANK) throw new Failure(`${label(value)} has no attributes and items`)
}

function ownAttribute(value: unknown, name: string): unknown {
  if (typeof value === 'string' && isTextMethod(name)) return new Method(value, name)
  if (!(value instanceof Loop)) return undefined
  switch (name) {
    case 'index':
      return value.index0 + 1
    case 'index0':
      return value.index0
    case 'revindex':
      return value.length - value.index0
    case 'revindex0':
      return value.length - value.index0 - 1
    case 'first':
      return value.index0 === 0
    case 'last':
      return value.index0 === value.length - 1
    case 'length':
      return value.length
    default:
      return undefined
  }
}

/** `value[from:to:step]`. Failure: not a string or list, or bounds that are not integers. */
export function slice(value: unknown, bounds: readonly unknown[]): unknown {
  if (value instanceof Undefined) throw value.failure()
  const isText = typeof value === 'string'
  if (!isText && !Array.isArray(value)) throw new Failure(`cannot take a slice of ${label(value)}`)
  const items: readonly unknown[] = isText ? characters(value) : value
  const [from, to, stepGiven] = bounds.map(bound)
  const step = stepGiven ?? 1
  if (step === 0) throw new Failure('the step of a slice cannot be 0')
  const picked: unknown[] = []
  if (step > 0) {
    const end = clamp(to ?? items.length, items.length, 0)
    for (let i = clamp(from ?? 0, items.length, 0); i < end; i += step) picked.push(items[i])
  } else {
    const end = to === undefined ? -1 : clamp(to, items.length, -1)
    const start = from === undefined ? items.length - 1 : clamp(from, items.length, -1)
    for (let i = Math.min(start, items.length - 1); i > end; i += step) picked.push(items[i])
  }
  if (isText) return picked.join('')
  return value instanceof Tuple ? Tuple.from(picked) : picked
}

function bound(value: unknown): number | undefined {
  if (value === undefined || value === null) return undefined
  const index = toInteger(value)
  if (index === undefined) throw new Failure(`a slice counts in integers, not ${label(value)}`)
  return index
}

function clamp(index: number, length: number, lowest: number): number {
  return index < 0 ? Math.max(lowest, index + length) : Math.min(index, length)
}

/** Python's `len`. Failure: undefined, a number, an iterator and the like. */
export function lengthOf(value: unknown): number {
  if (typeof value === 'string') return characterCount(value)
  if (Array.isArray(value)) return value.length
  if (value instanceof Undefined) throw value.failure()
  if (isMap(value)) return mapSize(value)
  if (value instanceof View) return mapSize(value.map)
  if (value === BLANK) return 0
  throw new Failure(`${label(value)} has no length`)
}

/** The items from the last to the first. Failure: what has no last one, as an iterator. */
export function reversed(value: unknown): unknown[] {
  if (value instanceof Iter) throw new Failure('an iterator has no last item')
  lengthOf(value)
  return [...iterate(value)].reverse()
}

/** Follows 'a.b.0' from `value`, as the argument `attribute` of filters does. */
export function path(value: unknown, steps: readonly (string | number)[], missing: Missing): unknown {
  return steps.reduce<unknown>((at, step) => defined(item(at, step, missing)), value)
}
