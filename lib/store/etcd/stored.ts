import type { Problem } from '../../base/errors.js'
import { isObject, jsonObject } from '../../base/json.js'
import { getOrAdd } from '../../base/lists.js'
import { oneLine } from '../../base/log.js'
import { LoadError, reasonOf } from '../errors.js'
import { decodeUtf8, parseJson } from '../json.js'
import type { StoredState, Write } from '../medium.js'
import { baseOf } from '../record-kinds.js'
import type { Client } from './client.js'
import { type Keys, objectIn } from './keys.js'
import { list, type Pair, read } from './kv.js'
import { addRecord, type StoredRecords } from './records.js'

/** A change that is committed as staged writes. */
export interface Intent {
  readonly id: string
  readonly writes: readonly Write[]
}

/** The part of a store that is not objects. */
export type Unfinished = Pick<StoredKeys, 'head' | 'intent' | 'abandoned'>

/** Kind of the records of requests, and their directory in the files medium. */
const REQUESTS = 'jobs'

/** All keys of a store at one revision, with an unfinished change applied. */
export class StoredKeys implements StoredState {
  readonly #objects = new Map<string, Map<string, Buffer | string>>()
  readonly #problems: Problem[] = []
  readonly #foreign: Problem[] = []
  readonly #where: string
  /** The value of `Keys.head`; undefined before the first commit. */
  readonly head: string | undefined
  readonly intent: Intent | undefined
  /** Ids of staged writes that were never committed. */
  readonly abandoned: ReadonlySet<string>
  /** Fingerprints of the keys that all controllers share; undefined before the first one stored them. */
  readonly keyFingerprints: string | undefined
  /** Modification and value (`versionOf`) of the head and the leadership key. */
  readonly versions: ReadonlyMap<string, string>
  /** All staged writes: key → text. */
  readonly staged: ReadonlyMap<string, Buffer>
  /** The records of nodes and requests, by kind. */
  readonly records: ReadonlyMap<string, StoredRecords>

