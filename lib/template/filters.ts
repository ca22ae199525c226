import {
  characters,
  compareText,
  LINE_END,
  OperationError,
  replace,
  split,
  strip,
  unsupported
} from './errors.js'
import {
  COMPARISONS,
  equals,
  exact,
  Iter,
  integerOr,
  isMap,
  isSimple,
  item,
  iterate,
  label,
  lengthOf,
  less,
  MISSING_ELSE,
  mapGet,
  mapKeys,
  OPERATORS,
  Pairs,
  text,
  toInteger,
  toList,
  truth,
  Undefined,
  wrongUse
} from './values.js'

/** Computes a value from a value and arguments. */
export type Run = (value: unknown, ...args: unknown[]) => unknown

/** A filter, test or method. The compiler sorts its arguments. */
export interface Operation {
  /** Names of the arguments, in order. */
  readonly params: readonly string[]
  /** Number of required arguments. */
  readonly needs: number
  /** Whether a template may name the arguments. */
  readonly isNamed: boolean
  /** A missing argument is undefined. Throws OperationError for wrong types and values. */
  readonly run: Run
}

/** Makes an operation with the arguments `params`; those that end in `?` are optional. */
function operation(params: string, run: Run, isNamed = true): Operation {
  const names = params.split(' ').filter(Boolean)
  return {
    params: names.map(name => name.replace('?', '')),
    needs: names.filter(name => !name.endsWith('?')).length,
    isNamed,
    run
  }
}

/** jinja2's filters that templates may use, and `quote` and `b64encode`. */
export const FILTERS: ReadonlyMap<string, Operation> = new Map(
  Object.entries({
    default: operation('default_value? boolean?', orDefault),
    d: operation('default_value? boolean?', orDefault),
    upper: operation('', value => text(value).toUpperCase()),
    lower: operation('', value => text(value).toLowerCase()),
    string: operation('', text),
    int: operation('default?', toInt),
    trim: operation('', value => strip(text(value), undefined, true, true)),
    replace: operation('old new count?', (value, from, to, most) =>
      replace(text(value), text(from), text(to), integerOr(-1, most))
    ),
    indent: operation('width? first? blank?', indent),
    tojson: operation('', value => toJson(value)),
    quote: operation('', quote),
    b64encode: operation('', value => Buffer.from(text(value), 'utf8').toString('base64')),
    // For lists, maps and other iterables.
    join: operation('d? attribute?', join),
    length: operation('', lengthOf),
    count: operation('', lengthOf),
    first: operation('', first),
    last: operation('', last),
    list: operation('', value => [...toList(value)]),
    sort: operation('reverse? case_sensitive? attribute?', sort),
    unique: operation('case_sensitive? attribute?', unique),
    reverse: operation('', reverse),
    map: operation('filter? attribute?', map),
    selectattr: select('selectattr', true),
    rejectattr: select('rejectattr', false)
  })
)

function orDefault(value: unknown, fallback: unknown = '', boolean: unknown = false): unknown {
  if (!isDefined(value)) return fallback
  return truth(boolean) && !truth(value) ? fallback : value
}

