import { setImmediate as nextTurn } from 'node:timers/promises'
import { runSync } from '../base/concurrency.js'
import { reasonOf, StoreError } from './errors.js'

/** Stores the texts of records in a medium. A text is lines of JSON, one per record of the name. */
export interface RecordStore {
  /** Whether several controllers share them. */
  readonly isShared: boolean
  /** Whether nothing can be written here, because another controller leads. */
  readonly isReadOnly: boolean
  /** Whether lines can be added to the stored text of a name; otherwise it is replaced as a whole. */
  takesAddition(kind: string, name: string): boolean
  /**
   * Resolves when all survive a power cut; rejects with Error when none of them may be counted on.
   * Calls of one kind never overlap.
   */
  write(kind: string, changes: readonly RecordChange[]): Promise<void>
}

/** A change of the text of a name: replaced with `text` ('' removes it), or `text` added to it. */
export interface RecordChange {
  readonly name: string
  readonly text: string
  readonly adds?: boolean
}

/**
 * The state in memory that records describe. A record is about one name, or moves what is known to another.
 * Most are in memory before they are appended; the others enter it once `append` has resolved.
 */
export interface RecordedState<R> {
  /** The names that a record is about. */
  namesIn(record: R): readonly string[]
  /** Whether memory takes the record only once stored: it has one name, and adds to its records. */
  appliesOnceStored(record: R): boolean
  /** Whether the record may follow those of its name as one more line. Absent: it never may. */
  isAddition?(record: R): boolean
  /** All names with records. */
  names(): Iterable<string>
  /** The current records of a name, fewer where controllers share them; none if nothing is known. */
  recordsOf(name: string, isShared?: boolean): Iterable<R>
  /** The JSON of a record, if it is not its own. */
  json?(record: R): string | undefined
  /** Replaces a name's records with stored ones, of this many bytes; none: removed. Throws for no records. */
  replaceRecords(name: string, records: readonly R[], bytes?: number): void
  /** Forgets everything, pending writes included, before a reload. */
  reset(): void
}

/** The part of records that a keeper uses. */
export type KeptRecords<R> = Pick<Records<R>, 'isShared' | 'isReadOnly' | 'append' | 'read' | 'close'>

/** Opens records and loads them into memory. Throws what prevents that. */
export type OpenRecords = <R>(memory: RecordedState<R>) => Promise<KeptRecords<R>>

/** Returns the first records of a kind, a text per name. */
export type FirstRecords = () => Promise<Iterable<readonly [name: string, text: string]>>

interface RecordsOptions<R> {
  readonly kind: string
  readonly store: RecordStore
  readonly memory: RecordedState<R>
  /** The stored texts. */
  readonly texts: Iterable<readonly [name: string, text: string]>
  /** Called for a stored text that is no record. Its throw ends the load. */
  readonly damaged: (name: string, reason: string) => void
  /** Returns the stored text of a name. */
  readonly text: (name: string) => Promise<string | undefined>
  /** Bounds of a write; a record above them is written alone. Absent: none. */
  readonly most?: { readonly names: number; readonly bytes: number }
  /** Whether a write was too large for the medium: it stored nothing, and says nothing about others. */
  readonly isTooLarge?: (error: unknown) => boolean
}

interface Waiting<R> {
  readonly record: R
  resolve(): void
  reject(error: StoreError): void
}

/** Parses a text. Files of earlier releases hold one record over several lines. */
const recordsIn = <R>(text = ''): R[] =>
  text.startsWith('{\n')
    ? [JSON.parse(text) as R]
    : text.split('\n').flatMap(line => (line === '' ? [] : [JSON.parse(line) as R]))

/** Records of one kind, which survive a restart: written in batches, each as a whole. */
export class Records<R> {
  #queue: Waiting<R>[] = []
  /** Names whose stored text may differ from memory: after a failed write, or a change of leader. */
  readonly #uncertain = new Set<string>()
  #running: Promise<void> | undefined
  #isClosed = false

