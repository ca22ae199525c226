import { request as httpRequest, type IncomingHttpHeaders, type OutgoingHttpHeaders } from 'node:http'
import { type Duplex, duplexPair } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import type { Source } from '../source.js'

/** A request to run without a socket. */
export interface InjectedRequest {
  readonly method: string
  readonly path: string
  readonly headers?: OutgoingHttpHeaders
  readonly body?: string | Buffer
  readonly source?: Source
}

/** What came back, as a client would have read it. */
export interface InjectedResponse {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly body: Buffer
}

/** Sends `request` through a pair of streams; `connect` is given the server's end. Rejects when it is cut off. */
export function inject(
  { method, path, headers, body }: InjectedRequest,
  connect: (socket: Duplex) => void
): Promise<InjectedResponse> {
  const [near, far] = duplexPair()
  Object.defineProperty(far, 'remoteAddress', { value: '127.0.0.1' })
  // While the exchange lasts its error comes through the request; later nobody cares.
  near.on('error', () => undefined)
  far.once('close', () => {
    if (!far.writableFinished) near.destroy(new Error('the answer was cut off'))
  })
  connect(far)
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
