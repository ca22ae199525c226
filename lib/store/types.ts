/** A stored object: plain JSON, deeply frozen by the store. */
export type Doc = object

/** The types a store holds: type name → shape of its objects. */
export type Types = Record<string, Doc>

/** How one type is written to and read from `<type>/<name>.json`. */
export interface Kind<D extends Doc> {
  /** Checks a parsed file; throws an Error whose message says what is wrong with which field. */
  decode(name: string, json: unknown): D
  /** The file's text: keys in field-table order, two-space indent, newline at the end. */
  encode(doc: D): string
  /** What a parsed file holds that no file should hold: the start writes it anew. Undefined: nothing. */
  outdated?(json: unknown): string | undefined
}

/**
 * Look-ups kept with every change. The store keeps two, one for readers and one for pending changes. Before the end of a change
 * that was made elsewhere, two objects may have what only one can: its objects come in another order than they were made.
 */
export interface Index {
  update(type: string, name: string, before: Doc | undefined, after: Doc | undefined): void
}

/** A consistent look at the objects. */
export interface View<T extends Types, I extends Index> {
  readonly index: I
  get<K extends keyof T & string>(type: K, name: string): T[K] | undefined
  /** Names in natural order (node2 before node10); the array is live, not to be changed or kept. */
  names(type: keyof T & string): readonly string[]
}

/** One object before and after a change; `before` undefined: created, `after` undefined: removed. */
export interface Change {
  readonly type: string
  readonly name: string
  readonly before: Doc | undefined
  readonly after: Doc | undefined
}

/** A transaction in progress: a view of memory plus the changes on their way to disk plus its own. */
export interface Tx<T extends Types, I extends Index> extends View<T, I> {
  put<K extends keyof T & string>(type: K, name: string, doc: T[K]): void
  remove(type: keyof T & string, name: string): void
  /** What this transaction has changed so far, one entry per object, unchanged ones left out. */
  changes(): readonly Change[]
}
