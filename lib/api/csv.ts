import { Readable } from 'node:stream'
import { type CsvError, parse } from 'csv-parse'
import { yieldTurn } from '../base/concurrency.js'
import { didYouMean } from '../base/did-you-mean.js'
import { badRequest, ServiceError } from '../base/errors.js'
import { isObject, type JsonObject, type JsonValue } from '../base/json.js'
import { visible } from '../base/log.js'
import { type Field, ValueError } from '../model/field.js'
import type { ObjectPatch, ObjectType } from '../model/object-type.js'
import { interfaceEntry, readObject } from '../model/request.js'
import { refusalMessage } from '../model/rules.js'
import { fieldFor } from '../model/table.js'

/** Characters that are parsed per turn of the event loop. */
const PIECE_CHARACTERS = 1024
/** Maximum number of columns. A node with its interfaces has fewer fields. */
const MOST_COLUMNS = 512
const MOST_REPORTED = 20

/** Returns a 400 for a table of which nothing is taken. */
const refused = (why: string) =>
  badRequest(`the table is refused, nothing was changed: ${why}`, 'invalid-table')

/** A line of a table: the fields of one object. */
export interface Line {
  readonly line: number
  readonly name: string
  readonly given: ObjectPatch
}

/** From this many on, lines with the same fault are reported as one. */
const GROUPED_FROM = 3
/** Values in which they may differ: quoted ones, names of nodes, MACs and addresses. */
const VARYING = /"(?:[^"\\]|\\.)*"|\bnode [\w.-]+|\b[\da-f]{1,2}(?:[:-][\da-f]{1,2}){5,}|\d+(?:\.\d+){3}/gi

type LineFault = readonly [line: number, text: string]

/** Collects all faults of a table for one answer. */
export class Refusals {
  readonly #kinds = new Map<string, { count: number; readonly lines: LineFault[]; readonly folded: string }>()
  #more = 0

  /** `column`: `column 2 (macaddr)`. */
  add(line: number, why: string, column = ''): void {
    const at = column === '' ? '' : `${column}: `
    const name = `${at}${why.replace(VARYING, '')}`
    const folded = `${at}${why}, first in line ${line}`
    const kind = this.#kinds.get(name) ?? { count: 0, lines: [], folded }
    if (kind.count === 0 && this.#kinds.size === MOST_REPORTED) {
      this.#more++
      return
    }
    this.#kinds.set(name, kind)
    kind.count++
    if (kind.count < GROUPED_FROM)
      kind.lines.push([line, `line ${line}${column === '' ? '' : ', '}${column}: ${why}`])
  }

