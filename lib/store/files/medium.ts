import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { Background, type Clock } from '../../base/background.js'
import { crc32c } from '../../base/crc32c.js'
import { makeDirectory, readRegularFile, removeLeftovers, unlessMissing } from '../../disk/file.js'
import { type DiskStep, type FileLayer, realFiles } from '../../disk/steps.js'
import { LoadError, reasonOf, StoreError } from '../errors.js'
import { INTENTS, type Medium, type Revertible } from '../medium.js'
import { baseOf, isLocal, recordKinds, TABLES } from '../record-kinds.js'
import { type RecordChange, type RecordedState, type RecordStore, Records } from '../records.js'
import { soleLeader } from '../role.js'
import { LAYOUT } from '../start.js'
import { intentFile } from './intents.js'
import { objectFile } from './listing.js'
import { acquireLock, type Lock } from './lock.js'
import type { Entry } from './log-record.js'
import { StoredFiles, WRITTEN } from './stored.js'
import { type TableMemory, tableFile, tableText } from './tables.js'
import { cutTorn, LOG, WriteAheadLog } from './wal.js'
import { type FileWrite, WriteBehind } from './write-behind.js'

export interface FileOptions {
  /** The state directory, created (0700) if missing. */
  readonly directory: string
  /** Bound of files to be written after the answers; the next change waits. Default 400,000. */
  readonly outstandingFiles?: number | undefined
  /** The tables are written when the log is larger, and twice as large as they. Default 8 MiB. */
  readonly checkpointBytes?: number | undefined
  /** A segment of the log of this size takes no further change. Default 8 MiB. */
  readonly segmentBytes?: number | undefined
  readonly clock?: Clock | undefined
  /** Writes the files; tests pass failing ones. */
  readonly files?: FileLayer | undefined
  readonly log?: ((level: 'warn' | 'info' | 'error', message: string) => void) | undefined
}

/** Names and bytes of records that are encoded in one turn. */
const MOST = { names: 1000, bytes: 1024 * 1024 }
/** A log of this size takes nothing more while files cannot be written. */
const MOST_BYTES = 512 * 1024 * 1024
const CHECKPOINT_BYTES = 8 * 1024 * 1024
/** The log is cut this long after files were written: the next change then needs no new segment. */
const CUT_MS = 1000
const RETRY_MS = { first: 1000, longest: 30_000 }

/** A kind whose texts are one file, which is written from memory. */
interface OpenTable {
  readonly memory: TableMemory
  /** Names with a record in the log that replaces what the table has of them. */
  readonly logged: Set<string>
  /** The number of the first record that the table may lack. */
  first: number
  /** Resolves when the records that are being logged are. */
  logging?: Promise<unknown>
}

/** The parts of a medium that is open for changes. */
interface Writing {
  readonly log: WriteAheadLog
  readonly behind: WriteBehind
  /** Writes tables and cuts the log. */
  readonly tidying: Background
}

/**
 * A store of one file per object, in a directory locked by one process. A change counts once it is in the
 * write-ahead log; files are written behind it. Records of nodes are in the log, and in one table per kind.
 */
export class FileMedium implements Medium {
  readonly role = soleLeader
  readonly #layer: FileLayer
  #lock: Lock | undefined
  #stored: StoredFiles | undefined
  #writing: Writing | undefined
  #closed: Promise<void> | undefined
  /** When the state was read, in milliseconds since 1970. */
  #readMs = 0
  readonly #tables = new Map<string, OpenTable>()
  #tableBytes = 0
  /** The start found records of tables in the log, and no checkpoint has written them yet. */
  #hasOldRecords = false
  /** The last record with files. */
  #lastFiles = 0
  /** Files up to this record are written. */
  #written = 0
  /** The log says of files up to this record that they are written. */
  #marked = 0

  constructor(private readonly options: FileOptions) {
    this.#layer = options.files ?? realFiles
  }

  /** Creates and locks the directory. Throws LockedError if another process holds it. */
  async lock(): Promise<void> {
    const { directory } = this.options
    await this.#make(directory)
    this.#lock = await acquireLock(directory)
  }

