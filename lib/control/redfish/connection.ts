import type { IncomingHttpHeaders } from 'node:http'
import { isObject, type JsonObject, type JsonValue, within } from '../../base/json.js'
import { clip } from '../../base/log.js'
import { certificateFault } from '../../client/certificates.js'
import { Connections, originAt, requestWhole, TooLongError } from '../../client/request.js'
import { type Bmc, cleanLine } from '../bmc.js'

/** An answer of a service; `body` is {} if there is none. */
interface Answer {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly body: JsonObject
}

/** A service refused a request. */
export class RefusedError extends Error {
  override readonly name = 'RefusedError'
  constructor(
    readonly status: number,
    what: string,
    readonly detail: string
  ) {
    super(`${what} is answered ${status}${detail === '' ? '' : `: ${detail}`}`)
  }
}

interface ConnectionOptions {
  readonly address: string
  readonly port: number
  readonly verifyCertificate: boolean
  /** In PEM; undefined for the public CAs. */
  readonly ca: Buffer | undefined
  readonly setup: string
  /** Time limit for the connection; absent: that of the signal. */
  readonly connectMs?: number | undefined
}

/** Connection failures by system error code, with remedies. */
const CONNECT_ERRORS: Readonly<Record<string, (port: number, setup: string) => string>> = {
  ECONNREFUSED: (port, setup) =>
    `refuses connections on port ${port}: turn Redfish on in it, ` +
    `or set "protocol" of BMC set-up ${setup} to ipmi`,
  ENETUNREACH: () =>
    'this controller has no route to its network: give the controller one, ' +
    "or correct the address of the node's interface BMC",
  EHOSTUNREACH: () =>
    'nothing answers at this address: check power and cable of the BMC, ' +
    "and the address of the node's interface BMC"
}

/** Errors of OpenSSL for a peer without a protocol, key or signature that is still considered safe. */
const OLD_TLS =
  /(protocol version|unsupported protocol|handshake failure|no ciphers|(?:dh|ee|ca) key too small|(?:ee|ca) md too weak|legacy|renegotiation)/
/** Errors of OpenSSL for an answer that is not TLS. */
const NO_TLS = /wrong version number|packet length too long|http request/

const LARGEST_ANSWER = 1024 * 1024
const LARGEST_VISIT = 8 * 1024 * 1024
const LONGEST_PATH = 1024

/**
 * A connection to a Redfish service over https. Answers are bounded: 1 MiB each, 8 MiB in all. Links to other
 * hosts and redirects are not followed.
 */
export class Connection {
  readonly #connections = new Connections({ most: 1 })
  #left = LARGEST_VISIT
  /** Headers that authenticate us, after the login. */
  credentials: Readonly<Record<string, string>> = {}

  /** `signal` ends each request; the logout gets another one. */
  constructor(
    private readonly options: ConnectionOptions,
    public signal: AbortSignal
  ) {}

  /** Returns a resource. Throws RefusedError, and Error if it is no JSON object or exceeds a bound. */
  async get(path: string): Promise<JsonObject> {
    const { status, headers, body } = await this.send('GET', path)
    if (status !== 200) throw new RefusedError(status, `GET ${path}`, errorMessageOf(body))
    // Some services send it in the header only.
    return headers.etag === undefined ? body : { '@odata.etag': headers.etag, ...body }
  }

