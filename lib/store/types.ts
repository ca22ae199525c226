/** A stored object: plain JSON, deeply frozen by the store. */
export type Doc = object

/** The types of a store: type name → shape of its objects. */
export type Types = Record<string, Doc>

/** Reads and writes `<type>/<name>.json`. */
export interface Kind<D extends Doc> {
  /** Checks a parsed file; throws Error with the field and what is wrong. */
  decode(name: string, json: unknown): D
  /** The file's text: keys in the order of the field table, two-space indent, final newline. */
  encode(doc: D): string
  /** The reason why the start has to rewrite a parsed file; undefined if it has not. */
  outdated?(json: unknown): string | undefined
}

/**
 * Indexes that follow every change, one instance for readers and one for transactions. A replicated change
 * comes in another order than it was made, so two objects may share a unique value until its end.
 */
export interface Index {
  update(type: string, name: string, before: Doc | undefined, after: Doc | undefined): void
}

/** A consistent view of the objects. */
export interface View<T extends Types, I extends Index> {
  readonly index: I
  get<K extends keyof T & string>(type: K, name: string): T[K] | undefined
  /** Names in natural order (node2 before node10); live, not to be changed or kept. */
  names(type: keyof T & string): readonly string[]
}

/** An object before and after a change; `before` undefined: created, `after` undefined: removed. */
export interface Change {
  readonly type: string
  readonly name: string
  readonly before: Doc | undefined
  readonly after: Doc | undefined
}

/** A transaction in progress: memory, the pending changes, and its own. */
export interface Tx<T extends Types, I extends Index> extends View<T, I> {
  put<K extends keyof T & string>(type: K, name: string, doc: T[K]): void
  remove(type: keyof T & string, name: string): void
  /** The net changes so far, one per object. */
  changes(): readonly Change[]
}
