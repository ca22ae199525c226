import { atOnce } from '../concurrency.js'
import { assertStorable } from './medium.js'
import { sameJson } from './same-json.js'
import type { State } from './state.js'
import type { Change, Doc, Index, Tx, Types } from './types.js'

/** Freezes a plain JSON value and all it holds. */
export function deepFreeze<D extends Doc>(doc: D): D {
  for (const value of Object.values(doc)) {
    if (typeof value === 'object' && value !== null) deepFreeze(value)
  }
  return Object.freeze(doc)
}

/**
 * What `store.change` gives to its function. Every write goes into `state` at once, and is noted so that it can be
 * undone.
 */
export class Transaction<T extends Types, I extends Index> implements Tx<T, I> {
  readonly #state: State<T, I>
  readonly #steps: Change[] = []
  /** By object: all its steps as one. Made as they are, not at the end: a change may have many. */
  readonly #folded = new Map<string, Change>()
  /** What `changes` gives, until the next write. */
  #changes: readonly Change[] | undefined
  #open = true

  constructor(state: State<T, I>) {
    this.#state = state
  }

  get index(): I {
    return this.#state.index
  }

  /** Every write in the order it was made: an index may depend on it (an address freed, then taken). */
  get steps(): readonly Change[] {
    return this.#steps
  }

  get<K extends keyof T & string>(type: K, name: string): T[K] | undefined {
    return this.#state.get(type, name)
  }

  names(type: keyof T & string): readonly string[] {
    return this.#state.names(type)
  }

  put<K extends keyof T & string>(type: K, name: string, doc: T[K]): void {
    assertStorable(name)
    this.#write(type, name, doc)
  }

  remove(type: keyof T & string, name: string): void {
    this.#write(type, name, undefined)
  }

  /** The steps on one object folded into one, objects that ended as they began left out. */
  changes(): readonly Change[] {
    this.#changes ??= [...this.#folded.values()].filter(({ before, after }) => before !== after)
    return this.#changes
  }

  /** After this the transaction takes no more writes. */
  end(): void {
    this.#open = false
  }

  /** Takes every write back and ends. */
  undo(): void {
    atOnce(this.undoing())
  }

  /** The same step by step. */
  *undoing(): Generator<void> {
    this.end()
    for (const { type, name, before } of this.#steps.toReversed()) yield this.#state.set(type, name, before)
    this.#steps.length = 0
    this.#folded.clear()
    this.#changes = undefined
  }

  #write(type: keyof T & string, name: string, after: Doc | undefined): void {
    if (!this.#open) throw new Error('the transaction is over')
    const before = this.#state.get(type, name)
    if (sameJson(before, after)) return
    if (after !== undefined) deepFreeze(after)
    this.#state.set(type, name, after)
    const step = { type, name, before, after }
    this.#steps.push(step)
    this.#changes = undefined
    const key = `${type}/${name}`
    const first = this.#folded.get(key)
    if (first === undefined) this.#folded.set(key, step)
    // One that ended as it began has the same object before and after.
    else this.#folded.set(key, { ...step, before: sameJson(first.before, after) ? after : first.before })
  }
}
