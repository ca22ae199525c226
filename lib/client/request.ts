import {
  type ClientRequest,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type OutgoingHttpHeaders,
  Agent as PlainAgent,
  request as plainRequest
} from 'node:http'
import { Agent as TlsAgent, request as tlsRequest } from 'node:https'
import { isIPv6 } from 'node:net'
import type { Readable } from 'node:stream'
import type { ConnectionOptions, TLSSocket } from 'node:tls'

/** A request to another server. A time limit that is absent does not apply. */
export interface RequestOptions {
  /** An http or https URL. */
  readonly url: string | URL
  /** Path and query, sent as they are. Default: those of the URL. */
  readonly path?: string
  /** Default: GET, or POST with a body. */
  readonly method?: string | undefined
  readonly headers?: OutgoingHttpHeaders
  readonly body?: string | Buffer | undefined
  readonly tls?: ConnectionOptions | undefined
  /** Default: a new connection, which is closed after the response. */
  readonly connections?: Connections
  /** Called when the connection is there: from then on the request may have been carried out. */
  readonly connected?: () => void
  /** Time limit for the connection, the wait for one of `connections` included. */
  readonly connectMs?: number
  /** Time limit for the head of the response. */
  readonly headMs?: number
  /** Time limit for the whole response. */
  readonly wholeMs?: number
  /** Time limit without a byte in either direction. */
  readonly silenceMs?: number
  /** Whether the server is still expected to answer; checked each second until it does. */
  readonly isThere?: (() => boolean) | undefined
  /** Its reason becomes the error of the request, or of the body. */
  readonly signal?: AbortSignal | undefined
}

/** A response with its body unread. A break or a time limit is an error of the body. */
export interface Response<Body = Readable> {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly body: Body
}

/** A request got no response. */
export class NoResponseError extends Error {
  override readonly name: string = 'NoResponseError'

  constructor(
    message: string,
    /** Of the operating system or of TLS. */
    readonly code?: string | undefined
  ) {
    super(message)
  }

  /** The reason in a few words. */
  get reason(): string {
    return this.code ?? this.message
  }
}

/** A time limit of a request has passed. */
export class TimeLimitError extends NoResponseError {
  override readonly name = 'TimeLimitError'

  constructor(ms: number) {
    super(`no answer within ${ms / 1000} s`)
  }
}

/** A body is longer than allowed. */
export class TooLongError extends Error {
  override readonly name = 'TooLongError'

  constructor(readonly most: number) {
    super(`the answer has more than ${most} bytes`)
  }
}

/** Finds a machine that vanished silently, while its connection has no traffic. */
const KEEP_ALIVE_MS = 2000
const EXPECTED_CHECK_MS = 1000
/** A proxy may send some interim responses (1xx). */
const MOST_INTERIM = 8

/** Connections that stay open for further requests. */
export class Connections {
  readonly agents: { readonly 'http:': PlainAgent; readonly 'https:': TlsAgent }

  /** `most`: connections to one server at a time; `idleMs`: how long an idle one stays open. */
  constructor({ most = Number.POSITIVE_INFINITY, idleMs = 0 }) {
    const options = { keepAlive: true, maxSockets: most, timeout: idleMs }
    this.agents = { 'http:': new PlainAgent(options), 'https:': new TlsAgent(options) }
    if (idleMs === 0) return
    // Node does not restart a time-out that expired while the connection was in use.
    for (const agent of Object.values(this.agents)) agent.on('free', socket => socket.setTimeout(idleMs))
  }

  close(): void {
    for (const agent of Object.values(this.agents)) agent.destroy()
  }
}

/** Returns the origin of a server by its address. */
export const originAt = (scheme: 'http' | 'https', address: string, port: number): string =>
  `${scheme}://${isIPv6(address) ? `[${address}]` : address}:${port}`

