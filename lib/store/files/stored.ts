import { existsSync, lstatSync } from 'node:fs'
import type { Problem } from '../../base/errors.js'
import { getOrAdd } from '../../base/lists.js'
import { isMissing, readRegularFileSync } from '../../disk/file.js'
import { isEdited } from '../../disk/steps.js'
import { LoadError, reasonOf } from '../errors.js'
import { decodeUtf8 } from '../json.js'
import type { StoredState } from '../medium.js'
import { baseOf, isUnsaved, recordKinds, TABLES } from '../record-kinds.js'
import { type Intent, ofUnknownType, readIntents } from './intents.js'
import { entryOf, listing, objectFile } from './listing.js'
import type { LogRecord } from './log-record.js'
import { Table, tablePath } from './tables.js'
import { LOG, type ReadLog, readLog, SEGMENT } from './wal.js'
import type { FileWrite } from './write-behind.js'

/** The type and name of the entry that says up to which record all files are written. */
export const WRITTEN = { type: 'written', name: 'up-to' } as const

const NOT_OURS = 'not a file of the store'

/** The latest content of a file that may not have it yet, and those before. */
type Logged = Pick<FileWrite, 'text' | 'known'> & {
  sinceMs?: FileWrite['sinceMs']
  readonly texts: (string | undefined)[]
  /** The number of the last record that changes it; 0 for an intent. */
  readonly number: number
}

/**
 * A state directory as read, with the log applied; nothing is written. Synchronous: several times faster for
 * 100,000 small files, and nothing is served before it ends.
 */
export class StoredFiles implements StoredState {
  readonly #intents: ReturnType<typeof readIntents>
  readonly log: ReadLog
  /** Writes that files may lack, by type and name. */
  readonly #logged = new Map<string, Map<string, Logged>>()
  /** Names of objects with a file, by type. */
  readonly #files = new Map<string, Set<string>>()
  readonly #tables = new Map<string, Table>()
  readonly #leftovers: string[]
  readonly #foreign: Problem[] = []

