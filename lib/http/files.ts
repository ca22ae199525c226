import type { IncomingHttpHeaders } from 'node:http'
import { relative } from 'node:path'
import mime from 'mime'
import { ServiceError } from '../base/errors.js'
import type { OpenFile } from './open-files.js'

/** Thrown when a file shrinks while it is sent: its length has been promised, so the connection must end. */
export class FileShrunk extends Error {
  override readonly name = 'FileShrunk'
}

/** The properties of a file that its head shows. */
type Described = Pick<OpenFile, 'path' | 'size' | 'etag'>

/** A file, or a part of it, and the head of its answer. */
export interface FileAnswer<F = OpenFile> {
  readonly status: 200 | 206
  /** Media type by the file's name. */
  readonly type: string
  readonly headers: Readonly<Record<string, string>>
  /** Bytes that will be sent. */
  readonly length: number
  readonly file: F
  /** Offset of the first byte to send. */
  readonly start: number
}

/**
 * Makes the head from the open file (rules 4.9). Obeys Range and If-Range if `allowRange` is set; ignores
 * If-None-Match and dates (rules 2.5). Throws 416 for a range outside the file.
 */
export function answerWith<F extends Described>(
  file: F,
  headers: IncomingHttpHeaders,
  allowRange: boolean
): FileAnswer<F> {
  const { path, size, etag } = file
  const ifRange = headers['if-range']
  const range: ByteRange | undefined = allowRange
    ? parseRange(headers.range, typeof ifRange === 'string' ? ifRange : undefined, etag, size)
    : undefined
  const { start, end } = range ?? { start: 0, end: size - 1 }
  const all: Record<string, string> = { 'Accept-Ranges': 'bytes', ETag: etag }
  if (range) all['Content-Range'] = `bytes ${start}-${end}/${size}`
  const type = mime.getType(path) ?? 'application/octet-stream'
  return { status: range ? 206 : 200, type, headers: all, length: end - start + 1, file, start }
}

/** The bytes from `start` to `end` inclusive. */
interface ByteRange {
  readonly start: number
  readonly end: number
}

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
