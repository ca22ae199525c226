import type { Problem } from '../base/errors.js'
import { LoadError, reasonOf } from './errors.js'
import { parseJson } from './json.js'
import type { Revertible, StoredState, Write } from './medium.js'
import { LAYOUT, LAYOUT_MISSING, type Layout, type StoreOptions, VERSION } from './start.js'
import type { Change, Doc, Index, Kind, Tx, Types } from './types.js'

type Kinds = ReadonlyMap<string, Kind<Doc>>
/** The location of an object, for messages. */
type Place = (type: string, name: string) => string

/** Applies the leader's writes, one step per object. Throws Error with the name of a malformed object. */
export function* applyWrites<T extends Types, I extends Index>(
  tx: Tx<T, I>,
  writes: readonly Write[],
  kinds: Kinds,
  place: Place
): Generator<void> {
  // Removals first: a value they free may be taken in the same change.
  for (const { type, name, text } of writes) if (text === undefined) yield tx.remove(type, name)
  for (const { type, name, text } of writes)
    if (text !== undefined) yield tx.put(type, name, decode(type, name, text, kinds, place) as T[string])
}

/** Turns the transaction's state into the stored one, in steps. Throws LoadError with every problem. */
export function* applyReload<T extends Types, I extends Index>(
  tx: Tx<T, I>,
  stored: StoredState,
  kinds: Kinds,
  verify: StoreOptions<T, I>['verify']
): Generator<void> {
  const problems: Problem[] = [...stored.problems(new Set(kinds.keys()))]
  const told = (type: string, name: string, message: string) => {
    const problem = { file: stored.place(type, name), message }
    problems.push(stored.withRemedy?.(problem) ?? problem)
  }
  const gone: [type: string, name: string][] = []
  const others: [type: string, name: string, doc: Doc][] = []
  for (const [type, kind] of kinds) {
    const names = new Set(stored.names(type))
    for (const name of tx.names(type)) if (!names.has(name)) gone.push([type, name])
    for (const name of names) {
      yield
      try {
        const text = stored.text(type, name) ?? ''
        const doc = tx.get(type, name)
        if (doc === undefined || kind.encode(doc) !== text)
          others.push([type, name, kind.decode(name, parseJson(text))])
      } catch (error) {
        told(type, name, reasonOf(error))
      }
    }
  }
  if (kinds.has(LAYOUT) && [...stored.names(LAYOUT)].length === 0) told(LAYOUT, VERSION, LAYOUT_MISSING)
  if (problems.length > 0) throw new LoadError(problems)
  // Removals first: a name they free may be taken by another object.
  for (const ref of gone) yield tx.remove(...ref)
  for (const [type, name, doc] of others) yield tx.put(type, name, doc as T[string])
  for (const { type, name, message } of (verify && (yield* verify(tx))) ?? []) told(type, name, message)
  if (problems.length > 0) throw new LoadError(problems)
}

/** Throws Error if the transaction's state has another layout than ours. */
export function refuseLayout<T extends Types, I extends Index>(
  tx: Tx<T, I>,
  { steps, release }: Layout,
  place: Place
): void {
  const layout = tx.get(LAYOUT, VERSION) as { version?: number } | undefined
  if (!layout) throw new Error(`${place(LAYOUT, VERSION)}: ${LAYOUT_MISSING}`)
  const { version } = layout
  if (version !== steps.length)
    throw new Error(
      `the state has layout version ${version} by now, and svcd ${release} knows version ${steps.length}: ` +
        'install the release of the svcd that writes'
    )
}

function decode(type: string, name: string, text: string, kinds: Kinds, place: Place): Doc {
  try {
    const kind = kinds.get(type)
    if (!kind) throw new Error('this svcd knows no such type; it needs the release of the one that writes')
    return kind.decode(name, parseJson(text))
  } catch (error) {
    throw new Error(`${place(type, name)}: ${type} ${name}: ${reasonOf(error)}`)
  }
}

/** The write of a changed object. Encodes on demand, as a change may have very many objects. */
export class ObjectWrite implements Revertible {
  readonly type: string
  readonly name: string
  #text: string | undefined

  constructor(
    private readonly change: Change,
    private readonly kind: Kind<Doc>
  ) {
    this.type = change.type
    this.name = change.name
  }

  get text(): string | undefined {
    const { after } = this.change
    return this.#text ?? (after && this.kind.encode(after))
  }

  get textBefore(): string | undefined {
    const { before } = this.change
    return before && this.kind.encode(before)
  }

  /** Encodes now, so that a text that cannot be made fails the change. */
  encodeNow(): void {
    this.#text = this.text
  }

  /** Merges this write with an earlier one. */
  mergedWith(earlier: ObjectWrite): ObjectWrite {
    return new ObjectWrite({ ...this.change, before: earlier.change.before }, this.kind)
  }
}

/** Merges the writes of several changes, in order, into one per object. */
export function coalesced(changes: readonly (readonly ObjectWrite[])[]): readonly ObjectWrite[] {
  const [first = [], ...others] = changes.filter(writes => writes.length > 0)
  if (others.length === 0) return first
  const latest = new Map<string, ObjectWrite>()
  for (const write of [first, ...others].flat()) {
    const key = `${write.type}/${write.name}`
    const earlier = latest.get(key)
    latest.set(key, earlier ? write.mergedWith(earlier) : write)
  }
  return [...latest.values()]
}
