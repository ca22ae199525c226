import { asPauses, sortInSteps } from '../base/concurrency.js'
import { didYouMean } from '../base/did-you-mean.js'
import { badRequest } from '../base/errors.js'
import { escapeControls } from '../base/log.js'
import { EntityTag, type EntityTagPart } from '../http/entity-tag.js'
import type { Answer } from '../http/route.js'
import { type ApiRequest, type ApiRoute, param, whenReady } from './context.js'
import { guarded } from './csv.js'
import { components, plainText, type Schema, string, word } from './schema.js'

/** Adds to a route: refusal of unknown query keys (rules 12.5), `pretty`, and compression for users. */
export function withQuery(route: ApiRoute): ApiRoute {
  const laysOut = route.method === 'GET' && route.output !== undefined && route.output !== plainText
  const query = laysOut ? { pretty: word('yes', 'no'), ...route.query } : route.query
  const finish = (answer: Answer, request: ApiRequest): Answer => {
    const { body, ...rest } = answer
    const compress = request.caller.kind !== 'anonymous' && takesGzip(request.headers['accept-encoding'])
    if (body === undefined || !laysOut || !isPretty(request.query))
      return compress ? { ...answer, compress } : answer
    return { ...rest, json: JSON.stringify(body, null, 2), compress }
  }
  return {
    ...route,
    query,
    handler: request => {
      checkKeys(request, query)
      return whenReady(route.handler(request), answer => finish(answer, request))
    }
  }
}

/** Longer headers come from no real client. */
const LONGEST_ENCODINGS = 256

/** Whether an Accept-Encoding header takes gzip. */
export function takesGzip(header: string | string[] | undefined): boolean {
  const text = String(header ?? '')
  if (text === '' || text.length > LONGEST_ENCODINGS) return false
  return text.split(',').some(entry => {
    const [coding = '', ...parameters] = entry.split(';').map(word => word.trim().toLowerCase())
    return (
      ['gzip', 'x-gzip', '*'].includes(coding) && !parameters.some(word => /^q=0(?:\.0{0,3})?$/.test(word))
    )
  })
}

/** Throws 400 for an unknown or repeated key. */
function checkKeys({ query }: ApiRequest, known: ApiRoute['query']): void {
  if (query.size === 0) return
  for (const key of new Set(query.keys())) {
    if (!Object.hasOwn(known, key)) {
      const names = Object.keys(known)
      const there = names.length === 0 ? 'none is known here' : `there is ${names.join(', ')}`
      throw badRequest(
        `query key ${JSON.stringify(key.slice(0, 100))} is not known${didYouMean(key, names)}: ${there}`,
        'unknown-query'
      )
    }
    const words = (known[key] as Schema).enum as readonly string[] | undefined
    const takes = words ? `; it must be ${words.join(' or ')}` : ''
    if (query.getAll(key).length > 1)
      throw badRequest(`query key "${key}" stands there twice${takes}`, 'unknown-query')
  }
}

/** One row of a list: an object, or a part of one. */
export interface Entry {
  /** Its key in the envelope. */
  readonly name: string
  /** Its fields. Called while the list is sent, so it must depend on a snapshot alone (rules 1.12). */
  readonly values: () => Readonly<Record<string, unknown>>
  /** The same as JSON text, if that is cached. */
  readonly json?: () => string
  /** Its part of the entity tag; default: all its values. */
  readonly etag?: () => EntityTagPart
}

export interface Listing {
  /** For messages: `node`. */
  readonly title: string
  /** `config.node.{node}` for entries by name, `config.node.{node}.interfaces` for a list. */
  readonly place: string
  /** The schema of an entry: its properties are the fields. */
  readonly item: Schema
  /** Default fields of the text format. */
  readonly columns?: readonly string[]
  /** Fields that the text format shows only if they are asked for. */
  readonly secret?: readonly string[]
}

/** Query keys of lists and of objects (rules 12.4). */
export const listQuery = {
  fields: string('the fields to show, with commas between them; BOOTIF.ipaddress is a field of an interface'),
  format: word('json', 'text', 'csv'),
  sort: string('fields to sort by, with commas between them; -name sorts downwards'),
  pretty: word('yes', 'no')
} as const

