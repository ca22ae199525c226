import { readSync, writeSync } from 'node:fs'

const BLOCK = 512
const CHUNK = 256 * 1024
/** Larger extended headers are not made: Linux allows 64 KiB of attributes. */
const MOST_EXTENDED = 4 * 1024 * 1024
const LARGEST_OCTAL = 0o77777777777

/**
 * Copies an archive of GNU tar between open files with sparse files in full, which mksquashfs 4.5 and
 * mkfs.erofs do not read. It blocks. Throws Error for a damaged one, and for more than `most` bytes.
 */
export function writePlainTar(from: number, to: number, most: number): void {
  let left = most
  let extended = Buffer.alloc(0)
  for (;;) {
    const header = take(from, BLOCK)
    if (header.every(byte => byte === 0)) break
    const records = recordsIn(extended)
    const size = Number(records.find(([key]) => key === 'size')?.[1] ?? sizeIn(header))
    if (!Number.isSafeInteger(size) || size < 0) throw new Error('the archive has a member without a size')
    if (header[156] === 'x'.charCodeAt(0)) {
      if (size > MOST_EXTENDED) throw new Error('the archive has an extended header that is too large')
      extended = Buffer.concat([header, take(from, padded(size))])
      continue
    }
    const sparse = records.find(([key]) => key === 'GNU.sparse.size')
    left -= sparse ? Number(sparse[1]) : size
    if (!(left >= 0)) throw new Error(`${nameIn(header, records)}: ${tooMuch(most)}`)
    if (!sparse) {
      put(to, Buffer.concat([extended, header]))
      copy(from, to, padded(size))
    } else writeFull(from, to, header, extended, records, size)
    extended = Buffer.alloc(0)
  }
  put(to, Buffer.alloc(2 * BLOCK))
  // A closed pipe would end the program that writes here.
  while (readSync(from, Buffer.allocUnsafe(CHUNK)) > 0);
}

type Entry = readonly [key: string, value: string, line: Buffer]

/** Writes a sparse file in full; `stored`: the bytes of its parts in the archive. */
function writeFull(
  from: number,
  to: number,
  header: Buffer,
  extended: Buffer,
  records: readonly Entry[],
  stored: number
): void {
  const numbers = (key: string) =>
    records.flatMap(one => (one[0] === `GNU.sparse.${key}` ? Number(one[1]) : []))
  const [size = 0] = numbers('size')
  const lengths = numbers('numbytes')
  const others = records.filter(([key]) => key !== 'size' && !key.startsWith('GNU.sparse.'))
  const lines = others.map(([, , line]) => line)
  // "NN size=DIGITS\n"
  if (size > LARGEST_OCTAL) lines.push(Buffer.from(`${String(size).length + 9} size=${size}\n`))
  const body = Buffer.concat(lines)
  if (body.length > 0)
    put(to, Buffer.concat([sized(extended.subarray(0, BLOCK), body.length), body, rest(body.length)]))
  put(to, sized(header, Math.min(size, LARGEST_OCTAL)))
  let at = 0
  for (const [i, offset] of numbers('offset').entries()) {
    const length = lengths[i] ?? -1
    if (!(offset >= at && length >= 0 && offset + length <= size))
      throw new Error('the archive has a wrong map')
    zeros(to, offset - at)
    copy(from, to, length)
    at = offset + length
  }
  zeros(to, padded(size) - at)
  take(from, padded(stored) - stored)
}

/** /var/log/lastlog with high user ids is such a file. */
const tooMuch = (most: number) =>
  `with it, and with the holes of files, the image has more than ${most} bytes: ` +
  'name it in [image] exclude, or raise [image] max_unpacked'

const nameIn = (header: Buffer, records: readonly Entry[]) =>
  records.find(([key]) => /^(?:GNU\.sparse\.name|path)$/.test(key))?.[1] ??
  header.toString('utf8', 0, 100).replace(/\0.*$/s, '')

/** Returns the records of an extended header with its own header before them. */
function recordsIn(extended: Buffer): Entry[] {
  const found: Entry[] = []
  const end = extended.length === 0 ? 0 : BLOCK + sizeIn(extended)
  for (let at = BLOCK; at < end; ) {
    const blank = extended.indexOf(' ', at)
    const line = extended.subarray(at, at + Number(extended.toString('latin1', at, blank)))
    const equals = line.indexOf('=')
    if (blank < 0 || line.length === 0 || equals < 0)
      throw new Error('the archive has a wrong extended header')
    const key = line.toString('latin1', blank + 1 - at, equals)
    found.push([key, key.includes('xattr') ? '' : line.toString('latin1', equals + 1, line.length - 1), line])
    at += line.length
  }
  return found
}

/** The size in a header: octal digits, as GNU tar writes them in the format posix. */
const sizeIn = (header: Buffer) => Number.parseInt(header.toString('latin1', 124, 136), 8)

/** Returns a header with another size and its checksum. */
function sized(header: Buffer, size: number): Buffer {
  const changed = Buffer.from(header)
  changed.write(`${size.toString(8).padStart(11, '0')}\0        `, 124, 12, 'latin1')
  changed.write(' '.repeat(8), 148, 'latin1')
  const sum = changed.reduce((all, byte) => all + byte, 0)
  changed.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1')
  return changed
}

const padded = (bytes: number) => Math.ceil(bytes / BLOCK) * BLOCK
const rest = (bytes: number) => Buffer.alloc(padded(bytes) - bytes)

/** Reads exactly so many bytes. */
function take(from: number, bytes: number): Buffer {
  const taken = Buffer.allocUnsafe(bytes)
  for (let at = 0; at < bytes; ) {
    const read = readSync(from, taken, at, bytes - at, null)
    if (read === 0) throw new Error('the archive ends too early')
    at += read
  }
  return taken
}

function put(to: number, bytes: Buffer): void {
  for (let at = 0; at < bytes.length; ) at += writeSync(to, bytes, at)
}

function copy(from: number, to: number, bytes: number): void {
  for (let left = bytes; left > 0; left -= Math.min(left, CHUNK)) put(to, take(from, Math.min(left, CHUNK)))
}

function zeros(to: number, bytes: number): void {
  const none = Buffer.alloc(Math.min(bytes, CHUNK))
  for (let left = bytes; left > 0; left -= CHUNK) put(to, none.subarray(0, Math.min(left, CHUNK)))
}
