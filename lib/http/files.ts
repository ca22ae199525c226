import type { IncomingHttpHeaders } from 'node:http'
import mime from 'mime'
import type { OpenFile } from './open-files.js'
import { type ByteRange, parseRange } from './range.js'

/** Thrown when a file got shorter while it was sent: its length has been promised, so the connection must end. */
export class FileShrunk extends Error {
  override readonly name = 'FileShrunk'
}

/** What is said of a file. */
type Described = Pick<OpenFile, 'path' | 'size' | 'etag'>

/** A file, or a part of it, and the head of the answer that carries it. */
export interface FileAnswer<F = OpenFile> {
  readonly status: 200 | 206
  /** The media type that the file's name stands for. */
  readonly type: string
  readonly headers: Readonly<Record<string, string>>
  /** Bytes that will be sent. */
  readonly length: number
  readonly file: F
  /** Where in the file the first byte to send is. */
  readonly start: number
}

/**
 * How a file is answered: all that is said is taken from it (rules 4.9). Range and If-Range in `headers` are obeyed
 * where `allowRange`. If-None-Match and dates are ignored (rules 2.5). Throws 416 for a range outside the file.
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
