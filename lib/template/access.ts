import { characters, OperationError, unsupported } from './errors.js'
import { isMap, isSimple, Loop, label, mapGet, toInteger, type Undefined, wrongUse } from './values.js'

/** Makes the value of a missing attribute or item. */
export type Missing = (reason: string) => Undefined

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
export function attribute(name: string, missing: Missing): (value: unknown) => unknown {
  const isOfMaps = OF_MAPS.test(name)
  return value => {
    if (isMap(value)) {
      if (isOfMaps)
        throw new OperationError(`${name} is a method of maps: write ['${name}'] for the item of that name`)
      const found = mapGet(value, name)
      return found === undefined ? missing(`the map has no item '${name}'`) : found
    }
    const read = value instanceof Loop ? LOOP.get(name) : undefined
    if (value instanceof Loop && read !== undefined) return read(value)
    throw wrongUse(value, unsupported(`the attribute ${name} of ${label(value)}`))
  }
}

/** Reads `value[key]`. Throws OperationError for a value that has no items, or a key of the wrong kind. */
export function item(value: unknown, key: unknown, missing: Missing): unknown {
  if (isMap(value) && isSimple(key)) {
    const found = mapGet(value, key)
    if (found !== undefined) return found
    return typeof key === 'string' ? attribute(key, missing)(value) : missing('the map has no such item')
  }
  const items = typeof value === 'string' ? characters(value) : value
  const index = toInteger(key)
  if (!Array.isArray(items) || index === undefined)
    throw wrongUse(isSimple(key) ? value : key, `${label(value)} has no item for ${label(key)}`)
  const found = items.at(index)
  return found === undefined ? missing(`${label(value)} has no item ${index}`) : found
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

/** Follows the steps of 'a.b.0', as the argument `attribute` of filters does. */
export function path(value: unknown, steps: readonly (string | number)[], missing: Missing): unknown {
  return steps.reduce((at, step) => item(at, step, missing), value)
}
