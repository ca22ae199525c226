import type { RecordDisk } from './record-file.js'

/** A record as it is stored: the JSON of its file; the id alone stands for one that is to be removed. */
export interface StoredRecord {
  readonly id: string
  /** Its JSON, of one that is written here. */
  readonly json?: string
}

/** Records that controllers share, as the one that writes stores them. */
interface SharedRecords {
  /** Whether another controller writes them, and this one hears of it. */
  readonly isFollowing: boolean
  /** Resolves when what `of` gives of it is stored. */
  append(record: StoredRecord): Promise<void>
  /** What is stored of an id. */
  read(id: string): Promise<readonly StoredRecord[]>
  /** Refuses what comes, and finishes what waits. */
  close(): Promise<void>
}

/** Who is told of records that controllers share. */
export interface Followed {
  /** Another controller has stored this, in so many bytes; undefined: it is removed. Throws Error for what is no record. */
  stored(id: string, record: StoredRecord | undefined, bytes: number): void
  /** The ids of all that were told. */
  ids(): Iterable<string>
  /** All is told anew. */
  reset(): void
  promoted(): void
  overtaken(): void
}

/** Where requests are recorded if controllers share the objects. */
export interface Sharing {
  /** The name of this controller. */
  readonly controller: string
  /** Opens the records, and hands over those that are there. */
  open(memory: ReturnType<typeof memoryOf>): Promise<SharedRecords>
}

/** What file names begin with, in messages too. */
const PLACE = 'etcd: records/jobs/'

/** Records that controllers share in the place of a disk, each as a file of its own. */
export class SharedDisk implements RecordDisk {
  /** What is being written, or could not be so far. */
  readonly writing = new Map<string, StoredRecord>()
  #records: SharedRecords | undefined

  async open(sharing: Sharing, followed: Followed): Promise<void> {
    this.#records = await sharing.open(memoryOf(this.writing, followed))
  }

  /** Whether another controller writes, or nobody. */
  get isFollowing(): boolean {
    return this.#records?.isFollowing ?? true
  }

  /** The name of a record's file. */
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

  /** What a file holds. Throws Error where that is not told, or nothing is there. */
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

/** What those who keep the records know of them. */
const memoryOf = (writing: Map<string, StoredRecord>, followed: Followed) => ({
  namesIn: ({ id }: StoredRecord): readonly string[] => [id],
  waits: (_record: StoredRecord) => false,
  names: () => followed.ids(),
  of(id: string): StoredRecord[] {
    const record = writing.get(id)
    return record ? [record] : []
  },
  json: ({ json }: StoredRecord) => json,
  take: (id: string, [record]: readonly StoredRecord[], bytes = 0) => followed.stored(id, record, bytes),
  reset() {
    writing.clear()
    followed.reset()
  },
  promoted: () => followed.promoted(),
  overtaken: () => followed.overtaken()
})
