import { Failure } from './errors.js'
import { capitalize, replace, split, strip, title } from './text.js'
import { iterate, label, Method, mapGet, toInteger, Undefined, View } from './values.js'

type Args = readonly unknown[]

interface TextMethod {
  readonly params: readonly string[]
  /** How many arguments it must have. */
  readonly needs: number
  /** May its arguments be named? */
  readonly named?: boolean
  readonly run: (self: string, args: Args) => unknown
}

const none = (run: (self: string) => unknown): TextMethod => ({ params: [], needs: 0, run })
const stripped = (left: boolean, right: boolean): TextMethod => ({
  params: ['chars'],
  needs: 0,
  run: (self, [chars]) => strip(self, optionalText(chars), left, right)
})

const TEXT_METHODS = new Map<string, TextMethod>([
  ['upper', none(self => self.toUpperCase())],
  ['lower', none(self => self.toLowerCase())],
  ['title', none(title)],
  ['capitalize', none(capitalize)],
  ['strip', stripped(true, true)],
  ['lstrip', stripped(true, false)],
  ['rstrip', stripped(false, true)],
  ['split', { params: ['sep', 'maxsplit'], needs: 0, named: true, run: splitText }],
  [
    'replace',
    {
      params: ['old', 'new', 'count'],
      needs: 2,
      run: (self, [from, to, count]) => replace(self, needText(from), needText(to), limit(count))
    }
  ],
  [
    'startswith',
    { params: ['prefix'], needs: 1, run: (self, [part]) => anyOf(part, x => self.startsWith(x)) }
  ],
  ['endswith', { params: ['suffix'], needs: 1, run: (self, [part]) => anyOf(part, x => self.endsWith(x)) }],
  [
    'join',
    { params: ['items'], needs: 1, run: (self, [items]) => Array.from(iterate(items), needText).join(self) }
  ]
])

// jinja2 finds all of these before an item of the same name; only the first four are supported
const MAP_METHODS = new Set(
  'get keys values items clear copy fromkeys pop popitem setdefault update'.split(' ')
)

/** Is it the name of a method of strings? */
export function isTextMethod(name: string): boolean {
  return TEXT_METHODS.has(name)
}

/** Is it the name of a method of Python's maps? */
export function isMapMethod(name: string): boolean {
  return MAP_METHODS.has(name)
}

/** Calls a method. Failure: not a method, wrong arguments. */
export function call(callee: unknown, args: Args, named: ReadonlyMap<string, unknown>): unknown {
  if (callee instanceof Undefined) throw callee.failure()
  if (!(callee instanceof Method)) throw new Failure(`${label(callee)} cannot be called`)
  const { self, name } = callee
  if (typeof self !== 'string') {
    if (named.size > 0) throw new Failure(`${name}() takes no named arguments`)
    return callMap(self, name, args)
  }
  const method = TEXT_METHODS.get(name)
  if (method === undefined) throw new Failure(`a string has no method ${name}`)
  return method.run(self, ordered(name, method, args, named))
}

function ordered(name: string, method: TextMethod, args: Args, named: ReadonlyMap<string, unknown>): Args {
  const all = [...args]
  for (const [param, value] of named) {
    const at = method.named ? method.params.indexOf(param) : -1
    if (at < 0 || at < args.length) throw new Failure(`${name}() takes no argument named ${param}`)
    all[at] = value
  }
  count(name, all.length, method.needs, method.params.length)
  return all
}

function count(name: string, given: number, least: number, most: number): void {
  if (given >= least && given <= most) return
  const wanted = least === most ? String(least) : `${least} to ${most}`
  throw new Failure(`${name}() takes ${wanted} arguments, not ${given}`)
}

function callMap(map: object, name: string, args: Args): unknown {
  switch (name) {
    case 'get': {
      count(name, args.length, 1, 2)
      const found = mapGet(map, args[0])
      return found === undefined ? (args[1] ?? null) : found
    }
    case 'keys':
    case 'values':
    case 'items':
      count(name, args.length, 0, 0)
      return new View(map, name)
    default:
      throw new Failure(`the method ${name} is not supported; an item of that name is read as ['${name}']`)
  }
}

function splitText(self: string, [separator, maximum]: Args): unknown {
  const at = optionalText(separator)
  if (at === '') throw new Failure('the separator of split() is empty')
  return split(self, at, limit(maximum))
}

function anyOf(parts: unknown, matches: (part: string) => boolean): boolean {
  // a tuple of strings, but no list, as in Python
  if (label(parts) !== 'a tuple') return matches(needText(parts))
  return Array.from(iterate(parts)).some(part => matches(needText(part)))
}

function limit(value: unknown): number {
  if (value === undefined) return -1
  const most = toInteger(value)
  if (most === undefined) throw new Failure(`expected an integer, not ${label(value)}`)
  return most
}

function optionalText(value: unknown): string | undefined {
  return value === undefined || value === null ? undefined : needText(value)
}

function needText(value: unknown): string {
  if (value instanceof Undefined) throw value.failure()
  if (typeof value !== 'string') throw new Failure(`expected a string, not ${label(value)}`)
  return value
}
