import { atOnce } from '../concurrency.js'
import { assertStorable } from './paths.js'
import type { State } from './state.js'
import type { Change, Doc, Index, Kind, Tx, Types } from './types.js'

/** A change with the texts of the object's file before and after it; `undefined`: no file. */
export interface Step extends Change {
  readonly textBefore: string | undefined
  readonly textAfter: string | undefined
}

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
  readonly #kinds: ReadonlyMap<string, Kind<Doc>>
  readonly #steps: Step[] = []
  /** By object: all its steps as one. Made as they are, not at the end: a change may have many. */
  readonly #folded = new Map<string, Step>()
  #open = true

  constructor(state: State<T, I>, kinds: ReadonlyMap<string, Kind<Doc>>) {
    this.#state = state
    this.#kinds = kinds
  }

  get index(): I {
    return this.#state.index
  }

  /** Every write in the order it was made: an index may depend on it (an address freed, then taken). */
  get steps(): readonly Step[] {
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

  changes(): Change[] {
    return this.net().map(({ type, name, before, after }) => ({ type, name, before, after }))
  }

  /** The steps on one object folded into one, objects that ended as they began left out. */
  net(): Step[] {
    return [...this.#folded.values()].filter(step => step.textBefore !== step.textAfter)
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
  }

  #write(type: keyof T & string, name: string, after: Doc | undefined): void {
    if (!this.#open) throw new Error('the transaction is over')
    const kind = this.#kinds.get(type)
    if (kind === undefined) throw new TypeError(`the store has no type ${type}`)
    const before = this.#state.get(type, name)
    if (before === after) return
    const textBefore = before && kind.encode(before)
    const textAfter = after && kind.encode(after)
    if (textBefore === textAfter) return
    if (after !== undefined) deepFreeze(after)
    this.#state.set(type, name, after)
    const step = { type, name, before, after, textBefore, textAfter }
    this.#steps.push(step)
    const key = `${type}/${name}`
    const first = this.#folded.get(key)
    this.#folded.set(key, first ? { ...step, before: first.before, textBefore: first.textBefore } : step)
  }
}
