import { lstatSync } from 'node:fs'
import { join } from 'node:path'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Problem } from '../../base/errors.js'
import { exists, isMissing, readRegularFileSync, withOpen } from '../../disk/file.js'
import type { DiskStep, FileLayer, LogFile } from '../../disk/steps.js'
import { reasonOf, StoreError } from '../errors.js'
import { listing } from './listing.js'
import { decodeRecord, type Entry, encodeRecord, hasLaterChange, type LogRecord } from './log-record.js'

/** The directory of the log below the state directory: no type has this name. */
export const LOG = 'log'
/** A segment of this size takes no further change. */
const SEGMENT_BYTES = 8 * 1024 * 1024
/** A segment grows by so many zeros, so that most syncs need not write its size too. */
const GROWTH_BYTES = 256 * 1024
/** Characters of the entries of a record, which are made in one turn: a longer change is several records. */
const RECORD_CHARACTERS = 64 * 1024
/** Tries to read a log that is being written. */
const MOST_READS = 5

/** A segment of the log: a file named by the number of its first record. */
interface Segment {
  readonly file: string
  /** The number of its last record; one less than its first while it is empty. */
  last: number
  /** Bytes of its whole records. */
  bytes: number
}

/** The log as read. */
export interface ReadLog {
  /** The records of whole changes, in order; with a problem, those before it. */
  readonly records: readonly LogRecord[]
  readonly segments: readonly Segment[]
  /** The segment with bytes after its last whole change: an interrupted write left them. */
  readonly torn: Segment | undefined
  readonly problems: readonly Problem[]
  /** The number of the last record; 0 for an empty log. */
  readonly last: number
}

/** The name of a segment. */
export const SEGMENT = /^(\d{12,15})\.wal$/

const segmentFile = (directory: string, first: number) =>
  join(directory, LOG, `${String(first).padStart(12, '0')}.wal`)

/**
 * Reads the log below a state directory; writes nothing. A record that is not whole is a problem if whole
 * ones follow it, or if no power cut explains it: what it held is unknown.
 */
export function readLog(directory: string): ReadLog {
  const isWhole = ({ torn, problems }: ReadLog) => !torn && problems.length === 0
  const ended = ({ last, problems }: ReadLog) => JSON.stringify([last, problems])
  let read = readOnce(directory)
  for (let tries = 0; tries < MOST_READS && !isWhole(read); tries++) {
    // The daemon that runs may be writing it.
    const before = ended(read)
    read = readOnce(directory)
    if (ended(read) === before) break
  }
  return read
}

function readOnce(directory: string): ReadLog {
  let records: LogRecord[] = []
  let segments: Segment[] = []
  let torn: Segment | undefined
  let last: number | undefined
  try {
    for (const { file, first } of segmentsIn(directory)) {
      const content = bytesOf(file)
      if (content === undefined) {
        // The daemon that runs has cut it meanwhile, and all before it: their changes are in the files.
        ;[records, segments, last] = [[], [], undefined]
        continue
      }
      if (torn) throw new Damage(torn.file, torn.bytes, 'the end of a change is missing, and others follow')
      if (last !== undefined && first !== last + 1)
        throw new Damage(file, 0, `records ${last + 1} to ${first - 1} are missing`)
      const read = readSegment(file, first, content, records)
      last = read.segment.last
      segments.push(read.segment)
      if (read.isTorn) torn = read.segment
    }
    return { records, segments, torn, last: last ?? 0, problems: [] }
  } catch (error) {
    if (!(error instanceof Damage)) throw error
    return { records, segments, torn: undefined, last: last ?? 0, problems: [error.problem] }
  }
}

/** The log is not what svcd wrote; without `offset`, it cannot be read. */
class Damage extends Error {
  readonly problem: Problem

  constructor(file: string, offset: number | undefined, what: string) {
    super(what)
    const message =
      `damaged log, byte ${offset}: ${what}; \`svcd log show\` prints what can be read. Restore a backup ` +
      `(svcd restore); or, to start without the changes from there on: truncate -s ${offset} ${file}, and ` +
      'move the later files beside it away'
    this.problem = { file, message: offset === undefined ? what : message }
  }
}

/** Lists the segments in order; none if there is no log. */
function segmentsIn(directory: string): { readonly file: string; readonly first: number }[] {
  return listing(join(directory, LOG))
    .flatMap(name => SEGMENT.exec(name)?.[1] ?? [])
    .map(digits => ({ file: join(directory, LOG, `${digits}.wal`), first: Number(digits) }))
    .sort((a, b) => a.first - b.first)
}

