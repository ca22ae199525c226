import { createHash } from 'node:crypto'
import { constants } from 'node:fs'
import { type FileHandle, open, stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import { Header, Pax } from 'tar'
import { isObject } from '../base/json.js'

export const BLOCK_BYTES = 512
const CHUNK_BYTES = 256 * 1024

/** The last entry of a backup: the SHA-256 of all bytes before its header, hex. */
const CHECKSUM = 'sha256'
/** Its header, its one block, and the two blocks that end a tar. */
const TRAILER_BYTES = 4 * BLOCK_BYTES

/** Attributes of an entry. */
interface EntryAttributes {
  /** Permission bits; default 0600. */
  readonly mode?: number
  /** Milliseconds since 1970. */
  readonly mtimeMs?: number
}

/** A tar in the order of calls, with a checksum of the whole at its end (rules 11.12). */
export class Archive {
  readonly #hash = createHash('sha256')
  readonly #entries = new Map<string, number>()

  /** `write` takes the bytes in pieces; what it throws is rethrown. */
  constructor(private readonly write: (bytes: Uint8Array) => Promise<unknown>) {}

  /** The number of entries of `add` and `addOpen` directly in each directory so far. */
  get entries(): ReadonlyMap<string, number> {
    return this.#entries
  }

  /** Adds an entry with this content. */
  async add(path: string, content: string | Uint8Array): Promise<void> {
    const bytes = typeof content === 'string' ? Buffer.from(content) : content
    await this.#addEntry(path, bytes.length, [bytes])
  }

  /** Adds `sizeBytes` bytes of an open file, and no more if it grows. Throws Error if it became shorter. */
  async addOpen(path: string, file: FileHandle, sizeBytes: number, about?: EntryAttributes): Promise<void> {
    const shorter = new Error(`${path} became shorter while it was read`)
    await this.#addEntry(path, sizeBytes, piecesOf(file, 0, sizeBytes, shorter), about)
  }

  /** Adds the entries of another program's tar, without its final blocks. */
  async addTar(tar: AsyncIterable<Buffer>): Promise<void> {
    let held: Buffer = Buffer.alloc(0)
    for await (const chunk of tar) {
      const all = held.length === 0 ? chunk : Buffer.concat([held, chunk])
      const free = Math.max(0, all.length - 2 * BLOCK_BYTES)
      await this.#put(all.subarray(0, free))
      held = Buffer.from(all.subarray(free))
    }
    if (held.length < 2 * BLOCK_BYTES || held.some(byte => byte !== 0))
      throw new Error('the tar is not whole')
  }

  /** Writes the checksum and the end. */
  async end(): Promise<void> {
    const digest = `${this.#hash.digest('hex')}\n`
    await this.write(headOf(CHECKSUM, digest.length))
    const rest = Buffer.alloc(TRAILER_BYTES - BLOCK_BYTES)
    rest.write(digest)
    await this.write(rest)
  }

  async #addEntry(
    path: string,
    size: number,
    pieces: Iterable<Uint8Array> | AsyncIterable<Uint8Array>,
    about?: EntryAttributes
  ): Promise<void> {
    const directory = dirname(path)
    this.#entries.set(directory, (this.#entries.get(directory) ?? 0) + 1)
    await this.#put(headOf(path, size, about))
    for await (const bytes of pieces) await this.#put(bytes)
    await this.#put(Buffer.alloc(padding(size)))
  }

  async #put(bytes: Uint8Array): Promise<void> {
    if (bytes.length === 0) return
    this.#hash.update(bytes)
    await this.write(bytes)
  }
}

/** Reads an open backup and compares its checksum. Throws Error with the file's name if they differ. */
export async function verifyArchive(handle: FileHandle, file: string): Promise<void> {
  const damaged = new Error(
    `${file} is no whole backup of svcd: it is cut off, or was changed; nothing is restored`
  )
  const { size } = await handle.stat()
  if (size < TRAILER_BYTES) throw damaged
  const hash = createHash('sha256')
  const end = size - TRAILER_BYTES
  for await (const bytes of piecesOf(handle, 0, end, damaged)) hash.update(bytes)
  const trailer = Buffer.alloc(TRAILER_BYTES)
  await handle.read(trailer, 0, TRAILER_BYTES, end)
  const told = trailer.subarray(BLOCK_BYTES, BLOCK_BYTES + 64).toString('latin1')
  if (new Header(trailer).path !== CHECKSUM || told !== hash.digest('hex')) throw damaged
}

/** The padding to the end of a content's block, in bytes. */
const padding = (bytes: number) => (BLOCK_BYTES - (bytes % BLOCK_BYTES)) % BLOCK_BYTES

/** Returns a header block, after an extended header if the path is too long for it. */
function headOf(
  path: string,
  size: number,
  { mode = 0o600, mtimeMs = Date.now() }: EntryAttributes = {}
): Buffer {
  const fields = { path, size, mode, mtime: new Date(Math.floor(mtimeMs / 1000) * 1000), uid: 0, gid: 0 }
  const header = new Header({ ...fields, type: 'File' })
  const needsMore = header.encode()
  const block = header.block as Buffer
  return needsMore ? Buffer.concat([new Pax(fields).encode(), block]) : block
}

/** The header of a file in a tar. */
export interface ArchiveEntry {
  /** Unchecked: callers validate it. */
  readonly path: string
  /** The name of the package tar: `File`, `Directory`, `SymbolicLink`, … */
  readonly type: string
  readonly mode: number
  readonly size: number
  /** Offset of its content in the archive, in bytes. */
  readonly position: number
}

