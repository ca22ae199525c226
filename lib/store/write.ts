import type { Revertible } from './medium.js'
import type { Change, Doc, Kind } from './types.js'

/** What a changed object has to be stored as. It keeps no text of its own: a change may be of very many objects. */
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

  /** Makes the text now, so that one that cannot be made is known while the change can still be refused. */
  keepText(): void {
    this.#text = this.text
  }

  /** The write for this one and one that came before it. */
  after(earlier: ObjectWrite): ObjectWrite {
    const { type, name } = this
    return new ObjectWrite({ type, name, before: earlier.#before, after: this.#after }, this.#kind)
  }
}

/** The writes of several changes, in their order, as one for an object. */
export function coalesced(changes: readonly (readonly ObjectWrite[])[]): readonly ObjectWrite[] {
  const [first = [], ...others] = changes.filter(writes => writes.length > 0)
  if (others.length === 0) return first
  const latest = new Map<string, ObjectWrite>()
  for (const write of [first, ...others].flat()) {
    const key = `${write.type}/${write.name}`
    const earlier = latest.get(key)
    latest.set(key, earlier ? write.after(earlier) : write)
  }
  return [...latest.values()]
}