/** Reads a segment up to its last whole change; adds its records to `records`. Throws Damage. */
function readSegment(
  file: string,
  first: number,
  content: Buffer,
  records: LogRecord[]
): { readonly segment: Segment; readonly isTorn: boolean } {
  const segment: Segment = { file, last: first - 1, bytes: 0 }
  /** Records of a change whose last piece was not seen yet. */
  let pieces: LogRecord[] = []
  for (let offset = 0; ; ) {
    const found = decoded(file, content, offset)
    const isWhole = typeof found === 'object'
    const expected = segment.last + pieces.length + 1
    if (found === 'damaged' || (!isWhole && hasLaterChange(content, offset, expected)))
      throw new Damage(file, offset, 'a record is damaged')
    if (!isWhole) return { segment, isTorn: found === 'torn' || pieces.length > 0 }
    const { record, end } = found
    if (record.number !== expected)
      throw new Damage(file, offset, `record ${record.number} is in the place of ${expected}`)
    pieces.push(record)
    offset = end
    if (record.continues) continue
    records.push(...pieces)
    pieces = []
    segment.last = record.number
    segment.bytes = end
  }
}

/** `decodeRecord`; a record that svcd did not write is damage. */
function decoded(file: string, content: Buffer, offset: number): ReturnType<typeof decodeRecord> {
  try {
    return decodeRecord(content, offset)
  } catch (error) {
    throw new Damage(file, offset, reasonOf(error))
  }
}

/** Returns the content of a segment; undefined if it is missing. */
function bytesOf(file: string): Buffer | undefined {
  try {
    if (lstatSync(file).isSymbolicLink()) throw new Error('it is a link: put the file itself in its place')
    return readRegularFileSync(file)
  } catch (error) {
    if (isMissing(error)) return undefined
    throw new Damage(file, undefined, reasonOf(error))
  }
}

/** The numbers of the records that were logged together. */
export interface Numbers {
  readonly first: number
  readonly last: number
}

/** Work on the log, in the order in which it was asked for. */
interface Task {
  /** Appended; or, for a number, the segments up to it are removed. */
  readonly work: Iterable<Entry> | number
  resolve(numbers: Numbers): void
  reject(error: StoreError): void
}

interface OpenSegment {
  readonly segment: Segment
  readonly file: LogFile
  /** Bytes of the file, with zeros for later records. */
  allocated: number
}

export interface LogOptions {
  readonly directory: string
  readonly files: FileLayer
  /** Fails if the directory is no longer ours to write. */
  readonly ownershipCheck: DiskStep
  /** Default 8 MiB. */
  readonly segmentBytes?: number | undefined
}

/**
 * The write-ahead log of a state directory. A change counts once its records are in the log, durably; the
 * files follow. Changes that wait together share one write and one sync.
 */
export class WriteAheadLog {
  readonly #segments: Segment[]
  #last: number
  #open: OpenSegment | undefined
  /** A failed append may have left bytes behind the last record. */
  #isUncertain = false
  #queue: Task[] = []
  #running: Promise<void> | undefined
  #isClosed = false

  /** `read`: the log as this start has read it. `last`: no record before had a higher number. */
  constructor(
    private readonly options: LogOptions,
    read: Pick<ReadLog, 'segments' | 'last'>
  ) {
    this.#segments = [...read.segments]
    this.#last = read.last
  }

  /** The number of the last record. */
  get last(): number {
    return this.#last
  }

  /** Bytes of all records that are not cut. */
  get bytes(): number {
    return this.#segments.reduce((sum, { bytes }) => sum + bytes, 0)
  }

  /**
   * Resolves when all entries survive a power cut, with the numbers of their records, which may have other
   * changes too. After a throw none does, and none will, unless the disk refuses the repair too and svcd is
   * killed before that succeeds.
   */
  append(entries: Iterable<Entry>): Promise<Numbers> {
    return this.#ask(entries)
  }