/** '42' and '42.7' give 42; any other text, none, lists and maps give the default. */
function toInt(value: unknown, fallback: unknown = 0): unknown {
  const integer = toInteger(value)
  if (integer !== undefined) return integer
  if (typeof value !== 'string') {
    if (value === null || Array.isArray(value) || isMap(value)) return fallback
    throw wrongUse(value, `${label(value)} has no integer`)
  }
  const digits = strip(value, undefined, true, true).replace(/(?<=\d)_(?=\d)/g, '')
  if (/^[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?$/i.test(digits)) return exact(Math.trunc(Number(digits)))
  if (/^[+-]?inf(?:inity)?$/i.test(digits)) throw new OperationError('infinity has no integer')
  if (/(?!\d)\p{Nd}/u.test(digits)) throw new OperationError('an integer is written with the digits 0 to 9')
  return fallback
}

function indent(value: unknown, width: unknown = 4, first: unknown = false, blank: unknown = false): string {
  if (typeof value !== 'string') throw wrongUse(value, `indent takes a string, not ${label(value)}`)
  const margin = typeof width === 'string' ? width : ' '.repeat(Math.max(0, integerOr(4, width)))
  const isBlankToo = truth(blank)
  const lines = `${value}\n`.split(LINE_END).slice(0, -1)
  const indented = lines.map((line, i) => (i > 0 && (line !== '' || isBlankToo) ? margin + line : line))
  return (truth(first) ? margin : '') + indented.join('\n')
}

/** Quotes a word for a POSIX shell: `it's` becomes `'it'"'"'s'`. Throws OperationError for a NUL. */
function quote(value: unknown): string {
  const word = text(value)
  // Fast path: most texts hold neither a quote nor a NUL, and a script quotes dozens.
  if (!/['\0]/.test(word)) return `'${word}'`
  if (word.includes('\0')) throw new OperationError('a text with a NUL cannot be quoted for a shell')
  return `'${word.replaceAll("'", `'"'"'`)}'`
}

/** Returns a reader of the argument `attribute`, such as 'a.b.0'; none means the item itself. */
function readerOf(attribute: unknown): (entry: unknown) => unknown {
  if (attribute === undefined || attribute === null) return entry => entry
  if (typeof attribute === 'number') return entry => item(entry, attribute)
  if (typeof attribute !== 'string')
    throw wrongUse(attribute, `an attribute is a string, not ${label(attribute)}`)
  if (attribute.includes(',')) throw new OperationError(unsupported('a row of attributes'))
  const steps = attribute.split('.').map(step => (/^\d+$/.test(step) ? Number(step) : step))
  return entry => steps.reduce<unknown>((at, step) => item(at, step), entry)
}

function join(value: unknown, separator: unknown = '', attribute: unknown = null): string {
  const between = text(separator)
  const read = readerOf(attribute)
  return Array.from(iterate(value), part => text(read(part))).join(between)
}

function first(value: unknown): unknown {
  const { done, value: found } = iterate(value)[Symbol.iterator]().next()
  return done === true ? new Undefined('the list is empty, it has no first item') : found
}

function last(value: unknown): unknown {
  if (value instanceof Iter) throw new OperationError(`${value.label} has no last item; |list gives it one`)
  const items = toList(value)
  return items.length === 0 ? new Undefined('the list is empty, it has no last item') : items.at(-1)
}

function reverse(value: unknown): unknown {
  if (typeof value === 'string') return characters(value).reverse().join('')
  return new Iter('reverse', toList(value).toReversed())
}

/** Folds the case of a text for comparison, unless told otherwise. */
const folded = (key: unknown, caseSensitive: unknown = false): unknown =>
  typeof key === 'string' && !truth(caseSensitive) ? key.toLowerCase() : key

function sort(
  value: unknown,
  isReverse: unknown = false,
  caseSensitive?: unknown,
  attribute?: unknown
): unknown {
  const read = readerOf(attribute)
  const entries = toList(value).map(entry => ({ entry, key: folded(read(entry), caseSensitive) }))
  // Entries with equal keys stay in order, also in reverse.
  const sign = truth(isReverse) ? -1 : 1
  return entries.sort((a, b) => sign * order(a.key, b.key)).map(({ entry }) => entry)
}

function order(a: unknown, b: unknown): number {
  if (equals(a, b)) return 0
  return less(a, b) ? -1 : 1
}

/** Returns a lazy Iter, as jinja2 does, of what `pick` returns for each entry and its attribute. */
function lazily(
  filter: string,
  value: unknown,
  attribute: unknown,
  pick: (entry: unknown, found: unknown) => readonly unknown[]
): Iter {
  const read = readerOf(attribute)
  function* entries(): Generator<unknown> {
    for (const entry of iterate(value)) yield* pick(entry, read(entry))
  }
  return new Iter(filter, entries())
}

/** `map(attribute='a')`. A first argument without a name is a filter in jinja2. */
function map(value: unknown, filter: unknown, attribute: unknown): Iter {
  if (filter !== undefined || attribute === undefined)
    throw new OperationError(unsupported('map with anything but attribute='))
  return lazily('map', value, attribute, (_, found) => [found])
}

function unique(value: unknown, caseSensitive?: unknown, attribute?: unknown): Iter {
  const seen = new Set<unknown>()
  return lazily('unique', value, attribute, (entry, found) => {
    const key = folded(found, caseSensitive)
    if (!isSimple(key)) throw wrongUse(key, `unique cannot compare ${label(key)}`)
    // 1 and true are equal.
    const identity = toInteger(key) ?? key
    if (seen.has(identity)) return []
    seen.add(identity)
    return [entry]
  })
}

/** `selectattr('a')` and `selectattr('a', 'eq', 1)`, or their opposites if `wanted` is false. */
function select(filter: string, wanted: boolean): Operation {
  const run: Operation['run'] = (value, attribute, name, other) => {
    const test = name === undefined ? { params: [], run: truth } : TESTS.get(text(name))
    if (test === undefined) throw new OperationError(unsupported(`the test ${text(name)}`))
    if (test.params.length !== (other === undefined ? 0 : 1))
      throw new OperationError(`the test ${text(name)} takes ${test.params.length} arguments`)
    return lazily(filter, value, attribute, (entry, found) =>
      test.run(found, other) === wanted ? [entry] : []
    )
  }
  return operation('attribute test? other?', run, false)
}

const SIGNS = ['==', '!=', '<', '>', '<=', '>='] as const

const isDefined = (value: unknown): boolean => !(value instanceof Undefined) && value !== MISSING_ELSE
const is = (run: (value: unknown) => boolean): Operation => operation('', run, false)
const compares = (operator: keyof typeof COMPARISONS): Operation =>
  operation('other', COMPARISONS[operator], false)
const rest = (value: unknown, by: unknown): unknown => OPERATORS['%']?.(value, by)

/** The tests of `value is name(argument)`. OperationError: wrong types, undefined where jinja2 refuses it. */
export const TESTS: ReadonlyMap<string, Operation> = new Map(
  Object.entries({
    defined: is(isDefined),
    undefined: is(value => !isDefined(value)),
    none: is(value => value === null),
    boolean: is(value => typeof value === 'boolean'),
    true: is(value => value === true),
    false: is(value => value === false),
    string: is(value => typeof value === 'string'),
    number: is(value => typeof value === 'number' || typeof value === 'boolean'),
    integer: is(value => Number.isInteger(value)),
    mapping: is(isMap),
    odd: is(value => rest(value, 2) === 1),
    even: is(value => rest(value, 2) === 0),
    divisibleby: operation('num', (value, num) => rest(value, num) === 0, false),
    in: compares('in'),
    eq: compares('=='),
    equalto: compares('=='),
    ne: compares('!='),
    lt: compares('<'),
    gt: compares('>'),
    le: compares('<='),
    ge: compares('>='),
    // selectattr() may name an operator.
    ...Object.fromEntries(SIGNS.map(sign => [sign, compares(sign)]))
  })
)

const ofText = (params: string, run: (self: string, ...args: unknown[]) => unknown): Operation =>
  operation(params, (self, ...args) => run(needText(self), ...args), false)
const ofMap = (params: string, run: (self: object, ...args: unknown[]) => unknown): Operation =>
  operation(params, (self, ...args) => run(needMap(self), ...args), false)

/** The methods of strings and maps. They throw OperationError for another value or wrong arguments. */
export const METHODS: ReadonlyMap<string, Operation> = new Map(
  Object.entries({
    upper: ofText('', self => self.toUpperCase()),
    lower: ofText('', self => self.toLowerCase()),
    strip: ofText('chars?', (self, chars) => strip(self, optionalText(chars), true, true)),
    lstrip: ofText('chars?', (self, chars) => strip(self, optionalText(chars), true, false)),
    rstrip: ofText('chars?', (self, chars) => strip(self, optionalText(chars), false, true)),
    split: ofText('sep? maxsplit?', (self, sep, most) => split(self, optionalText(sep), integerOr(-1, most))),
    replace: ofText('old new count?', (self, from, to, most) =>
      replace(self, needText(from), needText(to), integerOr(-1, most))
    ),
    startswith: ofText('prefix', (self, prefix) => self.startsWith(needText(prefix))),
    endswith: ofText('suffix', (self, suffix) => self.endsWith(needText(suffix))),
    get: ofMap('key default?', getItem),
    keys: ofMap('', self => new Iter('keys()', mapKeys(self))),
    values: ofMap('', self => new Iter('values()', valuesOf(self))),
    items: ofMap('', self => new Pairs(mapKeys(self).map(key => [key, mapGet(self, key)])))
  })
)

const valuesOf = (map: object): unknown[] => mapKeys(map).map(key => mapGet(map, key))

function getItem(map: object, key: unknown, fallback: unknown = null): unknown {
  if (!isSimple(key)) throw wrongUse(key, `${label(key)} is no key`)
  const found = mapGet(map, key)
  return found === undefined ? fallback : found
}

const optionalText = (value: unknown): string | undefined =>
  value === undefined || value === null ? undefined : needText(value)

function needText(value: unknown): string {
  if (typeof value !== 'string') throw wrongUse(value, `expected a string, not ${label(value)}`)
  return value
}

function needMap(value: unknown): object {
  if (!isMap(value)) throw wrongUse(value, `expected a map, not ${label(value)}`)
  return value
}

const UNSAFE = /[<>&']|[^ -~]/g
const DEEPEST = 100

/** Returns JSON as jinja2's `tojson`: one line, sorted keys, ASCII, `<>&'` escaped. Throws OperationError. */
function toJson(value: unknown, level = 1): string {
  if (level > DEEPEST) throw new OperationError(`the value is nested over ${DEEPEST} deep`)
  if (typeof value === 'string') return quoteJson(value)
  if (value === null || typeof value === 'boolean') return String(value)
  if (toInteger(value) !== undefined) return String(value)
  if (Array.isArray(value)) return `[${value.map(item => toJson(item, level + 1)).join(', ')}]`
  if (!isMap(value)) throw wrongUse(value, `${label(value)} cannot be written as JSON`)
  const keys = mapKeys(value).sort(compareText)
  const members = keys.map(key => `${quoteJson(key)}: ${toJson(mapGet(value, key), level + 1)}`)
  return `{${members.join(', ')}}`
}

/** Escapes what JSON.stringify leaves as it is. */
const quoteJson = (s: string): string =>
  JSON.stringify(s).replace(UNSAFE, unit => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
