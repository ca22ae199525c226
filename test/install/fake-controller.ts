import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { InstallData } from '../../lib/boot/install-data.js'

export interface Recorded {
  readonly method: string
  readonly url: string
  readonly headers: IncomingMessage['headers']
  readonly body: string
}

export type Answer = Buffer | string | ((response: ServerResponse) => void)

/** A stand-in for the controller: records what a node asks and answers GETs from `files`. */
export class FakeController {
  readonly requests: Recorded[] = []
  readonly files = new Map<string, Answer>()
  /** When set, decides on a POST; otherwise it is 204. */
  onPost: ((url: string, response: ServerResponse) => void) | undefined
  readonly #server = createServer((request, response) => void this.#answer(request, response))

  /** Starts on a free port of a loopback address, IPv4 or IPv6. */
  async listen(address = '127.0.0.1'): Promise<this> {
    this.#server.listen(0, address)
    await once(this.#server, 'listening')
    return this
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  /** The data fields that lead a node here. */
  get place(): Pick<InstallData, 'url' | 'api_protocol' | 'api_address' | 'api_port'> {
    const { address, family, port } = this.#server.address() as AddressInfo
    const host = family === 'IPv6' ? `[${address}]` : address
    return { url: `http://${host}:${port}`, api_protocol: 'http', api_address: address, api_port: port }
  }

  close(): void {
    this.#server.closeAllConnections()
    this.#server.close()
  }

  /** States posted to /monitor/node/{node}, in order. */
  get states(): string[] {
    return this.posts('/monitor/node/').map(({ body }) => {
      const { monitor } = JSON.parse(body) as { monitor: { status: Record<string, { state: string }> } }
      return Object.values(monitor.status)[0]?.state ?? ''
    })
  }

  posts(prefix: string): Recorded[] {
    return this.requests.filter(r => r.method === 'POST' && r.url.startsWith(prefix))
  }

  gets(): string[] {
    return this.requests.filter(r => r.method === 'GET').map(r => r.url)
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const parts: Buffer[] = []
    for await (const part of request) parts.push(part as Buffer)
    const { method = '', url = '', headers } = request
    this.requests.push({ method, url, headers, body: Buffer.concat(parts).toString() })
    if (method === 'POST') {
      if (this.onPost) this.onPost(url, response)
      else response.writeHead(204).end()
      return
    }
    const answer = this.files.get(url) ?? this.files.get(url.replace(/\?.*/, ''))
    if (answer === undefined) response.writeHead(404).end('{"message":"no such file"}')
    else if (typeof answer === 'function') answer(response)
    else response.writeHead(200, { 'content-length': Buffer.byteLength(answer) }).end(answer)
  }
}

/** An answer that promises more bytes than it sends. */
export function truncated(whole: Buffer): Answer {
  return response => {
    response.writeHead(200, { 'content-length': whole.length })
    response.write(whole.subarray(0, whole.length / 2), () => setTimeout(() => response.destroy(), 20))
  }
}
