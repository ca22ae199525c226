/**
 * The state in memory that shared records describe. A record is about one name, or moves what is known to
 * another. Most are in memory before they are appended; the others enter it once `append` has resolved.
 */
export interface ReplicatedState<R> {
  /** The names that a record is about. */
  namesIn(record: R): readonly string[]
  /** Whether memory takes the record only once stored: it has one name, and adds to its records. */
  appliesOnceStored(record: R): boolean
  /** All names with records. */
  names(): Iterable<string>
  /** The current records of a name; none if nothing is known. */
  recordsOf(name: string): Iterable<R>
  /** The JSON of a record, if memory has it cached. */
  json?(record: R): string | undefined
  /** Replaces a name's records with another controller's, of this many bytes; none: removed. */
  replaceRecords(name: string, records: readonly R[], bytes?: number): void
  /** Forgets everything, pending writes included, before a reload. */
  reset(): void
}

/** The state in memory that records describe, in files or shared. */
export interface JournaledState<R> extends ReplicatedState<R> {
  /** Takes a record of a journal, in the order of appends. A throw stops `open`, with the line. */
  read(record: R): void
  /**
   * Returns records that stand for all appends. Called between appends only: it must have every record whose
   * `append` has resolved, and none that still waits.
   */
  snapshot(): Iterable<R>
}

/** Records that survive a restart. */
export interface Records<R> {
  /** Whether several controllers share them. */
  readonly isShared: boolean
  /** Whether nothing can be appended here, because another controller leads. */
  readonly isReadOnly: boolean
  /** Resolves when the record survives a power cut; rejects with StoreError if it may not be stored. */
  append(record: R): Promise<void>
  /** Refuses new records, and finishes waiting ones. */
  close(): Promise<void>
}

/** Opens records and loads them into memory. Throws what prevents that. */
export type OpenRecords = <R>(memory: JournaledState<R>) => Promise<Records<R>>

/** Stores the texts of records in a medium. A text is lines of JSON, one per record of the name. */
export interface RecordStore {
  /** Whether several controllers share them. */
  readonly isShared: boolean
  /** Whether nothing can be written here, because another controller leads. */
  readonly isReadOnly: boolean
  /** Whether `adds` is understood: lines are added to what is stored. Etcd replaces texts as a whole. */
  readonly takesAdditions: boolean
  /**
   * Resolves when all survive a power cut; rejects with Error when none of them may be counted on.
   * Calls of one kind never overlap.
   */
  write(kind: string, changes: readonly RecordChange[]): Promise<void>
}

/** A change of the text of a name: replaced with `text` ('' removes it), or `text` added to it. */
export interface RecordChange {
  readonly name: string
  readonly text: string
  readonly adds?: boolean
}

/**
 * The state in memory that records describe. A record is about one name, or moves what is known to another.
 * Most are in memory before they are appended; the others enter it once `append` has resolved.
 */
export interface RecordedState<R> {
  /** The names that a record is about. */
  namesIn(record: R): readonly string[]
  /** Whether memory takes the record only once stored: it has one name, and adds to its records. */
  appliesOnceStored(record: R): boolean
  /** Whether the record may follow those of its name as one more line. Absent: it never may. */
  isAddition?(record: R): boolean
  /** All names with records. */
  names(): Iterable<string>
  /** The current records of a name, fewer where controllers share them; none if nothing is known. */
  recordsOf(name: string, isShared?: boolean): Iterable<R>
  /** The JSON of a record, if it is not its own. */
  json?(record: R): string | undefined
  /** Replaces a name's records with stored ones, of this many bytes; none: removed. Throws for no records. */
  replaceRecords(name: string, records: readonly R[], bytes?: number): void
  /** Forgets everything, pending writes included, before a reload. */
  reset(): void
}