/** Bound of the extended header of a file: its path and attributes. */
const MOST_EXTENDED_BYTES = 4 * 1024 * 1024

/**
 * Yields the entries of a backup that verifyArchive has checked, without the checksum. Parses extended
 * headers by their lengths, as the system's tar does. The package tar parses them by lines, so that a name or
 * attribute in an image could make its content look like entries. Throws Error for damage, and for what `svcd
 * backup` never writes: global headers, GNU long names, links with content.
 */
export async function* entriesOf(archive: FileHandle): AsyncGenerator<ArchiveEntry> {
  const end = (await archive.stat()).size - TRAILER_BYTES
  let extended: ReadonlyMap<string, string> | undefined
  for (let at = 0; at < end; ) {
    const damaged = new Error(`no entry that svcd backup writes begins at byte ${at}`)
    const position = at + BLOCK_BYTES
    const header = new Header((await archive.read(Buffer.alloc(BLOCK_BYTES), 0, BLOCK_BYTES, at)).buffer)
    const { type, mode = 0 } = header
    const size = Number(extended?.get('size') ?? header.size)
    const most = type === 'File' ? end : type === 'ExtendedHeader' && !extended ? MOST_EXTENDED_BYTES : 0
    at = position + size + padding(size)
    if (!header.cksumValid || !Number.isSafeInteger(size) || size < 0 || size > most || at > end)
      throw damaged
    if (type === 'ExtendedHeader') {
      extended = extendedOf((await archive.read(Buffer.alloc(size), 0, size, position)).buffer)
      if (extended.size === 0 || at === end) throw damaged
      continue
    }
    const path = extended?.get('GNU.sparse.name') ?? extended?.get('path') ?? header.path ?? ''
    extended = undefined
    yield { path, type, mode, size, position }
  }
}

/** Yields the content of an entry in pieces. */
export const contentOf = (archive: FileHandle, { position, size }: ArchiveEntry): AsyncGenerator<Buffer> =>
  piecesOf(archive, position, size, new Error('it has become shorter while it was read'))

/** Yields `size` bytes of an open file in pieces; throws `shorter` if it ends before. */
async function* piecesOf(file: FileHandle, position: number, size: number, shorter: Error) {
  for (let at = 0; at < size; ) {
    const wanted = Math.min(size - at, CHUNK_BYTES)
    const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(wanted), 0, wanted, position + at)
    if (bytesRead === 0) throw shorter
    yield buffer.subarray(0, bytesRead)
    at += bytesRead
  }
}

/** Parses records `<length> <key>=<value>\n`; empty if malformed. */
function extendedOf(bytes: Buffer): Map<string, string> {
  const found = new Map<string, string>()
  for (let at = 0; at < bytes.length; ) {
    const [, digits] = /^(\d{1,8}) /.exec(bytes.toString('latin1', at, at + 9)) ?? []
    const end = at + Number(digits)
    const equals = bytes.indexOf('=', at)
    if (!(digits && equals > at && equals < end && bytes[end - 1] === 0x0a)) return new Map()
    const key = bytes.toString('utf8', at + digits.length + 1, equals)
    found.set(key, bytes.toString('utf8', equals + 1, end - 1))
    at = end
  }
  return found
}

/** The first entry of a backup. */
export const INFO = 'backup.json'

/** The format of backups of this program. */
const FORMAT = 1

/** Metadata of a backup. */
interface BackupInfo {
  /** The layout version of its state. */
  readonly version: number
  /** The release of svcd that made it. */
  readonly release: string
  /** Whether it has the packed files and directories of the images. */
  readonly images: boolean
}

/** Returns the text of the entry. */
export const infoText = (info: BackupInfo): string =>
  `${JSON.stringify({ format: FORMAT, made: new Date().toISOString(), ...info }, null, 2)}\n`

/** Parses the entry. Throws Error for another format, with the release that made it. */
export function parseInfo(text: string): BackupInfo {
  const json: unknown = JSON.parse(text)
  const { format, version, release, images } = isObject(json) ? json : {}
  if (format !== FORMAT || typeof version !== 'number' || typeof release !== 'string')
    throw new Error(
      `it has format ${JSON.stringify(format)}, made by svcd ${JSON.stringify(release)}, and this svcd ` +
        `reads format ${FORMAT}: restore it with that svcd`
    )
  return { version, release, images: images === true }
}

/** Throws Error if the file of a backup is a directory. */
export async function refuseDirectory(file: string): Promise<void> {
  // The use of the file reports other problems.
  const found = await stat(file).catch(() => undefined)
  if (found?.isDirectory()) throw new Error(`${file} is a directory: name a file in it`)
}

/** Opens a backup for reading; a pipe does not block. Throws Error if it does not exist. */
export const openBackup = (file: string): Promise<FileHandle> =>
  open(file, constants.O_RDONLY | constants.O_NONBLOCK).catch((error: NodeJS.ErrnoException) => {
    throw error.code === 'ENOENT' ? new Error(`${file}: there is no such file`) : error
  })

/** Throws Error for a file that is not regular, or is compressed by gzip. */
export async function refuseUnreadable(handle: FileHandle, file: string): Promise<void> {
  await refuseDirectory(file)
  if (!(await handle.stat()).isFile()) throw new Error(`${file} is no regular file: copy the backup to one`)
  const { bytesRead, buffer } = await handle.read(Buffer.alloc(2), 0, 2, 0)
  if (bytesRead === 2 && buffer.readUInt16BE() === 0x1f8b)
    throw new Error(`${file} is compressed by gzip: unpack it first (gunzip ${file})`)
}
