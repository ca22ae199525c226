import type { Memory, OpenRecords, SharedMemory } from '../records.js'
import type { Keys } from './keys.js'
import { SharedRecords, type StoredRecords } from './shared-records.js'

type Options = Omit<ConstructorParameters<typeof SharedRecords>[0], 'key'> & { readonly keys: Keys }

/** All that is kept of nodes and requests and is no object, by its kind. */
export class AllRecords {
  readonly #o: Options
  readonly #kinds = new Map<string, SharedRecords<never>>()

  constructor(options: Options) {
    this.#o = options
  }

  /** How to open the records of a kind. `before` gives those that it begins with where there was none yet. */
  opener(kind: string, before: OpenRecords): OpenRecords {
    return async memory => this.#of(kind).open(memory as Memory<never>, before) as never
  }

  /** Opens the records of a kind, which begin with none. */
  open<R>(kind: string, memory: SharedMemory<R>): Promise<SharedRecords<R>> {
    return this.#of(kind).open(memory as SharedMemory<never>) as Promise<unknown> as Promise<SharedRecords<R>>
  }

  /** Takes all that is stored, in the place of what was known, a step for each name. */
  *loading(stored: ReadonlyMap<string, StoredRecords>): Generator<void> {
    for (const kind of new Set([...this.#kinds.keys(), ...stored.keys()]))
      yield* this.#of(kind).loading(stored.get(kind) ?? { head: undefined, texts: new Map() })
  }

  /** Takes a key that another controller has changed, if it is one of a record. */
  hear(key: string, value: Buffer | undefined): void {
    const [kind, name] = recordIn(this.#o.keys, key) ?? []
    if (kind === undefined) return
    const text = value?.toString()
    if (name === undefined) this.#of(kind).hearHead(text)
    else this.#of(kind).hear(name, text)
  }

  /** This controller writes from now on. */
  promoted(): void {
    for (const records of this.#kinds.values()) records.promoted()
  }

  /** Another controller writes from now on. */
  overtaken(): void {
    for (const records of this.#kinds.values()) records.overtaken()
  }

  #of(kind: string): SharedRecords<never> {
    const known = this.#kinds.get(kind)
    if (known) return known
    const { keys, keeper, log } = this.#o
    const records = new SharedRecords<never>({ key: keys.recordsOf(kind), keeper, log })
    this.#kinds.set(kind, records)
    return records
  }
}

/** Adds a key to what is stored, if it is one of a record. */
export function addRecord(stored: Map<string, StoredRecords>, keys: Keys, key: string, value: Buffer): void {
  const [kind, name] = recordIn(keys, key) ?? []
  if (kind === undefined) return
  const of = stored.get(kind) ?? { head: undefined, texts: new Map<string, string>() }
  stored.set(kind, of)
  if (name === undefined) of.head = value.toString()
  else of.texts.set(name, value.toString())
}

/** The kind and the name that a key is of; no name: the head of its kind. Undefined for other keys. */
function recordIn(keys: Keys, key: string): [kind: string, name: string | undefined] | undefined {
  if (!key.startsWith(keys.records)) return undefined
  const rest = key.slice(keys.records.length)
  const slash = rest.indexOf('/')
  return slash < 0 ? [rest, undefined] : [rest.slice(0, slash), rest.slice(slash + 1)]
}