  /** Throws 400 with the faults, if there are any. */
  check(): void {
    if (this.#kinds.size === 0) return
    const told = [...this.#kinds.values()].flatMap(({ count, lines, folded }): LineFault[] =>
      count < GROUPED_FROM ? lines : lines.slice(0, 1).map(([line]) => [line, `${count} lines: ${folded}`])
    )
    // Faults between several objects are found last.
    const texts = told.sort(([one], [other]) => one - other).map(([, text]) => text)
    const more = this.#more + Math.max(0, told.length - MOST_REPORTED)
    const rest = more > 0 ? `; and ${more} more` : ''
    throw refused(`${visible(texts.slice(0, MOST_REPORTED).join('; '))}${rest}`)
  }
}

/**
 * Reads a table (RFC 4180, or with `;` between cells), a line for each object of one type. The first line has
 * the fields, with `name`; `BOOTIF.ipaddress` is a field of an interface. Empty cells leave their field
 * unchanged. Faults of lines go to `refusals`; throws 400 for a table that cannot be read.
 */
export async function readTable(text: string, type: ObjectType, refusals: Refusals): Promise<Line[]> {
  const [first = ''] = text.slice(0, 10_000).split('\n', 1)
  const separators = first.replace(/"[^"]*"/g, '')
  const [delimiter = ','] = separators.includes(',') ? [] : (/[;\t|]/.exec(separators) ?? [])
  if (delimiter !== ',' && delimiter !== ';')
    throw refused(
      `its cells are separated by ${delimiter === '\t' ? 'tabs' : `"${delimiter}"`}: separate them by commas`
    )
  const lines: Line[] = []
  const seen = new Map<string, number>()
  let head: readonly Column[] | undefined
  let line = 1
  for await (const { record, end } of records(text, delimiter)) {
    if (head === undefined) head = readHead(record, type)
    else {
      const read = readLine(record, head, line, type, refusals)
      const before = read && seen.get(read.name)
      if (before !== undefined) refusals.add(line, `${type.title} ${read?.name} is in line ${before} too`)
      else if (read) {
        seen.set(read.name, line)
        lines.push(read)
      }
    }
    line = end + 1
  }
  if (head === undefined)
    throw badRequest('the table is empty: its first line must name the fields', 'invalid-table')
  return lines
}

interface CsvRecord {
  readonly record: readonly string[]
  readonly info: { readonly lines: number }
}

async function* records(text: string, delimiter: string) {
  const parser = Readable.from(piecesOf(text)).pipe(
    parse({ delimiter, info: true, relax_column_count: true, max_record_size: 1_000_000 })
  )
  try {
    for await (const { record, info } of parser as AsyncIterable<CsvRecord>) yield { record, end: info.lines }
  } catch (error) {
    if (error instanceof ServiceError) throw error
    const { message, lines } = error as CsvError & { readonly lines?: number }
    throw badRequest(
      `the table cannot be read${lines === undefined ? '' : ` in line ${lines}`}: ${message}`,
      'invalid-table'
    )
  }
}

async function* piecesOf(text: string): AsyncGenerator<string> {
  for (let at = 0; at < text.length; at += PIECE_CHARACTERS) {
    // A stream goes on in the same turn when its reader has taken everything.
    await yieldTurn()
    yield text.slice(at, at + PIECE_CHARACTERS)
  }
}

/** A column: its field, and its heading in the table. */
type Column = Readonly<Record<'name' | 'shown', string>>

function readHead(record: readonly string[], type: ObjectType): readonly Column[] {
  if (record.length > MOST_COLUMNS)
    throw refused(`it has ${record.length} columns; at most ${MOST_COLUMNS} are allowed`)
  const shown = record.map(name => unguarded(name.trim()))
  const names = shown.map(name => columnFor(type, name))
  const refusals = new Refusals()
  const add = (i: number, why: string) => refusals.add(1, why, `column ${i + 1}`)
  for (const [i, name] of names.entries()) {
    const before = names.indexOf(name)
    // Spreadsheets write empty columns too; a value in one is refused.
    if (name === '') continue
    if (before < i)
      add(
        i,
        `"${shown[i]}" ${shown[i] === name ? '' : `means ${name}, which `}stands in column ${before + 1} too`
      )
    const isRead = columnsOf(type).includes(name) || name.startsWith('_') || fieldOf(type, name) !== undefined
    const hint = didYouMean(name, columnsOf(type)) || ': take this column out'
    if (!isRead) add(i, `a ${type.title} has no field "${name}"${hint}`)
  }
  if (!names.includes('name')) refusals.add(1, 'no column is called "name"')
  refusals.check()
  return names.map((name, i) => ({ name, shown: shown[i] as string }))
}

/** Usual headings, without blanks, `_` and `-`. */
const HEADINGS: Readonly<Record<string, string>> = {
  ...{ host: 'name', hostname: 'name', node: 'name', nodename: 'name' },
  ...{ mac: 'macaddr', macaddress: 'macaddr' },
  ...{ serialnumber: 'serial', servicetag: 'serial', systemuuid: 'uuid' },
  ...{ ip: 'BOOTIF.ipaddress', ipaddr: 'BOOTIF.ipaddress', ipaddress: 'BOOTIF.ipaddress' },
  ...{ bmcmac: 'BMC.macaddress', bmcmacaddr: 'BMC.macaddress', bmcmacaddress: 'BMC.macaddress' },
  ...{ bmcip: 'BMC.ipaddress', bmcipaddr: 'BMC.ipaddress', bmcipaddress: 'BMC.ipaddress' }
}

/** The column that a heading means, in any case or by a usual name. */
function columnFor(type: ObjectType, name: string): string {
  if (name === 'name' || fieldOf(type, name)) return name
  const lower = name.toLowerCase()
  if (lower.startsWith(VARIABLE)) return VARIABLE + name.slice(VARIABLE.length)
  const found = columnsOf(type).find(column => column.toLowerCase() === lower)
  if (found !== undefined) return found
  const dot = name.lastIndexOf('.') + 1
  const cased = name.slice(0, dot) + lower.slice(dot)
  if (dot > 0) return fieldOf(type, cased) ? cased : name
  return (type.interfaces && HEADINGS[lower.replace(/[\s_-]/g, '')]) || name
}

/** The columns of an object without its single interfaces. */
const columnsOf = ({ fields, interfaces }: ObjectType) =>
  ['name', ...fields.map(({ name }) => name)].concat(interfaces ? [INTERFACES] : [])

/** The column of all interfaces, as JSON. */
const INTERFACES = 'interfaces'
/** Prefix of the columns of single variables. */
const VARIABLE = 'variables.'

function fieldOf(type: ObjectType, name: string): Field | undefined {
  const dot = name.lastIndexOf('.')
  if (name.startsWith(VARIABLE)) return fieldFor(type.fields, 'variables', '')
  if (dot <= 0 || !type.interfaces) return fieldFor(type.fields, name, '')
  return interfaceEntry.find(field => field.name === name.slice(dot + 1) && field.name !== 'interface')
}

function readLine(
  record: readonly string[],
  head: readonly Column[],
  line: number,
  type: ObjectType,
  refusals: Refusals
): Line | undefined {
  if (record.every(cell => cell.trim() === '')) return undefined
  if (record.length !== head.length)
    return void refusals.add(line, `the line has ${record.length} cells, the table ${head.length} columns`)
  const columnAt = (i: number) => `column ${i + 1} (${head[i]?.shown})`
  const at = head.findIndex(column => column.name === 'name')
  const name = (record[at] as string).trim()
  if (!type.isName(name)) {
    const why = `a name must be ${type.nameRule}, not ${JSON.stringify(name)}`
    return void refusals.add(line, why, columnAt(at))
  }
  const cells = head.flatMap(({ name: column }, i) => {
    const text = unguarded(record[i] as string)
    return text.trim() === '' || column === 'name' || column.startsWith('_') ? [] : [{ column, text, i }]
  })
  try {
    return { line, name, given: readObject(type, name, bodyOf(type, cells)) }
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error
    // Each cell by itself, to name its column.
    const faults = cells.flatMap(cell => {
      const why = refusalMessage(() => readObject(type, name, bodyOf(type, [cell])))
      return why === undefined ? [] : { why, i: cell.i }
    })
    for (const { why, i } of faults)
      refusals.add(line, why.replace('must be true or false', 'must be yes or no'), columnAt(i))
    if (faults.length === 0) refusals.add(line, error.message)
    return undefined
  }
}

interface Cell {
  readonly column: string
  readonly text: string
  readonly i: number
}

/** The body of the equivalent request. */
function bodyOf(type: ObjectType, cells: readonly Cell[]): JsonObject {
  const body: JsonObject = {}
  const interfaces = new Map<string, JsonObject>()
  const variables: JsonObject = {}
  for (const { column, text } of cells) {
    const dot = column.lastIndexOf('.')
    if (column.startsWith(VARIABLE)) {
      variables[column.slice(VARIABLE.length)] = text.trim()
      continue
    }
    const value = column === INTERFACES ? jsonOf(text) : cellValue(text, fieldOf(type, column))
    if (dot <= 0) body[column] = value
    else {
      const name = column.slice(0, dot)
      interfaces.set(name, { interface: name, ...interfaces.get(name), [column.slice(dot + 1)]: value })
    }
  }
  if (Object.keys(variables).length > 0 && isObject(body.variables ?? {}))
    body.variables = { ...(body.variables as JsonObject), ...variables }
  const whole = body[INTERFACES] ?? []
  // Anything but a list is refused by its reader.
  if (interfaces.size === 0 || !Array.isArray(whole)) return body
  return { ...body, [INTERFACES]: [...whole, ...interfaces.values()] }
}

const words: Readonly<Record<string, boolean>> = {
  ...{ yes: true, true: true, 1: true },
  ...{ no: false, false: false, 0: false }
}

/** Converts a cell to the type of its field; a cell that does not fit stays a text, to be refused. */
function cellValue(text: string, field: Field | undefined): JsonValue {
  const json = field?.type.json
  if (json === 'boolean') return words[text.trim().toLowerCase()] ?? text
  if (json === 'integer') return /^\d{1,15}$/.test(text.trim()) ? Number(text.trim()) : text
  if (json === 'array') return text.split(',').map(entry => entry.trim())
  return json === 'object' ? jsonOf(text) : isAccepted(text, field) ? text : text.trim()
}

function jsonOf(text: string): JsonValue {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

/** Blanks around a cell are the spreadsheet's, unless the field takes them. */
function isAccepted(text: string, field: Field | undefined): boolean {
  try {
    field?.type.read(text, false)
    return true
  } catch (error) {
    if (error instanceof ValueError) return false
    throw error
  }
}

/**
 * The beginning of a formula in a spreadsheet: the characters that OWASP lists, and their full-width forms.
 * With another separator than the comma, a cell begins in the middle of a text too.
 */
const formula = '(?=[=+\\-@\\t\\r\\n\uff1d\uff0b\uff0d\uff20])'
const isFormula = ['([;\\t|] *)', '(^)'].map(before => new RegExp(`${before}('*${formula})`, 'g'))
const isGuarded = ['(^)', '([;\\t|] *)'].map(before => new RegExp(`${before}'('*${formula})`, 'g'))

/** Puts an apostrophe before anything that a spreadsheet would run as a formula (rules 12.4). */
export const guarded = (text: string) => isFormula.reduce((cell, found) => cell.replace(found, "$1'$2"), text)

/** Undoes `guarded`. */
const unguarded = (cell: string) => isGuarded.reduce((text, found) => text.replace(found, '$1$2'), cell)