  async read(): Promise<StoredFiles> {
    this.#readMs = Date.now()
    this.#stored = new StoredFiles(this.options.directory)
    return this.#stored
  }

  async start(types: Iterable<string>): Promise<void> {
    const { directory, outstandingFiles, segmentBytes, clock, log = () => {} } = this.options
    const stored = this.#stored ?? (await this.read())
    for (const type of [LOG, ...types]) await this.#make(join(directory, type))
    await this.#prepare(
      stored,
      Object.keys(recordKinds).filter(kind => baseOf(kind) === 'files')
    )
    for (const kind of TABLES) await removeLeftovers(tableFile(directory, kind), /\.\d+$/)
    if (stored.log.torn) await cutTorn(this.#layer, stored.log.torn)
    const segments = stored.log.segments.filter(({ bytes }) => bytes > 0)
    for (const { file, bytes } of stored.log.segments) if (bytes === 0) await rm(file, { force: true })
    const common = { directory, files: this.#layer, ownershipCheck: this.ownershipCheck }
    const wal = new WriteAheadLog({ ...common, segmentBytes }, { segments, last: stored.last })
    const behind = new WriteBehind({
      ...common,
      ...{ outstandingFiles, clock, log, sinceMs: this.#readMs },
      onWritten: upTo => this.#onWritten(upTo)
    })
    const tidying = new Background({
      work: () => this.#tidy(),
      retryMs: RETRY_MS,
      ...(clock ? { clock } : {}),
      onFailure: reason => log('warn', `the log of the store cannot be cut: ${reason}`),
      onRecovery: () => log('info', 'the log of the store is cut again')
    })
    this.#writing = { log: wal, behind, tidying }
    this.#hasOldRecords = stored.hasTableRecords
    this.#lastFiles = wal.last
    await behind.add(stored.promised(), { first: 1, last: wal.last })
    await this.#takeIntents(stored)
  }

  async commit(writes: readonly Revertible[]): Promise<void> {
    const { behind } = this.#open
    await behind.waitForRoom()
    const crcs: (number | undefined)[] = []
    const entries = function* (): Generator<Entry> {
      for (const { type, name, text, textBefore } of writes) {
        const before = textBefore === undefined ? undefined : crc32c(textBefore)
        crcs.push(before)
        yield { type, name, text, before }
      }
    }
    const files = function* (): Generator<FileWrite> {
      for (const [i, write] of writes.entries()) yield fileWrite(write, [crcs[i]])
    }
    // An empty commit writes too: it tests the disk.
    if (writes.length === 0) await this.#append([this.#marker])
    else await this.#append(entries(), files())
    // A release before the log has to see the new version before it could miss a change.
    if (writes.some(({ type }) => type === LAYOUT)) await behind.flush()
  }

  get problem(): string {
    return this.#writing?.behind.problem ?? ''
  }

  /** Fails if the directory is no longer ours to write (rules 11.3); also for other writers in it. */
  get ownershipCheck(): DiskStep {
    if (this.#lock === undefined) throw new Error('the directory is not locked')
    return this.#lock.ownershipCheck
  }

  /**
   * With the objects elsewhere, nothing is logged here: writes the files that an earlier log promises, so
   * that records can be files at once. Throws LoadError for a damaged log.
   */
  async writeLogged(types: Iterable<string>): Promise<void> {
    const stored = await this.read()
    const [promised] = stored.promised()
    if (promised) {
      const problems = stored.problems()
      if (problems.length > 0) throw new LoadError(problems)
      await this.start(types)
      await this.#open.behind.flush()
      await this.#append([this.#marker])
      await this.#stop()
    }
    this.#stored = undefined
  }

  /** Loads and keeps the records of a kind; reports files that are none. LoadError: damaged table or log. */
  async openRecords<R>(kind: string, memory: RecordedState<R>): Promise<Records<R>> {
    const { directory, log } = this.options
    if (!this.#writing && isLocal(kind)) await this.#prepare(new StoredFiles(directory), [kind])
    const isTable = baseOf(kind) === 'table'
    if (isTable)
      this.#tables.set(kind, {
        ...{ memory: memory as RecordedState<never>, logged: new Set() },
        first: Number.POSITIVE_INFINITY
      })
    return new Records<R>({
      ...{ kind, memory, store: this.#records, texts: this.storedRecords(kind), most: MOST, log },
      text: name => this.#readRecord(kind, name),
      damaged: (name, message) => {
        if (isTable)
          throw new LoadError([{ file: tableFile(directory, kind), message: `${name}: ${message}` }])
        log?.('error', `${objectFile(directory, kind, name)} is no record, and is left alone: ${message}`)
      }
    })
  }

  /** Yields the texts of a kind as of the start, with their names. Throws LoadError for a damaged table. */
  storedRecords(kind: string): Iterable<readonly [name: string, text: string]> {
    const stored = this.#stored ?? new StoredFiles(this.options.directory)
    return stored.records(kind, (file, reason) =>
      this.options.log?.('error', `${file} is no record, and is left alone: ${reason}`)
    )
  }

  /** Writes files and tables, cuts the log, and unlocks. */
  close(): Promise<void> {
    this.#closed ??= this.#close()
    return this.#closed
  }

  async #close(): Promise<void> {
    await this.#stop()
    await this.#lock?.release()
  }

  async #stop(): Promise<void> {
    const writing = this.#writing
    if (!writing) return
    await writing.tidying.close()
    try {
      if ((await writing.behind.close()) && this.#isDue(0)) await this.#checkpoint()
      await this.#cut()
    } catch (error) {
      this.options.log?.('warn', `the log of the store is left to the next start: ${reasonOf(error)}`)
    }
    this.#writing = undefined
    await writing.log.close()
  }

  /** Makes the directories of kinds, and removes what interrupted writes left. */
  async #prepare(stored: StoredFiles, kinds: readonly string[]): Promise<void> {
    // Their leftovers are listed with their names.
    for (const kind of kinds) stored.names(kind)
    for (const leftover of stored.leftovers) await rm(leftover, { force: true })
    for (const kind of kinds) await this.#make(join(this.options.directory, kind))
  }

  readonly #records: RecordStore = {
    isShared: false,
    isReadOnly: false,
    takesAddition: (kind, name) => this.#tables.get(kind)?.logged.has(name) ?? false,
    write: (kind, changes) => this.#writeRecords(kind, changes)
  }

