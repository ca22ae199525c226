import { setImmediate as nextTurn } from 'node:timers/promises'
import { Background } from '../base/background.js'
import { runSync } from '../base/concurrency.js'
import { reasonOf, StoreError } from './errors.js'
import { titleOf } from './record-kinds.js'

/** Stores the texts of records in a medium. A text is lines of JSON, one per record of the name. */
export interface RecordStore {
  /** Whether several controllers share them. */
  readonly isShared: boolean
  /** Whether nothing can be written here, because another controller leads. */
  readonly isReadOnly: boolean
  /** Whether lines can be added to the stored text of a name; otherwise it is replaced as a whole. */
  takesAddition(kind: string, name: string): boolean
  /** Resolves when all survive a power cut; rejects if none may count. Calls of one kind never overlap. */
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
  /** The line that `soon` adds to the records of a name. */
  latest?(name: string): R
  /** The JSON of a record, if it is not its own. */
  json?(record: R): string | undefined
  /** Replaces a name's records with stored ones, of this many bytes; none: removed. Throws for no records. */
  replaceRecords(name: string, records: readonly R[], bytes?: number): void
  /** Forgets everything, pending writes included, before a reload. */
  reset(): void
}

/** The part of records that a keeper uses. */
export type KeptRecords<R> = Pick<
  Records<R>,
  'isShared' | 'isReadOnly' | 'append' | 'rewrite' | 'soon' | 'health' | 'read' | 'close'
>

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
  readonly log?: ((level: 'warn' | 'info', message: string) => void) | undefined
  /** Bounds of a write; a record above them is written alone. Absent: none. */
  readonly most?: { readonly names: number; readonly bytes: number }
  /** Whether a write was too large for the medium: it stored nothing, and says nothing about others. */
  readonly isTooLarge?: (error: unknown) => boolean
}

interface Waiting<R> {
  /** Absent: the texts of these names are written anew. */
  readonly record?: R
  readonly names: readonly string[]
  resolve(): void
  reject(error: StoreError): void
}

/**
 * A change that is stored soon is written so long after it, with what is written before. Strangers cause such
 * changes: under load, so many names are written in each interval. A stop writes more.
 */
