import { didYouMean } from '../did-you-mean.js'
import { badRequest } from '../errors.js'
import type { Answer } from '../http/route.js'
import { type ApiRequest, param } from './context.js'
import { components, type Schema, string, word } from './schema.js'

/** One row of a list: an object, or a part of one. */
export interface Entry {
  /** Its key in the envelope. */
  readonly name: string
  /** What it shows. Called while the list is sent: what it depends on was taken down before (rules 1.12). */
  readonly values: () => Readonly<Record<string, unknown>>
  /** The same as JSON text, where that is at hand. */
  readonly json?: () => string
}

/** What a list is made of. */
export interface Listing {
  /** For messages: `node`. */
  readonly title: string
  /** Where the entries stand: `config.node.{node}`, by their names; `config.node.{node}.interfaces`, in a list. */
  readonly place: string
  /** The schema of an entry: its properties can be asked for. */
  readonly item: Schema
  /** What text shows where no fields are asked for. */
  readonly columns?: readonly string[]
}

/** What may stand behind the `?` of a list and of an object (rules 12.4). */
export const listQuery = {
  fields: string('the fields to show, with commas between them; BOOTIF.ipaddress is a field of an interface'),
  format: word('json', 'text', 'csv'),
  sort: string('fields to sort by, with commas between them; -name sorts downwards'),
  pretty: word('yes', 'no')
} as const

/** Each field to sort by is kept for each object while the list is sent. */
const MOST_SORTED = 8

/** A field that is asked for; `of`: the interface that it belongs to. */
interface Column {
  readonly name: string
  readonly field: string
  readonly of?: string
}

interface Wishes {
  readonly format: string
  readonly pretty: boolean
  readonly columns: readonly Column[] | undefined
  readonly order: readonly { readonly column: Column; readonly down: boolean }[]
}

/** Whether the caller wants a list as something else than its whole JSON. */
export const isChosen = ({ query }: ApiRequest) => ['fields', 'format', 'sort'].some(key => query.has(key))

/**
 * The entries as the caller wants them (rules 12.4). Throws 400 for a field or a value that is unknown. A list that may be
 * long gives a function: it is called once, when it is the list's turn to be sent, so that lists which wait take no memory
 * (rules 2.13).
 */
export function listed(
  request: ApiRequest,
  listing: Listing,
  given: readonly Entry[] | (() => readonly Entry[])
): Answer {
  let taken = typeof given === 'function' ? undefined : given
  const entries = () => {
    taken ??= (given as () => readonly Entry[])()
    return taken
  }
  const wishes = readWishes(request, listing)
  const { format, columns, pretty } = wishes
  // One object is no list: it is sent as one text, and needs no turn.
  const isList = taken === undefined || taken.length > 1
  const textBy = (make: () => Generator<string>) => (isList ? again(make) : joined(make()))
  if (format === 'json') {
    const steps = listing.place
      .replace(/\{(\w+)\}(?=\.)/g, (_, name: string) => param(request, name))
      .split('.')
    const [first] = taken ?? []
    const whole = isList || pretty || columns ? undefined : first?.json?.()
    if (first && whole !== undefined) return { status: 200, json: oneText(steps, first.name, whole) }
    return { status: 200, json: textBy(() => jsonText(steps, wishes, entries())) }
  }
  const shown = columns ?? plainColumns(listing, format)
  const [text, type] = format === 'csv' ? [csvText, 'text/csv'] : [alignedText, 'text/plain']
  const table = textBy(() => text(shown, wishes, entries()))
  return { status: 200, json: table, type: `${type}; charset=utf-8` }
}

function joined(parts: Iterable<string>): string {
  let text = ''
  for (const part of parts) text += part
  return text
}

/** A text that is made anew each time it is gone through. */
const again = (make: () => Generator<string>): Iterable<string> => ({ [Symbol.iterator]: make })