  /** Returns the text of a record that has a file of its own; undefined if there is none. */
  async #readRecord(kind: string, name: string): Promise<string | undefined> {
    const pending = this.#writing?.behind.pending(kind, name)
    if (pending) return pending.text
    const file = objectFile(this.options.directory, kind, name)
    return unlessMissing(readRegularFile(file).then(String), undefined)
  }

  get #open(): Writing {
    if (this.#writing === undefined) throw new Error('the directory is not open for changes')
    return this.#writing
  }

  get #marker(): Entry {
    return { ...WRITTEN, text: String(this.#written) }
  }

  /** Logs entries, and has their files written. Without entries it tests the disk. */
  async #append(entries: Iterable<Entry>, files?: Iterable<FileWrite>): Promise<void> {
    const { log, behind } = this.#open
    if (log.bytes > MOST_BYTES && this.problem !== '') throw new StoreError(this.problem)
    const numbers = await log.append(entries)
    if (files) this.#lastFiles = numbers.last
    const added = behind.add(files ?? [], numbers)
    // Records of tables are in memory with the next microtask: a checkpoint counts on it.
    if (files) await added
  }

  /** Writes records of this machine alone where the objects, and so the log, are elsewhere. */
  #writeFiles(kind: string, changes: readonly RecordChange[]): Promise<unknown> {
    const { directory } = this.options
    const steps = changes.map(({ name, text }): DiskStep => {
      const file = objectFile(directory, kind, name)
      return text === '' ? { remove: file } : { replace: file, text }
    })
    return this.#layer.runSteps([this.ownershipCheck, ...steps, { syncDirectory: join(directory, kind) }])
  }

  async #writeRecords(kind: string, changes: readonly RecordChange[]): Promise<void> {
    if (!this.#writing && !this.#closed) {
      await this.#writeFiles(kind, changes)
      return
    }
    const writes = changes.map(({ name, text, adds }) => ({
      ...{ type: kind, name },
      text: text === '' && !adds ? undefined : text,
      ...(adds ? { adds } : {})
    }))
    const { log, tidying } = this.#open
    const table = this.#tables.get(kind)
    const files = table ? undefined : writes.map(write => fileWrite(write, 'any'))
    if (table && writes.length > 0) table.first = Math.min(table.first, log.last + 1)
    const logging = this.#append(writes.length > 0 ? writes : [this.#marker], files)
    if (table) table.logging = logging.catch(() => undefined)
    await logging
    if (!table || writes.length === 0) return
    for (const { name } of writes) table.logged.add(name)
    tidying.wake(CUT_MS)
  }

  /** Finishes the changes of a release before the log: until their files are written, it may start again. */
  async #takeIntents({ intents }: StoredFiles): Promise<void> {
    const { directory } = this.options
    if (intents.length === 0) return
    await this.#open.behind.flush()
    const removals = intents.map(({ number }): DiskStep => ({ remove: intentFile(directory, number) }))
    await this.#layer.runSteps([
      this.ownershipCheck,
      ...removals,
      { syncDirectory: join(directory, INTENTS) }
    ])
  }

  #onWritten(upTo: number): void {
    this.#written = upTo
    this.#writing?.tidying.wake(CUT_MS)
  }

  /** Removes what files and tables have from the log. */
  async #tidy(): Promise<void> {
    const { log } = this.#open
    // All kinds are open, and have what they need of it.
    this.#stored = undefined
    const bytes = Math.max(this.options.checkpointBytes ?? CHECKPOINT_BYTES, 2 * this.#tableBytes)
    if (this.#isDue(bytes)) await this.#checkpoint()
    await this.#cut()
    const files = this.#lastFiles
    if (files <= this.#marked || this.#written < files || log.bytes === 0) return
    // A start does not write these files again, over what an admin may have put there.
    await this.#append([this.#marker])
    this.#marked = files
  }

  /** The number of the first record that a table may lack. */
  get #firstInTables(): number {
    if (this.#hasOldRecords) return 0
    return Math.min(...Array.from(this.#tables.values(), ({ first }) => first))
  }

  /** Whether a log of more than so many bytes has records that no table has, and all kinds are open. */
  #isDue(bytes: number): boolean {
    const { log } = this.#open
    return this.#firstInTables <= log.last && log.bytes > bytes && this.#tables.size === TABLES.length
  }

  async #cut(): Promise<void> {
    await this.#writing?.log.cut(Math.min(this.#written, this.#firstInTables - 1))
  }

  /** Writes all tables anew. */
  async #checkpoint(): Promise<void> {
    let bytes = 0
    for (const [kind, table] of this.#tables) bytes += await this.#writeTable(kind, table)
    this.#tableBytes = bytes
    this.#hasOldRecords = false
  }

  /** Writes a table from memory, which may change meanwhile; returns its size. */
  async #writeTable(kind: string, table: OpenTable): Promise<number> {
    const { directory } = this.options
    for (let seen: unknown; seen !== table.logging; ) {
      seen = table.logging
      await seen
    }
    // No record of the kind is between memory and the log: the position is exact.
    const upTo = this.#open.log.last
    const { first } = table
    table.first = Number.POSITIVE_INFINITY
    table.logged.clear()
    let bytes = 0
    const counted = function* () {
      for (const piece of tableText(table.memory, upTo)) {
        bytes += piece.length
        yield piece
      }
    }
    try {
      // Keepers take a record into memory right after it is stored.
      await nextTurn()
      await this.#layer.runSteps([this.ownershipCheck])
      await this.#layer.replace(tableFile(directory, kind), counted())
      await this.#layer.syncDirectory(directory)
    } catch (error) {
      table.first = Math.min(first, table.first)
      throw error
    }
    return bytes
  }

  #make(directory: string): Promise<void> {
    return makeDirectory(directory, made => this.#layer.syncDirectory(made))
  }
}

/** The write of a file; its text is made on demand. */
const fileWrite = (
  write: Pick<Revertible, 'type' | 'name' | 'text'>,
  known: FileWrite['known']
): FileWrite => ({
  ...{ type: write.type, name: write.name, known },
  get text() {
    return write.text
  }
})