  /** Loads the stored texts into memory. */
  constructor(private readonly o: RecordsOptions<R>) {
    runSync(this.#load(o.texts))
  }

  /** Whether several controllers share them. */
  get isShared(): boolean {
    return this.o.store.isShared
  }

  /** Whether nothing can be appended here, because another controller leads. */
  get isReadOnly(): boolean {
    return this.o.store.isReadOnly
  }

  /** Resolves when the record survives a power cut; rejects with StoreError if it may not be stored. */
  append(record: R): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.#isClosed) throw new StoreError('shutting down')
      this.#queue.push({ record, resolve, reject })
      this.#start()
    })
  }

  /** Reads a name's records from the medium. Throws Error where it cannot. */
  async read(name: string): Promise<R[]> {
    return recordsIn(await this.o.text(name))
  }

  /** Replaces all records with the stored ones, one step per name. */
  *loading(texts: Iterable<readonly [name: string, text: string]>): Generator<void> {
    this.#uncertain.clear()
    this.o.memory.reset()
    yield* this.#load(texts)
  }

  /** Applies another controller's write of a name; undefined: removed. */
  applyRemote(name: string, text = ''): void {
    const { memory, damaged } = this.o
    try {
      memory.replaceRecords(name, recordsIn<R>(text), Buffer.byteLength(text))
    } catch (error) {
      damaged(name, reasonOf(error))
    }
  }

  /**
   * This controller leads now; `stored`: the names with a text. Its predecessor may have died between a
   * change and the records due to it.
   */
  becameLeader(stored: Iterable<string>): void {
    const known = new Set(this.o.memory.names())
    for (const name of stored) if (!known.delete(name)) this.#uncertain.add(name)
    for (const name of known) this.#uncertain.add(name)
    this.#start()
  }

  /** Writes the texts of all names in memory. */
  async writeAll(): Promise<void> {
    for (const name of this.o.memory.names()) this.#uncertain.add(name)
    while (this.#uncertain.size > 0) await this.#write(this.#next().changes)
  }

  /** Refuses new records, and finishes waiting ones. */
  async close(): Promise<void> {
    this.#isClosed = true
    await this.#running
  }

  *#load(texts: Iterable<readonly [name: string, text: string]>): Generator<void> {
    for (const [name, text] of texts)
      if (text === '') this.o.damaged(name, 'it is empty')
      else yield this.applyRemote(name, text)
  }

  #start(): void {
    this.#running ??= this.#run()
  }

  async #run(): Promise<void> {
    let isTried = false
    do {
      // Further appends of this turn join; meanwhile callers of the last ones update their memory.
      await nextTurn()
      const { batch, changes } = this.#next()
      if (batch.length === 0 && changes.size === 0) break
      try {
        await this.#write(changes)
      } catch (error) {
        isTried = true
        this.#failed(batch, changes.keys(), error)
        continue
      }
      for (const { resolve } of batch) resolve()
    } while (this.#queue.length > 0 || (this.#uncertain.size > 0 && !isTried && !this.#isClosed))
    this.#running = undefined
  }

  #failed(batch: readonly Waiting<R>[], names: Iterable<string>, error: unknown): void {
    const { memory, isTooLarge = () => false } = this.o
    // Each try takes as long as the medium is waited for, so no record waits for more than one.
    const others = isTooLarge(error) ? [] : this.#queue.splice(0)
    if (!isTooLarge(error)) for (const name of names) this.#uncertain.add(name)
    for (const { record } of others)
      if (!memory.appliesOnceStored(record))
        for (const name of memory.namesIn(record)) this.#uncertain.add(name)
    for (const { reject } of [...batch, ...others]) reject(new StoreError(reasonOf(error)))
  }

  async #write(changes: ReadonlyMap<string, RecordChange>): Promise<void> {
    await this.o.store.write(this.o.kind, [...changes.values()])
    for (const name of changes.keys()) this.#uncertain.delete(name)
  }

  /**
   * Returns the next batch, and the change of each name in it. A record that is not in memory yet is never
   * followed by one of its name that is: the text of the latter would lack the former.
   */
  #next(): { batch: Waiting<R>[]; changes: Map<string, RecordChange> } {
    const { kind, memory, store, most } = this.o
    const batch: Waiting<R>[] = []
    const changes = new Map<string, RecordChange>()
    /** Lines that memory does not have yet, by name. */
    const ahead = new Map<string, string>()
    let bytes = 0
    const lineOf = (record: R) => `${memory.json?.(record) ?? JSON.stringify(record)}\n`
    const whole = (name: string, more = ''): RecordChange => {
      const lines = Array.from(memory.recordsOf(name, store.isShared), lineOf)
      return { name, text: lines.join('') + (ahead.get(name) ?? '') + more, adds: false }
    }
    /** Takes these changes if there is room for them; always the first ones. */
    const takes = (next: readonly RecordChange[]): boolean => {
      if (most) {
        const bytesOf = ({ name, text }: RecordChange) =>
          Buffer.byteLength(text) - Buffer.byteLength(changes.get(name)?.text ?? '')
        const size = next.reduce((sum, change) => sum + bytesOf(change), bytes)
        const isFull = changes.size + next.length > most.names || size > most.bytes
        if (changes.size > 0 && isFull) return false
        bytes = size
      }
      for (const change of next) changes.set(change.name, change)
      return true
    }
    for (const waiting of this.#queue) {
      const { record } = waiting
      const names = memory.namesIn(record)
      const waits = memory.appliesOnceStored(record)
      if (!waits && names.some(name => ahead.has(name))) break
      const isAddition = memory.isAddition?.(record) === true
      const line = waits || isAddition ? lineOf(record) : ''
      const next = names.map(name => {
        const before = changes.get(name)
        const adds = isAddition && (before?.adds ?? store.takesAddition(kind, name))
        if (!adds || this.#uncertain.has(name)) return whole(name, waits ? line : '')
        return { name, text: (before?.text ?? '') + line, adds }
      })
      if (!takes(next)) break
      if (waits) for (const name of names) ahead.set(name, (ahead.get(name) ?? '') + line)
      batch.push(waiting)
    }
    this.#queue.splice(0, batch.length)
    for (const name of this.#uncertain) if (!changes.has(name) && !takes([whole(name)])) break
    return { batch, changes }
  }
}