  constructor(private readonly directory: string) {
    this.#intents = readIntents(directory)
    this.#leftovers = [...this.#intents.leftovers]
    this.log = readLog(directory)
    for (const { type, name, text } of this.#intents.intents.flatMap(({ writes }) => writes))
      this.#take(type, name, { text, known: 'any', texts: [], number: 0 })
    const written = writtenIn(this.log)
    for (const record of this.log.records) if (record.number > written) this.#apply(record)
    const { torn } = this.log
    if (torn)
      this.#foreign.push({
        file: torn.file,
        message: `the last write was interrupted: what follows byte ${torn.bytes} is not acknowledged`
      })
    this.#foreign.push(...this.#edits())
    for (const fileName of listing(this.place(LOG)))
      if (!SEGMENT.test(fileName) && entryOf(fileName) !== 'ignored')
        this.#foreign.push({ file: `${this.place(LOG)}/${fileName}`, message: NOT_OURS })
  }

  get intents(): readonly Intent[] {
    return this.#intents.intents
  }

  /** The highest number of a record, in the log or in a table. Throws LoadError for a damaged table. */
  get last(): number {
    return Math.max(this.log.last, ...TABLES.map(kind => this.#table(kind).upTo))
  }

  /** Files left by interrupted atomic writes, of the listed types; safe to remove while no daemon runs. */
  get leftovers(): readonly string[] {
    return this.#leftovers
  }

  get foreign(): readonly Problem[] {
    return this.#foreign
  }

  /** The files that the log promises. */
  *promised(): Generator<FileWrite> {
    for (const [type, logged] of this.#logged)
      for (const [name, { text, known, sinceMs }] of logged) yield { type, name, text, known, sinceMs }
  }

  /** Whether the log has records of tables. */
  get hasTableRecords(): boolean {
    return this.log.records.some(({ entries }) => entries.some(({ type }) => baseOf(type) === 'table'))
  }

  /** Yields names and texts of a kind; `unread` gets unreadable files. Throws LoadError for log or table. */
  *records(
    kind: string,
    unread: (file: string, reason: string) => void
  ): Generator<readonly [name: string, text: string]> {
    if (this.log.problems.length > 0) throw new LoadError(this.log.problems)
    if (baseOf(kind) === 'table') {
      yield* this.#table(kind).texts
      return
    }
    for (const name of this.names(kind)) {
      try {
        yield [name, this.text(kind, name) ?? '']
      } catch (error) {
        const file = this.place(kind, name)
        // A daemon that runs may have removed it meanwhile.
        if (!isMissing(error) || lstatSync(file, { throwIfNoEntry: false })) unread(file, reasonOf(error))
      }
    }
  }

  /** Yields all records as the files of a state without a log, with their paths. As `records` otherwise. */
  *recordFiles(
    unread: (file: string, reason: string) => void
  ): Generator<readonly [path: string, text: string]> {
    for (const kind of Object.keys(recordKinds)) {
      const texts = this.records(kind, unread)
      if (baseOf(kind) === 'table') yield [tablePath(kind), Array.from(texts, ([, text]) => text).join('')]
      else for (const [name, text] of texts) yield [`${kind}/${name}.json`, text]
    }
  }

  problems(types?: ReadonlySet<string>): readonly Problem[] {
    const { intents, problems } = this.#intents
    const all = [...problems, ...this.log.problems, ...TABLES.flatMap(kind => this.#tableProblems(kind))]
    if (!types) return all
    const unknown = [...this.#logged.keys()].filter(type => !types.has(type) && baseOf(type) === undefined)
    const ofLog = unknown.map(type => ({
      file: `${this.directory}/${LOG}`,
      message: `it has objects of an unknown type ${type}`
    }))
    return [...all, ...ofUnknownType(this.directory, intents, types), ...ofLog]
  }

  names(type: string): Iterable<string> {
    const names = new Set(this.#filesOf(type))
    for (const [name, { text }] of this.#logged.get(type) ?? [])
      if (text === undefined) names.delete(name)
      else names.add(name)
    return names
  }

  text(type: string, name: string): string | undefined {
    const logged = this.#logged.get(type)?.get(name)
    if (logged) return logged.text
    if (!this.#filesOf(type).has(name)) return undefined
    return decodeUtf8(readRegularFileSync(objectFile(this.directory, type, name)))
  }

  place(type?: string, name?: string): string {
    if (type === undefined) return this.directory
    return name === undefined ? `${this.directory}/${type}` : objectFile(this.directory, type, name)
  }

  #tableProblems(kind: string): readonly Problem[] {
    try {
      this.#table(kind)
      return []
    } catch (error) {
      if (error instanceof LoadError) return error.problems
      throw error
    }
  }

  /** Returns the table of a kind with the log applied. */
  #table(kind: string): Table {
    return getOrAdd(this.#tables, kind, () => {
      const table = Table.read(this.directory, kind)
      for (const { number, entries } of this.log.records)
        for (const { type, name, text = '', adds } of entries)
          if (type === kind) table.apply(number, name, text, adds)
      return table
    })
  }

  #apply({ entries, time, number }: LogRecord): void {
    for (const { type, name, text, before } of entries) {
      if (type === WRITTEN.type || baseOf(type) === 'table') continue
      // A backup may have the log of a killed svcd, but not their directory.
      if (isUnsaved(type) && !existsSync(this.place(type))) continue
      const earlier = this.#logged.get(type)?.get(name)
      // After a clock that was ahead, times say nothing.
      const { sinceMs = time > Date.now() ? 0 : time, texts = [] } = earlier ?? {}
      texts.push(text)
      const known = baseOf(type) ? 'any' : (earlier?.known ?? [before])
      this.#take(type, name, { text, known, sinceMs, texts, number })
    }
  }

  #take(type: string, name: string, write: Logged): void {
    getOrAdd(this.#logged, type, () => new Map()).set(name, write)
  }

  /** Returns the files that were edited after the log had a change of them. */
  #edits(): Problem[] {
    const edited: [string, Logged][] = []
    const now = Date.now()
    for (const [type, logged] of this.#logged)
      for (const [name, write] of logged) {
        const file = objectFile(this.directory, type, name)
        if (isEdited(file, write, write.texts)) edited.push([file, write])
        else write.sinceMs = now
      }
    if (edited.length === 0) return []
    // The daemon that runs may have logged and written other changes of these files meanwhile.
    const numbers = new Map<string, number>()
    for (const { number, entries } of readLog(this.directory).records)
      for (const { type, name } of entries) numbers.set(objectFile(this.directory, type, name), number)
    return edited.flatMap(([file, { number }]) => {
      if (numbers.get(file) !== number) return []
      const message =
        'it was edited after svcd had logged a change of the object: the change counts; the start keeps ' +
        `the edited file as ${file}.….edited~`
      return [{ file, message }]
    })
  }

  #filesOf(type: string): ReadonlySet<string> {
    return getOrAdd(this.#files, type, () => {
      const names = new Set<string>()
      for (const fileName of listing(this.place(type))) {
        const entry = entryOf(fileName)
        const file = `${this.place(type)}/${fileName}`
        if (typeof entry !== 'string') names.add(entry.object)
        else if (entry === 'leftover') this.#leftovers.push(file)
        else if (entry === 'foreign') this.#foreign.push({ file, message: NOT_OURS })
      }
      return names
    })
  }
}

/** Returns the number of the record up to which all files are written; 0 if the log does not say. */
function writtenIn({ records }: ReadLog): number {
  let written = 0
  for (const { entries } of records)
    for (const { type, text } of entries) if (type === WRITTEN.type) written = Math.max(written, Number(text))
  return written
}
