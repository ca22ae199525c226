import { type BigIntStats, constants } from 'node:fs'
import { type FileHandle, open, stat } from 'node:fs/promises'
import type { IncomingHttpHeaders } from 'node:http'
import { basename, relative } from 'node:path'
import { LRUCache } from 'lru-cache'
import mime from 'mime'
import { singleFlight } from '../base/concurrency.js'
import { notFound, ServiceError, unavailable } from '../base/errors.js'
import type { Connections } from './admission/connections.js'
import { LIMITS } from './admission/limits.js'
import type { Answer } from './route.js'

/** An open regular file, readable until `OpenFiles.with` ends. */
export class OpenFile {
  static #made = 0
  /** Unique, also when the same file is opened again. */
  readonly id = ++OpenFile.#made

  constructor(
    readonly path: string,
    private readonly handle: FileHandle,
    private readonly found: BigIntStats
  ) {}

  get size(): number {
    return Number(this.found.size)
  }

  /** Time of the last change, in ms since 1970. */
  get changedMs(): number {
    return Number(this.found.ctimeNs) / 1e6
  }

  /** Strong: other bytes have another one. */
  get etag(): string {
    const { ino, size, mtimeNs } = this.found
    return `"${ino.toString(16)}-${size.toString(16)}-${mtimeNs.toString(16)}"`
  }

  /** Whether a file is this one, with the same bytes. */
  is(other: BigIntStats): boolean {
    return (['dev', 'ino', 'size', 'mtimeNs', 'ctimeNs'] as const).every(
      field => this.found[field] === other[field]
    )
  }

  /** Fills the buffer with up to `length` bytes from `position` on. Resolves with how many there were. */
  async read(buffer: Buffer, position: number, length: number): Promise<number> {
    return (await this.handle.read(buffer, 0, length, position)).bytesRead
  }

  close(): Promise<void> {
    return this.handle.close()
  }
}

/** A file that is open or being opened, and its number of users. */
interface Entry {
  readonly file: Promise<OpenFile>
  /** Whether it is still at its path; concurrent calls share one stat. */
  readonly isStillThere: () => Promise<boolean>
  users: number
}

/** The files being sent. Each is open once, however many clients get it. */
export class OpenFiles {
  readonly #open = new Map<string, Entry>()

  /** `descriptors` counts those of files, and throws 503 if none is left. */
  constructor(private readonly descriptors: Pick<Connections, 'takeFile' | 'releaseFile'>) {}

  /**
   * Runs `use` with the file that is at `path` now. Throws 404 if there is no regular file, 503 if it cannot
   * be opened now, and what `use` throws.
   */
  async with<R>(path: string, use: (file: OpenFile) => Promise<R>): Promise<R> {
    const entry = await this.#take(path)
    try {
      return await use(await entry.file)
    } finally {
      await this.#release(path, entry)
    }
  }

  async #take(path: string): Promise<Entry> {
    const known = this.#open.get(path)
    if (known) {
      known.users++
      if (await known.isStillThere()) return known
      await this.#release(path, known)
      // Another caller has noticed, and opened it anew.
      if (this.#open.get(path) !== known) return this.#take(path)
    }
    this.descriptors.takeFile()
    const file = openRegular(path)
    const entry = { file, isStillThere: singleFlight(() => isStillAt(path, file)), users: 1 }
    // `with` reports why it cannot be opened.
    file.catch(() => undefined)
    this.#open.set(path, entry)
    return entry
  }

  async #release(path: string, entry: Entry): Promise<void> {
    if (--entry.users > 0) return
    if (this.#open.get(path) === entry) this.#open.delete(path)
    try {
      const file = await entry.file.catch(() => undefined)
      await file?.close()
    } finally {
      this.descriptors.releaseFile()
    }
  }
}

async function isStillAt(path: string, opened: Promise<OpenFile>): Promise<boolean> {
  try {
    const [file, found] = await Promise.all([opened, stat(path, { bigint: true })])
    return file.is(found)
  } catch {
    return false
  }
}

/** O_NONBLOCK: opening a pipe without a writer would block for ever. */
async function openRegular(path: string): Promise<OpenFile> {
  let handle: FileHandle
  try {
    handle = await open(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY)
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? ''
    if (['ENOENT', 'ENOTDIR', 'ENAMETOOLONG', 'ELOOP', 'ENXIO', 'ENODEV'].includes(code)) throw missing(path)
    throw unavailable(`the file ${basename(path)} cannot be read now (${code})`, 'unavailable', error)
  }
  try {
    const found = await handle.stat({ bigint: true })
    if (!found.isFile()) throw missing(path)
    return new OpenFile(path, handle, found)
  } catch (error) {
    await handle.close()
    throw error
  }
}

const missing = (path: string) => notFound(`there is no file ${basename(path)}`, 'no-file')

/** File times have ticks: a second change within one tick does not show. */
const TICK_MS = 1000

/** A file that is wholly in memory. Nobody may write into its bytes. */
interface SmallFile {
  /** The file as it was when it was read; it is closed. */
  readonly file: OpenFile
  readonly bytes: Buffer
}

/** A look at a path, and the number of its waiters. */
interface PendingLook {
  readonly now: () => Promise<SmallFile | undefined>
  users: number
}

