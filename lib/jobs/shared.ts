import type { RecordDisk } from './record-file.js'

/** A stored record: the JSON of its file; the id alone stands for a removal. */
export interface StoredRecord {
  readonly id: string
  /** Its JSON, if it is written here. */
  readonly json?: string
}

/** Records in etcd, as the leader stores them. */
interface SharedRecords {
  /** Resolves when the result of `recordsOf` for it is stored. */
  append(record: StoredRecord): Promise<void>
  /** Returns the stored record of an id. */
  read(id: string): Promise<readonly StoredRecord[]>
  /** Refuses new writes, and finishes waiting ones. */
  close(): Promise<void>
}

/** Hears of records in etcd. */
export interface JobFollower {
  /** Another controller has stored or (undefined) removed a record. Throws Error for what is no record. */
  stored(id: string, record: StoredRecord | undefined, bytes: number): void
  /** Returns the ids of all known records. */
  ids(): Iterable<string>
  /** All records follow anew. */
  reset(): void
}

/** Where requests are recorded among several controllers. */
export interface Sharing {
  /** The name of this controller. */
  readonly controller: string
  /** Opens the records, and hands over the present ones. */
  open(memory: ReturnType<typeof memoryOf>): Promise<SharedRecords>
}

/** The prefix of file names, in messages too. */
const PLACE = 'etcd: records/jobs/'

/** Records in etcd in place of a disk, each as a file of its own. */
export class SharedDisk implements RecordDisk {
  /** Pending writes. */
  readonly writing = new Map<string, StoredRecord>()
  #records: SharedRecords | undefined

  async open(sharing: Sharing, followed: JobFollower): Promise<void> {
    this.#records = await sharing.open(memoryOf(this.writing, followed))
  }

  /** Returns the name of a record's file. */
  file(id: string): string {
    return `${PLACE}${id}`
  }

  async replace(file: string, json: string): Promise<void> {
    const id = idOf(file)
    const record = { id, json }
    this.writing.set(id, record)
    await this.#records?.append(record)
    if (this.writing.get(id) === record) this.writing.delete(id)
  }

  async remove(file: string): Promise<void> {
    const id = idOf(file)
    this.writing.delete(id)
    await this.#records?.append({ id })
  }

  /** Reads a file. Throws Error where it cannot, or nothing is there. */
  async read(file: string): Promise<StoredRecord> {
    const [record] = (await this.#records?.read(idOf(file))) ?? []
    if (!record) throw new Error('it is not there')
    return record
  }

  async close(): Promise<void> {
    await this.#records?.close()
  }
}

const idOf = (file: string) => file.slice(PLACE.length)

/** The callbacks of the records in etcd. */
const memoryOf = (writing: Map<string, StoredRecord>, followed: JobFollower) => ({
  namesIn: ({ id }: StoredRecord): readonly string[] => [id],
  appliesOnceStored: (_record: StoredRecord) => false,
  names: () => followed.ids(),
  recordsOf(id: string): StoredRecord[] {
    const record = writing.get(id)
    return record ? [record] : []
  },
  json: ({ json }: StoredRecord) => json,
  replaceRecords: (id: string, [record]: readonly StoredRecord[], bytes = 0) =>
    followed.stored(id, record, bytes),
  reset() {
    writing.clear()
    followed.reset()
  }
})
