import type { IncomingHttpHeaders, IncomingMessage } from 'node:http'
import { Agent, request } from 'node:https'
import { type CertificateFault, certificateFault } from '../../certificate-fault.js'
import { isObject, type JsonObject, type JsonValue } from '../../json.js'
import type { Bmc } from '../bmc.js'
import { cleanLine } from '../words.js'

/** An answer of a service; the body is {} where there is none. */
export interface Answer {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly body: JsonObject
}

/** A service refused a request: its status, and what it says. */
export class RefusedError extends Error {
  override readonly name = 'RefusedError'
  constructor(
    readonly status: number,
    what: string,
    readonly words: string
  ) {
    super(`${what} is answered ${status}${words === '' ? '' : `: ${words}`}`)
  }
}

interface ConnectionOptions {
  readonly address: string
  readonly port: number
  readonly verifyCertificate: boolean
  /** PEM; undefined: the public CAs. */
  readonly ca: Buffer | undefined
  /** For messages. */
  readonly setup: string
}

/** Why there is no connection, by the code of the system, and what to do about it. */
const REFUSALS: Readonly<Record<string, (port: number, setup: string) => string>> = {
  ECONNREFUSED: (port, setup) =>
    `refuses connections on port ${port}: turn Redfish on in it, or set "protocol" of BMC set-up ` +
    `${setup} to ipmi`,
  ENETUNREACH: () =>
    `this controller has no route to its network: give the controller one, or correct the address of ` +
    `the node's interface BMC`,
  EHOSTUNREACH: () =>
    `nothing answers at this address: check power and cable of the BMC, and the address of the node's ` +
    `interface BMC`
}

/** What is wrong with a certificate, and what to do about it. */
const FAULTS: Readonly<Record<CertificateFault, readonly [what: string, wayOut: string]>> = {
  name: ['is for another name', 'install one that names this address in the BMC'],
  time: [
    'has expired, or is not valid yet',
    'install a new one in the BMC, or set the clock of the controller'
  ],
  issuer: ['is not trusted', 'name its CA in [control] ca_file']
}

/** Words of OpenSSL where the other end has no protocol, key or signature that is still safe. */
const OLD_TLS =
  /(protocol version|unsupported protocol|handshake failure|no ciphers|(?:dh|ee|ca) key too small|(?:ee|ca) md too weak|legacy|renegotiation)/
/** Words of OpenSSL where an answer is none of TLS. */
const NO_TLS = /wrong version number|packet length too long|http request/

const LARGEST_ANSWER = 1024 * 1024
const LARGEST_VISIT = 8 * 1024 * 1024
const LONGEST_PATH = 1024

/**
 * One connection to a Redfish service over https. What the service sends has bounds: 1 MiB an answer, 8 MiB in all. It is
 * not followed to other hosts, nor where it redirects to.
 */
export class Connection {
  readonly #agent: Agent
  #left = LARGEST_VISIT
  /** What shows who we are, once that is known. */
  credentials: Readonly<Record<string, string>> = {}

  constructor(private readonly options: ConnectionOptions) {
    this.#agent = new Agent({ keepAlive: true, maxSockets: 1 })
  }

  /** A resource. Throws RefusedError, and an Error for what is no JSON object and for what breaks a bound. */
  async get(path: string, signal: AbortSignal): Promise<JsonObject> {
    const { status, headers, body } = await this.send('GET', path, signal)
    if (status !== 200) throw new RefusedError(status, `GET ${path}`, wordsOf(body))
    // Some services tell it in the header alone.
    return headers.etag === undefined ? body : { '@odata.etag': headers.etag, ...body }
  }

