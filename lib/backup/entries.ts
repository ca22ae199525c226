import type { FileHandle } from 'node:fs/promises'
import { Header } from 'tar'
import { BLOCK_BYTES, CHUNK_BYTES, padding, TRAILER_BYTES } from './archive.js'

/** The header of a file in a tar, which stands before its content. */
export interface ArchiveEntry {
  /** As it stands there: who uses it looks at it first. */
  readonly path: string
  /** As the package tar names it: `File`, `Directory`, `SymbolicLink`, … */
  readonly type: string
  readonly mode: number
  readonly size: number
  /** Where its content begins in the archive, in bytes. */
  readonly position: number
}

/** For the extended header of one file: its path and attributes. */
const MOST_EXTENDED_BYTES = 4 * 1024 * 1024

/**
 * The entries of a whole backup (verifyArchive) but its checksum. Extended headers are read by the lengths in them, as the system's tar
 * does. The package tar reads them by lines: a name or an attribute of a file in an image could make its content look like entries.
 * Throws Error for what is damaged, and for what `svcd backup` never writes: global headers, GNU's long names, content of a link.
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

/** The content of an entry, in pieces. */
export async function* contentOf(
  archive: FileHandle,
  { position, size }: ArchiveEntry
): AsyncGenerator<Buffer> {
  for (let at = 0; at < size; ) {
    const wanted = Math.min(size - at, CHUNK_BYTES)
    const { bytesRead, buffer } = await archive.read(Buffer.alloc(wanted), 0, wanted, position + at)
    if (bytesRead === 0) throw new Error('it has become shorter while it was read')
    yield buffer.subarray(0, bytesRead)
    at += bytesRead
  }
}

/** Records `<length> <key>=<value>\n`; empty where they are none. */
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
