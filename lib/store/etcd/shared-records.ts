import { setImmediate as nextTurn } from 'node:timers/promises'
import type { JsonObject } from '../../base/json.js'
import { oneLine } from '../../base/log.js'
import { reasonOf, StoreError } from '../errors.js'
import { compareNames } from '../order.js'
import type { JournaledState, OpenRecords, Records, ReplicatedState } from '../records.js'
import { TooLargeError } from './client.js'
import { get, hasValue, type Outcome, put, remove } from './kv.js'

/** The functions of the medium that records need. */
export interface RecordsMedium {
  /** Whether another controller leads, or none does. */
  readonly isReadOnly: boolean
  /** The fencing token; throws Error if this controller does not lead. */
  readonly fencingToken: string
  /** Runs a transaction that also compares this fencing token, retried while the answer is unclear. */
  write(
    revision: string,
    conditions: readonly JsonObject[],
    operations: readonly JsonObject[],
    otherwise: readonly JsonObject[]
  ): Promise<Omit<Outcome, 'revision'>>
  /** Reports the leadership with this fencing token as lost. */
  leadershipLost(revision: string): never
}

/** The stored records of a kind: its head, and a text per name. */
export interface StoredRecords {
  head: string | undefined
  readonly texts: Map<string, string>
}

interface SharedOptions {
  /** The key of the head; the keys of names are below it. */
  readonly key: string
  readonly keeper: RecordsMedium
  readonly log: (level: 'warn' | 'info', message: string) => void
}

interface Waiting<R> {
  readonly record: R
  resolve(): void
  reject(error: StoreError): void
}

/** Below etcd's defaults: 128 operations in a transaction, 1.5 MiB in a request. */
const MOST_NAMES = 100
const MOST_BYTES = 256 * 1024
/** Suffix of the head until all first records of the kind are stored. */
const UNFINISHED = ' unfinished'

const recordsIn = <R>(text = ''): R[] =>
  text.split('\n').flatMap(line => (line === '' ? [] : [JSON.parse(line) as R]))

/**
 * Records of one kind in etcd: one key per name, which holds the current records of that name. The leader
 * writes, followers apply each key. Every transaction advances the head, so that a delayed one does nothing.
 */
export class SharedRecords<R> implements Records<R> {
  readonly isShared = true
  #memory: ReplicatedState<R> | undefined
  /** Stored texts that no memory has taken yet. */
  #unloaded = new Map<string, string>()
  /** The names that have a key. */
  readonly #stored = new Set<string>()
  #head: string | undefined
  #count = 0
  #queue: Waiting<R>[] = []
  /** Names whose key may differ from memory: after a failed write, or a change of leader. */
  readonly #uncertain = new Set<string>()
  #running: Promise<void> | undefined
  #isClosed = false

  constructor(private readonly o: SharedOptions) {}

  get isReadOnly(): boolean {
    return this.o.keeper.isReadOnly
  }

