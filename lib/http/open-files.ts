import { type BigIntStats, constants } from 'node:fs'
import { type FileHandle, open, stat } from 'node:fs/promises'
import { basename } from 'node:path'
import { singleFlight } from '../concurrency.js'
import { notFound, unavailable } from '../errors.js'

/** An open regular file. Who was given it may read it until `OpenFiles.with` ends. */
export class OpenFile {
  static #made = 0
  /** No other one has it, also when the same file is opened again. */
  readonly id = ++OpenFile.#made
  readonly path: string
  readonly #handle: FileHandle
  readonly #found: BigIntStats

  constructor(path: string, handle: FileHandle, found: BigIntStats) {
    this.path = path
    this.#handle = handle
    this.#found = found
  }

  get size(): number {
    return Number(this.#found.size)
  }

  /** When it was changed last, in milliseconds since 1970. */
  get changedMs(): number {
    return Number(this.#found.ctimeNs) / 1e6
  }

  /** Strong: other bytes have another one. */
  get etag(): string {
    const { ino, size, mtimeNs } = this.#found
    return `"${ino.toString(16)}-${size.toString(16)}-${mtimeNs.toString(16)}"`
  }

  /** Whether a file is this one, with the same bytes. */
  is({ dev, ino, size, mtimeNs, ctimeNs }: BigIntStats): boolean {
    const found = this.#found
    return (
      found.dev === dev &&
      found.ino === ino &&
      found.size === size &&
      found.mtimeNs === mtimeNs &&
      found.ctimeNs === ctimeNs
    )
  }

  /** Fills the buffer with the bytes from `position` on, `length` at most. Resolves with how many there were. */
  async read(buffer: Buffer, position: number, length: number): Promise<number> {
    return (await this.#handle.read(buffer, 0, length, position)).bytesRead
  }

  close(): Promise<void> {
    return this.#handle.close()
  }
}

/** A file that is open, or about to be, and how many use it. */
interface Entry {
  readonly file: Promise<OpenFile>
  /** Whether it is at its path still; all who ask share one look at the disk. */
  readonly isStillThere: () => Promise<boolean>
  users: number
}

/** Counts descriptors: `take` throws 503 where there is none. */
interface Descriptors {
  take(): void
  giveBack(): void
}

/** The files that are being sent, each of them open once, however many clients it is sent to. */
export class OpenFiles {
  readonly #open = new Map<string, Entry>()
  readonly #descriptors: Descriptors

  constructor(descriptors: Descriptors) {
    this.#descriptors = descriptors
  }

  /**
   * Runs `use` with the file that is at `path` now. Throws 404 where there is no regular file, 503 when it cannot be opened
   * now, or there is no descriptor for it, and what `use` throws.
   */
  async with<R>(path: string, use: (file: OpenFile) => Promise<R>): Promise<R> {
    const entry = await this.#take(path)
    try {
      return await use(await entry.file)
    } finally {
      await this.#letGo(path, entry)
    }
  }

  async #take(path: string): Promise<Entry> {
    const known = this.#open.get(path)
    if (known) {
      known.users++
      if (await known.isStillThere()) return known
      await this.#letGo(path, known)
      // Somebody else has found that out, and opened it anew.
      if (this.#open.get(path) !== known) return this.#take(path)
    }
    this.#descriptors.take()
    const file = openRegular(path)
    const entry = { file, isStillThere: singleFlight(() => isStillAt(path, file)), users: 1 }
    // `with` tells why it cannot be opened.
    file.catch(() => undefined)
    this.#open.set(path, entry)
    return entry
  }

  async #letGo(path: string, entry: Entry): Promise<void> {
    if (--entry.users > 0) return
    if (this.#open.get(path) === entry) this.#open.delete(path)
    try {
      const file = await entry.file.catch(() => undefined)
      await file?.close()
    } finally {
      this.#descriptors.giveBack()
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

/** O_NONBLOCK: opening a pipe without a writer would wait for one for ever. */
async function openRegular(path: string): Promise<OpenFile> {
  let handle: FileHandle
  try {
    handle = await open(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY)
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? ''
    if (['ENOENT', 'ENOTDIR', 'ENAMETOOLONG', 'ELOOP', 'ENXIO', 'ENODEV'].includes(code)) throw missing(path)
    throw unavailable(`the file ${basename(path)} cannot be read now (${code})`, error)
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

const missing = (path: string) => notFound(`there is no file ${basename(path)}`)
