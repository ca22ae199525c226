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
