import { constants } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import type { IncomingHttpHeaders } from 'node:http'
import { basename } from 'node:path'
import mime from 'mime'
import { notFound, unavailable } from '../errors.js'
import { type ByteRange, parseRange } from './range.js'

/** Thrown when a file got shorter while it was sent: its length has been promised, so the connection must end. */
export class FileShrunk extends Error {
  override readonly name = 'FileShrunk'
}

/** An open regular file, which the caller closes, and the head of the answer that carries it, or a part of it. */
export interface FileAnswer {
  readonly status: 200 | 206
  /** The media type that the file's name stands for. */
  readonly type: string
  readonly headers: Readonly<Record<string, string>>
  /** Bytes that will be sent. */
  readonly length: number
  /** The open file, where it stands, and where in it the first byte to send is. */
  readonly handle: FileHandle
  readonly path: string
  readonly start: number
}

/**
 * Opens `path` once; everything the answer says is taken from that handle (rules 4.9). Range and If-Range in
 * `headers` are obeyed where `allowRange`. If-None-Match and dates are ignored (rules 2.5).
 * Throws 404 where there is no regular file, 416 for a range outside it, 503 when it cannot be opened now.
 */
export async function openFile(
  path: string,
  headers: IncomingHttpHeaders,
  allowRange: boolean
): Promise<FileAnswer> {
  const handle = await openToRead(path)
  try {
    const stat = await handle.stat({ bigint: true })
    if (!stat.isFile()) throw missing(path)
    const size = Number(stat.size)
    const etag = `"${stat.ino.toString(16)}-${stat.size.toString(16)}-${stat.mtimeNs.toString(16)}"`
    const ifRange = headers['if-range']
    const range = allowRange
      ? parseRange(headers.range, typeof ifRange === 'string' ? ifRange : undefined, etag, size)
      : undefined
    return answerFor(handle, path, size, etag, range)
  } catch (error) {
    await handle.close()
    throw error
  }
}

/** O_NONBLOCK: opening a pipe without a writer would wait for one for ever. */
async function openToRead(path: string): Promise<FileHandle> {
  try {
    return await open(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY)
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? ''
    if (['ENOENT', 'ENOTDIR', 'ENAMETOOLONG', 'ELOOP', 'ENXIO', 'ENODEV'].includes(code)) throw missing(path)
    throw unavailable(`the file ${basename(path)} cannot be read now (${code})`, error)
  }
}

const missing = (path: string) => notFound(`there is no file ${basename(path)}`)

function answerFor(
  handle: FileHandle,
  path: string,
  size: number,
  etag: string,
  range: ByteRange | undefined
): FileAnswer {
  const { start, end } = range ?? { start: 0, end: size - 1 }
  const length = end - start + 1
  const headers: Record<string, string> = { 'Accept-Ranges': 'bytes', ETag: etag }
  if (range) headers['Content-Range'] = `bytes ${start}-${end}/${size}`

  const type = mime.getType(path) ?? 'application/octet-stream'
  return { status: range ? 206 : 200, type, headers, length, handle, path, start }
}
