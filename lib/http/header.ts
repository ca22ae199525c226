import type { IncomingMessage } from 'node:http'
import { badRequest, ServiceError } from '../base/errors.js'

/** Maximum number of header lines. Node silently drops lines beyond its own limit. */
export const MOST_LINES = 128
/** Header lines and bytes that a forward adds at most: the caller, Host, Content-Length, Connection. */
export const FORWARD_OVERHEAD = { lines: 4, bytes: 1024 }

/** Returns a 431: request line and header have more than `bytes` bytes. */
export const headerTooLarge = (bytes: number) =>
  new ServiceError(431, `request line and header are larger than ${bytes} bytes`)

/** Throws 431 for a header of too many lines, and 400 unless there is one Host header (RFC 9112, 3.2). */
export function checkHeader(
  { rawHeaders, headers, httpVersion }: IncomingMessage,
  mostLines = MOST_LINES
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
