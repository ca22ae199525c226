import type { KeptRecords, OpenRecords } from './records.js'

/** Names a record; its value is in memory. */
interface Named {
  readonly name: string
}

/** One JSON value per name, as records of a kind. */
export class RecordMap<V extends object> {
  readonly #values = new Map<string, V>()
  #records!: KeptRecords<Named>

  private constructor() {}

  /** Reads the stored values. `parse` throws for what is no value: it is reported, and left out. */
  static async open<V extends object>(
    open: OpenRecords,
    parse: (json: unknown, name: string) => V
  ): Promise<RecordMap<V>> {
    const map = new RecordMap<V>()
    const values = map.#values
    map.#records = await open<Named>({
      namesIn: ({ name }) => [name],
      appliesOnceStored: () => false,
      names: () => values.keys(),
      recordsOf: name => (values.has(name) ? [{ name }] : []),
      json: ({ name }) => JSON.stringify(values.get(name)),
      replaceRecords: (name, [json]) => put(values, name, json && parse(json, name)),
      reset: () => values.clear()
    })
    return map
  }

  get(name: string): V | undefined {
    return this.#values.get(name)
  }

  names(): string[] {
    return [...this.#values.keys()]
  }

  values(): V[] {
    return [...this.#values.values()]
  }

  /** Replaces a value in memory, and stores it soon; a follower's stays in memory. */
  setSoon(name: string, value: V): void {
    this.#values.set(name, value)
    this.#records.soon(name, true)
  }

  /** Stores what waits. */
  close(): Promise<void> {
    return this.#records.close()
  }

  /** Stores a value, or removes it: at once in memory. Rejects with StoreError; the one before stays then. */
  async set(name: string, value: V | undefined): Promise<void> {
    const before = this.#values.get(name)
    put(this.#values, name, value)
    try {
      await this.#records.append({ name })
    } catch (error) {
      if (this.#values.get(name) === value) put(this.#values, name, before)
      throw error
    }
  }
}

function put<V>(values: Map<string, V>, name: string, value: V | undefined): void {
  if (value === undefined) values.delete(name)
  else values.set(name, value)
}
