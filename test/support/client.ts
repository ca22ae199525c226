import { Agent, request } from 'node:http'

/** What a client read. */
export interface Read {
  readonly status: number
  readonly text: string
}

/** One client on one connection that it keeps; asked more at once, it sends them one after the other. */
export class Client {
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 1 })

  constructor(
    readonly address: string,
    readonly port: number,
    readonly token: string
  ) {}

  get(path: string): Promise<Read> {
    return this.send('GET', path)
  }

  post(path: string, body: object): Promise<Read> {
    return this.send('POST', path, JSON.stringify(body))
  }

  /** The body of a GET that must be 200. */
  async read<T>(path: string): Promise<T> {
    const { status, text } = await this.get(path)
    if (status !== 200) throw new Error(`GET ${path}: ${status} ${text}`)
    return JSON.parse(text) as T
  }

  close(): void {
    this.#agent.destroy()
  }

  /** Rejects when the connection ends before the answer is whole, or when the signal says so. */
  send(
    method: string,
    path: string,
    body?: string,
    signal?: AbortSignal,
    more: Readonly<Record<string, string>> = {}
  ): Promise<Read> {
    const { address: host, port, token } = this
    return new Promise((resolve, reject) => {
      const headers = { 'x-access-tokens': token, 'Content-Length': Buffer.byteLength(body ?? ''), ...more }
      const options = { host, port, method, path, headers, agent: this.#agent, ...(signal && { signal }) }
      const outgoing = request(options, incoming => {
        let text = ''
        incoming.setEncoding('utf8').on('data', (piece: string) => {
          text += piece
        })
        incoming.on('error', reject)
        incoming.on('end', () => resolve({ status: incoming.statusCode ?? 0, text }))
      })
      outgoing.on('error', reject)
      outgoing.end(body)
    })
  }
}
