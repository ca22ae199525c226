/**
 * Who keeps in memory what records say that controllers share. A record is about a name, or moves what is known of one name to
 * another. Most are in memory before they are appended; one that is not goes there as soon as its `append` has resolved.
 */
export interface SharedMemory<R> {
  /** The names that a record is about. */
  namesIn(record: R): readonly string[]
  /** Whether a record goes to memory only once it is stored: it is about one name, and adds to what is known of it. */
  waits(record: R): boolean
  /** All names of which something is known. */
  names(): Iterable<string>
  /** The records that stand for what is known of a name; none where nothing is. */
  of(name: string): Iterable<R>
  /** The JSON of a record, where memory has it already. */
  json?(record: R): string | undefined
  /** Takes what another controller has stored of a name, in so many bytes, in the place of what was known; no records: nothing. */
  take(name: string, records: readonly R[], bytes?: number): void
  /** Forgets all, and what was to be written of it: it is taken anew. */
  reset(): void
  /** This controller writes from now on, and another one did so far. */
  promoted?(): void
  /** Another controller writes from now on. What it has stored is taken anew in a moment. */
  overtaken?(): void
}

/** Who keeps in memory what records say, wherever they are. */
export interface Memory<R> extends SharedMemory<R> {
  /** Takes a record of a journal, in the order in which they were appended. A throw stops the open, and names the line. */
  read(record: R): void
  /**
   * The records that stand for all that was appended. It is called between appends only. Every record whose `append` has
   * resolved must be in it; one that still waits must not.
   */
  snapshot(): Iterable<R>
}

/** Records that come back at the next start. */
export interface Records<R> {
  /** Whether several controllers share them. */
  readonly isShared: boolean
  /** Whether another controller writes them, and this one hears of it. */
  readonly isFollowing: boolean
  /** Resolves when the record will outlive a power cut; rejects with a StoreError when it is not stored, or nobody knows. */
  append(record: R): Promise<void>
  /** Refuses new records, and finishes those that wait. */
  close(): Promise<void>
}

/** Opens records, and hands memory those that are there; throws what keeps it from that. */
export type OpenRecords = <R>(memory: Memory<R>) => Promise<Records<R>>
