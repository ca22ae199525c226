import type { Revertible } from './medium.js'
import type { Change, Doc, Kind } from './types.js'

/** The write of a changed object. Encodes on demand, as a change may have very many objects. */
export class ObjectWrite implements Revertible {
  readonly #kind: Kind<Doc>
  readonly #before: Doc | undefined
  readonly #after: Doc | undefined
  #text: string | undefined
  readonly type: string
  readonly name: string

  constructor({ type, name, before, after }: Change, kind: Kind<Doc>) {
    this.type = type
    this.name = name
    this.#before = before
    this.#after = after
    this.#kind = kind
  }

  get text(): string | undefined {
    return this.#text ?? (this.#after && this.#kind.encode(this.#after))
  }

  get textBefore(): string | undefined {
    return this.#before && this.#kind.encode(this.#before)
  }

  /** Encodes now, so that a text that cannot be made fails the change. */
  encodeNow(): void {
    this.#text = this.text
  }

  /** Merges this write with an earlier one. */
  mergedWith(earlier: ObjectWrite): ObjectWrite {
    const { type, name } = this
    return new ObjectWrite({ type, name, before: earlier.#before, after: this.#after }, this.#kind)
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
