import { crc32c } from '../../base/crc32c.js'
import { decodeUtf8 } from '../json.js'

/** A change of one object, or of the text of one record. */
export interface Entry {
  readonly type: string
  readonly name: string
  /** Its new text; undefined: removed. */
  readonly text: string | undefined
  /** The text is added to what is stored. */
  readonly adds?: true | undefined
  /** For an object's file, the CRC-32C of its content before; undefined: there was no file. */
  readonly before?: number | undefined
}

/** A record of the log: a change, or a piece of one. */
export interface LogRecord {
  /** Counts the records; a gap is damage. */
  readonly number: number
  /** The number of the first record that counts together with this one. */
  readonly first: number
  /** Milliseconds since 1970. */
  readonly time: number
  /** The change goes on in the next record: it counts when its last piece is there. */
  readonly continues: boolean
  readonly entries: readonly Entry[]
}

/**
 * The head: its CRC-32C (4 bytes), the CRC-32C of the entries (4), their length (4), the number (6), the
 * first number (6), the time (6), flags (1), and `MAGIC` (3).
 */
const HEAD_BYTES = 34
const MAGIC_AT = 31
const MAGIC = Buffer.from('svc')
const CONTINUES = 1
/** The unit that a disk writes whole or not at all. */
const SECTOR_BYTES = 512

/** Returns the bytes of a record. */
export function encodeRecord({ number, first, time, continues, entries }: LogRecord): Buffer {
  let text = ''
  for (const { type, name, text: content, adds, before } of entries) {
    const length = content === undefined ? null : Buffer.byteLength(content)
    text += `${JSON.stringify([type, name, length, before ?? null, adds ?? false])}\n${content ?? ''}\n`
  }
  const payloadBytes = Buffer.byteLength(text)
  const bytes = Buffer.allocUnsafeSlow(HEAD_BYTES + payloadBytes)
  bytes.write(text, HEAD_BYTES)
  bytes.writeUInt32LE(crc32c(bytes.subarray(HEAD_BYTES)), 4)
  bytes.writeUInt32LE(payloadBytes, 8)
  bytes.writeUIntLE(number, 12, 6)
  bytes.writeUIntLE(first, 18, 6)
  bytes.writeUIntLE(time, 24, 6)
  bytes.writeUInt8(continues ? CONTINUES : 0, 30)
  MAGIC.copy(bytes, MAGIC_AT)
  bytes.writeUInt32LE(crc32c(bytes.subarray(4, HEAD_BYTES)), 0)
  return bytes
}

/** The end of a record, or why there is none at this offset. */
type Decoded = { readonly record: LogRecord; readonly end: number } | 'end' | 'torn' | 'damaged'

/** Decodes a record. `end`: only zeros follow; `torn`: a power cut; `damaged`: something else changed it. */
export function decodeRecord(bytes: Buffer, offset: number): Decoded {
  const head = bytes.subarray(offset, offset + HEAD_BYTES)
  if (!isWholeHead(head)) {
    if (isZero(bytes.subarray(offset))) return 'end'
    return head.length < HEAD_BYTES || hasLostSector(bytes, offset, HEAD_BYTES) ? 'torn' : 'damaged'
  }
  const length = head.readUInt32LE(8)
  const end = offset + HEAD_BYTES + length
  const payload = bytes.subarray(offset + HEAD_BYTES, end)
  if (payload.length < length) return 'torn'
  if (crc32c(payload) !== head.readUInt32LE(4))
    return hasLostSector(bytes, offset, HEAD_BYTES + length) ? 'torn' : 'damaged'
  const record: LogRecord = {
    number: head.readUIntLE(12, 6),
    first: firstIn(head),
    time: head.readUIntLE(24, 6),
    continues: head.readUInt8(30) === CONTINUES,
    entries: entriesIn(payload)
  }
  return { record, end }
}

const firstIn = (head: Buffer) => head.readUIntLE(18, 6)

/**
 * Whether a record of a later change than that of `number` begins after an offset. It was written when that
 * change was durable, so no power cut explains that the record there is not whole.
 */
export function hasLaterChange(bytes: Buffer, offset: number, number: number): boolean {
  for (let at = bytes.indexOf(MAGIC, offset + MAGIC_AT); at !== -1; at = bytes.indexOf(MAGIC, at + 1)) {
    const head = bytes.subarray(at - MAGIC_AT, at - MAGIC_AT + HEAD_BYTES)
    if (at - MAGIC_AT <= offset || !isWholeHead(head)) continue
    // A head in the text of a record, which anybody may have written, has no number near this one.
    if (firstIn(head) > number && firstIn(head) <= number + bytes.length) return true
  }
  return false
}

const isWholeHead = (head: Buffer) =>
  head.length === HEAD_BYTES &&
  head.subarray(MAGIC_AT).equals(MAGIC) &&
  head.readUInt32LE(0) === crc32c(head.subarray(4))

const ZEROS = Buffer.alloc(64 * 1024)

function isZero(bytes: Buffer): boolean {
  for (let from = 0; from < bytes.length; from += ZEROS.length) {
    const part = bytes.subarray(from, from + ZEROS.length)
    if (!part.equals(ZEROS.subarray(0, part.length))) return false
  }
  return true
}

/** Whether a sector of a record, or its last byte, is still zero: an entry never ends with zero. */
function hasLostSector(bytes: Buffer, offset: number, length: number): boolean {
  const end = offset + length
  if (end > bytes.length || bytes[end - 1] === 0) return true
  for (let from = offset; from < end; ) {
    const to = Math.min(end, (Math.floor(from / SECTOR_BYTES) + 1) * SECTOR_BYTES)
    if (isZero(bytes.subarray(from, to))) return true
    from = to
  }
  return false
}

/** Parses the entries of a record whose checksum is right. Throws Error if svcd did not write them. */
function entriesIn(payload: Buffer): Entry[] {
  const entries: Entry[] = []
  for (let at = 0; at < payload.length; ) {
    const begin = payload.indexOf(10, at) + 1
    const line: Line = JSON.parse(decodeUtf8(payload.subarray(at, begin)))
    const [type, name, length, before, adds] = line
    const end = begin + (length ?? 0)
    entries.push({
      ...{ type, name },
      text: length === null ? undefined : decodeUtf8(payload.subarray(begin, end)),
      ...(adds ? { adds } : {}),
      ...(before === null ? {} : { before })
    })
    at = end + 1
  }
  return entries
}

type Line = [type: string, name: string, length: number | null, before: number | null, adds: true | false]
