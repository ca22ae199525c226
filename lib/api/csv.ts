import { Readable } from 'node:stream'
import { type CsvError, parse } from 'csv-parse'
import { turnForStep } from '../concurrency.js'
import { didYouMean } from '../did-you-mean.js'
import { badRequest, ServiceError } from '../errors.js'
import type { JsonObject, JsonValue } from '../json.js'
import type { Field } from '../model/field.js'
import type { Given, ObjectType } from '../model/object-type.js'
import { interfaceEntry, readObject } from '../model/request.js'
import { fieldFor } from '../model/table.js'
import { unguarded } from './csv-guard.js'

/** So much of a text is read in one turn of the event loop. */
const PIECE_CHARACTERS = 1024
/** Columns of a table: a node has fewer fields, its interfaces among them. */
const MOST_COLUMNS = 512
/** So many lines that are wrong are told. */
const MOST_TOLD = 20

/** What a line of a table says of one object. */
export interface Line {
  readonly line: number
  readonly name: string
  readonly given: Given
}

/** Collects what is wrong with a table, so that all of it is told at once. */
export class Refusals {
  readonly #told: string[] = []
  #count = 0

  /** `where`: `line 4, column 2 (macaddr)`. */
  add(where: string, why: string): void {
    this.#count++
    if (this.#told.length < MOST_TOLD) this.#told.push(`${where}: ${why}`)
  }

  /** Throws 400 that names them, if there are any. */
  check(): void {
    if (this.#count === 0) return
    const more = this.#count > MOST_TOLD ? `; and ${this.#count - MOST_TOLD} more` : ''
    throw badRequest(`the table is refused, nothing was changed: ${this.#told.join('; ')}${more}`)
  }
}

/**
 * Reads a table (RFC 4180) of objects of one type, a line each. Its first line names the fields, `name` among them;
 * `BOOTIF.ipaddress` is a field of an interface. An empty cell leaves its field as it is. What is wrong goes to `refusals`;
 * throws 400 where the table as such cannot be read.
 */
export async function readTable(text: string, type: ObjectType, refusals: Refusals): Promise<Line[]> {
  const lines: Line[] = []
  const seen = new Map<string, number>()
  let head: readonly string[] | undefined
  let line = 1
  for await (const { record, end } of records(text)) {
    if (head === undefined) head = readHead(record, type)
    else {
      const read = readLine(record, head, line, type, refusals)
      const before = read && seen.get(read.name)
      if (before !== undefined)
        refusals.add(`line ${line}`, `${type.title} ${read?.name} stands in line ${before} too`)
      else if (read) {
        seen.set(read.name, line)
        lines.push(read)
      }
    }
    line = end + 1
  }
  if (head === undefined) throw badRequest('the table is empty: its first line must name the fields')
  return lines
}

interface CsvRecord {
  readonly record: readonly string[]
  readonly info: { readonly lines: number }
}

async function* records(text: string): AsyncGenerator<{ record: readonly string[]; end: number }> {
  const parser = Readable.from(piecesOf(text)).pipe(
    parse({ info: true, relax_column_count: true, skip_empty_lines: false, max_record_size: 1_000_000 })
  )
  try {
    for await (const { record, info } of parser as AsyncIterable<CsvRecord>) yield { record, end: info.lines }
  } catch (error) {
    if (error instanceof ServiceError) throw error
    const { message, lines } = error as CsvError & { readonly lines?: number }
    throw badRequest(`the table cannot be read${lines === undefined ? '' : ` in line ${lines}`}: ${message}`)
  }
}

async function* piecesOf(text: string): AsyncGenerator<string> {
  for (let at = 0; at < text.length; at += PIECE_CHARACTERS) {
    // A stream goes on within the turn in which its reader has taken all.
    await turnForStep()
    yield text.slice(at, at + PIECE_CHARACTERS)
  }
}

function readHead(record: readonly string[], type: ObjectType): readonly string[] {
  if (record.length > MOST_COLUMNS)
    throw badRequest(
      `the table is refused, nothing was changed: it has ${record.length} columns, and ${MOST_COLUMNS} are the most`
    )
  const names = record.map(name => unguarded(name.trim()))
  const [, separator] = names.length === 1 ? (/^[\w.-]+([;\t|])/.exec(names[0] ?? '') ?? []) : []
  if (separator !== undefined)
    throw badRequest(
      `the table is refused, nothing was changed: its cells are separated by ${separator === '\t' ? 'tabs' : `"${separator}"`}: separate them by commas`
    )
  const refusals = new Refusals()
  const where = (i: number) => `line 1, column ${i + 1}`
  for (const [i, name] of names.entries()) {
    if (names.indexOf(name) < i)
      refusals.add(where(i), `"${name}" stands in column ${names.indexOf(name) + 1} too`)
    const isRead = name === 'name' || name.startsWith('_') || fieldOf(type, name) !== undefined
    if (!isRead)
      refusals.add(where(i), `a ${type.title} has no field "${name}"${didYouMean(name, columnsOf(type))}`)
  }
  if (!names.includes('name')) refusals.add('line 1', 'no column is called "name"')
  refusals.check()
  return names
}

/** The columns that an object without interfaces may have. */
const columnsOf = ({ fields }: ObjectType) => ['name', ...fields.map(({ name }) => name)]

/** The field that a column means, of the object or of an interface. */
function fieldOf(type: ObjectType, name: string): Field | undefined {
  const dot = name.lastIndexOf('.')
  if (dot <= 0 || !type.interfaces) return fieldFor(type.fields, name, '')
  return interfaceEntry.find(field => field.name === name.slice(dot + 1) && field.name !== 'interface')
}

function readLine(
  record: readonly string[],
  head: readonly string[],
  line: number,
  type: ObjectType,
  refusals: Refusals
): Line | undefined {
  if (record.length === 1 && record[0] === '') return undefined
  if (record.length !== head.length) {
    refusals.add(`line ${line}`, `${record.length} cells stand below ${head.length} columns`)
    return undefined
  }
  const name = (record[head.indexOf('name')] as string).trim()
  if (!type.isName(name)) {
    refusals.add(`line ${line}, column ${head.indexOf('name') + 1} (name)`, `a name must be ${type.nameRule}`)
    return undefined
  }
  const cells = head.flatMap((column, i) => {
    const text = unguarded(record[i] as string)
    return text === '' || column === 'name' || column.startsWith('_') ? [] : [{ column, text, i }]
  })
  try {
    return { line, name, given: readObject(type, name, bodyOf(type, cells)) }
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error
    // Each by itself, to name its column.
    for (const cell of cells) {
      const why = reasonOf(() => readObject(type, name, bodyOf(type, [cell])))
      if (why !== undefined) refusals.add(`line ${line}, column ${cell.i + 1} (${cell.column})`, why)
    }
    if (cells.every(cell => reasonOf(() => readObject(type, name, bodyOf(type, [cell]))) === undefined))
      refusals.add(`line ${line}`, error.message)
    return undefined
  }
}

interface Cell {
  readonly column: string
  readonly text: string
  readonly i: number
}

/** The body that a request about the same object would have. */
function bodyOf(type: ObjectType, cells: readonly Cell[]): JsonObject {
  const body: JsonObject = {}
  const interfaces = new Map<string, JsonObject>()
  for (const { column, text } of cells) {
    const value = cellValue(text, fieldOf(type, column))
    const dot = column.lastIndexOf('.')
    if (dot <= 0) body[column] = value
    else {
      const name = column.slice(0, dot)
      interfaces.set(name, { interface: name, ...interfaces.get(name), [column.slice(dot + 1)]: value })
    }
  }
  return interfaces.size > 0 ? { ...body, interfaces: [...interfaces.values()] } : body
}

const words: Readonly<Record<string, boolean>> = {
  yes: true,
  true: true,
  1: true,
  no: false,
  false: false,
  0: false
}

/** A cell as the type of its field takes it; what does not fit stays a text, and is refused as that. */
function cellValue(text: string, field: Field | undefined): JsonValue {
  const json = field?.type.json
  if (json === 'boolean') return words[text.trim().toLowerCase()] ?? text
  if (json === 'integer') return /^\d{1,15}$/.test(text.trim()) ? Number(text.trim()) : text
  if (json === 'array') return text.split(',').map(entry => entry.trim())
  if (json !== 'object') return text
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

function reasonOf(read: () => unknown): string | undefined {
  try {
    read()
    return undefined
  } catch (error) {
    if (error instanceof ServiceError) return error.message
    throw error
  }
}
