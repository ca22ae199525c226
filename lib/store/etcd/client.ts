import type { Readable } from 'node:stream'
import type { ConnectionOptions } from 'node:tls'
import { type JsonObject, jsonObject } from '../../base/json.js'
import { oneLine } from '../../base/log.js'
import { isThisMachine } from '../../base/request-source.js'
import { certificateFault } from '../../client/certificates.js'
import {
  Connections,
  TooLongError as LongBodyError,
  type RequestOptions,
  type Response,
  readWhole,
  request,
  TimeLimitError
} from '../../client/request.js'
import { reasonOf } from '../errors.js'
import { type Etcdctl, etcdctlFor } from './etcdctl.js'

/** Upper bound of an answer in bytes. Lists that exceed it are asked for again with fewer keys. */
const ANSWER_BYTES = 64 * 1024 * 1024
/** etcd's own text in a message is clipped to this many characters. */
const DETAIL_CHARACTERS = 300
const OPEN_MS = 5000
/** An idempotent request is also sent to another endpoint after this long without an answer. */
const HEDGE_MS = 500
/** gRPC codes after which the request may have been carried out: unknown, unavailable and the like. */
const UNCLEAR = new Set([1, 2, 4, 10, 13, 14])
/** etcd's errors for an unknown or expired token, one from before its users changed, and a missing one. */
const STALE_TOKEN =
  /invalid auth token|revision of auth store is old|auth: revision in header is old|user name is empty/
/** gRPC codes: resource exhausted, out of range. */
const NO_ROOM = 8
const OUT_OF_RANGE = 11
/** Advice for an admin, by gRPC code. */
const ADVICE: Readonly<Record<number, (etcdctl: Etcdctl) => string>> = {
  7: etcdctl =>
    'give the user of [store] user a role that may read and write below [store] prefix ' +
    `(${etcdctl('role grant-permission --prefix=true ROLE readwrite PREFIX', true)})`,
  [NO_ROOM]: etcdctl =>
    `make room: type ${etcdctl('compact REVISION', true)}, then the same with defrag, then with alarm disarm`
}
/** The error of a member that has no leader because it reaches too few of the others. */
const NO_MAJORITY = /request timed out|no leader/
/** The errors of etcd and of its gateway for a request over their size limit. */
const TOO_LARGE = /request is too large|message larger than max/

interface SilentEndpoint {
  readonly endpoint: string
  readonly reason: string
  readonly isFull: boolean
}

/** The request may have been carried out: no answer, half an answer, or a member without a leader. */
export class UnclearError extends Error {
  override readonly name = 'UnclearError'

  constructor(
    message: string,
    /** The reason in a few words, where etcd itself gave no answer. */
    readonly silence?: string
  ) {
    super(message)
  }
}

/** No answer in time. */
class NoAnswerError extends UnclearError {}

/** etcd refused the request and carried out none of it. */
export class RefusedError extends Error {
  override readonly name = 'RefusedError'
}

/** The answer exceeds `ANSWER_BYTES`. */
export class TooLongError extends RefusedError {}

/** The request exceeds etcd's size limit. */
export class TooLargeError extends RefusedError {}

/** etcd's space quota is used up (NOSPACE). */
export class NoRoomError extends RefusedError {}

/** etcd has compacted the requested revision, or has not reached it. */
export class NoRevisionError extends RefusedError {}

/** etcd does not know our token. */
class StaleTokenError extends RefusedError {}

/** The endpoints of etcd and our credentials. */
export interface ClientOptions {
  /** https://host:port, one or more; http to an address of loopback. */
  readonly endpoints: readonly string[]
  /** PEM: an authority to trust instead of the system's, and our client certificate with its key. */
  readonly tls?: { readonly ca?: Buffer; readonly cert?: Buffer; readonly key?: Buffer } | undefined
  /** The user of etcd that we authenticate as. */
  readonly login?: { readonly user: string; readonly password: string } | undefined
  /** The etcdctl command line for messages; default: derived from the other options. */
  readonly etcdctl?: Etcdctl
}

/** The deadline of an answer on the clock of `performance.now`, and the time allowed in ms. */
interface Limit {
  readonly ms: number
  readonly end: number
}

/** Client of etcd's JSON gateway (3.4 or later). Skips endpoints that do not answer. */
export class Client {
  readonly #endpoints: readonly URL[]
  readonly #login: ClientOptions['login']
  readonly #connections = new Connections({ most: 16 })
  readonly #tls: ConnectionOptions
  /** The etcdctl command line for the same etcd, for messages. */
  readonly etcdctl: Etcdctl
  /** The token of our user; undefined before the first login and after a failed one. */
  #token: Promise<string> | undefined
  /** The time of the login, on the clock of `performance`. */
  #tokenMs = 0
  #preferred = 0

