import { type Operation, operation } from './operation.js'
import { replace, split, strip } from './text.js'
import { Iter, integerOr, isMap, isSimple, label, mapGet, mapKeys, misuse, Pairs } from './values.js'

const ofText = (params: string, run: (self: string, ...args: unknown[]) => unknown): Operation =>
  operation(params, (self, ...args) => run(needText(self), ...args), false)
const ofMap = (params: string, run: (self: object, ...args: unknown[]) => unknown): Operation =>
  operation(params, (self, ...args) => run(needMap(self), ...args), false)

/** The methods of strings and of maps. Failure: the value is another one, wrong arguments. */
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
  if (!isSimple(key)) throw misuse(key, `${label(key)} is no key`)
  const found = mapGet(map, key)
  return found === undefined ? fallback : found
}

function optionalText(value: unknown): string | undefined {
  return value === undefined || value === null ? undefined : needText(value)
}

function needText(value: unknown): string {
  if (typeof value !== 'string') throw misuse(value, `expected a string, not ${label(value)}`)
  return value
}

function needMap(value: unknown): object {
  if (!isMap(value)) throw misuse(value, `expected a map, not ${label(value)}`)
  return value
}
