import { constants } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import type { IncomingHttpHeaders } from 'node:http'
import { basename } from 'node:path'
import type { Writable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import mime from 'mime'
import { notFound, unavailable } from '../errors.js'
import { type ByteRange, parseRange } from './range.js'

const CHUNK_BYTES = 256 * 1024

/** Thrown when a file got shorter while it was sent: its length has been promised, so the connection must end. */
export class FileShrunk extends Error {
  override readonly name = 'FileShrunk'
}

/** An open regular file and the head of the answer that carries it, or a part of it. */
export interface FileAnswer {
  readonly status: 200 | 206
  /** The media type that the file's name stands for. */
  readonly type: string
  readonly headers: Readonly<Record<string, string>>
  /** Bytes that will be sent. */
  readonly length: number
  /**
   * Streams them in order with flat memory, calls `sent` for each piece, ends `target` and closes the file.
   * Rejects with FileShrunk, or with what stopped the target; the target is destroyed then.
   */
  stream(target: Writable, sent: (bytes: number) => void): Promise<void>
  /** Closes the file without sending it. */
  close(): Promise<void>
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

  const close = () => handle.close()
  async function stream(target: Writable, sent: (bytes: number) => void): Promise<void> {
    if (length === 0) {
      target.end()
      return close()
    }
    await pipeline(
      handle.createReadStream({ start, end, highWaterMark: CHUNK_BYTES }),
      async function* (chunks: AsyncIterable<Buffer>) {
        let left = length
        for await (const chunk of chunks) {
          left -= chunk.length
          sent(chunk.length)
          yield chunk
        }
        if (left > 0) throw new FileShrunk(`${path} got shorter by ${left} bytes while it was sent`)
      },
      target
    )
  }
  const type = mime.getType(path) ?? 'application/octet-stream'
  return { status: range ? 206 : 200, type, headers, length, stream, close }
}