const SOON = { firstMs: 50, everyMs: 1000, sharedEveryMs: 2000, names: 200 }
/** Another controller waits for the lease. */
const SHARED_NAMES_ON_CLOSE = 1000
const RETRY_MS = { first: 2000, longest: 10_000 }

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
  /** Names with changes that are stored soon, and whether their texts have to be written anew. */
  readonly #soon = new Map<string, boolean>()
  /** When names of `#soon` were written last (`performance` clock), and how many more may be now. */
  #soonMs = Number.NEGATIVE_INFINITY
  #soonLeft = 0
  readonly #writing: Background
  #isRunning = false
  #isClosed = false

  /** Loads the stored texts into memory. */
  constructor(private readonly o: RecordsOptions<R>) {
    const title = titleOf(o.kind)
    const tell = (level: 'warn' | 'info', message: string) => title && o.log?.(level, `${title} ${message}`)
    this.#writing = new Background({
      work: () => this.#run(),
      retryMs: RETRY_MS,
      onFailure: reason => tell('warn', `cannot be written, and it is tried again: ${reason}`),
      onRecovery: () => tell('info', 'are written again')
    })
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

  /** Whether the last write succeeded, and if not, why. */
  get health(): { ok: boolean; reason: string } {
    const { problem } = this.#writing
    return { ok: problem === '', reason: problem }
  }

  /** Resolves when the record survives a power cut; rejects with StoreError if it may not be stored. */
  append(record: R): Promise<void> {
    return this.#add({ record, names: this.o.memory.namesIn(record) })
  }

  /**
   * Writes the texts of these names anew from memory, as one change, and again until that succeeds. Resolves
   * after the first try. A follower writes nothing: its leader does.
   */
  async rewrite(...names: string[]): Promise<void> {
    if (!this.isReadOnly) await this.#add({ names }).catch(() => undefined)
  }

  /**
   * Stores what memory has of a name soon, and again until that succeeds: its latest line, or all of it if
   * that line does not tell all. What is appended later of this name never survives without it.
   */
  soon(name: string, isWhole = false): void {
    this.#soon.set(name, isWhole || this.#soon.get(name) === true)
    if (this.#soon.size === 1) this.#wakeSoon()
  }

  /** Reads a name's records from the medium. Throws Error where it cannot. */
  async read(name: string): Promise<R[]> {
    return recordsIn(await this.o.text(name))
  }

  /** Replaces all records with the stored ones, one step per name. */
  *loading(texts: Iterable<readonly [name: string, text: string]>): Generator<void> {
    this.#uncertain.clear()
    this.#soon.clear()
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

  /** Refuses new records, and stores what waits. */
  async close(): Promise<void> {
    this.#isClosed = true
    await this.#writing.run().catch(() => undefined)
    await this.#writing.close()
  }

  *#load(texts: Iterable<readonly [name: string, text: string]>): Generator<void> {
    for (const [name, text] of texts)
      if (text === '') this.o.damaged(name, 'it is empty')
      else yield this.applyRemote(name, text)
  }

  #add(what: Pick<Waiting<R>, 'record' | 'names'>): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.#isClosed) throw new StoreError('shutting down')
      this.#queue.push({ ...what, resolve, reject })
      this.#start()
    })
  }

  #start(): void {
    if (this.#isRunning) return
    this.#isRunning = true
    this.#writing.wake()
  }

  get #soonDueMs(): number {
    return this.#soonMs + (this.isShared ? SOON.sharedEveryMs : SOON.everyMs) - performance.now()
  }

  #wakeSoon(): void {
    if (!this.#isClosed) this.#writing.wake(Math.max(SOON.firstMs, this.#soonDueMs))
  }

  /** Writes until nothing waits. Throws the failure of the last write, which is then tried again. */
  async #run(): Promise<void> {
    let isTried = false
    let failure: unknown
    this.#isRunning = true
    this.#soonLeft = 0
    if (this.#isClosed) this.#soonLeft = this.isShared ? SHARED_NAMES_ON_CLOSE : Number.POSITIVE_INFINITY
    do {
      // Further appends of this turn join; meanwhile callers of the last ones update their memory.
      await nextTurn()
      if (!this.#isClosed && this.#soonDueMs <= 0) this.#soonLeft = SOON.names
      const { batch, changes } = this.#next()
      if (batch.length === 0 && changes.size === 0) break
      try {
        await this.#write(changes)
      } catch (error) {
        isTried = true
        if (!this.o.isTooLarge?.(error)) failure = error
        this.#failed(batch, changes.keys(), error)
        continue
      }
      for (const { resolve } of batch) resolve()
    } while (this.#queue.length > 0 || (!isTried && this.#hasMore))
    this.#isRunning = false
    if (this.isReadOnly) return
    if (failure) throw new Error(reasonOf(failure))
    if (this.#soon.size > 0) this.#wakeSoon()
  }

  get #hasMore(): boolean {
    if (this.isReadOnly) return false
    return (this.#uncertain.size > 0 && !this.#isClosed) || (this.#soon.size > 0 && this.#soonLeft > 0)
  }

  #failed(batch: readonly Waiting<R>[], names: Iterable<string>, error: unknown): void {
    const { memory, isTooLarge = () => false } = this.o
    // Each try takes as long as the medium is waited for, so no record waits for more than one.
    const others = isTooLarge(error) ? [] : this.#queue.splice(0)
    if (!isTooLarge(error)) for (const name of names) this.#uncertain.add(name)
    for (const { record, names } of others)
      if (record === undefined || !memory.appliesOnceStored(record))
        for (const name of names) this.#uncertain.add(name)
    for (const { reject } of [...batch, ...others]) reject(new StoreError(reasonOf(error)))
  }

  async #write(changes: ReadonlyMap<string, RecordChange>): Promise<void> {
    // A name may become uncertain again meanwhile.
    const marked = [...changes.keys()].filter(name => this.#uncertain.delete(name))
    try {
      await this.o.store.write(this.o.kind, [...changes.values()])
    } catch (error) {
      for (const name of marked) this.#uncertain.add(name)
      throw error
    }
  }

  /**
   * Returns the next batch, and the change of each name in it. A record that is not in memory yet is never
   * followed by one of its name that is: the text of the latter would lack the former.
   */
  #next(): { batch: Waiting<R>[]; changes: Map<string, RecordChange> } {
    const { kind, memory, store } = this.o
    const batch: Waiting<R>[] = []
    const changes = new Map<string, RecordChange>()
    /** Lines that memory does not have yet, by name. */
    const ahead = new Map<string, string>()
    const lineOf = (record: R) => `${memory.json?.(record) ?? JSON.stringify(record)}\n`
    const whole = (name: string, more = ''): RecordChange => {
      const lines = Array.from(memory.recordsOf(name, store.isShared), lineOf)
      return { name, text: lines.join('') + (ahead.get(name) ?? '') + more, adds: false }
    }
    /** Returns the line of a name that is stored soon, undefined if its text has to be written anew. */
    const latest = (name: string): string | undefined => {
      const isWhole = this.#soon.get(name)
      if (isWhole === undefined) return ''
      return isWhole || !memory.latest ? undefined : lineOf(memory.latest(name))
    }
    const takes = this.#taking(changes)
    for (const waiting of this.#queue) {
      const { record, names } = waiting
      const waits = record !== undefined && memory.appliesOnceStored(record)
      if (!waits && names.some(name => ahead.has(name))) break
      const isAddition = record !== undefined && memory.isAddition?.(record) === true
      const line = record !== undefined && (waits || isAddition) ? lineOf(record) : ''
      const next = names.map(name => {
        const before = changes.get(name)
        const adds = isAddition && (before?.adds ?? store.takesAddition(kind, name))
        const first = before?.text ?? latest(name)
        if (!adds || this.#uncertain.has(name) || first === undefined) return whole(name, waits ? line : '')
        return { name, text: first + line, adds }
      })
      if (!takes(next)) break
      if (waits) for (const name of names) ahead.set(name, (ahead.get(name) ?? '') + line)
      batch.push(waiting)
    }
    this.#queue.splice(0, batch.length)
    // The leader writes them.
    if (store.isReadOnly) return { batch, changes }
    for (const name of this.#uncertain) if (!changes.has(name) && !takes([whole(name)])) break
    for (const name of this.#soon.keys()) {
      if (this.#soonLeft <= 0) break
      const text = store.takesAddition(kind, name) ? latest(name) : undefined
      if (!takes([text === undefined ? whole(name) : { name, text, adds: true }])) break
      this.#soonLeft--
      this.#soonMs = performance.now()
    }
    return { batch, changes }
  }

  /** Returns what adds to these changes if there is room: always for the first ones. */
  #taking(changes: Map<string, RecordChange>): (next: readonly RecordChange[]) => boolean {
    const { most } = this.o
    let bytes = 0
    return next => {
      if (most) {
        const bytesOf = ({ name, text }: RecordChange) =>
          Buffer.byteLength(text) - Buffer.byteLength(changes.get(name)?.text ?? '')
        const size = next.reduce((sum, change) => sum + bytesOf(change), bytes)
        const isFull = changes.size + next.length > most.names || size > most.bytes
        if (changes.size > 0 && isFull) return false
        bytes = size
      }
      for (const change of next) {
        changes.set(change.name, change)
        this.#soon.delete(change.name)
      }
      return true
    }
  }
}
