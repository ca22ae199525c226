import type { IncomingMessage } from 'node:http'
import { badRequest, ServiceError } from '../errors.js'

/** Lines of a request's header. Node drops what is more than it was told, without a word. */
export const MOST_LINES = 128
/** So much another server adds at most to the header of a request that it hands on: who asked, Host, Content-Length and Connection. */
export const ADDED = { lines: 4, bytes: 1024 }

/** 431: request line and header have more than these bytes. */
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

/** Throws 431 for more bytes than `most`, counted as node's parser does, where that one lets through more. */
export function checkBytes({ url = '', rawHeaders }: IncomingMessage, most: number): void {
  let bytes = url.length
  for (const text of rawHeaders) bytes += text.length
  if (bytes >= most) throw headerTooLarge(most)
}
