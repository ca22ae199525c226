import { isObject } from '../../json.js'
import { type Problem, reasonOf } from '../errors.js'
import { parseJson } from '../json.js'
import type { Stored, Write } from '../medium.js'
import type { Client } from './client.js'
import { type Keys, objectIn } from './keys.js'
import { list } from './kv.js'

/** A change that is committed as staged writes. */
export interface Intent {
  readonly id: string
  readonly writes: readonly Write[]
}

/** All keys of a store as they were at one revision, an unfinished change applied. */
export class StoredKeys implements Stored {
  readonly #texts = new Map<string, Map<string, string>>()
  readonly #problems: Problem[] = []
  readonly #foreign: Problem[] = []
  readonly #keys: Keys
  readonly #where: string
  /** What `Keys.head` held; undefined before the first commit. */
  readonly head: string | undefined
  readonly intent: Intent | undefined
  /** What was staged by somebody who did not come to the commit. */
  readonly abandoned: ReadonlySet<string>

  private constructor(client: Client, keys: Keys, texts: ReadonlyMap<string, string>) {
    this.#keys = keys
    this.#where = `etcd at ${client.where}: `
    this.head = texts.get(keys.head)
    for (const [key, text] of texts) if (key.startsWith(keys.objects)) this.#add(key, text)
    const intent = texts.get(keys.intent)
    try {
      if (intent !== undefined) this.intent = intentOf(keys, intent, texts)
    } catch (error) {
      this.#problems.push({
        file: this.#at(keys.intent),
        message: `a damaged intent: ${reasonOf(error)}; restore a backup`
      })
    }
    for (const write of this.intent?.writes ?? []) this.#set(write)
    const ids = new Set<string>()
    for (const key of texts.keys())
      if (key.startsWith(keys.staged)) ids.add(key.slice(keys.staged.length).split('/', 1)[0] as string)
    if (this.intent) ids.delete(this.intent.id)
    this.abandoned = ids
  }

  static async read(client: Client, keys: Keys): Promise<StoredKeys> {
    const { pairs } = await list(client, keys.prefix)
    return new StoredKeys(client, keys, new Map(pairs.map(({ key, value }) => [key, value])))
  }

  get foreign(): readonly Problem[] {
    return this.#foreign
  }

  names(type: string): Iterable<string> {
    return this.#texts.get(type)?.keys() ?? []
  }

  text(type: string, name: string): string | undefined {
    return this.#texts.get(type)?.get(name)
  }

  place(type?: string, name?: string): string {
    if (type === undefined) return this.#at(this.#keys.prefix)
    return this.#at(name === undefined ? `${this.#keys.objects}${type}/` : this.#keys.object(type, name))
  }

  problems(types?: ReadonlySet<string>): readonly Problem[] {
    const strange = (types && this.intent?.writes.filter(({ type }) => !types.has(type))) ?? []
    return [
      ...this.#problems,
      ...strange.map(({ type }) => ({
        file: this.#at(this.#keys.intent),
        message: `a damaged intent: it has a write of an unknown type, ${JSON.stringify(type)}`
      }))
    ]
  }

  #at(key: string): string {
    return `${this.#where}${key}`
  }

  #add(key: string, text: string): void {
    try {
      this.#set({ ...objectIn(key, this.#keys.objects.length), text })
    } catch (error) {
      this.#foreign.push({ file: this.#at(key), message: `not a key of the store: ${reasonOf(error)}` })
    }
  }

  #set({ type, name, text }: Write): void {
    const ofType = this.#texts.get(type) ?? new Map<string, string>()
    this.#texts.set(type, ofType)
    if (text === undefined) ofType.delete(name)
    else ofType.set(name, text)
  }
}

/** The text of an intent. Its staged writes are counted, so that one that is incomplete is never taken for a whole one. */
export const intentText = ({ id, writes }: Intent) => JSON.stringify({ id, writes: writes.length })

function intentOf(keys: Keys, text: string, texts: ReadonlyMap<string, string>): Intent {
  const json = parseJson(text)
  const { id, writes: count } = isObject(json) ? json : {}
  if (typeof id !== 'string' || typeof count !== 'number') throw new Error('it names no staged writes')
  const prefix = keys.stagedBy(id)
  const writes: Write[] = []
  // A removed object is staged without a text.
  for (const [key, value] of texts)
    if (key.startsWith(prefix)) writes.push({ ...objectIn(key, prefix.length), text: value || undefined })
  if (writes.length !== count) throw new Error(`${writes.length} of its ${count} writes are there`)
  return { id, writes }
}