  /** Removes the segments whose records are all in the files: those up to this number. */
  async cut(upTo: number): Promise<void> {
    if (this.#segments.some(({ last }) => last <= upTo)) await this.#ask(upTo)
  }

  /** Finishes what waits, and closes the file. */
  async close(): Promise<void> {
    this.#isClosed = true
    await this.#running
    await this.#repair().catch(() => {}) // A part of a change is cut off by the next start too.
    await this.#closeSegment()
  }

  #ask(work: Task['work']): Promise<Numbers> {
    return new Promise((resolve, reject) => {
      if (this.#isClosed) throw new StoreError('shutting down')
      this.#queue.push({ work, resolve, reject })
      this.#running ??= this.#run()
    })
  }

  async #run(): Promise<void> {
    while (this.#queue.length > 0) {
      await undefined // Appends of the same turn share the sync.
      const [first] = this.#queue as [Task]
      const isCut = typeof first.work === 'number'
      const cuts = this.#queue.findIndex(({ work }) => typeof work === 'number')
      const batch = this.#queue.splice(0, isCut ? 1 : cuts < 0 ? this.#queue.length : cuts)
      const before = this.#last
      try {
        if (isCut) await this.#cut(first.work as number)
        else await this.#append(batch.map(({ work }) => work as Iterable<Entry>))
      } catch (error) {
        for (const { reject } of batch) reject(new StoreError(reasonOf(error)))
        continue
      }
      for (const { resolve } of batch) resolve({ first: before + 1, last: this.#last })
    }
    this.#running = undefined
  }

  async #append(changes: readonly Iterable<Entry>[]): Promise<void> {
    const { files, ownershipCheck } = this.options
    await this.#repair()
    let steps: DiskStep[] = [ownershipCheck]
    let { bytes } = await this.#segment()
    let last = this.#last
    const first = last + 1
    try {
      for (const { entries, continues } of pieces(changes)) {
        const record = encodeRecord({
          number: ++last,
          first,
          time: Date.now(),
          continues,
          entries
        })
        steps.push(this.#writeStep(record, bytes, !continues))
        bytes += record.length
        await files.runSteps(steps)
        if (continues) await nextTurn()
        steps = []
      }
    } catch (error) {
      this.#isUncertain = true
      await this.#repair().catch(() => {}) // It is tried again before the next append.
      throw error
    }
    this.#last = last
    if (this.#open) Object.assign(this.#open.segment, { last, bytes })
  }

  /** Returns the open segment, or a new one when that is full. */
  async #segment(): Promise<Segment> {
    const { directory, files, ownershipCheck, segmentBytes = SEGMENT_BYTES } = this.options
    if (this.#open && this.#open.segment.bytes < segmentBytes) return this.#open.segment
    await this.#closeSegment()
    await files.runSteps([ownershipCheck])
    const segment: Segment = { file: segmentFile(directory, this.#last + 1), last: this.#last, bytes: 0 }
    const file = await files.openLog(segment.file, true)
    try {
      await files.syncDirectory(join(directory, LOG))
    } catch (error) {
      await file.close()
      throw error
    }
    this.#open = { segment, file, allocated: 0 }
    // A cut that failed may have left its entry.
    if (this.#segments.at(-1)?.file === segment.file) this.#segments.pop()
    this.#segments.push(segment)
    return segment
  }

  #writeStep(record: Buffer, position: number, sync: boolean): DiskStep {
    const open = this.#open as OpenSegment
    const end = position + record.length
    const zeros = end <= open.allocated ? 0 : Math.ceil(end / GROWTH_BYTES) * GROWTH_BYTES - end
    open.allocated = Math.max(open.allocated, end + zeros)
    return { write: open.file.fd, position, bytes: record, zeros, sync }
  }

  /** Cuts off what a failed append may have left. */
  async #repair(): Promise<void> {
    if (!this.#isUncertain) return
    const { files, ownershipCheck } = this.options
    await files.runSteps([ownershipCheck])
    const last = this.#segments.at(-1)
    if (this.#open) {
      const { segment, file } = this.#open
      this.#open.allocated = segment.bytes
      await file.truncate(segment.bytes)
      await file.datasync()
    } else if (last && (await exists(last.file))) await cutTorn(files, last)
    this.#isUncertain = false
  }

  async #cut(upTo: number): Promise<void> {
    const { directory, files, ownershipCheck } = this.options
    const gone = this.#segments.filter(({ last }) => last <= upTo)
    const all = gone.length === this.#segments.length
    if (all) {
      // A segment that goes takes it along.
      await this.#repair().catch(() => {})
      await this.#closeSegment()
    }
    // Oldest first: what stays is then a log without a gap.
    const removals = gone.map(({ file }): DiskStep => ({ remove: file }))
    await files.runSteps([ownershipCheck, ...removals, { syncDirectory: join(directory, LOG) }])
    this.#segments.splice(0, gone.length)
    if (all) this.#isUncertain = false
  }

  async #closeSegment(): Promise<void> {
    const file = this.#open?.file
    this.#open = undefined
    await file?.close()
  }
}

/** Cuts off what an interrupted write has left in a segment, so that others may follow. */
export async function cutTorn(files: FileLayer, { file, bytes }: Segment): Promise<void> {
  await withOpen(files.openLog(file, false), async opened => {
    await opened.truncate(bytes)
    await opened.datasync()
  })
}

/** Divides changes into records; all of them count together. */
function* pieces(
  changes: readonly Iterable<Entry>[]
): Generator<{ readonly entries: readonly Entry[]; readonly continues: boolean }> {
  let entries: Entry[] = []
  let characters = 0
  for (const change of changes)
    for (const entry of change) {
      if (characters > RECORD_CHARACTERS) {
        yield { entries, continues: true }
        entries = []
        characters = 0
      }
      entries.push(entry)
      characters += (entry.text?.length ?? 0) + entry.name.length
    }
  if (entries.length > 0) yield { entries, continues: false }
}