  /** Throws TypeError for a malformed endpoint, and for plain http to other than loopback. */
  constructor({
    endpoints,
    tls = {},
    login,
    etcdctl = etcdctlFor({ endpoints, user: login?.user ?? '' })
  }: ClientOptions) {
    if (endpoints.length === 0) throw new TypeError('etcd needs an endpoint, like https://10.141.0.1:2379')
    this.#endpoints = endpoints.map(endpointOf)
    this.#login = login
    this.etcdctl = etcdctl
    this.#tls = { ...tls, minVersion: 'TLSv1.2', rejectUnauthorized: true }
  }

  /** The number of endpoints. */
  get endpointCount(): number {
    return this.#endpoints.length
  }

  /** The endpoints, for messages. */
  get endpointsText(): string {
    return this.#endpoints.map(({ origin }) => origin).join(', ')
  }

  /**
   * Asks one endpoint. Throws RefusedError, or UnclearError without a whole answer within `limitMs`; both
   * name the endpoint. After UnclearError the next request goes to another endpoint.
   */
  async ask(path: string, question: JsonObject, limitMs: number, signal?: AbortSignal): Promise<JsonObject> {
    const { endpoint, leave } = this.#chosen()
    const limit = { ms: limitMs, end: performance.now() + limitMs }
    try {
      return await this.#asUser(endpoint, limit, token =>
        this.#post(new URL(`/v3/${path}`, endpoint), question, limit, token, signal)
      )
    } catch (error) {
      if (error instanceof UnclearError) leave()
      throw error
    }
  }

  /**
   * Like `ask`, for idempotent requests: every `HEDGE_MS` without an answer, and at once after a failure,
   * asks the next endpoint too, in the end the first again. The first answer wins. A member without a leader
   * does not answer. A refusal ends the tries; it is thrown if all that were asked refused, otherwise
   * UnclearError.
   */
  hedged(path: string, question: JsonObject, limitMs: number): Promise<JsonObject> {
    const limit = { ms: limitMs, end: performance.now() + limitMs }
    const first = this.#preferred
    const over = new AbortController()
    let asked = 0
    let failed = 0
    let refusal: Error | undefined
    let unclear: UnclearError | undefined
    return new Promise<JsonObject>((resolve, reject) => {
      const one = () => {
        const at = first + asked++
        const endpoint = this.#endpoints[at % this.#endpoints.length] as URL
        const ask = (token?: string) =>
          this.#post(new URL(`/v3/${path}`, endpoint), question, limit, token, over.signal)
        this.#asUser(endpoint, limit, ask).then(
          answer => {
            if (this.#preferred === first) this.#preferred = at
            resolve(answer)
          },
          error => {
            if (error instanceof UnclearError) unclear = error
            else {
              refusal = error
              clearInterval(again)
            }
            if (++failed < asked) return
            // All endpoints so far have failed: try the next without a pause.
            if (!refusal && asked < this.#endpoints.length) return one()
            if (!refusal && this.#preferred === first) this.#preferred += asked
            // An endpoint that gave no answer may have carried the request out, though another refused it.
            reject(refusal && unclear ? new UnclearError(reasonOf(refusal)) : (refusal ?? unclear))
          }
        )
      }
      one()
      const most = this.#endpoints.length + 1
      const again = setInterval(() => asked < most && one(), HEDGE_MS)
      over.signal.addEventListener('abort', () => clearInterval(again))
    }).finally(() => over.abort())
  }

  /**
   * Asks one endpoint for a streamed answer and yields its parts. Throws UnclearError if the stream cannot be
   * opened or breaks; the next request then goes to another endpoint.
   */
  async *stream(path: string, question: JsonObject, signal: AbortSignal): AsyncGenerator<JsonObject> {
    const { endpoint, leave } = this.#chosen()
    const from = `etcd at ${endpoint.origin}`
    try {
      const limit = { ms: OPEN_MS, end: performance.now() + OPEN_MS }
      const url = new URL(`/v3/${path}`, endpoint)
      const take = async (answer: Response) => {
        if (answer.status !== 200) await read(answer, from, this.etcdctl)
        return answer.body
      }
      const answer = await this.#asUser(endpoint, limit, token =>
        this.#send(url, question, token, { headMs: OPEN_MS, signal }, OPEN_MS, take)
      )
      for await (const line of linesOf(answer, from)) {
        const json = jsonObject(line)
        if (!json) throw new UnclearError(`${from}: a part of its answer is no JSON`)
        yield json
      }
    } catch (error) {
      signal.throwIfAborted()
      leave()
      throw this.#failure(error as Error, from, OPEN_MS)
    }
  }

  /**
   * Returns the endpoints that do not answer within `limitMs`, with the reason. All are asked at once. A
   * member without a leader answers. `isFull`: it answers, but its space quota is used up.
   */
  async silentEndpoints(limitMs: number): Promise<readonly SilentEndpoint[]> {
    const limit = { ms: limitMs, end: performance.now() + limitMs }
    const found = this.#endpoints.map(async (url): Promise<SilentEndpoint[]> => {
      const { origin: endpoint } = url
      try {
        const { errors } = await this.#post(new URL('/v3/maintenance/status', url), {}, limit)
        const isFull = String(errors).includes('NOSPACE')
        return isFull ? [{ endpoint, reason: ADVICE[NO_ROOM]?.(this.etcdctl) ?? '', isFull }] : []
      } catch (error) {
        // A refusal is an answer.
        const silence = error instanceof UnclearError ? error.silence : undefined
        return silence === undefined ? [] : [{ endpoint, reason: silence, isFull: false }]
      }
    })
    return (await Promise.all(found)).flat()
  }

  /** Returns the current endpoint, and `leave`, which moves on once, however many requests failed. */
  #chosen() {
    const at = this.#preferred
    return {
      endpoint: this.#endpoints[at % this.#endpoints.length] as URL,
      leave: () => {
        if (this.#preferred === at) this.#preferred++
      }
    }
  }

  close(): void {
    this.#connections.close()
  }

  /**
   * Sends a request with a token, once more with a new one if etcd rejects it (then nothing was done). Drops
   * a token whose request gets no answer: one from before a restore of etcd waits for a raft index far ahead.
   */
  async #asUser<R>(
    endpoint: URL,
    limit: Limit,
    ask: (token?: string) => Promise<R>,
    isLast = false
  ): Promise<R> {
    if (!this.#login) return ask()
    this.#token ??= this.#logIn(endpoint, limit)
    const token = this.#token
    try {
      return await ask(await token)
    } catch (error) {
      const isStale = error instanceof StaleTokenError
      // A login that used up most of the time keeps its token: repeated logins would leave none.
      const isMute = error instanceof NoAnswerError && this.#tokenMs < limit.end - limit.ms
      // Another request may have replaced the token already.
      if ((isStale || isMute) && this.#token === token) this.#token = undefined
      if (!isStale || isLast) throw error
      return this.#asUser(endpoint, limit, ask, true)
    }
  }

  /** Logs in and returns the token. A failure is not cached. */
  async #logIn(endpoint: URL, limit: Limit): Promise<string> {
    const { user: name = '', password = '' } = this.#login ?? {}
    try {
      const url = new URL('/v3/auth/authenticate', endpoint)
      const { token } = await this.#post(url, { name, password }, limit)
      // The token becomes a header value, so its characters are restricted.
      if (typeof token !== 'string' || !/^[\x21-\x7e]{1,8192}$/.test(token))
        throw new RefusedError(`etcd at ${endpoint.origin}: its answer to a login has no token`)
      this.#tokenMs = performance.now()
      return token
    } catch (error) {
      this.#token = undefined
      if (error instanceof RefusedError)
        throw new RefusedError(
          `${error.message}: user ${JSON.stringify(name)} is not let in; look at [store] user and ` +
            `password_file, whether etcd knows that user (${this.etcdctl('user list', true)}), and whether ` +
            `it asks for users (${this.etcdctl('auth enable', true)})`
        )
      throw error
    }
  }

  /** Returns the error for a request that failed: UnclearError, or RefusedError if etcd did nothing. */
  #failure(error: NodeJS.ErrnoException, from: string, limitMs: number): Error {
    if (error instanceof UnclearError || error instanceof RefusedError) return error
    if (error instanceof TimeLimitError) {
      const silence = `no answer within ${limitMs / 1000} s`
      const look = this.etcdctl('endpoint health', true)
      return new NoAnswerError(
        `${from}: ${silence}; look whether it runs and has a majority (${look})`,
        silence
      )
    }
    const { code, message } = error
    const silence = certificateProblem(code) ?? code ?? oneLine(message, DETAIL_CHARACTERS)
    return new UnclearError(`${from}: ${explain(error, this.etcdctl)}`, silence)
  }

  #post(
    url: URL,
    question: JsonObject,
    { ms, end }: Limit,
    token?: string,
    signal?: AbortSignal
  ): Promise<JsonObject> {
    // An earlier login may have used up the time.
    const wholeMs = Math.max(1, end - performance.now())
    return this.#send(url, question, token, { wholeMs, signal }, ms, answer =>
      read(answer, `etcd at ${url.origin}`, this.etcdctl)
    )
  }

  /** Sends a request and passes its answer to `take`. `limitMs`: the time limit for messages. */
  async #send<R>(
    url: URL,
    question: JsonObject,
    token: string | undefined,
    limits: Pick<RequestOptions, 'headMs' | 'wholeMs' | 'signal'>,
    limitMs: number,
    take: (answer: Response) => Promise<R>
  ): Promise<R> {
    const headers = {
      'content-type': 'application/json',
      ...(token === undefined ? {} : { authorization: token })
    }
    const body = JSON.stringify(question)
    const options = { url, headers, body, tls: this.#tls, connections: this.#connections, ...limits }
    try {
      return await take(await request(options))
    } catch (error) {
      throw this.#failure(error as Error, `etcd at ${url.origin}`, limitMs)
    }
  }
}