  /** Changes something; throws as `get`. `etag` of what is changed, where the service told one. */
  async change(
    method: 'POST' | 'PATCH' | 'DELETE',
    path: string,
    signal: AbortSignal,
    body?: JsonObject,
    etag?: string
  ): Promise<Answer> {
    // Weak ones match nothing by the letter of RFC 9110, and some services give another one with each answer.
    const tags = etag === undefined ? [undefined] : [...new Set([etag, etag.replace(/^W\//, ''), undefined])]
    let refusal: RefusedError | undefined
    for (const tag of tags) {
      const answer = await this.send(method, path, signal, body, tag === undefined ? {} : { 'If-Match': tag })
      const { status } = answer
      if (status >= 200 && status <= 299) return answer
      refusal = new RefusedError(status, `${method} ${path}`, wordsOf(answer.body))
      if (status !== 412) break
    }
    throw refusal
  }

  /** Any request; throws for what breaks a bound, for a redirect, and for what is no JSON object. */
  async send(
    method: string,
    path: string,
    signal: AbortSignal,
    body?: JsonObject,
    headers: Readonly<Record<string, string>> = {}
  ): Promise<Answer> {
    const incoming = await this.#exchange(method, path, signal, body, headers)
    const text = await this.#read(incoming, signal)
    const status = incoming.statusCode ?? 0
    if (status >= 300 && status < 400) {
      const to = cleanLine(incoming.headers.location ?? 'nowhere', 100)
      throw new Error(`${method} ${path} is redirected to ${to}, which is not followed`)
    }
    return { status, headers: incoming.headers, body: parsed(text, status, `${method} ${path}`) }
  }

  /** Ends it. */
  close(): void {
    this.#agent.destroy()
  }

  #exchange(
    method: string,
    path: string,
    signal: AbortSignal,
    body: JsonObject | undefined,
    headers: Readonly<Record<string, string>>
  ): Promise<IncomingMessage> {
    const { address: host, port, verifyCertificate, ca } = this.options
    const text = body === undefined ? undefined : JSON.stringify(body)
    return new Promise((resolve, reject) => {
      const outgoing = request(
        {
          ...{ host, port, method, path, signal, agent: this.#agent },
          ...(ca === undefined ? {} : { ca }),
          rejectUnauthorized: verifyCertificate,
          headers: {
            Accept: 'application/json',
            'OData-Version': '4.0',
            ...(text === undefined ? {} : { 'Content-Type': 'application/json' }),
            'Content-Length': Buffer.byteLength(text ?? ''),
            ...this.credentials,
            ...headers
          }
        },
        resolve
      )
      // Stays when the answer has come: a connection may break later too.
      outgoing.on('error', error => reject(this.#explained(error, signal)))
      outgoing.end(text)
    })
  }

  async #read(incoming: IncomingMessage, signal: AbortSignal): Promise<string> {
    const pieces: Buffer[] = []
    let size = 0
    try {
      for await (const piece of incoming as AsyncIterable<Buffer>) {
        size += piece.length
        this.#left -= piece.length
        // To leave the loop ends the connection.
        if (size > LARGEST_ANSWER) throw new Error(`an answer of it is larger than ${LARGEST_ANSWER} bytes`)
        if (this.#left < 0) throw new Error(`its answers are larger than ${LARGEST_VISIT} bytes`)
        pieces.push(piece)
      }
    } catch (error) {
      throw this.#explained(error as Error, signal)
    }
    return Buffer.concat(pieces).toString('utf8')
  }

  #explained(error: NodeJS.ErrnoException, signal: AbortSignal): Error {
    if (signal.aborted) return signal.reason
    const { setup, port } = this.options
    const code = error.code ?? ''
    const fault = certificateFault(code)
    if (fault !== undefined) {
      const [what, wayOut] = FAULTS[fault]
      return new Error(
        `its certificate ${what} (${code}): ${wayOut}, or set "verify_certificate" of BMC set-up ` +
          `${setup} to false`
      )
    }
    const words = `${code} ${error.message}`.toLowerCase().replaceAll('_', ' ')
    const [, old] = OLD_TLS.exec(words) ?? []
    const orIpmi = `set "protocol" of BMC set-up ${setup} to ipmi`
    if (old !== undefined)
      return new Error(`its https is too old (${old}): update the firmware of the BMC, or ${orIpmi}`)
    if (NO_TLS.test(words))
      return new Error(`speaks no https on port ${port}: correct "port" of BMC set-up ${setup}, or ${orIpmi}`)
    const refused = REFUSALS[code]
    if (refused) return new Error(refused(port, setup))
    return new Error(cleanLine(error.message))
  }
}

function parsed(text: string, status: number, what: string): JsonObject {
  if (text.trim() === '') return {}
  let value: JsonValue
  try {
    value = JSON.parse(text)
  } catch {
    // The page of a web server, of which the status tells enough.
    if (status > 299) return {}
    throw new Error(`${what} is answered with what is no JSON: ${cleanLine(text, 60)}`)
  }
  return isObject(value) ? value : {}
}

/** What a service says in an error: the first message of its extended information (DSP0266, "Error responses"). */
export function wordsOf(body: JsonObject): string {
  const error = isObject(body.error) ? body.error : {}
  const extended = error['@Message.ExtendedInfo']
  const first = Array.isArray(extended) && isObject(extended[0]) ? extended[0] : {}
  const words = [first.Message, first.MessageId, error.message].find(text => typeof text === 'string')
  return cleanLine((words as string | undefined) ?? '')
}

/** Where a reference leads (`{"@odata.id": …}`). Undefined: it is none, or not one to a path of this service. */
export function linkOf(value: JsonValue | undefined): string | undefined {
  const path = isObject(value) ? value['@odata.id'] : undefined
  return typeof path === 'string' && isPath(path) ? path : undefined
}

/** Whether a text can be asked for: a path of this service, printable, not endless. */
export const isPath = (text: string) => text.length <= LONGEST_PATH && /^\/(?!\/)[\x21-\x7e]*$/.test(text)

/** Where the references of a list lead; at most `most` of them. */
export const linksOf = (value: JsonValue | undefined, most: number): string[] =>
  Array.isArray(value)
    ? value
        .slice(0, most)
        .map(linkOf)
        .filter(path => path !== undefined)
    : []

/** The object behind a key; {} where it is none. */
export const objectAt = (value: JsonObject, key: string): JsonObject => {
  const inner = value[key]
  return isObject(inner) ? inner : {}
}

/** The text behind a key; undefined where it is none. */
export const textAt = (value: JsonObject, key: string): string | undefined => {
  const inner = value[key]
  return typeof inner === 'string' ? inner : undefined
}

/** The words for a full table of sessions, whatever the status. */
const ALL_TAKEN = /SessionLimitExceeded|CreateLimitReached|session limit|(?:maximum|too many)[^"]*sessions/i

/** A login, and how it is ended. */
interface Session {
  readonly root: JsonObject
  logout(signal: AbortSignal): Promise<void>
}

/**
 * Logs in to a service (DSP0266, "Authentication"): with a session, or with basic authentication where the service has no
 * sessions. Throws an Error that says what the service refuses.
 */
export async function login(connection: Connection, bmc: Bmc, signal: AbortSignal): Promise<Session> {
  const root = await connection.get('/redfish/v1/', signal)
  const sessions = linkOf(objectAt(root, 'Links').Sessions)
  if (sessions === undefined) return basic(connection, bmc, root)
  const credentials = { UserName: bmc.username, Password: bmc.password }
  const { status, headers, body } = await connection.send('POST', sessions, signal, credentials)
  if (status === 404 || status === 405 || status === 501) return basic(connection, bmc, root)
  const why = `${status} ${wordsOf(body)}`.trim()
  // All sessions are taken, or it is busy: the password may be right.
  if (status === 429 || status >= 500 || ALL_TAKEN.test(JSON.stringify(body))) {
    const session = basic(connection, bmc, root)
    await connection.get(linkOf(root.Systems) ?? '/redfish/v1/Systems', signal).catch(error => {
      if (!(error instanceof RefusedError) || (error.status !== 401 && error.status !== 403)) throw error
      throw new Error(
        `gives no session (${why}), and takes no basic authentication: end a session in the BMC, or ` +
          'try again in a minute'
      )
    })
    return session
  }
  if (status < 200 || status > 299)
    throw new Error(
      `refuses the user name or the password of BMC set-up ${bmc.setup} (${why.replace(' ', ': ')})`
    )
  const token = headers['x-auth-token']
  // It goes into a header of ours.
  if (typeof token !== 'string' || !/^[\x21-\x7e]{1,4096}$/.test(token))
    throw new Error('gives a session without a token')
  connection.credentials = { 'X-Auth-Token': token }
  const place = pathOf(headers.location) ?? pathOf(textAt(body, '@odata.id'))
  return {
    root,
    logout: async signal => {
      if (place !== undefined) await connection.send('DELETE', place, signal)
    }
  }
}

function basic(connection: Connection, { username, password }: Bmc, root: JsonObject): Session {
  const both = Buffer.from(`${username}:${password}`).toString('base64')
  connection.credentials = { Authorization: `Basic ${both}` }
  return { root, logout: async () => {} }
}

/** The path of a session; some services tell a whole URL, whose host is not looked at. */
function pathOf(location: string | undefined): string | undefined {
  const path = location?.replace(/^https?:\/\/[^/]+/, '')
  return path !== undefined && isPath(path) ? path : undefined
}