  /** Loads the stored records into memory. A leader of a new kind starts it with the records of `before`. */
  open(memory: JournaledState<R>, before?: OpenRecords): Promise<this>
  open(memory: ReplicatedState<R>): Promise<this>
  async open(memory: ReplicatedState<R>, before?: OpenRecords): Promise<this> {
    const isBegun = this.#head !== undefined && !this.#head.endsWith(UNFINISHED)
    const begins = before !== undefined && !isBegun && !this.isReadOnly
    if (begins) await (await before(memory as JournaledState<R>)).close()
    this.#memory = memory
    for (const [name, text] of this.#unloaded) this.#load(memory, name, text)
    this.#unloaded = new Map()
    if (begins) await this.#begin(memory)
    return this
  }

  /** Replaces all records with the stored ones, one step per name. */
  *loading({ head, texts }: StoredRecords): Generator<void> {
    this.#head = head
    this.#uncertain.clear()
    this.#stored.clear()
    for (const name of texts.keys()) this.#stored.add(name)
    if (!this.#memory) {
      this.#unloaded = new Map(texts)
      return
    }
    this.#memory.reset()
    for (const [name, text] of texts) yield this.#load(this.#memory, name, text)
  }

  /** Applies the head of another controller's write. */
  applyRemoteHead(text: string | undefined): void {
    this.#head = text
  }

  /** Applies another controller's write of a name; undefined: removed. */
  applyRemote(name: string, text: string | undefined): void {
    if (text === undefined) this.#stored.delete(name)
    else this.#stored.add(name)
    if (this.#memory) this.#load(this.#memory, name, text)
    else if (text === undefined) this.#unloaded.delete(name)
    else this.#unloaded.set(name, text)
  }

  /** This controller leads now. Its predecessor may have died between a change and the records due to it. */
  becameLeader(): void {
    // Before `open` only stored records are known, so nothing can differ.
    if (!this.#memory) return
    const known = new Set(this.#memory.names())
    for (const name of this.#stored) if (!known.has(name)) this.#uncertain.add(name)
    for (const name of known) if (!this.#stored.has(name)) this.#uncertain.add(name)
    this.#start()
  }

  /** Reads a name's records from etcd. Throws Error without an answer, or without leadership. */
  async read(name: string): Promise<R[]> {
    const { keeper, key } = this.o
    const { fencingToken } = keeper
    const { succeeded, found } = await keeper.write(fencingToken, [], [get(`${key}/${name}`)], [])
    if (!succeeded) keeper.leadershipLost(fencingToken)
    return recordsIn<R>(found[0]?.value.toString())
  }

  append(record: R): Promise<void> {
    return new Promise((done, failed) => {
      if (this.#isClosed) throw new StoreError('shutting down')
      this.#queue.push({ record, resolve: done, reject: failed })
      this.#start()
    })
  }

  async close(): Promise<void> {
    this.#isClosed = true
    await this.#running
  }

  #start(): void {
    this.#running ??= this.#run()
  }

  async #run(): Promise<void> {
    let isTried = false
    do {
      // Further appends of this turn join; meanwhile callers of the last ones update their memory.
      await nextTurn()
      const { batch, texts } = this.#next()
      if (batch.length === 0 && texts.size === 0) break
      try {
        await this.#write(texts)
      } catch (error) {
        isTried = true
        // A record over the size limit stores nothing, and says nothing about the others.
        const isTooLarge = error instanceof TooLargeError
        if (!isTooLarge) for (const name of texts.keys()) this.#uncertain.add(name)
        // Each try takes as long as etcd is waited for, so no record waits for more than one.
        const others = isTooLarge ? [] : this.#queue.splice(0)
        for (const { reject } of [...batch, ...others]) reject(new StoreError(reasonOf(error)))
        continue
      }
      for (const { resolve } of batch) resolve()
    } while (this.#queue.length > 0 || (this.#uncertain.size > 0 && !isTried && !this.#isClosed))
    this.#running = undefined
  }

  /**
   * Returns the next batch, and the text of each name in it. A record that is not in memory yet is never
   * followed by one that is: the text of the latter would lack the former.
   */
  #next(): { batch: Waiting<R>[]; texts: Map<string, string> } {
    const memory = this.#memory as ReplicatedState<R>
    const texts = new Map<string, string>()
    const batch: Waiting<R>[] = []
    const added = new Map<string, string>()
    const lineOf = (record: R) => `${memory.json?.(record) ?? JSON.stringify(record)}\n`
    let bytes = 0
    /** Whether there is room for these names and the text added to them; always for the first ones. */
    const takes = (names: readonly string[], more = ''): boolean => {
      const next = names.map(name => {
        const text = [...memory.recordsOf(name)].map(lineOf).join('') + (added.get(name) ?? '') + more
        return [name, text] as const
      })
      const size = next.reduce(
        (sum, [name, text]) => sum + Buffer.byteLength(text) - Buffer.byteLength(texts.get(name) ?? ''),
        bytes
      )
      if (texts.size > 0 && (texts.size + names.length > MOST_NAMES || size > MOST_BYTES)) return false
      bytes = size
      for (const [name, text] of next) texts.set(name, text)
      return true
    }
    for (const waiting of this.#queue) {
      const { record } = waiting
      const names = memory.namesIn(record)
      const waits = memory.appliesOnceStored(record)
      if (!waits && added.size > 0) break
      const more = waits ? lineOf(record) : ''
      if (!takes(names, more)) break
      if (waits) for (const name of names) added.set(name, (added.get(name) ?? '') + more)
      batch.push(waiting)
    }
    this.#queue.splice(0, batch.length)
    for (const name of this.#uncertain) if (!texts.has(name) && !takes([name])) break
    return { batch, texts }
  }

  /** Stores a text for each name; '' removes it. */
  async #write(
    texts: ReadonlyMap<string, string>,
    end = this.#head?.endsWith(UNFINISHED) ? UNFINISHED : ''
  ): Promise<void> {
    const { keeper, key } = this.o
    const operations = [...texts].map(([name, text]) => {
      const at = `${key}/${name}`
      return text === '' ? remove(at) : put(at, text)
    })
    // Never reused.
    const { fencingToken } = keeper
    const to = `${fencingToken}-${++this.#count}${end}`
    for (;;) {
      const from = this.#head
      const { succeeded, found } = await keeper.write(
        fencingToken,
        [hasValue(key, from)],
        [...operations, put(key, to)],
        [get(key)]
      )
      const there = found[0]?.value.toString()
      if (succeeded || there === to) break
      // A restored etcd does not have our last writes.
      if (there === from || compareNames(there ?? '', from ?? '') < 0) keeper.leadershipLost(fencingToken)
      // A write that was reported as failed was carried out after all.
      this.#head = there
    }
    this.#head = to
    for (const [name, text] of texts) {
      this.#uncertain.delete(name)
      if (text === '') this.#stored.delete(name)
      else this.#stored.add(name)
    }
  }

  /** Stores all records in memory for the first time. */
  async #begin(memory: ReplicatedState<R>): Promise<void> {
    for (const name of [...memory.names(), ...this.#stored]) this.#uncertain.add(name)
    while (this.#uncertain.size > 0) await this.#write(this.#next().texts, UNFINISHED)
    await this.#write(new Map(), '')
  }

  #load(memory: ReplicatedState<R>, name: string, text = ''): void {
    try {
      memory.replaceRecords(name, recordsIn<R>(text), Buffer.byteLength(text))
    } catch (error) {
      const { key, log } = this.o
      log(
        'warn',
        `${oneLine(`${key}/${name}`, 300)} in etcd is no record, and is left out: ${reasonOf(error)}`
      )
    }
  }
}
