import { ServiceError } from '../errors.js'

/** A part of a file: the bytes from `start` up to and with `end`. */
export interface ByteRange {
  readonly start: number
  readonly end: number
}

/**
 * The part of a file of `size` bytes that a Range header asks for (RFC 9110, section 14). Undefined, which is
 * the whole file, without a header and for several ranges, another unit or a malformed header; throws 416 with
 * Content-Range for a range that lies outside the file. With If-Range the part is given only if it is this
 * file's strong `etag`: else the client would join parts of two files.
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
