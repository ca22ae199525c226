import { rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { readRegularFile, unlessMissing } from '../disk/file.js'
import type { DiskStep } from '../disk/steps.js'
import { type FileLayer, type LogFile, realFiles } from '../disk/steps.js'
import { LoadError, reasonOf, StoreError } from './errors.js'
import { decodeUtf8 } from './json.js'
import type { RecordStore } from './records.js'

export interface JournalOptions<R> {
  read(record: R): void
  snapshot(): Iterable<R>
  file: string
  /** Compaction starts beyond this and twice the size after the last one. Default 8 MiB. */
  compactBytes?: number
  /** Fails if the file's directory is no longer ours to write (rules 11.3). */
  ownershipCheck?: DiskStep
  /** Writes the files; tests pass failing ones. */
  files?: FileLayer
  log?: (level: 'warn', message: string) => void
}

interface Waiting {
  readonly line: string
  done(): void
  failed(error: StoreError): void
}

const COMPACT_BYTES = 8 * 1024 * 1024
const CHUNK_CHARACTERS = 256 * 1024

/**
 * Append-only file of JSON records, one per line, for data that changes too often for files of its own (node
 * status). Appends that wait together share one fsync.
 */
export class Journal<R> {
  readonly #ownershipCheck: readonly DiskStep[]
  #compactAtBytes: number
  /** Repairs due before the next append: a partial line, a name that is not durable. */
  #repairs: (() => Promise<void>)[] = []
  #queue: Waiting[] = []
  #running: Promise<void> | undefined
  #closed: Promise<void> | undefined

  private constructor(
    private readonly options: JournalOptions<R>,
    private readonly files: FileLayer,
    private log: LogFile,
    /** The end of the last durable record. */
    private sizeBytes: number
  ) {
    this.#ownershipCheck = options.ownershipCheck ? [options.ownershipCheck] : []
    this.#compactAtBytes = this.#limit(0)
  }

  /**
   * Reads the file (created 0600 if missing) and opens it. Cuts off an unfinished last line, whose append was
   * never acknowledged. Damage before it is a LoadError with the line. Only one journal may have the file.
   */
  static async open<R>(options: JournalOptions<R>): Promise<Journal<R>> {
    const { file, read, files = realFiles } = options
    await rm(`${file}.new`, { force: true })
    const bytes = await unlessMissing(readRegularFile(file), Buffer.alloc(0)).catch(error => {
      throw new LoadError([{ file, message: reasonOf(error).replace(`${file}: `, '') }])
    })
    const sizeBytes = replay(file, bytes, read)
    const log = await files.openLog(file, false)
    try {
      if (sizeBytes < bytes.length) {
        await log.truncate(sizeBytes)
        await log.datasync()
      }
      await files.syncDirectory(dirname(file))
    } catch (error) {
      await log.close()
      throw error
    }
    return new Journal(options, files, log, sizeBytes)
  }

  /** Resolves when the record survives a power cut; rejects with a StoreError if it is not in the file. */
  append(record: R): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.#closed !== undefined) throw new StoreError('shutting down')
      this.#queue.push({ line: `${JSON.stringify(record)}\n`, done: resolve, failed: reject })
      this.#running ??= this.#run()
    })
  }

  /** Refuses new records, finishes waiting ones, and closes the file. */
  close(): Promise<void> {
    this.#closed ??= this.#close()
    return this.#closed
  }

  async #close(): Promise<void> {
    await this.#running
    await this.#repair().catch(() => {}) // the next open also cuts off a partial line
    await this.log.close()
  }

  async #run(): Promise<void> {
    while (this.#queue.length > 0) {
      await undefined // appends made later in this turn of the event loop share the fsync
      const batch = this.#queue
      this.#queue = []
      try {
        await this.#write(batch.map(({ line }) => line).join(''))
      } catch (error) {
        for (const { failed } of batch) failed(new StoreError(reasonOf(error)))
        continue
      }
      for (const { done } of batch) done()
      if (this.sizeBytes > this.#compactAtBytes) await this.#compact()
    }
    this.#running = undefined
  }

  async #write(text: string): Promise<void> {
    // A repair also syncs the directory, so that has to be ours.
    if (this.#repairs.length > 0) await this.files.runSteps(this.#ownershipCheck)
    await this.#repair()
    const append: DiskStep = { append: this.log.fd, text }
    try {
      // An open file stays writable after its directory was replaced: its records would be lost.
      await this.files.runSteps([...this.#ownershipCheck, append])
    } catch (error) {
      this.#repairs.push(() => this.log.truncate(this.sizeBytes))
      await this.#repair().catch(() => {}) // still noted, and retried before the next append
      throw error
    }
    this.sizeBytes += Buffer.byteLength(text)
  }

  async #repair(): Promise<void> {
    for (let [repair] = this.#repairs; repair !== undefined; [repair] = this.#repairs) {
      await repair()
      this.#repairs.shift()
    }
  }

  /** Writes the snapshot beside the file and renames it. Appends wait; a failure keeps the old file. */
  async #compact(): Promise<void> {
    const { file, log = () => {} } = this.options
    const fresh = `${file}.new`
    try {
      // Meanwhile, callers of finished appends update their memory.
      const compacted = await this.files.openLog(fresh, true)
      try {
        this.sizeBytes = await this.#writeSnapshot(compacted, fresh)
      } catch (error) {
        await compacted.close()
        throw error
      }
      await this.log.close().catch(() => {}) // the new file has every acknowledged record
      this.log = compacted
    } catch (error) {
      log('warn', `${file} cannot be compacted: ${reasonOf(error)}`)
      await this.files.runSteps([{ remove: fresh }]).catch(() => {})
    }
    this.#compactAtBytes = this.#limit(this.sizeBytes)
  }

  /** Returns the size of the new file after the rename. */
  async #writeSnapshot(compacted: LogFile, fresh: string): Promise<number> {
    const { file, snapshot } = this.options
    let sizeBytes = 0
    let text = ''
    const flush = async () => {
      await compacted.appendFile(text)
      sizeBytes += Buffer.byteLength(text)
      text = ''
    }
    for (const record of snapshot()) {
      text += `${JSON.stringify(record)}\n`
      if (text.length > CHUNK_CHARACTERS) await flush()
    }
    await flush()
    await compacted.datasync()
    await this.files.runSteps(this.#ownershipCheck)
    await this.files.rename(fresh, file)
    // The old file has no name now: acknowledge no record before the new name is durable.
    this.#repairs.push(() => this.files.syncDirectory(dirname(file)))
    await this.#repair().catch(() => {})
    return sizeBytes
  }

  #limit(compactedBytes: number): number {
    return Math.max(this.options.compactBytes ?? COMPACT_BYTES, 2 * compactedBytes)
  }
}

