import type { JsonObject } from '../../base/json.js'
import { getOrAdd } from '../../base/lists.js'
import { oneLine } from '../../base/log.js'
import { compareNames } from '../order.js'
import {
  type FirstRecords,
  type RecordChange,
  type RecordedState,
  type RecordStore,
  Records
} from '../records.js'
import { TooLargeError } from './client.js'
import type { Etcd, Keys } from './keys.js'
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
  texts: Map<string, string>
}

/** A kind as known here; it has the texts until it is opened. */
interface Kind extends StoredRecords {
  /** Suffix of the heads that are written. */
  end: string
  /** The names that have a key. */
  names: Set<string>
  records?: Records<never>
}

interface Options extends Pick<Etcd, 'keys' | 'log'> {
  readonly keeper: RecordsMedium
}

/** Below etcd's defaults: 128 operations in a transaction, 1.5 MiB in a request. */
const MOST = { names: 100, bytes: 256 * 1024 }
/** Suffix of the head until all first records of the kind are stored. */
const UNFINISHED = ' unfinished'
const endOf = (head: string | undefined) => (head?.endsWith(UNFINISHED) ? UNFINISHED : '')

/**
 * Records in etcd: one key per name. The leader writes, followers apply each key. Every transaction advances
 * the head of its kind, so that a delayed one does nothing.
 */
export class EtcdRecords implements RecordStore {
  readonly isShared = true
  takesAddition = () => false
  readonly #kinds = new Map<string, Kind>()
  #count = 0

  constructor(private readonly o: Options) {}

  get isReadOnly(): boolean {
    return this.o.keeper.isReadOnly
  }

  /** Opens a kind. A leader of a new kind starts it with the texts of `before`. */
  async open<R>(kind: string, memory: RecordedState<R>, before?: FirstRecords): Promise<Records<R>> {
    const of = this.#of(kind)
    const isBegun = of.head !== undefined && endOf(of.head) === ''
    const first = before && !isBegun && !this.isReadOnly ? await before() : undefined
    const records = new Records<R>({
      ...{ kind, store: this, memory, most: MOST, log: this.o.log },
      isTooLarge: error => error instanceof TooLargeError,
      texts: [...(first ?? []), ...of.texts],
      damaged: (name, reason) => {
        const key = oneLine(this.o.keys.record(kind, name), 300)
        this.o.log('warn', `${key} in etcd is no record, and is left out: ${reason}`)
      },
      text: name => this.#read(kind, name)
    })
    of.records = records as unknown as Records<never>
    of.texts = new Map()
    if (first) {
      of.end = UNFINISHED
      await records.writeAll()
      of.end = ''
      await this.write(kind, [])
    }
    return records
  }

  /** Replaces all records with the stored ones, one step per name. */
  *loading(stored: ReadonlyMap<string, StoredRecords>): Generator<void> {
    for (const kind of new Set([...this.#kinds.keys(), ...stored.keys()])) {
      const { head, texts = new Map<string, string>() } = stored.get(kind) ?? {}
      const of = this.#of(kind)
      Object.assign(of, { head, end: endOf(head), names: new Set(texts.keys()) })
      if (of.records) yield* of.records.loading(texts)
      else of.texts = new Map(texts)
    }
  }

  /** Applies another controller's change of a key, if the key is one of a record. */
  applyRemote(key: string, value: Buffer | undefined): void {
    const [kind, name] = recordIn(this.o.keys, key) ?? []
    if (kind === undefined) return
    const of = this.#of(kind)
    const text = value?.toString()
    if (name === undefined) {
      Object.assign(of, { head: text, end: endOf(text) })
      return
    }
    note(of, name, text)
    if (of.records) of.records.applyRemote(name, text)
    else if (text === undefined) of.texts.delete(name)
    else of.texts.set(name, text)
  }

  /** Before a kind is opened only stored records are known, so nothing can differ. */
  becameLeader(): void {
    for (const { records, names } of this.#kinds.values()) records?.becameLeader(names)
  }

  async write(kind: string, changes: readonly RecordChange[]): Promise<void> {
    const { keeper, keys } = this.o
    const of = this.#of(kind)
    const key = keys.record(kind)
    const operations = changes.map(({ name, text }) => {
      const at = keys.record(kind, name)
      return text === '' ? remove(at) : put(at, text)
    })
    // Never reused.
    const { fencingToken } = keeper
    const to = `${fencingToken}-${++this.#count}${of.end}`
    for (;;) {
      const from = of.head
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
      of.head = there
    }
    of.head = to
    for (const { name, text } of changes) note(of, name, text)
  }

  /** Throws Error without an answer, or without leadership. */
  async #read(kind: string, name: string): Promise<string | undefined> {
    const { keeper, keys } = this.o
    const { fencingToken } = keeper
    const { succeeded, found } = await keeper.write(fencingToken, [], [get(keys.record(kind, name))], [])
    if (!succeeded) keeper.leadershipLost(fencingToken)
    return found[0]?.value.toString()
  }

  #of(kind: string): Kind {
    return getOrAdd(this.#kinds, kind, () => ({
      head: undefined,
      end: '',
      names: new Set(),
      texts: new Map()
    }))
  }
}

/** Notes whether a name has a key. */
function note({ names }: Kind, name: string, text = ''): void {
  if (text === '') names.delete(name)
  else names.add(name)
}

/** Adds a key to `stored`, if the key is one of a record. */
export function addRecord(stored: Map<string, StoredRecords>, keys: Keys, key: string, value: Buffer): void {
  const [kind, name] = recordIn(keys, key) ?? []
  if (kind === undefined) return
  const of = getOrAdd(stored, kind, () => ({ head: undefined, texts: new Map() }))
  if (name === undefined) of.head = value.toString()
  else of.texts.set(name, value.toString())
}

/** Returns kind and name of a record's key; no name: the head of its kind. Undefined for other keys. */
function recordIn(keys: Keys, key: string): [kind: string, name: string | undefined] | undefined {
  if (!key.startsWith(keys.records)) return undefined
  const rest = key.slice(keys.records.length)
  const slash = rest.indexOf('/')
  return slash < 0 ? [rest, undefined] : [rest.slice(0, slash), rest.slice(slash + 1)]
}