/** Maximum number of sort keys, and their length: all are in memory while a list is sorted. */
const MOST_SORTED = 8
const LONGEST_KEY = 128
/** Maximum number of columns; a node has fewer fields. */
const MOST_COLUMNS = 128
/** Maximum width of a column of text: one long value would make all rows as long. */
const WIDEST = 256

/** Finds the entries of a list in steps, such as the nodes of a set. Yields only pauses. */
type EntryFinder = () => Generator<'', readonly Entry[]>

/** A requested field; `of`: the interface that it belongs to. */
interface Column {
  readonly name: string
  readonly field: string
  readonly of?: string
}

interface ListOptions {
  readonly format: string
  readonly pretty: boolean
  readonly columns: readonly Column[] | undefined
  readonly order: readonly { readonly column: Column; readonly down: boolean }[]
}

/** Whether the caller wants anything but the whole list as JSON. */
export const isCustomized = ({ query }: ApiRequest) =>
  ['fields', 'format', 'sort'].some(key => query.has(key))

/**
 * Returns the requested view of the entries (rules 12.4). Throws 400 for an unknown field or value. Long
 * lists pass a function, called once in the list's turn: waiting lists take no memory (rules 2.13).
 */
export function listed(request: ApiRequest, listing: Listing, given: readonly Entry[] | EntryFinder): Answer {
  let taken = typeof given === 'function' ? undefined : given
  const wishes = readOptions(request, listing)
  // The list is iterated twice, and sorted once.
  let ordered: readonly Entry[] | undefined
  const entries = function* () {
    taken ??= yield* (given as EntryFinder)()
    ordered ??= yield* inOrder(taken, wishes)
    return ordered
  }
  const parts = function* () {
    taken ??= yield* (given as EntryFinder)()
    // In the order of names: a sorted list has the same state.
    for (const entry of taken) yield partOf(entry)
  }
  const etag = new EntityTag(taken?.length === 1 ? () => (taken ?? []).map(partOf) : parts, formOf(request))
  const { format, columns, pretty } = wishes
  // One object is sent as one text, and needs no turn.
  const isList = taken === undefined || taken.length > 1
  const textBy = (make: () => Generator<string>) => (isList ? repeatable(make) : [...make()].join(''))
  if (format === 'json') {
    const steps = listing.place
      .replace(/\{(\w+)\}(?=\.)/g, (_, name: string) => param(request, name))
      .split('.')
    const [first] = taken ?? []
    const whole = isList || pretty || columns ? undefined : first?.json?.()
    if (first && whole !== undefined) return { status: 200, etag, json: oneText(steps, first.name, whole) }
    return { status: 200, etag, json: textBy(() => jsonText(steps, wishes, entries)) }
  }
  const shown = columns ?? plainColumns(listing, format)
  const widths = shown.map(() => 0)
  const [text, type] = format === 'csv' ? [csvText, 'text/csv'] : [alignedText, 'text/plain']
  const table = textBy(() => text(shown, entries, widths))
  return { status: 200, etag, json: table, type: `${type}; charset=utf-8` }
}

const partOf = (entry: Entry): EntityTagPart => entry.etag?.() ?? [JSON.stringify(entry.values()), '']

/** Tells the forms of an answer from each other: its query, and the dialect. */
export const formOf = ({ target, headers }: ApiRequest) =>
  `${target.split('?')[1] ?? ''} ${headers['x-svcd-dialect'] ?? ''}`

/** A text that is generated anew for each iteration. */
const repeatable = (make: () => Generator<string>): Iterable<string> => ({ [Symbol.iterator]: make })

function readOptions({ query }: ApiRequest, listing: Listing): ListOptions {
  const wanted = (key: string) => {
    const names = query.get(key)?.split(',')
    const most = key === 'sort' ? MOST_SORTED : MOST_COLUMNS
    if (names && names.length > most)
      throw badRequest(`query key "${key}" names more than ${most} fields`, 'unknown-query')
    const twice = names?.find((name, i) => names.indexOf(name) < i)
    if (twice !== undefined)
      throw badRequest(`query key "${key}" names ${JSON.stringify(twice)} twice`, 'unknown-query')
    return names
  }
  const fields = wanted('fields')
  return {
    format: choice(query, 'format', ['json', 'text', 'csv']),
    pretty: isPretty(query),
    columns: fields?.map(name => columnOf(listing, name)),
    order: (wanted('sort') ?? []).map(key => {
      const down = key.startsWith('-')
      return { column: columnOf(listing, down ? key.slice(1) : key), down }
    })
  }
}