/** Returns the head of the response; follows no redirect. Throws NoResponseError or the signal's reason. */
export function request(options: RequestOptions): Promise<Response> {
  const { signal, connectMs, headMs, wholeMs, silenceMs, isThere } = options
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted()
    const outgoing = send(options)
    let incoming: IncomingMessage | undefined
    const stop = (reason: Error) => {
      // A request that waits for a connection emits no error.
      reject(reason)
      ;(incoming ?? outgoing).destroy(reason)
    }
    const limit = (ms: number | undefined) =>
      ms === undefined ? undefined : setTimeout(() => stop(new TimeLimitError(ms)), Math.max(1, ms))
    const connecting = limit(connectMs)
    const answering = limit(headMs)
    const whole = limit(wholeMs)
    // A stopped process accepts connections but answers nothing.
    const looking =
      isThere &&
      setInterval(() => {
        if (!isThere()) stop(new NoResponseError('it is not there any more'))
      }, EXPECTED_CHECK_MS)
    const aborted = () => stop(signal?.reason)
    signal?.addEventListener('abort', aborted)
    if (silenceMs !== undefined) outgoing.on('timeout', () => stop(new TimeLimitError(silenceMs)))
    let interim = 0
    const connected = () => {
      clearTimeout(connecting)
      options.connected?.()
    }
    outgoing
      .once('socket', socket => {
        socket.setKeepAlive(true, KEEP_ALIVE_MS)
        // A socket from a request that has just ended is connected, and reusedSocket does not say so.
        const { connecting, secureConnecting } = socket as TLSSocket & { secureConnecting?: boolean }
        if (!connecting && !secureConnecting) connected()
        else socket.once('encrypted' in socket ? 'secureConnect' : 'connect', connected)
      })
      .once('close', () => {
        for (const timer of [connecting, answering, whole, looking]) clearTimeout(timer)
        signal?.removeEventListener('abort', aborted)
        // Some ends without a response emit no error.
        if (!incoming) reject(new NoResponseError('it ended the connection'))
      })
      .on('information', () => {
        interim++
        if (interim > MOST_INTERIM) stop(new NoResponseError('it goes on promising an answer'))
      })
      .on('error', error => reject(noResponse(error)))
      .once('response', response => {
        clearTimeout(answering)
        clearInterval(looking)
        incoming = response.on('error', () => undefined)
        resolve({ status: response.statusCode ?? 0, headers: response.headers, body: response })
      })
  })
}

/** As `request`; reads the body too, which has at most `most` bytes. Throws TooLongError as well. */
export async function requestWhole(options: RequestOptions & { most: number }): Promise<Response<Buffer>> {
  const { status, headers, body } = await request(options)
  return { status, headers, body: await readWhole(body, options.most) }
}

/** Reads a body. Throws TooLongError if it has more than `most` bytes, and the error of a break. */
export async function readWhole(body: AsyncIterable<Buffer>, most: number): Promise<Buffer> {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of body) {
    size += chunk.length
    // Leaving the loop closes the connection.
    if (size > most) throw new TooLongError(most)
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}

function send({ url, body, tls, connections, ...options }: RequestOptions): ClientRequest {
  const { protocol, pathname, search } = new URL(url)
  const isTls = protocol === 'https:'
  return (isTls ? tlsRequest : plainRequest)(url, {
    path: options.path ?? pathname + search,
    method: options.method ?? (body === undefined ? 'GET' : 'POST'),
    headers: {
      ...(body === undefined ? {} : { 'content-length': Buffer.byteLength(body) }),
      ...options.headers
    },
    agent: connections?.agents[isTls ? 'https:' : 'http:'] ?? false,
    timeout: options.silenceMs,
    ...tls
  }).end(body)
}

/** Of several addresses of a server, the error of the first is reported. */
function noResponse(error: NodeJS.ErrnoException & { readonly errors?: readonly Error[] }): NoResponseError {
  const { code, message, errors } = error
  return new NoResponseError(message || errors?.[0]?.message || String(code), code)
}
