import type { IncomingMessage } from 'node:http'
import { ServiceError, tooLarge } from '../errors.js'
import type { Limits } from './limits.js'

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

/**
 * Reads a body of at most `limit` bytes; with `keep` false it is dropped and the result is empty.
 * Throws 413 (at once where Content-Length tells), 408 for a body that comes slower than `limits` allow, and
 * ClientGone. What is unread then stays unread.
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
    if (Number(request.headers['content-length'] ?? 0) > limit) return reject(over())
    const chunks: Buffer[] = []
    let length = 0
    let due = limits.bodyBytes
    const timer = setInterval(() => {
      if (length < due) stop(new ServiceError(408, 'the body came too slowly'))
      due = length + limits.bodyBytes
    }, limits.bodyMs)

    const onData = (chunk: Buffer) => {
      length += chunk.length
      if (length > limit) stop(over())
      else if (keep) chunks.push(chunk)
    }
    const onEnd = () => stop()
    const onClose = () => stop(gone())
    function stop(error?: Error): void {
      clearInterval(timer)
      request.off('data', onData).off('end', onEnd).off('close', onClose)
      if (error) {
        request.pause()
        reject(error)
      } else resolve(chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks))
    }
    // An unread stream that is cut reports an error too; 'close' follows it.
    request
      .on('data', onData)
      .on('end', onEnd)
      .on('close', onClose)
      .on('error', () => undefined)
  })
}
