import { join } from 'node:path'
import { isMissing, readRegularFileSync } from '../../disk/file.js'
import { LoadError, reasonOf } from '../errors.js'
import { decodeUtf8, parseJson } from '../json.js'
import type { RecordedState } from '../records.js'

/** The path in the state directory of all texts of a kind: lines of JSON, one per record. */
export const tablePath = (kind: string) => `${kind}.journal`
/** The path of the table of a kind. */
export const tableFile = (directory: string, kind: string) => join(directory, tablePath(kind))

/** Bytes written at once. */
const PIECE_CHARACTERS = 256 * 1024

/**
 * The first line of a table: it has all records of the log up to this number. It may have some later ones:
 * the first of each name after it replaces the text. Tables of earlier releases have none.
 */
interface Position {
  readonly upTo: number
}

/** The texts of a kind. */
export class Table {
  /** By name, lines of JSON. */
  readonly texts = new Map<string, string>()
  /** Absent in a table of an earlier release. */
  #upTo: number | undefined

  /** The table has all records of the log up to this number. */
  get upTo(): number {
    return this.#upTo ?? 0
  }

  /** Reads the table of a kind, or begins an empty one. Throws LoadError with the damaged line. */
  static read(directory: string, kind: string): Table {
    const table = new Table()
    const file = tableFile(directory, kind)
    let bytes: Buffer
    try {
      bytes = readRegularFileSync(file)
    } catch (error) {
      if (isMissing(error)) return table
      throw new LoadError([{ file, message: reasonOf(error) }])
    }
    for (let [start, line] = [0, 1]; start < bytes.length; line++) {
      const end = bytes.indexOf(10, start)
      try {
        if (end === -1 && table.#upTo !== undefined) throw new Error('its end is missing')
        // An unfinished last line of an earlier release was never acknowledged.
        if (end === -1) break
        table.#take(decodeUtf8(bytes.subarray(start, end)))
      } catch (error) {
        // An earlier release may have left zeros, or a part, in the place of its last line.
        if (end === bytes.length - 1 && table.#upTo === undefined) break
        throw new LoadError([{ file, line, message: `not a JSON record: ${reasonOf(error)}` }])
      }
      start = end + 1
    }
    return table
  }

  /** Applies a change of the log, unless the table has it already. */
  apply(number: number, name: string, text: string, adds = false): void {
    if (number <= this.upTo) return
    if (text === '' && !adds) this.texts.delete(name)
    else this.texts.set(name, adds ? (this.texts.get(name) ?? '') + text : text)
  }

  #take(line: string): void {
    const record = parseJson(line) as Position & { node?: string; renamed?: string; dropped?: true }
    if (typeof record !== 'object' || record === null) throw new Error('no object')
    const { upTo, node, renamed, dropped } = record
    if (upTo !== undefined && !(Number.isInteger(upTo) && upTo >= 0 && upTo < 2 ** 46))
      throw new Error('"upTo" is no number of a record')
    if (upTo !== undefined) this.#upTo = upTo
    if (node === undefined) return
    // Earlier releases wrote moves and removals as lines of their own.
    if (renamed === undefined && dropped === undefined) {
      this.texts.set(node, `${this.texts.get(node) ?? ''}${line}\n`)
      return
    }
    const moved = this.texts.get(node)
    this.texts.delete(node)
    if (renamed === undefined || moved === undefined) return
    // The keeper knows the moved records by the earlier name in them.
    this.texts.set(renamed, (this.texts.get(renamed) ?? '') + moved)
  }
}

/** The memory of a kind with a table. */
export type TableMemory = Pick<RecordedState<never>, 'names' | 'recordsOf' | 'json'>

/** Yields the content of a table in pieces. `upTo`: the number of the last record that all names have. */
export function* tableText(memory: TableMemory, upTo: number): Generator<string> {
  let text = `${JSON.stringify({ upTo } satisfies Position)}\n`
  for (const name of memory.names()) {
    for (const record of memory.recordsOf(name))
      text += `${memory.json?.(record) ?? JSON.stringify(record)}\n`
    if (text.length < PIECE_CHARACTERS) continue
    yield text
    text = ''
  }
  yield text
}