/** Whether to indent JSON. Throws 400. */
export const isPretty = (query: URLSearchParams) => choice(query, 'pretty', ['no', 'yes']) === 'yes'

/** The value of a query key that takes one of these words; default: the first. Throws 400. */
export function choice(query: URLSearchParams, key: string, words: readonly [string, ...string[]]): string {
  const given = query.get(key) ?? words[0]
  if (!words.includes(given))
    throw badRequest(`query key "${key}" must be one of ${words.join(', ')}`, 'unknown-query')
  return given
}

const propertiesOf = (schema: Schema): Schema => {
  const name = /[^/]+$/.exec(String(schema.$ref ?? ''))?.[0]
  const own = name === undefined ? schema : components[name as keyof typeof components]
  return (own?.properties ?? {}) as Schema
}
const shownNames = (schema: Schema) =>
  Object.entries(propertiesOf(schema))
    .filter(([, property]) => !(property as Schema).writeOnly)
    .map(([name]) => name)

/** A title with its article: a node, an OS image, another device. */
export const withArticle = (title: string) =>
  `${/^[aeiou]/i.test(title) ? 'an' : 'a'} ${title}`.replace(/^an other/, 'another')

function columnOf({ title, item }: Listing, name: string): Column {
  const known = shownNames(item)
  if (known.includes(name)) return { name, field: name }
  const dot = name.lastIndexOf('.')
  const [of, field] = [name.slice(0, dot), name.slice(dot + 1)]
  const hasInterfaces = (propertiesOf(item).interfaces as Schema | undefined)?.type === 'array'
  if (hasInterfaces && dot > 0 && shownNames(components.interface).includes(field)) return { name, field, of }
  const more = hasInterfaces ? ', and fields of an interface such as BOOTIF.ipaddress' : ''
  throw badRequest(
    `${withArticle(title)} shows no field ${JSON.stringify(name.slice(0, 100))}${didYouMean(name, known)}; ` +
      `it has ${known.join(', ')}${more}`,
    'unknown-query'
  )
}

/** Default columns: the usual ones for text, all that fit into a cell for CSV. */
function plainColumns(listing: Listing, format: string): Column[] {
  const { item, columns, secret = [] } = listing
  const isText = format === 'text'
  if (isText && columns) return columns.map(name => columnOf(listing, name))
  const properties = propertiesOf(item)
  const isPlain = (name: string) => {
    const { type, $ref } = properties[name] as Schema
    return $ref === undefined && type !== 'object' && !(isText && secret.includes(name))
  }
  const names = shownNames(item).filter(name => !name.startsWith('_') && isPlain(name))
  return names.map(name => ({ name, field: name }))
}

function read(values: Readonly<Record<string, unknown>>, { field, of }: Column): unknown {
  if (of === undefined) return values[field] ?? null
  const interfaces = (values.interfaces ?? []) as readonly Readonly<Record<string, unknown>>[]
  return interfaces.find(entry => entry.interface === of)?.[field] ?? null
}

function cell(value: unknown): string {
  if (value === null || value === undefined) return ''
  if (Array.isArray(value) && value.every(one => typeof one !== 'object')) return value.join(',')
  return typeof value === 'object' ? JSON.stringify(value) : String(value)
}

/** Numbers compare by size; empty values come last. */
const sortKey = (value: unknown) => {
  const text = cell(value)
  if (text === '') return '\uffff'
  const padded = text.slice(0, LONGEST_KEY).replace(/\d+/g, digits => digits.padStart(15, '0'))
  return padded.slice(0, 2 * LONGEST_KEY)
}

