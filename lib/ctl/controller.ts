import { type JsonObject, jsonObject } from '../base/json.js'
import { certificateFault } from '../client/certificates.js'
import { type Response, request } from '../client/request.js'
import { type Failure, noController, refused, wrongUsage } from './terminal.js'

const connectLimitMs = 10_000
/** Clones of images and changes of all nodes are slow. */
const answerLimitMs = 600_000
/** The controller accepts 16 KB for the request line and headers. */
const longestTarget = 15_000
/** Bytes of the largest buffered answer. 100,000 complete nodes are smaller. */
const largestAnswer = 512 * 1024 * 1024

/** Query parameters; undefined values are omitted. */
export type Query = Readonly<Record<string, string | undefined>>

/** Parses the URL of a controller, which may have a path below a proxy. Throws Failure 2. */
export function controllerUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (!url || !/^https?:$/.test(url.protocol) || url.search !== '' || url.hash !== '')
    throw wrongUsage(`the URL of the controller must look like http://controller:7050, not ${text}`)
  if (url.username !== '' || url.password !== '')
    throw wrongUsage('the URL of the controller holds no user and no password: type svcctl login')
  return url
}

/** An HTTP client of one controller. */
export class Controller {
  /** Warnings received and not shown yet. */
  readonly warnings: string[] = []
  /** The ETag that each change has to fit. */
  ifMatch: string | undefined

  constructor(
    readonly url: URL,
    readonly token: string | undefined,
    readonly ca: Buffer | undefined
  ) {}

  /** The URL without a final slash, for messages and the name of the token file. */
  get name(): string {
    return this.url.href.replace(/\/+$/, '')
  }

  /**
   * Sends a request; returns the answer with its body unread. `path` is already encoded; a Buffer is a table.
   * Throws Failure 1 with the controller's message if it refuses, 3 if there is no controller.
   */
  async send(method: 'GET' | 'POST', path: string, query: Query = {}, body?: JsonObject | Buffer) {
    const given = Object.entries(query).filter((entry): entry is [string, string] => entry[1] !== undefined)
    const search = new URLSearchParams(given).toString()
    const target = `${this.url.pathname.replace(/\/+$/, '')}${path}${search === '' ? '' : `?${search}`}`
    if (target.length > longestTarget)
      throw wrongUsage('this names too many for one question: give a shorter node set, such as @GROUP')
    const text = body === undefined || Buffer.isBuffer(body) ? body : Buffer.from(JSON.stringify(body))
    const response = await this.#ask(method, target, text).catch((error: Error) => {
      throw this.unreachable(error)
    })
    const warning = response.headers['x-svcd-warning']
    if (typeof warning === 'string') this.warnings.push(warning)
    const answer = new Answer(this, response)
    if (answer.status >= 400) throw await this.#refusal(answer, path)
    if (answer.status >= 300) throw this.#isNone(`sends elsewhere (${answer.status})`)
    return answer
  }

  /** Sends a request and parses the answer as a JSON object; without a body it is empty. */
  async json(...asked: Parameters<Controller['send']>): Promise<JsonObject> {
    return (await this.tagged(...asked)).json
  }

  /** The same with the ETag of the answer. */
  async tagged(...asked: Parameters<Controller['send']>) {
    const answer = await this.send(...asked)
    const { etag } = answer.response.headers
    const json = answer.status === 204 ? {} : jsonObject(await answer.text())
    if (!json) throw this.#isNone('does not answer in JSON')
    return { json, etag }
  }

  #ask(method: string, path: string, body: Buffer | undefined): Promise<Response> {
    const { url, token, ca, ifMatch } = this
    return request({
      ...{ url, method, path, body, connectMs: connectLimitMs, silenceMs: answerLimitMs },
      headers: {
        // Other clients of this controller may use the luna dialect (docs/luna.md).
        'x-svcd-dialect': 'none',
        // The client polls long requests.
        prefer: 'respond-async',
        ...(token === undefined ? {} : { 'x-access-tokens': token }),
        ...(ifMatch === undefined || method !== 'POST' ? {} : { 'if-match': ifMatch }),
        ...(body === undefined ? {} : { 'content-type': 'application/json' })
      },
      tls: ca && { ca }
    })
  }

  async #refusal(answer: Answer, path: string): Promise<Failure> {
    const { message } = jsonObject(await answer.text()) ?? {}
    if (typeof message !== 'string') return this.#isNone(`answers ${answer.status} without a message`)
    if (answer.status !== 401 || /^\/(?:token$|auth\/)/.test(path)) return refused(message, answer.status)
    const why =
      this.token === undefined
        ? 'you are not logged in'
        : isVoid.test(message)
          ? 'your login has ended'
          : message
    const source = claimsOf(this.token).src
    return refused(
      `${why}; type: svcctl login ${source === 'oidc' ? '--oidc' : (userOf(this.token) ?? 'USER')}`
    )
  }

  /** The failure for a server that is not svcd. */
  #isNone(why: string): Failure {
    return noController(`no svcd at ${this.name}: what is there ${why}`)
  }

  /** The failure for a connection that could not be opened or broke. */
  unreachable(error: NodeJS.ErrnoException): Failure {
    const { code = '', message } = error
    if (/wrong version number|packet length too long|WRONG_VERSION_NUMBER/.test(message))
      return noController(`no controller at ${this.name}: this port does not speak https; try http://`)
    const fault = certificateFault(code, 'svcctl')
    // A daemon that is stopping hangs up as well.
    const mayBeTls = this.url.protocol === 'http:' && message === 'socket hang up'
    const other = mayBeTls ? '; if this port does not speak http, try https://' : ''
    const asleep =
      code === 'ECONNREFUSED'
        ? '; does svcd run there? On the controller, type: systemctl status svcd (in a checkout: make run)'
        : ''
    const hint = fault === undefined ? other || asleep : `; ${fault.wayOut}`
    return noController(`no controller at ${this.name}: ${message}${hint}`)
  }
}

/** Returns the user in a token of svcd, if any. */
export function userOf(token = ''): string | undefined {
  const { kind, sub } = claimsOf(token)
  return kind === 'user' && typeof sub === 'string' ? sub : undefined
}

const claimsOf = (token = ''): JsonObject =>
  jsonObject(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString()) ?? {}

/** The controller's message for an invalid token. It names a header that users of svcctl do not know. */
const isVoid = /^the token in x-access-tokens is /

/** An answer of the controller; its body can be read once. */
export class Answer {
  constructor(
    readonly controller: Controller,
    readonly response: Response
  ) {}

  get status(): number {
    return this.response.status
  }

  /** Yields the body as it arrives. Throws Failure 3 if it breaks off. */
  async *pieces(): AsyncGenerator<string> {
    const { body } = this.response
    body.setEncoding('utf8')
    try {
      for await (const piece of body) yield piece as string
    } catch (error) {
      throw this.controller.unreachable(error as Error)
    }
  }

  async text(): Promise<string> {
    const all: string[] = []
    let length = 0
    for await (const piece of this.pieces()) {
      length += piece.length
      if (length > largestAnswer) throw noController(`${this.controller.name} sends more than 512 MB`)
      all.push(piece)
    }
    return all.join('')
  }
}