  private constructor(
    private readonly client: Client,
    private readonly keys: Keys,
    pairs: readonly Pair[],
    /** The revision of etcd of all of it. */
    readonly revision: string
  ) {
    const values = new Map(pairs.map(({ key, value }) => [key, value]))
    const of = (wanted: string) => versionOf(pairs.find(({ key }) => key === wanted))
    this.versions = new Map([keys.head, keys.leader].map(key => [key, of(key)]))
    this.#where = `etcd at ${client.endpointsText}: `
    try {
      this.head = headOf(values.get(keys.head))
    } catch (error) {
      this.#problems.push({
        file: this.#at(keys.head),
        message:
          `it is no number of a commit (${reasonOf(error)}), and without one no commit is safe: restore a ` +
          'backup, or, where the objects are right, remove this key ' +
          `(${client.etcdctl(`del ${keys.head}`)}) while no svcd runs`
      })
    }
    const records = new Map<string, StoredRecords>()
    for (const [key, value] of values)
      if (key.startsWith(keys.objects)) this.#add(key, value)
      else addRecord(records, keys, key, value)
    this.records = records
    this.keyFingerprints = values.get(keys.keyFingerprints)?.toString()
    const intent = values.get(keys.intent)
    try {
      if (intent !== undefined) this.intent = intentOf(keys, intent, values)
    } catch (error) {
      this.#problems.push({
        file: this.#at(keys.intent),
        message: `a damaged intent: ${reasonOf(error)}; restore a backup`
      })
    }
    for (const write of this.intent?.writes ?? []) this.#set(write)
    this.staged = new Map([...values].filter(([key]) => key.startsWith(keys.staged)))
    const ids = new Set([...this.staged.keys()].map(key => keys.changeIdOf(key)))
    if (this.intent) ids.delete(this.intent.id)
    this.abandoned = ids
  }

  static async read(client: Client, keys: Keys, signal?: AbortSignal): Promise<StoredKeys> {
    const { pairs, revision } = await list(client, keys.prefix, undefined, signal)
    return new StoredKeys(client, keys, pairs, revision)
  }

  /** Reads all but the objects, for a caller that knows these and leads. Throws LoadError for damage. */
  static async unfinished(client: Client, keys: Keys): Promise<Unfinished> {
    const { pairs, revision } = await list(client, keys.staged)
    const found = await read(client, keys.head, keys.intent)
    const all = [...pairs, ...found.flatMap(pair => pair ?? [])]
    const stored = new StoredKeys(client, keys, all, revision)
    if (stored.problems().length > 0) throw new LoadError(stored.problems())
    return stored
  }

  /** Whether there are no objects and no problems. */
  get isEmpty(): boolean {
    return [...this.#objects.values()].every(({ size }) => size === 0) && this.#problems.length === 0
  }

  get foreign(): readonly Problem[] {
    return this.#foreign
  }

  get journals(): ReadonlyMap<string, Iterable<string>> {
    const kinds = [...this.records].filter(([kind]) => kind !== REQUESTS)
    return new Map(
      kinds.flatMap(([kind, { texts }]): [string, Iterable<string>][] =>
        baseOf(kind) === 'files'
          ? recordsIn(texts).map(([id, text]) => [`${kind}/${id}.json`, [text]])
          : [[`${kind}.journal`, linesOf(texts)]]
      )
    )
  }

  names(type: string): Iterable<string> {
    return this.#objects.get(type)?.keys() ?? []
  }

  text(type: string, name: string): string | undefined {
    const value = this.#objects.get(type)?.get(name)
    return typeof value === 'object' ? decodeUtf8(value) : value
  }

  /**
   * Yields every object, and the records of nodes as journals and those of requests, with path and text as
   * files. Throws Error with the object's name if its value is not text.
   */
  *files(): Generator<readonly [path: string, text: string]> {
    for (const [name, lines] of this.journals) yield [name, [...lines].join('')]
    for (const [id, text] of recordsIn(this.records.get(REQUESTS)?.texts))
      yield [`${REQUESTS}/${id}.json`, text]
    for (const [type, objects] of this.#objects)
      for (const name of objects.keys())
        try {
          yield [`${type}/${name}.json`, this.text(type, name) ?? '']
        } catch (error) {
          throw new Error(`${this.place(type, name)}: ${reasonOf(error)}`)
        }
  }

  place(type?: string, name?: string): string {
    if (type === undefined) return this.#at(this.keys.prefix)
    return this.#at(name === undefined ? `${this.keys.objects}${type}/` : this.keys.object(type, name))
  }

  withRemedy({ file, ...problem }: Problem): Problem {
    const key = file.slice(this.#where.length)
    // A key that is clipped or escaped in a message cannot be typed.
    if (!key.startsWith(this.keys.objects) || key.endsWith('/') || /[\\…]/.test(key))
      return { file, ...problem }
    const word = /^[\w./:@-]+$/.test(key) ? key : `'${key.replaceAll("'", "'\\''")}'`
    const { etcdctl } = this.client
    // Not piped: etcdctl reads the password from its standard input.
    const put = etcdctl(`put ${word} -- "$(cat FILE)"`)
    const message = `${problem.message}; put it right (${put}) or remove it (${etcdctl(`del ${word}`)})`
    return { file, ...problem, message }
  }

  problems(types?: ReadonlySet<string>): readonly Problem[] {
    const unknown = types ? [...this.#objects].filter(([type, { size }]) => size > 0 && !types.has(type)) : []
    const strange = (types && this.intent?.writes.filter(({ type }) => !types.has(type))) ?? []
    return [
      ...this.#problems,
      ...strange.map(({ type }) => ({
        file: this.#at(this.keys.intent),
        message: `a damaged intent: it has a write of an unknown type, ${oneLine(JSON.stringify(type), 100)}`
      })),
      // Going on without them could break rules that only the newer release knows.
      ...unknown.map(([type, { size }]) => ({
        file: this.place(type),
        message:
          `this svcd knows no such type (objects: ${size}); ` +
          'it needs the release of the svcd that wrote them'
      }))
    ]
  }

  #at(key: string): string {
    return `${this.#where}${oneLine(key, 300)}`
  }

  #add(key: string, value: Buffer): void {
    try {
      const { type, name } = objectIn(key, this.keys.objects.length)
      this.#ofType(type).set(name, value)
    } catch (error) {
      const reason = oneLine(reasonOf(error), 300)
      this.#foreign.push({ file: this.#at(key), message: `not a key of the store: ${reason}` })
    }
  }

  #set({ type, name, text }: Write): void {
    if (text === undefined) this.#ofType(type).delete(name)
    else this.#ofType(type).set(name, text)
  }

  #ofType(type: string): Map<string, Buffer | string> {
    return getOrAdd(this.#objects, type, () => new Map())
  }
}