/** Sorts the entries. Yields only pauses. */
function* inOrder(entries: readonly Entry[], { order }: ListOptions): Generator<'', readonly Entry[]> {
  if (order.length === 0) return entries
  const keyed: { entry: Entry; keys: string[] }[] = []
  for (const entry of entries) {
    const values = entry.values()
    keyed.push({ entry, keys: order.map(({ column }) => sortKey(read(values, column))) })
    yield ''
  }
  const sorted = yield* asPauses(
    sortInSteps(keyed, (a, b) => {
      for (let i = 0; i < order.length; i++) {
        const [x, y] = [a.keys[i] as string, b.keys[i] as string]
        if (x !== y) return x < y !== order[i]?.down ? -1 : 1
      }
      return 0
    })
  )
  return sorted.map(({ entry }) => entry)
}

/** `jsonText` for one entry in the default format: there may be thousands a second. */
function oneText(steps: readonly string[], name: string, text: string): string {
  const isNamed = steps.at(-1)?.startsWith('{')
  const keys = isNamed ? [...steps.slice(0, -1), name] : steps
  return keys.reduceRight((inner, key) => `{${JSON.stringify(key)}:${inner}}`, isNamed ? text : `[${text}]`)
}

/** Returns a name as JSON. */
const jsonName = (name: string) => (/^[\w.:-]*$/.test(name) ? `"${name}"` : JSON.stringify(name))

/** `steps` is the path of the entries; its last step is a parameter if they stand by name. */
function* jsonText(steps: readonly string[], wishes: ListOptions, entries: EntryFinder): Generator<string> {
  const { pretty, columns } = wishes
  const isNamed = steps.at(-1)?.startsWith('{') ?? false
  const [open, close] = isNamed ? '{}' : '[]'
  const outer = isNamed ? steps.slice(0, -1) : steps
  const line = (depth: number) => (pretty ? `\n${'  '.repeat(depth)}` : '')
  const key = (name: string) => `${jsonName(name)}:${pretty ? ' ' : ''}`
  const depth = outer.length + 1
  yield `${outer.map((step, i) => `{${line(i + 1)}${key(step)}`).join('')}${open}`
  let count = 0
  for (const entry of yield* entries()) {
    const chosen = () => {
      const values = entry.values()
      return columns ? Object.fromEntries(columns.map(column => [column.name, read(values, column)])) : values
    }
    const text = pretty
      ? JSON.stringify(chosen(), null, 2).replaceAll('\n', line(depth))
      : ((columns ? undefined : entry.json?.()) ?? JSON.stringify(chosen()))
    yield `${count++ > 0 ? ',' : ''}${line(depth)}${isNamed ? key(entry.name) : ''}`
    // Apart: to join them would copy a text that is cached.
    yield text
  }
  yield `${count > 0 ? line(outer.length) : ''}${close}` +
    `${outer.map((_, i) => `${line(outer.length - 1 - i)}}`).join('')}`
}

/** CSV of RFC 4180 without formulas (rules 12.4); the sender ends the last line. */
function* csvText(columns: readonly Column[], entries: EntryFinder): Generator<string> {
  const quoted = (value: unknown) => {
    const text = typeof value === 'number' ? String(value) : guarded(cell(value))
    return /[",\r\n]|^'/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
  }
  yield `${columns.map(({ name }) => quoted(name)).join(',')}\r`
  for (const entry of yield* entries()) {
    const values = entry.values()
    yield `\n${columns.map(column => quoted(read(values, column))).join(',')}\r`
  }
}

/** Aligned columns, - for no value; a first pass finds `widths`, so that no rows are kept in memory. */
function* alignedText(columns: readonly Column[], entries: EntryFinder, widths: number[]): Generator<string> {
  const all = yield* entries()
  const rowOf = (entry: Entry) => {
    const values = entry.values()
    return columns.map(column => escapeControls(cell(read(values, column))) || '-')
  }
  const widen = (row: readonly string[]) => {
    for (const [i, text] of row.entries())
      widths[i] = Math.min(WIDEST, Math.max(widths[i] as number, text.length))
  }
  const line = (row: readonly string[]) =>
    row.map((text, i) => (i < row.length - 1 ? text.padEnd(widths[i] as number) : text)).join('  ')
  const head = columns.map(({ name }) => escapeControls(name))
  if (widths[0] === 0) {
    for (const entry of all) {
      widen(rowOf(entry))
      yield ''
    }
    widen(head)
  }
  yield line(head)
  for (const entry of all) yield `\n${line(rowOf(entry))}`
}
