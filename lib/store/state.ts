import { SortedNames } from './order.js'
import type { Doc, Index, Types, View } from './types.js'

/**
 * All objects, their names in order, and the index that follows them. The store keeps two over the same frozen
 * objects: `current` (what readers see) and `next` (what transactions see).
 */
export class State<T extends Types, I extends Index> implements View<T, I> {
  readonly index: I
  readonly #objects = new Map<string, Map<string, Doc>>()
  readonly #names = new Map<string, SortedNames>()

  constructor(types: Iterable<string>, index: I) {
    this.index = index
    for (const type of types) {
      this.#objects.set(type, new Map())
      this.#names.set(type, new SortedNames())
    }
  }

  get<K extends keyof T & string>(type: K, name: string): T[K] | undefined {
    // The map of a type holds what its Kind decoded or what a typed put gave, nothing else.
    return this.#of(this.#objects, type).get(name) as T[K] | undefined
  }

  names(type: keyof T & string): readonly string[] {
    return this.#of(this.#names, type).values
  }

  /** Replaces what is there by `after` (`undefined`: nothing), and tells the index. */
  set(type: string, name: string, after: Doc | undefined): void {
    const objects = this.#of(this.#objects, type)
    const before = objects.get(name)
    if (after === undefined) {
      objects.delete(name)
      this.#of(this.#names, type).remove(name)
    } else {
      objects.set(name, after)
      if (before === undefined) this.#of(this.#names, type).add(name)
    }
    this.index.update(type, name, before, after)
  }

  #of<V>(map: Map<string, V>, type: string): V {
    const value = map.get(type)
    if (value === undefined) throw new TypeError(`the store has no type ${type}`)
    return value
  }
}