/** Yields the lines of a journal, without those that are no records and would make it unreadable. */
function* linesOf(texts: ReadonlyMap<string, string>): Generator<string> {
  for (const text of texts.values())
    for (const line of text.split('\n')) if (jsonObject(line)) yield `${line}\n`
}

/** Returns the records of a kind with a file for each, without those that could not be read as such. */
const recordsIn = (texts: ReadonlyMap<string, string> = new Map()) =>
  [...texts].filter(([id, text]) => /^[0-9a-f]{32}$/.test(id) && jsonObject(text))

/** Returns the modification revision and value of a key; '' if it does not exist. */
export const versionOf = (pair: Pick<Pair, 'modified' | 'value'> | undefined) =>
  pair ? `${pair.modified} ${pair.value}` : ''

/** The text of an intent. It counts the staged writes, so that an incomplete set is detected. */
export const intentText = ({ id, writes }: Intent) => JSON.stringify({ id, writes: writes.length })

/** The number of the last commit, from the value of the head. */
export const commitsIn = (head: string | undefined) => Number(head?.split(' ')[0] ?? 0)

/** Parses the head: a number and its leader's fencing token. Throws Error if no svcd wrote it. */
function headOf(value: Buffer | undefined): string | undefined {
  if (value === undefined) return undefined
  const text = decodeUtf8(value)
  if (!/^(0|[1-9]\d{0,14}) \d{1,19}$/.test(text)) throw new Error(oneLine(JSON.stringify(text), 100))
  return text
}

/** Returns id and number of the staged writes of an intent. Throws Error if it is malformed. */
export function parseIntent(value: Buffer): { id: string; count: number } {
  const json = parseJson(decodeUtf8(value))
  const { id, writes: count } = isObject(json) ? json : {}
  if (typeof id !== 'string' || !/^\d{1,19}-\d{1,15}$/.test(id) || typeof count !== 'number')
    throw new Error('it names no staged writes')
  return { id, count }
}

function intentOf(keys: Keys, value: Buffer, values: ReadonlyMap<string, Buffer>): Intent {
  const { id, count } = parseIntent(value)
  const prefix = keys.stagedPrefix(id)
  const writes: Write[] = []
  for (const [key, staged] of values)
    if (key.startsWith(prefix)) writes.push({ ...objectIn(key, prefix.length), text: textOf(key, staged) })
  if (writes.length !== count) throw new Error(`${writes.length} of its ${count} writes are there`)
  return { id, writes }
}

/** Returns the text of a staged write. A removal is staged without text. */
export function textOf(key: string, staged: Buffer): string | undefined {
  try {
    return staged.length === 0 ? undefined : decodeUtf8(staged)
  } catch (error) {
    throw new Error(`${oneLine(key, 300)}: ${reasonOf(error)}`)
  }
}