  /** Changes something; throws as `get`. `etag`: of the resource to change, if known. */
  async change(method: 'POST' | 'PATCH', path: string, body: JsonObject, etag?: string): Promise<void> {
    // By RFC 9110 weak tags never match, and some services send a new tag with each answer.
    const tags = etag === undefined ? [undefined] : [...new Set([etag, etag.replace(/^W\//, ''), undefined])]
    let refusal: RefusedError | undefined
    for (const tag of tags) {
      const answer = await this.send(method, path, body, tag === undefined ? {} : { 'If-Match': tag })
      const { status } = answer
      if (status >= 200 && status <= 299) return
      refusal = new RefusedError(status, `${method} ${path}`, errorMessageOf(answer.body))
      if (status !== 412) break
    }
    throw refusal
  }

  /** Sends any request. Throws Error for an answer that redirects, exceeds a bound, or is not JSON. */
  async send(
    method: string,
    path: string,
    body?: JsonObject,
    headers: Readonly<Record<string, string>> = {}
  ): Promise<Answer> {
    const { signal } = this
    const { address, port, verifyCertificate, ca, connectMs } = this.options
    const text = body === undefined ? '' : JSON.stringify(body)
    const most = Math.min(LARGEST_ANSWER, this.#left)
    const answer = await requestWhole({
      ...{ url: originAt('https', address, port), path, method, signal, most },
      ...{ connections: this.#connections, body: text, ...(connectMs === undefined ? {} : { connectMs }) },
      tls: { ...(ca === undefined ? {} : { ca }), rejectUnauthorized: verifyCertificate },
      headers: {
        Accept: 'application/json',
        'OData-Version': '4.0',
        ...(text === '' ? {} : { 'Content-Type': 'application/json' }),
        ...this.credentials,
        ...headers
      }
    }).catch(error => {
      signal.throwIfAborted()
      throw Object.assign(this.#explained(error), { cause: error })
    })
    this.#left -= answer.body.length
    const { status } = answer
    if (status >= 300 && status < 400) {
      const to = cleanLine(answer.headers.location ?? 'nowhere', 100)
      throw new Error(`${method} ${path} is redirected to ${to}, which is not followed`)
    }
    const parts = parsed(answer.body.toString(), status, `${method} ${path}`)
    return { status, headers: answer.headers, body: parts }
  }

  /** Closes the connection. */
  close(): void {
    this.#connections.close()
  }

  #explained(error: NodeJS.ErrnoException): Error {
    const { setup, port } = this.options
    const code = error.code ?? ''
    if (error instanceof TooLongError)
      return new Error(
        error.most < LARGEST_ANSWER
          ? `its answers are larger than ${LARGEST_VISIT} bytes`
          : `an answer of it is larger than ${LARGEST_ANSWER} bytes`
      )
    const fault = certificateFault(code, 'bmc')
    if (fault)
      return new Error(
        `${fault.what} (${code}): ${fault.wayOut}, ` +
          `or type: svcctl bmcsetup set ${setup} verify_certificate=no`
      )
    const words = `${code} ${error.message}`.toLowerCase().replaceAll('_', ' ')
    const [, old] = OLD_TLS.exec(words) ?? []
    const orIpmi = `set "protocol" of BMC set-up ${setup} to ipmi`
    if (old !== undefined)
      return new Error(`its https is too old (${old}): update the firmware of the BMC, or ${orIpmi}`)
    if (NO_TLS.test(words))
      return new Error(`speaks no https on port ${port}: correct "port" of BMC set-up ${setup}, or ${orIpmi}`)
    const refused = CONNECT_ERRORS[code]
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
    // An error page of a web server: the status says enough.
    if (status > 299) return {}
    throw new Error(`${what} is answered with what is no JSON: ${cleanLine(text, 60)}`)
  }
  return within(value)
}

/** Returns the message of an error: the first of its extended information (DSP0266, "Error responses"). */
function errorMessageOf(body: JsonObject): string {
  const error = within(body, 'error')
  const extended = error['@Message.ExtendedInfo']
  const first = within(Array.isArray(extended) ? extended[0] : undefined)
  const words = [first.Message, first.MessageId, error.message].find(text => typeof text === 'string')
  return cleanLine((words as string | undefined) ?? '')
}

/** Returns the path of a reference (`{"@odata.id": …}`); undefined if it has none within this service. */
export function linkOf(value: JsonValue | undefined): string | undefined {
  return isObject(value) ? pathAt(value, '@odata.id') : undefined
}

/** Returns the path at a key: printable, bounded, and within this service; undefined for anything else. */
export const pathAt = (value: JsonObject, key: string) => pathIn(textAt(value, key) ?? '')

const pathIn = (text: string): string | undefined =>
  text.length <= LONGEST_PATH && /^\/(?!\/)[\x21-\x7e]*$/.test(text) ? text : undefined

/** Returns the paths of a list of references, at most `most` of them. */
export const linksOf = (value: JsonValue | undefined, most: number): string[] =>
  Array.isArray(value) ? value.slice(0, most).flatMap(one => linkOf(one) ?? []) : []

/** Returns the text at a key; undefined if there is none. */
export const textAt = (value: JsonObject, key: string): string | undefined => {
  const inner = value[key]
  return typeof inner === 'string' ? inner : undefined
}

/** Messages of a service whose session table is full; the status varies. Slow on long texts: clip them. */
const ALL_TAKEN = /SessionLimitExceeded|CreateLimitReached|session limit|(?:maximum|too many)[^"]*sessions/i

/** A login. */
interface Session {
  readonly root: JsonObject
  logout(): Promise<void>
}

/**
 * Logs in to a service (DSP0266, "Authentication"): with a session, or with basic authentication if the
 * service has no sessions. Throws an Error that says what the service refuses.
 */
export async function login(connection: Connection, bmc: Bmc): Promise<Session> {
  const root = await connection.get('/redfish/v1/')
  const sessions = linkOf(within(root, 'Links').Sessions)
  if (sessions === undefined) return basicLogin(connection, bmc, root)
  const credentials = { UserName: bmc.username, Password: bmc.password }
  const { status, headers, body } = await connection.send('POST', sessions, credentials)
  if (status === 404 || status === 405 || status === 501) return basicLogin(connection, bmc, root)
  const why = `${status} ${errorMessageOf(body)}`.trim()
  // All sessions are taken, or the service is busy: the password may be right.
  if (status === 429 || status >= 500 || ALL_TAKEN.test(clip(JSON.stringify(body), 4096))) {
    const session = basicLogin(connection, bmc, root)
    await connection.get(linkOf(root.Systems) ?? '/redfish/v1/Systems').catch(error => {
      if (!(error instanceof RefusedError) || (error.status !== 401 && error.status !== 403)) throw error
      throw new Error(
        `gives no session (${why}), and takes no basic authentication: end a session in the BMC, ` +
          'or try again in a minute'
      )
    })
    return session
  }
  if (status < 200 || status > 299)
    throw new Error(
      `refuses the user name or the password of BMC set-up ${bmc.setup} (${why.replace(' ', ': ')})`
    )
  const token = headers['x-auth-token']
  // Checked because it is sent back in a header.
  if (typeof token !== 'string' || !/^[\x21-\x7e]{1,4096}$/.test(token))
    throw new Error('gives a session without a token')
  connection.credentials = { 'X-Auth-Token': token }
  const place = pathOf(headers.location) ?? pathOf(textAt(body, '@odata.id'))
  return {
    root,
    logout: async () => {
      if (place !== undefined) await connection.send('DELETE', place)
    }
  }
}

function basicLogin(connection: Connection, { username, password }: Bmc, root: JsonObject): Session {
  const both = Buffer.from(`${username}:${password}`).toString('base64')
  connection.credentials = { Authorization: `Basic ${both}` }
  return { root, logout: async () => {} }
}

/** Returns the path of a session; some services send a whole URL, whose host is ignored. */
const pathOf = (location = ''): string | undefined => pathIn(location.replace(/^https?:\/\/[^/]+/, ''))
