import { Agent, type IncomingMessage, request } from 'node:http'
import { isObject, type JsonObject } from '../../json.js'

/** Longer than any answer that is asked for here: who lists asks for fewer keys when one is. */
const ANSWER_BYTES = 64 * 1024 * 1024
/** Codes of gRPC that say nothing about whether the request was carried out: cancelled, unknown, deadline, aborted, internal, unavailable. */
const UNCLEAR = new Set([1, 2, 4, 10, 13, 14])

/** Nobody knows whether etcd has carried the request out: no answer, or half of one, or that of a member without a leader. */
export class UnclearError extends Error {
  override readonly name = 'UnclearError'
}

/** etcd has refused the request, and done nothing of it. */
export class RefusedError extends Error {
  override readonly name = 'RefusedError'
}

/** An answer with more bytes than are read. */
export class TooLongError extends RefusedError {}

/** Speaks to the JSON gateway of etcd (3.4 or later). One that does not answer is left for the next one of the list. */
export class Client {
  readonly #endpoints: readonly URL[]
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 16 })
  #preferred = 0

  /** `endpoints`: http://host:port, one or more. Throws TypeError for what is none. */
  constructor(endpoints: readonly string[]) {
    if (endpoints.length === 0) throw new TypeError('etcd needs an endpoint, like http://127.0.0.1:2379')
    this.#endpoints = endpoints.map(endpoint => {
      const url = URL.canParse(endpoint) ? new URL(endpoint) : undefined
      if (url?.protocol !== 'http:' || url.pathname !== '/')
        throw new TypeError(
          `${JSON.stringify(endpoint)} is no endpoint of etcd; one is like http://127.0.0.1:2379`
        )
      return url
    })
  }

  /** The endpoints, for messages. */
  get where(): string {
    return this.#endpoints.map(({ origin }) => origin).join(', ')
  }

  /**
   * Asks one endpoint. Throws RefusedError, or UnclearError when there is no whole answer within `limitMs`; both name the
   * endpoint. The next question goes to another one then.
   */
  async ask(path: string, question: JsonObject, limitMs: number): Promise<JsonObject> {
    const endpoint = this.#endpoints[this.#preferred % this.#endpoints.length] as URL
    try {
      return await this.#post(new URL(`/v3/${path}`, endpoint), JSON.stringify(question), limitMs)
    } catch (error) {
      if (error instanceof UnclearError) this.#preferred++
      throw error
    }
  }

  close(): void {
    this.#agent.destroy()
  }

  #post(url: URL, body: string, limitMs: number): Promise<JsonObject> {
    return new Promise((resolve, reject) => {
      const from = `etcd at ${url.origin}`
      const unclear = (reason: string) => reject(new UnclearError(`${from}: ${reason}`))
      const asked = request(url, {
        method: 'POST',
        agent: this.#agent,
        headers: { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }
      })
      const limit = setTimeout(() => {
        unclear(
          `no answer within ${limitMs / 1000} s; look whether it runs and has a majority (etcdctl endpoint health)`
        )
        asked.destroy()
      }, limitMs)
      asked.on('error', error => unclear(`${error.message}; look whether it runs (etcdctl endpoint health)`))
      asked.on('close', () => clearTimeout(limit))
      asked.on('response', answer => read(answer, from).then(resolve, reject))
      asked.end(body)
    })
  }
}

async function read(answer: IncomingMessage, from: string): Promise<JsonObject> {
  const chunks: Buffer[] = []
  let size = 0
  try {
    for await (const chunk of answer as AsyncIterable<Buffer>) {
      size += chunk.length
      if (size > ANSWER_BYTES)
        throw new TooLongError(`${from}: its answer has more than ${ANSWER_BYTES} bytes`)
      chunks.push(chunk)
    }
  } catch (error) {
    throw error instanceof TooLongError ? error : new UnclearError(`${from}: ${(error as Error).message}`)
  }
  const json = parsed(Buffer.concat(chunks).toString())
  if (answer.statusCode === 200 && isObject(json)) return json
  const { error, code } = isObject(json) ? json : {}
  if (typeof error !== 'string' || typeof code !== 'number')
    throw new UnclearError(
      `${from}: what answers with ${answer.statusCode} is not etcd, or not its JSON gateway`
    )
  if (UNCLEAR.has(code)) throw new UnclearError(`${from}: ${error}`)
  const hint = code === 8 ? '; make room: etcdctl compact, etcdctl defrag, etcdctl alarm disarm' : ''
  throw new RefusedError(`${from}: ${error}${hint}`)
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
