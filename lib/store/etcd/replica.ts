import { decodeUtf8 } from '../json.js'
import type { Write } from '../medium.js'
import { type Keys, objectIn } from './keys.js'
import { countOf, textOf } from './stored.js'
import type { Moment } from './watch.js'

/**
 * Makes of what happens to the keys of a store what it commits: a small change is one transaction on the keys of objects, a
 * large one counts from its intent on, with the writes that were staged before.
 */
export class Replica {
  readonly #keys: Keys
  /** The writes of changes that wait for their intent, by their mark. */
  readonly #staged = new Map<string, Map<string, Write>>()

  /** `staged`: the keys below `Keys.staged` as they are when it begins, with their texts. */
  constructor(keys: Keys, staged: Iterable<readonly [string, Buffer]>) {
    this.#keys = keys
    for (const [key, value] of staged) this.#stage(key, value)
  }

  /** What a moment commits, at most one write for an object. Throws Error for keys that no svcd of this version writes. */
  take(moment: Moment): Write[] {
    const { objects, staged, intent } = this.#keys
    const writes: Write[] = []
    for (const { key, value } of moment.keys)
      if (key.startsWith(objects))
        writes.push({ ...objectIn(key, objects.length), text: value && decodeUtf8(value) })
      else if (key.startsWith(staged)) this.#stage(key, value)
      else if (key === intent && value !== undefined) writes.push(...this.#committed(value))
    return writes
  }

  #stage(key: string, value: Buffer | undefined): void {
    const id = this.#keys.stagerOf(key)
    const writes = this.#staged.get(id) ?? new Map<string, Write>()
    if (value === undefined) writes.delete(key)
    else writes.set(key, { ...objectIn(key, this.#keys.stagedBy(id).length), text: textOf(key, value) })
    if (writes.size > 0) this.#staged.set(id, writes)
    else this.#staged.delete(id)
  }

  #committed(value: Buffer): Iterable<Write> {
    const { id, count } = countOf(value)
    const writes = this.#staged.get(id)
    const size = writes?.size ?? 0
    if (size !== count) throw new Error(`${this.#keys.intent}: ${size} of its ${count} writes are known`)
    return writes?.values() ?? []
  }
}
