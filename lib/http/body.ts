import { isUtf8 } from 'node:buffer'
import type { IncomingMessage } from 'node:http'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { badRequest, ServiceError, tooLarge } from '../errors.js'
import type { Limits } from './limits.js'

/** So many pieces a body may have, and one more for each so many bytes: each piece costs time, however small it is. */
const FREE_PIECES = 256
const PIECE_BYTES = 16
/** A body that cannot be longer than this has a bound in time. */
export const SHORT_BYTES = 64 * 1024

/** Thrown inside http/ when the client hung up before its body was complete: there is nobody to answer. */
export class ClientGone extends Error {
  override readonly name = 'ClientGone'
}

/** True for what a stream reports when the client hung up while it was written to. */
export function isHangUp(error: unknown): boolean {
  const code = error instanceof Error ? (error as NodeJS.ErrnoException).code : undefined
  return ['ERR_STREAM_PREMATURE_CLOSE', 'ERR_STREAM_DESTROYED', 'ECONNRESET', 'EPIPE'].includes(code ?? '')
}

/** True where the request announces a body. */
export function hasBody(request: IncomingMessage): boolean {
  const length = request.headers['content-length']
  return (length !== undefined && length !== '0') || request.headers['transfer-encoding'] !== undefined
}

/** Drops the body of a request; whether all of it came with the header, which is known once what was read is parsed. */
export async function hasCome(request: IncomingMessage): Promise<boolean> {
  request.resume()
  await nextTurn()
  return request.complete
}

/**
 * Reads a body of at most `limit` bytes; with `keep` false it is dropped and the result is empty.
 * Throws 413 (at once where Content-Length tells), 408 for a body that comes slower than `limits` allow, 400 for one in
 * thousands of tiny pieces, and ClientGone. What is unread then stays unread.
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
    // One buffer that doubles: a body may come in pieces of one byte, which would each take hundreds.
    let bytes: Buffer = Buffer.alloc(0)
    let pieces = 0
    let length = 0
    let due = limits.bodyBytes
    const isShort = (declared || limit) <= SHORT_BYTES
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
      if (++pieces > FREE_PIECES + length / PIECE_BYTES)
        return stop(badRequest('the body comes in too many small pieces', 'invalid-body'))
      if (!keep) return
      // Nearly every body comes in one piece.
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

/** A body in UTF-8, without a byte order mark; throws 400 for any other. */
export function textOf(body: Buffer): string {
  if (!isUtf8(body))
    throw badRequest(
      'the body is not valid UTF-8: save the table as "CSV UTF-8", or convert it: iconv -f CP1252 -t UTF-8 FILE',
      'invalid-body'
    )
  return body.toString('utf8').replace(/^\ufeff/, '')
}
