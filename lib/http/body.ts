import { isUtf8 } from 'node:buffer'
import type { IncomingMessage } from 'node:http'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { badRequest, ServiceError, tooLarge } from '../base/errors.js'
import { LIMITS, type Limits } from './admission/limits.js'

/** Chunks that a body may have, plus one per this many bytes: each chunk costs time, however small it is. */
const FREE_CHUNKS = 256
const BYTES_PER_CHUNK = 16

/** Header lines and bytes that a forward adds at most: the caller, Host, Content-Length, Connection. */
export const FORWARD_OVERHEAD = { lines: 4, bytes: 1024 }

/** Returns a 431: request line and header have more than `bytes` bytes. */
export const headerTooLarge = (bytes: number) =>
  new ServiceError(431, `request line and header are larger than ${bytes} bytes`)

/** Throws 431 for a header of too many lines, and 400 unless there is one Host header (RFC 9112, 3.2). */
export function checkHeader(
  { rawHeaders, headers, httpVersion }: IncomingMessage,
  mostLines: number = LIMITS.headerLines
): void {
  if (rawHeaders.length > 2 * mostLines)
    throw new ServiceError(431, `the header has more than ${mostLines} lines`)
  if (headers.host === undefined && httpVersion !== '1.0')
    throw badRequest('the Host header is missing', 'invalid-http')
  let hosts = 0
  for (let i = 0; i < rawHeaders.length; i += 2)
    if (rawHeaders[i]?.length === 4 && rawHeaders[i]?.toLowerCase() === 'host') hosts++
  if (hosts > 1) throw badRequest('the Host header is given twice', 'invalid-http')
}

/** Throws 431 for more than `most` bytes, counted as node's parser does. */
export function checkBytes({ url = '', rawHeaders }: IncomingMessage, most: number): void {
  let bytes = url.length
  for (const text of rawHeaders) bytes += text.length
  if (bytes >= most) throw headerTooLarge(most)
}

/** Thrown inside http/ when the client left before its body was complete: nobody is there to be answered. */
export class ClientGone extends Error {
  override readonly name = 'ClientGone'
}

/** Whether a stream's error means that the client hung up during a write. */
export function isHangUp(error: unknown): boolean {
  const code = error instanceof Error ? (error as NodeJS.ErrnoException).code : undefined
  return ['ERR_STREAM_PREMATURE_CLOSE', 'ERR_STREAM_DESTROYED', 'ECONNRESET', 'EPIPE'].includes(code ?? '')
}

/** Whether the header announces a body. */
export function hasBody(request: IncomingMessage): boolean {
  const length = request.headers['content-length']
  return (length !== undefined && length !== '0') || request.headers['transfer-encoding'] !== undefined
}

/** Drops the body of a request. True if all of it came with the header. */
export async function dropArrivedBody(request: IncomingMessage): Promise<boolean> {
  request.resume()
  await nextTurn()
  return request.complete
}

/**
 * Reads a body of at most `limit` bytes; unless `keep` is set it drops them and resolves with an empty
 * buffer. Throws 413 (at once if Content-Length says so), 408 for a body slower than `limits` allow, 400 for
 * one in thousands of tiny chunks, and ClientGone. The rest then stays unread.
 */
export function readBody(
  request: IncomingMessage,
  limit: number,
  keep: boolean,
  limits: Limits
): Promise<Buffer> {
  const gone = () => new ClientGone('the client hung up before its body was complete')
  const over = () => tooLarge(`the body is larger than ${limit} bytes`)
  return new Promise((resolve, reject) => {
    if (request.destroyed) return reject(gone())
    const declared = Number(request.headers['content-length'] ?? 0)
    if (declared > limit) return reject(over())
    // One buffer that doubles: separate chunks of one byte would take hundreds of bytes each.
    let bytes: Buffer = Buffer.alloc(0)
    let pieces = 0
    let length = 0
    let due = limits.bodyBytes
    const isShort = (declared || limit) <= LIMITS.shortBodyBytes
    const timer = setInterval(
      () => {
        if (isShort || length < due) stop(new ServiceError(408, 'the body came too slowly'))
        due = length + limits.bodyBytes
      },
      isShort ? limits.shortBodyMs : limits.bodyMs
    )

    const onData = (chunk: Buffer) => {
      const start = length
      length += chunk.length
      if (length > limit) return stop(over())
      if (++pieces > FREE_CHUNKS + length / BYTES_PER_CHUNK)
        return stop(badRequest('the body comes in too many small pieces', 'invalid-body'))
      if (!keep) return
      // Nearly every body comes in one chunk.
      if (start === 0 && length === declared) {
        bytes = chunk
        return
      }
      if (length > bytes.length) {
        const larger = Buffer.allocUnsafeSlow(Math.min(2 * length, declared || limit))
        bytes.copy(larger, 0, 0, start)
        bytes = larger
      }
      chunk.copy(bytes, start)
    }
    const onEnd = () => stop()
    const onClose = () => stop(gone())
    function stop(error?: Error): void {
      clearInterval(timer)
      request.off('data', onData).off('end', onEnd).off('close', onClose)
      if (error) {
        request.pause()
        reject(error)
      } else resolve(keep ? bytes.subarray(0, length) : bytes)
    }
    // An unread stream that is cut reports an error too; 'close' follows it.
    request
      .on('data', onData)
      .on('end', onEnd)
      .on('close', onClose)
      .on('error', () => undefined)
  })
}

/** Decodes a UTF-8 body and removes its byte order mark. Throws 400 if it is not UTF-8. */
export function textOf(body: Buffer): string {
  if (!isUtf8(body))
    throw badRequest(
      'the body is not valid UTF-8: save the table as "CSV UTF-8", ' +
        'or convert it: iconv -f CP1252 -t UTF-8 FILE',
      'invalid-body'
    )
  return body.toString('utf8').replace(/^\ufeff/, '')
}