/** Records in files until the file medium has them. */
export class InterimRecords implements RecordStore {
  readonly isShared = false
  readonly isReadOnly = false
  readonly takesAdditions = true
  readonly #journals = new Map<string, Journal<[string, string]>>()
  readonly #texts = new Map<string, Map<string, string>>()

  constructor(
    private readonly state: string,
    private readonly ours?: DiskStep
  ) {}

  async textsOf(kind: string): Promise<ReadonlyMap<string, string>> {
    const texts = new Map<string, string>()
    this.#texts.set(kind, texts)
    const journal = await Journal.open<[string, string]>({
      file: join(this.state, `${kind}.journal`),
      read: ([name, text]) => texts.set(name, text),
      snapshot: () => texts,
      ...(this.ours ? { ownershipCheck: this.ours } : {})
    })
    this.#journals.set(kind, journal)
    return texts
  }

  text = async (kind: string, name: string) => this.#texts.get(kind)?.get(name)

  async write(kind: string, changes: Parameters<RecordStore['write']>[1]): Promise<void> {
    const texts = this.#texts.get(kind)
    await Promise.all(
      changes.map(async ({ name, text, adds }) => {
        const whole = (adds ? (texts?.get(name) ?? '') : '') + text
        await this.#journals.get(kind)?.append([name, whole])
        texts?.set(name, whole)
      })
    )
  }

  async close(): Promise<void> {
    for (const journal of this.#journals.values()) await journal.close()
  }
}

/** Passes every record to `read`; returns the end of the last whole line. */
function replay<R>(file: string, bytes: Buffer, read: (record: R) => void): number {
  let start = 0
  for (let line = 1; ; line++) {
    const end = bytes.indexOf(10, start)
    if (end === -1) return start
    try {
      const record = recordIn(bytes.subarray(start, end))
      if (record === undefined && end === bytes.length - 1) return start
      if (record === undefined) throw new Error('not a JSON record')
      read(record as R)
    } catch (error) {
      throw new LoadError([{ file, line, message: reasonOf(error) }])
    }
    start = end + 1
  }
}

/** Parses a line; undefined if it is damaged. */
function recordIn(bytes: Buffer): unknown {
  try {
    return JSON.parse(decodeUtf8(bytes))
  } catch {
    return undefined
  }
}
