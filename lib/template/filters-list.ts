import { item, lengthOf, path, reversed } from './access.js'
import { Failure } from './errors.js'
import type { Filter, FilterContext } from './filter.js'
import { equals, less } from './operators.js'
import { characters } from './text.js'
import { defined, Iter, isKey, iterate, label, text, toNumber, truth, Undefined } from './values.js'

type Args = readonly unknown[]

const missing = (reason: string): Undefined => new Undefined(reason)
const ATTRIBUTE_LAST = ['case_sensitive', 'attribute']
const variadic = { params: [], needs: 0, variadic: true } as const

/** The filters of lists, maps and what can be gone through. */
export const listFilters: readonly [string, Filter][] = [
  ['join', { params: ['d', 'attribute'], needs: 0, run: join }],
  ['length', { params: [], needs: 0, run: lengthOf }],
  ['count', { params: [], needs: 0, run: lengthOf }],
  ['first', { params: [], needs: 0, run: first }],
  ['last', { params: [], needs: 0, run: last }],
  ['list', { params: [], needs: 0, run: value => Array.from(iterate(value), defined) }],
  ['sort', { params: ['reverse', ...ATTRIBUTE_LAST], needs: 0, run: sort }],
  ['unique', { params: ATTRIBUTE_LAST, needs: 0, run: (value, args) => new Iter(unique(value, args)) }],
  ['reverse', { params: [], needs: 0, run: reverse }],
  ['map', { ...variadic, run: (value, args, context) => new Iter(mapped(value, args, context)) }],
  [
    'selectattr',
    { ...variadic, run: (value, args, context) => new Iter(selected(value, args, context, true)) }
  ],
  [
    'rejectattr',
    { ...variadic, run: (value, args, context) => new Iter(selected(value, args, context, false)) }
  ]
]

/** 'a.b.0' as steps; none: the item itself. */
function steps(attribute: unknown): (string | number)[] {
  if (attribute === undefined || attribute === null) return []
  if (attribute instanceof Undefined) throw attribute.failure()
  if (typeof attribute === 'number') return [attribute]
  if (typeof attribute !== 'string') throw new Failure(`an attribute is a string, not ${label(attribute)}`)
  return attribute.split('.').map(step => (/^\d+$/.test(step) ? Number(step) : step))
}

function join(value: unknown, [separator = '', attribute]: Args): unknown {
  const between = text(separator)
  const way = steps(attribute)
  let out = ''
  let isFirst = true
  for (const part of iterate(value)) {
    out += (isFirst ? '' : between) + text(path(defined(part), way, missing))
    isFirst = false
  }
  return out
}

function first(value: unknown): unknown {
  const { done, value: found } = iterate(value)[Symbol.iterator]().next()
  return done === true ? missing('the list is empty, it has no first item') : defined(found)
}

function last(value: unknown): unknown {
  const [found = missing('the list is empty, it has no last item')] = reversed(value)
  return found
}

function reverse(value: unknown): unknown {
  if (typeof value === 'string') return characters(value).reverse().join('')
  return value instanceof Iter ? [...value].reverse() : new Iter(reversed(value))
}

/** Upper and lower case count as the same, unless told otherwise. */
function folded(value: unknown, caseSensitive: unknown): unknown {
  return typeof value === 'string' && !truth(caseSensitive) ? value.toLowerCase() : value
}

function sort(value: unknown, [descending = false, caseSensitive = false, attribute]: Args): unknown {
  const ways = typeof attribute === 'string' ? attribute.split(',').map(steps) : [steps(attribute)]
  const entries = Array.from(iterate(value), entry => {
    const keys = ways.map(way => folded(path(defined(entry), way, missing), caseSensitive))
    return { entry: defined(entry), keys }
  })
  // equal entries keep their order, descending too
  const sign = truth(descending) ? -1 : 1
  return entries.sort((a, b) => sign * order(a.keys, b.keys)).map(({ entry }) => entry)
}

function order(a: Args, b: Args): number {
  const at = a.findIndex((key, i) => !equals(key, b[i]))
  if (at < 0) return 0
  return less(a[at], b[at]) ? -1 : 1
}

function* unique(value: unknown, [caseSensitive = false, attribute]: Args): Generator<unknown> {
  const seen = new Set<unknown>()
  const way = steps(attribute)
  for (const entry of iterate(value)) {
    const key = folded(path(defined(entry), way, missing), caseSensitive)
    if (!isKey(key)) throw new Failure(`unique cannot compare ${label(key)}`)
    // 1, 1.0 and true are the same
    const identity = toNumber(key) ?? key
    if (seen.has(identity)) continue
    seen.add(identity)
    yield entry
  }
}

function* mapped(value: unknown, args: Args, context: FilterContext): Generator<unknown> {
  if (!truth(value)) return
  const [filter, ...rest] = args
  if (filter !== undefined) {
    for (const entry of iterate(value)) yield context.filter(filter, defined(entry), rest)
    return
  }
  const { named } = context
  const unknown = Array.from(named.keys()).find(name => name !== 'attribute' && name !== 'default')
  if (!named.has('attribute') || unknown !== undefined) {
    throw new Failure('map takes the name of a filter, or attribute= and default=')
  }
  const way = steps(named.get('attribute'))
  const fallback = named.get('default') ?? null
  for (const entry of iterate(value)) {
    yield way.reduce<unknown>((at, step) => {
      const found = defined(item(at, step, missing))
      return found instanceof Undefined && fallback !== null ? fallback : found
    }, defined(entry))
  }
}

function* selected(value: unknown, args: Args, context: FilterContext, wanted: boolean): Generator<unknown> {
  if (!truth(value)) return
  const [attribute, test, ...rest] = args
  if (attribute === undefined || context.named.size > 0) {
    throw new Failure('the name of an attribute is missing, or an argument has a name')
  }
  const way = steps(attribute)
  for (const entry of iterate(value)) {
    const found = path(defined(entry), way, missing)
    if ((test === undefined ? truth(found) : context.test(test, found, rest)) === wanted) yield entry
  }
}
