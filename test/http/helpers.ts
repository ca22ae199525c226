import { ServerResponse } from 'node:http'
import { connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Test } from 'tap'
import type { Log } from '../../lib/base/log.js'
import type { Answer, Request, Route } from '../../lib/http/route.js'
import { HttpServer, type ServerOptions } from '../../lib/http/server.js'

/** A log that keeps its lines as `level message`. */
export interface MemoryLog extends Log {
  readonly lines: string[]
}

export function memoryLog(): MemoryLog {
  const lines: string[] = []
  const at = (level: string) => (message: string) => void lines.push(`${level} ${message}`)
  return { level: 'debug', lines, error: at('error'), warn: at('warn'), info: at('info'), debug: at('debug') }
}

type Handler = (request: Request<string>) => Answer | Promise<Answer>

/** A route that anybody may call: GET reads, POST changes and takes JSON. */
export function route(
  method: 'GET' | 'POST',
  path: string,
  handler: Handler,
  more: Partial<Route<string>> = {}
) {
  const reads = method === 'GET'
  return {
    method,
    path,
    effect: reads ? 'reads' : 'changes',
    access: 'any',
    body: reads ? 'ignored' : 'json',
    handler,
    ...more
  } as Route<string>
}

/** `/slow`, which begins and then waits for its gate, and `/fast`. */
export function gated() {
  const gate = deferred()
  const begun = deferred()
  const slow = route('GET', '/slow', async () => {
    begun.resolve()
    await gate.promise
    return { status: 200, body: 'done' }
  })
  const fast = route('GET', '/fast', () => ({ status: 200, body: 'fast' }))
  return { gate, begun, routes: [slow, fast] }
}

export interface Running {
  readonly server: HttpServer<string>
  readonly port: number
  readonly log: MemoryLog
}

/** A server on a free loopback port, closed when the test ends. */
export async function start(
  t: Test,
  routes: readonly Route<string>[],
  options: Partial<ServerOptions<string>> = {}
): Promise<Running> {
  const log = memoryLog()
  const server = new HttpServer<string>({
    routes,
    authorize: () => 'caller',
    maxBody: 1024 * 1024,
    trustedProxies: [],
    log,
    ...options
  })
  const { port } = await server.listen('127.0.0.1', 0)
  t.teardown(() => server.close(0))
  return { server, port, log }
}

/** One response as it stood on the wire. */
export interface WireResponse {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
}

/** A client that sends exactly the bytes it is told to. */
export class RawClient {
  readonly socket: Socket
  #chunks: Buffer[] = []
  #length = 0
  #ended = false
  /** What cut the connection, if it did not end in order. */
  error: Error | undefined
  #wake: () => void = () => undefined

  /** `socket`: one that is there already, instead of a new connection. */
  constructor(port: number, allowHalfOpen = false, socket?: Socket) {
    this.socket = socket ?? connect({ port, host: '127.0.0.1', allowHalfOpen })
    this.socket
      .on('data', chunk => {
        this.#chunks.push(chunk)
        this.#length += chunk.length
        this.#wake()
      })
      .on('error', error => {
        this.error = error
      })
      .on('end', () => this.#stop())
      .on('close', () => this.#stop())
  }

  /** What has come and was not yet read. */
  get #received(): Buffer {
    if (this.#chunks.length !== 1) this.#chunks = [Buffer.concat(this.#chunks)]
    return this.#chunks[0] as Buffer
  }

  #stop(): void {
    this.#ended = true
    this.#wake()
  }

  send(data: string | Buffer): this {
    this.socket.write(data)
    return this
  }

  async #until(done: () => boolean, what: string): Promise<void> {
    while (!done()) {
      if (this.#ended) throw new Error(`the connection ended before ${what}: ${this.#received.toString()}`)
      await new Promise<void>(resolve => {
        this.#wake = resolve
      })
    }
  }

  /** The next whole response; `head` when it has no body in spite of its Content-Length. */
  async response(head = false): Promise<WireResponse> {
    await this.#until(() => this.#received.includes('\r\n\r\n'), 'a header was complete')
    const end = this.#received.indexOf('\r\n\r\n')
    const [line = '', ...fields] = this.#received.subarray(0, end).toString('latin1').split('\r\n')
    const status = Number(/^HTTP\/1\.1 (\d{3}) /.exec(line)?.[1])
    const headers: Record<string, string> = {}
    for (const field of fields) {
      const colon = field.indexOf(':')
      const name = field.slice(0, colon).toLowerCase()
      if (name in headers) throw new Error(`the header ${name} came twice`)
      headers[name] = field.slice(colon + 1).trim()
    }
    const length = head || status < 200 ? 0 : Number(headers['content-length'] ?? 0)
    await this.#until(() => this.#length >= end + 4 + length, 'a body was complete')
    const body = this.#received.subarray(end + 4, end + 4 + length).toString()
    this.#chunks = [this.#received.subarray(end + 4 + length)]
    this.#length -= end + 4 + length
    return { status, headers, body }
  }

  /** Waits for the end of the connection; what came and was not yet read. */
  async rest(): Promise<string> {
    while (!this.#ended) {
      await new Promise<void>(resolve => {
        this.#wake = resolve
      })
    }
    return this.#received.toString()
  }
}

/** A client that takes the beginning of an answer and no more. */
export async function stalled(port: number, path: string, client = new RawClient(port)): Promise<RawClient> {
  client.send(`GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`)
  await new Promise(resolve => client.socket.once('data', resolve).once('close', resolve))
  client.socket.pause()
  return client
}

/**
 * Two such clients, one after the other: the system has no more for the first one either before the second one
 * begins. So the server has waited longest for the first one.
 */
export async function stalledInOrder(port: number, path: string): Promise<[RawClient, RawClient]> {
  const { write } = ServerResponse.prototype
  let writes = 0
  ServerResponse.prototype.write = function (this: ServerResponse, ...args: unknown[]) {
    writes++
    return Reflect.apply(write, this, args)
  }
  try {
    const first = await stalled(port, path)
    for (let [same, last] = [0, -1]; same < 4; last = writes) {
      await sleep(10)
      same = writes === last ? same + 1 : 0
    }
    return [first, await stalled(port, path)]
  } finally {
    ServerResponse.prototype.write = write
  }
}

/** Resolves when the server has read what was sent to it: it is in this process, but nothing tells of it. */
export async function arrived(): Promise<void> {
  await sleep(20)
  for (let turn = 0; turn < 10; turn++) await new Promise(setImmediate)
}

/** A promise, and the functions that settle it. */
export function deferred<T = void>() {
  let resolve!: (value: T) => void
  const promise = new Promise<T>(done => {
    resolve = done
  })
  return { promise, resolve }
}

/** Asserts an error answer: JSON with one message, its exact length, its type. */
export function isRefusal(t: Test, { headers, body }: WireResponse, message: RegExp): void {
  t.equal(headers['content-type'], 'application/json')
  t.equal(headers['content-length'], String(Buffer.byteLength(body)))
  t.ok(body.endsWith('}\n'), 'ends in a newline')
  const parsed = JSON.parse(body) as Record<string, string>
  t.same(Object.keys(parsed), ['message', 'code'])
  t.match(parsed.message, message)
}