function readWishes({ query }: ApiRequest, listing: Listing): Wishes {
  const wanted = (key: string) => {
    const names = query.get(key)?.split(',')
    const twice = names?.find((name, i) => names.indexOf(name) < i)
    if (twice !== undefined) throw badRequest(`query key "${key}" names ${JSON.stringify(twice)} twice`)
    if (key === 'sort' && names && names.length > MOST_SORTED)
      throw badRequest(`query key "sort" names more than ${MOST_SORTED} fields`)
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

/** Whether JSON is to be laid out for a reader; throws 400. */
export const isPretty = (query: URLSearchParams) => choice(query, 'pretty', ['no', 'yes']) === 'yes'

/** The value of a query key that takes one of these words, the first one without it; throws 400. */
export function choice(query: URLSearchParams, key: string, words: readonly [string, ...string[]]): string {
  const given = query.get(key) ?? words[0]
  if (!words.includes(given)) throw badRequest(`query key "${key}" must be one of ${words.join(', ')}`)
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

function columnOf({ title, item }: Listing, name: string): Column {
  const known = shownNames(item)
  if (known.includes(name)) return { name, field: name }
  const dot = name.lastIndexOf('.')
  const [of, field] = [name.slice(0, dot), name.slice(dot + 1)]
  const hasInterfaces = known.includes('interfaces')
  if (hasInterfaces && dot > 0 && shownNames(components.interface).includes(field)) return { name, field, of }
  const more = hasInterfaces ? ', and fields of an interface such as BOOTIF.ipaddress' : ''
  throw badRequest(
    `a ${title} shows no field ${JSON.stringify(name.slice(0, 100))}${didYouMean(name, known)}; it has ${known.join(', ')}${more}`
  )
}

/** What text and CSV show when no fields are asked for: text what is read most, CSV all that fits into a cell. */
function plainColumns(listing: Listing, format: string): Column[] {
  const { item, columns } = listing
  if (format === 'text' && columns) return columns.map(name => columnOf(listing, name))
  const properties = propertiesOf(item)
  const isPlain = (name: string) => {
    const { type, $ref } = properties[name] as Schema
    return $ref === undefined && type !== 'object' && !(type === 'array' && name === 'interfaces')
  }
  const names = shownNames(item).filter(name => !name.startsWith('_') && isPlain(name))
  return names.map(name => ({ name, field: name }))
}

function read(values: Readonly<Record<string, unknown>>, { field, of }: Column): unknown {
  if (of === undefined) return values[field] ?? null
  const interfaces = (values.interfaces ?? []) as readonly Readonly<Record<string, unknown>>[]
  return interfaces.find(entry => entry.interface === of)?.[field] ?? null
}

/** A value as a cell shows it. */
function cell(value: unknown): string {
  if (value === null || value === undefined) return ''
  if (Array.isArray(value) && value.every(one => typeof one !== 'object')) return value.join(',')
  return typeof value === 'object' ? JSON.stringify(value) : String(value)
}

/** Numbers in it compare by their size; nothing comes last. */
const sortKey = (value: unknown) => {
  const text = cell(value)
  return text === '' ? '\uffff' : text.replace(/\d+/g, digits => digits.padStart(15, '0'))
}

/** The entries in order. While it looks at them it yields nothing but pauses. */
function* inOrder(entries: readonly Entry[], { order }: Wishes): Generator<'', readonly Entry[]> {
  if (order.length === 0) return entries
  const keyed: { entry: Entry; keys: string[] }[] = []
  for (const entry of entries) {
    const values = entry.values()
    keyed.push({ entry, keys: order.map(({ column }) => sortKey(read(values, column))) })
    yield ''
  }
  keyed.sort((a, b) => {
    for (const [i, { down }] of order.entries()) {
      const [x, y] = [a.keys[i] as string, b.keys[i] as string]
      if (x !== y) return x < y !== down ? -1 : 1
    }
    return 0
  })
  return keyed.map(({ entry }) => entry)
}

/** What `jsonText` gives for one entry as it is asked for most: there may be thousands in a second. */
function oneText(steps: readonly string[], name: string, text: string): string {
  let whole = text
  for (let i = steps.length - 1; i >= 0; i--) {
    const step = steps[i] as string
    const isLast = i === steps.length - 1
    if (isLast && !step.startsWith('{')) whole = `{${JSON.stringify(step)}:[${whole}]}`
    else whole = `{${JSON.stringify(isLast ? name : step)}:${whole}}`
  }
  return whole
}

/** `steps` lead to the entries: the last one is a parameter where they stand by their names. */
function* jsonText(steps: readonly string[], wishes: Wishes, entries: readonly Entry[]): Generator<string> {
  const { pretty, columns } = wishes
  const isNamed = steps.at(-1)?.startsWith('{') ?? false
  const [open, close] = isNamed ? '{}' : '[]'
  const outer = isNamed ? steps.slice(0, -1) : steps
  const line = (depth: number) => (pretty ? `\n${'  '.repeat(depth)}` : '')
  const key = (name: string) => `${JSON.stringify(name)}:${pretty ? ' ' : ''}`
  const depth = outer.length + 1
  yield `${outer.map((step, i) => `{${line(i + 1)}${key(step)}`).join('')}${open}`
  let count = 0
  for (const entry of yield* inOrder(entries, wishes)) {
    const chosen = () => {
      const values = entry.values()
      return columns ? Object.fromEntries(columns.map(column => [column.name, read(values, column)])) : values
    }
    const text = pretty
      ? JSON.stringify(chosen(), null, 2).replaceAll('\n', line(depth))
      : ((columns ? undefined : entry.json?.()) ?? JSON.stringify(chosen()))
    yield `${count++ > 0 ? ',' : ''}${line(depth)}${isNamed ? key(entry.name) : ''}${text}`
  }
  yield `${count > 0 ? line(outer.length) : ''}${close}${outer.map((_, i) => `${line(outer.length - 1 - i)}}`).join('')}`
}

/** CSV as RFC 4180 has it; what sends it ends the last line. */
function* csvText(columns: readonly Column[], wishes: Wishes, entries: readonly Entry[]): Generator<string> {
  const quoted = (text: string) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text)
  yield `${columns.map(({ name }) => quoted(name)).join(',')}\r`
  for (const entry of yield* inOrder(entries, wishes)) {
    const values = entry.values()
    yield `\n${columns.map(column => quoted(cell(read(values, column)))).join(',')}\r`
  }
}

/** Columns that stand below each other; - where there is no value. */
function* alignedText(
  columns: readonly Column[],
  wishes: Wishes,
  entries: readonly Entry[]
): Generator<string> {
  const rows = [columns.map(({ name }) => name)]
  for (const entry of yield* inOrder(entries, wishes)) {
    const values = entry.values()
    rows.push(columns.map(column => oneLine(cell(read(values, column))) || '-'))
    yield ''
  }
  const widths = columns.map(() => 0)
  for (const row of rows) {
    for (const [i, text] of row.entries()) widths[i] = Math.max(widths[i] as number, text.length)
    yield ''
  }
  for (const [at, row] of rows.entries()) {
    const padded = row.map((text, i) => (i < row.length - 1 ? text.padEnd(widths[i] as number) : text))
    yield `${at > 0 ? '\n' : ''}${padded.join('  ')}`
  }
}

/** A text without control characters, which a terminal would obey: they are written as \\u000a. */
const oneLine = (text: string) =>
  text.replace(
    /[\u0000-\u001f\u007f-\u009f]/g,
    character => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`
  )
