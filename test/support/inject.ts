import { request as httpRequest, type IncomingHttpHeaders, type OutgoingHttpHeaders } from 'node:http'
import { duplexPair } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import type { HttpServer } from '../../lib/http/server.js'

/** A request to run without a socket. */
export interface InjectedRequest {
  readonly method: string
  readonly path: string
  readonly headers?: OutgoingHttpHeaders
  readonly body?: string | Buffer
  /** The address that it comes from; default 127.0.0.1. */
  readonly source?: string
}

/** What came back, as a client would have read it. */
export interface InjectedResponse {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly body: Buffer
}

/**
 * Runs a request through the server's own parser and code, over a pair of streams instead of a socket.
 * Rejects when the answer is cut off.
 */
export function inject(
  server: Pick<HttpServer<never>, 'accept'>,
  { method, path, headers, body, source = '127.0.0.1' }: InjectedRequest
): Promise<InjectedResponse> {
  const [near, far] = duplexPair()
  Object.defineProperty(far, 'remoteAddress', { value: source })
  // While the exchange lasts its error comes through the request; later nobody cares.
  near.on('error', () => undefined)
  far.once('close', () => {
    if (!far.writableFinished) near.destroy(new Error('the answer was cut off'))
  })
  server.accept(far)
  return new Promise((resolve, reject) => {
    const length = body === undefined ? {} : { 'Content-Length': Buffer.byteLength(body) }
    const outgoing = httpRequest({
      method,
      path,
      headers: { Host: 'localhost', Connection: 'close', ...length, ...headers },
      createConnection: () => near
    })
    outgoing.once('error', reject)
    outgoing.once('response', incoming => {
      buffer(incoming).then(
        content =>
          resolve({ status: incoming.statusCode as number, headers: incoming.headers, body: content }),
        reject
      )
    })
    outgoing.end(body)
  })
}