/** Plain http would expose passwords, tokens and objects, and anybody in between could answer for etcd. */
function endpointOf(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined
  const isOne =
    url &&
    /^https?:$/.test(url.protocol) &&
    url.pathname === '/' &&
    !/[?#@]/.test(text) &&
    url.hostname !== ''
  if (!isOne)
    throw new TypeError(
      `${oneLine(JSON.stringify(text), DETAIL_CHARACTERS)} is no endpoint of etcd; ` +
        'one is like https://10.141.0.1:2379'
    )
  if (url.protocol === 'http:' && !isThisMachine(url))
    throw new TypeError(
      `${url.origin} would be reached by plain http over a network: ` +
        'use https, or http with 127.0.0.1 or [::1]'
    )
  return url
}

function certificateProblem(code: string | undefined): string | undefined {
  const fault = certificateFault(code, 'etcd')
  return fault && `${fault.what}: ${fault.wayOut}`
}

function explain({ code, message }: NodeJS.ErrnoException, etcdctl: Etcdctl): string {
  const problem = certificateProblem(code)
  if (problem !== undefined) return `${problem} (${code})`
  if (
    code === 'ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED' ||
    code === 'ERR_SSL_SSL/TLS_ALERT_BAD_CERTIFICATE'
  )
    return `it asks for a certificate (${code}): name one that it trusts in [store] cert and key`
  return `${oneLine(message, DETAIL_CHARACTERS)}; look whether it runs (${etcdctl('endpoint health', true)})`
}

async function* linesOf(answer: Readable, from: string): AsyncGenerator<string> {
  let parts: Buffer[] = []
  let size = 0
  for await (const chunk of answer as AsyncIterable<Buffer>) {
    let begin = 0
    for (let end = chunk.indexOf(10); end !== -1; end = chunk.indexOf(10, begin)) {
      parts.push(chunk.subarray(begin, end))
      yield Buffer.concat(parts).toString()
      parts = []
      size = 0
      begin = end + 1
    }
    const rest = chunk.subarray(begin)
    parts.push(rest)
    size += rest.length
    if (size > ANSWER_BYTES)
      throw new TooLongError(`${from}: a part of its answer has more than ${ANSWER_BYTES} bytes`)
  }
}

async function read({ status, body }: Response, from: string, etcdctl: Etcdctl): Promise<JsonObject> {
  const bytes = await readWhole(body, ANSWER_BYTES).catch(error => {
    if (!(error instanceof LongBodyError)) throw error
    throw new TooLongError(`${from}: its answer has more than ${ANSWER_BYTES} bytes`)
  })
  const text = bytes.toString()
  const json = jsonObject(text)
  if (status === 200 && json) return json
  const { error, code } = json ?? {}
  // If etcd has users and asks for certificates, its gateway refuses certificates with a common name.
  if (status === 400 && text.startsWith('CommonName'))
    throw new RefusedError(
      `${from}: it knows users, and takes no certificate with a common name beside them: ` +
        'have the one of [store] cert issued without CN'
    )
  if (typeof error !== 'string' || typeof code !== 'number') {
    const reason = `what answers with ${status} is not etcd, or not its JSON gateway`
    throw new UnclearError(`${from}: ${reason}`, reason)
  }
  const said = `${from}: ${oneLine(error, DETAIL_CHARACTERS)}`
  if (UNCLEAR.has(code))
    throw new UnclearError(
      NO_MAJORITY.test(error)
        ? `${said}; most of its members have to run, two of three: type ${etcdctl('endpoint health', true)}`
        : said
    )
  if (STALE_TOKEN.test(error)) throw new StaleTokenError(`${said}; name a user of etcd in [store] user`)
  if (TOO_LARGE.test(error))
    throw new TooLargeError(
      `${said}; what is to be stored has more bytes than etcd takes in a request (etcd --max-request-bytes)`
    )
  const wayOut = ADVICE[code]
  const Refusal = code === NO_ROOM ? NoRoomError : code === OUT_OF_RANGE ? NoRevisionError : RefusedError
  throw new Refusal(wayOut === undefined ? said : `${said}; ${wayOut(etcdctl)}`)
}
