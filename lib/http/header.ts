import type { IncomingMessage } from 'node:http'
import { badRequest, ServiceError } from '../errors.js'

/** Lines of a request's header. Node drops what is more than it was told, without a word. */
export const MOST_LINES = 128

/** Throws 431 for a header of too many lines, and 400 unless there is one Host header (RFC 9112, 3.2). */
export function checkHeader({ rawHeaders, headers, httpVersion }: IncomingMessage): void {
  if (rawHeaders.length > 2 * MOST_LINES)
    throw new ServiceError(431, `the header has more than ${MOST_LINES} lines`)
  if (headers.host === undefined && httpVersion !== '1.0') throw badRequest('the Host header is missing')
  let hosts = 0
  for (let i = 0; i < rawHeaders.length; i += 2)
    if (rawHeaders[i]?.length === 4 && rawHeaders[i]?.toLowerCase() === 'host') hosts++
  if (hosts > 1) throw badRequest('the Host header is given twice')
}
