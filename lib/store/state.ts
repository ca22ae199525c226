import { runSync } from '../base/concurrency.js'
import type { Problem } from '../base/errors.js'
import { FieldError, reasonOf } from './errors.js'
import { JsonError, lineOf, parseJson, refuseDuplicateKeys, sameJson } from './json.js'
import { assertStorable, type StoredState } from './medium.js'
import { compareNames, SortedNames } from './order.js'
import type { Change, Doc, Index, Kind, Tx, Types, View } from './types.js'

/** Freezes a JSON value deeply. */
function deepFreeze<D extends Doc>(doc: D): D {
  for (const value of Object.values(doc)) {
    if (typeof value === 'object' && value !== null) deepFreeze(value)
  }
  return Object.freeze(doc)
}

/** The transaction of `store.change`. Writes go into `state` at once, and can be undone. */
export class Transaction<T extends Types, I extends Index> implements Tx<T, I> {
  readonly #steps: Change[] = []
  /** One net change per object, maintained with each write, as a change may have many. */
  readonly #folded = new Map<string, Change>()
  /** The result of `changes`, until the next write. */
  #changes: readonly Change[] | undefined
  #open = true

  constructor(private readonly state: State<T, I>) {}

  get index(): I {
    return this.state.index
  }

  /** Every write in order: an index may depend on it (an address freed, then taken). */
  get steps(): readonly Change[] {
    return this.#steps
  }

  get<K extends keyof T & string>(type: K, name: string): T[K] | undefined {
    return this.state.get(type, name)
  }

  names(type: keyof T & string): readonly string[] {
    return this.state.names(type)
  }

  put<K extends keyof T & string>(type: K, name: string, doc: T[K]): void {
    assertStorable(name)
    this.#write(type, name, doc)
  }

  remove(type: keyof T & string, name: string): void {
    this.#write(type, name, undefined)
  }

  /** The net changes, without objects that ended as they began. */
  changes(): readonly Change[] {
    this.#changes ??= [...this.#folded.values()].filter(({ before, after }) => before !== after)
    return this.#changes
  }

  /** Refuses further writes. */
  end(): void {
    this.#open = false
  }

  /** Undoes every write and ends. */
  undo(): void {
    runSync(this.undoing())
  }

  /** `undo` in steps. */
  *undoing(): Generator<void> {
    this.end()
    for (const { type, name, before } of this.#steps.toReversed()) yield this.state.set(type, name, before)
    this.#steps.length = 0
    this.#folded.clear()
    this.#changes = undefined
  }

  #write(type: keyof T & string, name: string, after: Doc | undefined): void {
    if (!this.#open) throw new Error('the transaction is over')
    const before = this.state.get(type, name)
    if (sameJson(before, after)) return
    if (after !== undefined) deepFreeze(after)
    this.state.set(type, name, after)
    const step = { type, name, before, after }
    this.#steps.push(step)
    this.#changes = undefined
    const key = `${type}/${name}`
    const first = this.#folded.get(key)
    if (first === undefined) this.#folded.set(key, step)
    // If the object ended as it began, before and after become the same object.
    else this.#folded.set(key, { ...step, before: sameJson(first.before, after) ? after : first.before })
  }
}

/** The objects of a store as read. */
export interface Loaded {
  /** In natural order of names within each type. */
  readonly objects: { type: string; name: string; doc: Doc }[]
  /** Problems that stop a start. */
  readonly problems: Problem[]
  /** Foreign files or keys: reported, not touched. */
  readonly foreign: readonly Problem[]
  /** Objects to be rewritten, and why. */
  readonly outdated: Outdated[]
}

/** An object whose stored text has to be rewritten. */
export interface Outdated extends Problem {
  readonly type: string
  readonly name: string
  readonly text: string
}

type Loading = Omit<Loaded, 'foreign'>

/** Reads every object, synchronously: nothing is served before it ends. */
export function load(stored: StoredState, kinds: ReadonlyMap<string, Kind<Doc>>): Loaded {
  const loading: Loading = {
    objects: [],
    problems: [...stored.problems(new Set(kinds.keys()))],
    outdated: []
  }
  for (const [type, kind] of kinds) {
    try {
      loadType(stored, type, kind, loading)
    } catch (error) {
      loading.problems.push({ file: stored.place(type), message: reasonOf(error) })
    }
  }
  return { ...loading, foreign: stored.foreign }
}

function loadType(stored: StoredState, type: string, kind: Kind<Doc>, loading: Loading): void {
  for (const name of [...stored.names(type)].sort(compareNames)) {
    let text: string | undefined
    try {
      assertStorable(name)
      text = stored.text(type, name)
      if (text === undefined) continue
      const json = parseJson(text)
      loading.objects.push({ type, name, doc: deepFreeze(kind.decode(name, json)) })
      // The store writes no key twice: only texts from elsewhere need the closer look.
      if (`${JSON.stringify(json, null, 2)}\n` !== text) refuseDuplicateKeys(text)
      const why = kind.outdated?.(json)
      if (why !== undefined)
        loading.outdated.push({ type, name, text, file: stored.place(type, name), message: why })
    } catch (error) {
      const others = error instanceof FieldError ? error.others : []
      for (const one of [error, ...others])
        loading.problems.push({
          file: stored.place(type, name),
          ...lineIn(text, one),
          message: reasonOf(one)
        })
    }
  }
}

function lineIn(text: string | undefined, error: unknown): { line?: number } {
  if (error instanceof JsonError) return { line: error.line }
  if (error instanceof FieldError && text !== undefined) return { line: lineOf(text, error.path) }
  return {}
}

/** All objects, their names in order, and their index. The store has two over the same frozen objects. */
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
    // The map of a type holds only what its Kind decoded or a typed put stored.
    return this.#of(this.#objects, type).get(name) as T[K] | undefined
  }

  names(type: keyof T & string): readonly string[] {
    return this.#of(this.#names, type).values
  }

  /** Replaces an object with `after` (`undefined`: removes it), and updates the index. */
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