/** A cache of small files, answered as texts (rules 2.13). Machines that boot together share one look. */
export class SmallFileCache {
  readonly #cached = new LRUCache<string, SmallFile>({
    maxSize: LIMITS.smallFileCacheBytes,
    // An empty file counts too.
    sizeCalculation: ({ bytes }) => Math.max(1, bytes.length)
  })
  readonly #looks = new Map<string, PendingLook>()

  /** `now`: ms since 1970. */
  constructor(
    private readonly files: OpenFiles,
    private readonly now: () => number = Date.now
  ) {}

  /** The file at `path`, looked at after the call; undefined if too large or unreadable. Never rejects. */
  async get(path: string): Promise<SmallFile | undefined> {
    let look = this.#looks.get(path)
    if (!look) {
      look = { now: singleFlight(() => this.#look(path)), users: 0 }
      this.#looks.set(path, look)
    }
    look.users++
    try {
      return await look.now()
    } catch {
      return undefined
    } finally {
      if (--look.users === 0) this.#looks.delete(path)
    }
  }

  async #look(path: string): Promise<SmallFile | undefined> {
    const found = await stat(path, { bigint: true })
    const kept = this.#cached.get(path)
    if (kept?.file.is(found)) return kept
    this.#cached.delete(path)
    if (!found.isFile() || found.size > LIMITS.smallFileBytes) return undefined
    return this.files.with(path, async file => {
      // It may be another file already.
      if (file.size > LIMITS.smallFileBytes) return undefined
      const bytes = Buffer.allocUnsafeSlow(file.size)
      // A file that has shrunk is left to the download.
      if ((await file.read(bytes, 0, file.size)) < file.size) return undefined
      const small = { file, bytes }
      if (this.now() - file.changedMs >= TICK_MS) this.#cached.set(path, small)
      return small
    })
  }
}

/** Thrown when a file shrinks while it is sent: its length has been promised, so the connection must end. */
export class FileShrunk extends Error {
  override readonly name = 'FileShrunk'
}

/** A file, or a part of it, and the head of its answer. */
export interface FileAnswer {
  readonly status: number
  /** Media type, by default that of the file's name. */
  readonly type: string
  readonly headers: Readonly<Record<string, string>>
  /** Bytes that will be sent. */
  readonly length: number
  readonly file: OpenFile
  /** Offset of the first byte to send. */
  readonly start: number
}

/**
 * Makes the head from an open file and a handler's answer (rules 4.9). Obeys Range and If-Range, but not for
 * HEAD or a status other than 200; ignores If-None-Match and dates (rules 2.5). Throws 416 for a range
 * outside the file.
 */
export function fileAnswer(
  file: OpenFile,
  answer: Answer,
  { range: wanted, 'if-range': ifRange }: IncomingHttpHeaders,
  headOnly: boolean
): FileAnswer {
  const { path, size, etag } = file
  const isWhole = headOnly || answer.status !== 200
  const range = isWhole ? undefined : parseRange(wanted, ifRange?.toString(), etag, size)
  const { start, end } = range ?? { start: 0, end: size - 1 }
  const all: Record<string, string> = { 'Accept-Ranges': 'bytes', ETag: etag }
  if (range) all['Content-Range'] = `bytes ${start}-${end}/${size}`
  const type = answer.type ?? mime.getType(path) ?? 'application/octet-stream'
  const status = range ? 206 : answer.status
  return { status, type, headers: { ...all, ...answer.headers }, length: end - start + 1, file, start }
}

/** The bytes from `start` to `end` inclusive. */
type ByteRange = Readonly<Record<'start' | 'end', number>>

/**
 * Returns the part of a file of `size` bytes that a Range header asks for (RFC 9110, section 14). Undefined
 * means the whole file: no header, several ranges, another unit or a malformed header. Throws 416 with
 * Content-Range for a range outside the file. If-Range must be the file's strong `etag`: else the client
 * would join parts of two files.
 */
export function parseRange(
  range: string | undefined,
  ifRange: string | undefined,
  etag: string,
  size: number
): ByteRange | undefined {
  if (range === undefined || (ifRange !== undefined && ifRange !== etag)) return undefined
  const [, first = '', last = ''] = /^bytes=[ \t]*(\d*)-(\d*)[ \t]*$/i.exec(range) ?? []
  if (first === '' && last === '') return undefined
  if (first === '') return satisfiable(Math.max(0, size - Number(last)), size - 1, size)
  if (last !== '' && Number(last) < Number(first)) return undefined
  return satisfiable(Number(first), last === '' ? size - 1 : Math.min(Number(last), size - 1), size)
}

function satisfiable(start: number, end: number, size: number): ByteRange {
  if (start < size) return { start, end }
  throw new ServiceError(416, `the range lies outside the file of ${size} bytes`, {
    'Content-Range': `bytes */${size}`
  })
}

/** Files that a front server sends in place of svcd. */
export interface FrontFiles {
  /** The absolute directory of those files. */
  readonly directory: string
  /** Its location in the front server, with a final slash; clients cannot ask for it. */
  readonly location: string
}

/** Returns the X-Accel-Redirect location of `path`; undefined for a file outside the directory. */
export function frontLocation({ directory, location }: FrontFiles, path: string): string | undefined {
  const inside = relative(directory, path)
  if (inside === '' || inside.startsWith('..') || inside.startsWith('/')) return undefined
  return location + inside.split('/').map(encodeURIComponent).join('/')
}
