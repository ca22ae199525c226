import {
  type ClientRequest,
  type IncomingMessage,
  Agent as PlainAgent,
  request as plainRequest
} from 'node:http'
import { Agent as TlsAgent, request as tlsRequest } from 'node:https'
import { type CertificateFault, certificateFault } from '../../certificate-fault.js'
import { isObject, type JsonObject } from '../../json.js'
import { oneLine } from '../../log.js'
import { reasonOf } from '../errors.js'
import { type Etcdctl, etcdctlFor } from './etcdctl.js'

/** Longer than any answer that is asked for here: who lists asks for fewer keys when one is. */
const ANSWER_BYTES = 64 * 1024 * 1024
/** So much of a text of etcd stands in a message. */
const WORDS = 300
const OPEN_MS = 5000
/** A question that may be asked more than once is asked again beside the first when there is no answer for so long. */
const HEDGE_MS = 500
/** A machine that is gone without a word is noticed so. */
const KEEP_ALIVE_MS = 2000
/** Codes of gRPC that say nothing about whether the request was carried out: cancelled, unknown, deadline, aborted, internal, unavailable. */
const UNCLEAR = new Set([1, 2, 4, 10, 13, 14])
/** What etcd says of a token that it does not know (any more), of one from before its users were changed, and of none. */
const STALE_TOKEN =
  /invalid auth token|revision of auth store is old|auth: revision in header is old|user name is empty/
/** Codes of gRPC: resource exhausted, out of range. */
const NO_ROOM = 8
const OUT_OF_RANGE = 11
/** Codes of gRPC with a way out. */
const WAYS_OUT: Readonly<Record<number, (etcdctl: Etcdctl) => string>> = {
  7: etcdctl =>
    'give the user of [store] user a role that may read and write below [store] prefix ' +
    `(${etcdctl('role grant-permission --prefix=true ROLE readwrite PREFIX', true)})`,
  [NO_ROOM]: etcdctl =>
    `make room: type ${etcdctl('compact REVISION', true)}, then the same with defrag, then with alarm disarm`
}
/** What a member says that has no leader: it reaches too few of the others. */
const NO_MAJORITY = /request timed out|no leader/
/** What etcd, and its gateway, say of a request that has more bytes than they take. */
const TOO_LARGE = /request is too large|message larger than max/
const FAULTS: Readonly<Record<CertificateFault, string>> = {
  name: 'its certificate is for another name: name the endpoint as its certificate does',
  time: 'its certificate has expired, or is not valid yet: renew it, or set the clock',
  issuer: 'its certificate is not trusted: name its authority in [store] ca'
}

interface Silent {
  readonly endpoint: string
  readonly reason: string
  readonly isFull: boolean
}

/** Nobody knows whether etcd has carried the request out: no answer, or half of one, or that of a member without a leader. */
export class UnclearError extends Error {
  override readonly name = 'UnclearError'

  constructor(
    message: string,
    /** Why, in a few words, where what was asked gave no answer of etcd. */
    readonly silence?: string
  ) {
    super(message)
  }
}

/** Nothing came back in time. */
class NoAnswerError extends UnclearError {}

/** etcd has refused the request, and done nothing of it. */
export class RefusedError extends Error {
  override readonly name = 'RefusedError'
}

/** An answer with more bytes than are read. */
export class TooLongError extends RefusedError {}

/** A request with more bytes than etcd takes. */
export class TooLargeError extends RefusedError {}

/** etcd takes nothing that needs room. */
export class NoRoomError extends RefusedError {}

/** etcd does not have the revision that was asked for: not any more, or not yet. */
export class NoRevisionError extends RefusedError {}

/** etcd does not know the token that was sent. */
class StaleTokenError extends RefusedError {}

/** How etcd is reached, and as whom. */
export interface ClientOptions {
  /** https://host:port, one or more; http to an address of loopback. */
  readonly endpoints: readonly string[]
  /** PEM: whom to trust instead of the system's authorities, and the certificate with its key that etcd asks for. */
  readonly tls?: { readonly ca?: Buffer; readonly cert?: Buffer; readonly key?: Buffer } | undefined
  /** A user of etcd. */
  readonly login?: { readonly user: string; readonly password: string } | undefined
  /** How an admin asks it, for messages; default: what follows from the rest. */
  readonly etcdctl?: Etcdctl
}

/** When an answer has to be there, on the clock of `performance.now`, and how long that was from the question. */
interface Limit {
  readonly ms: number
  readonly end: number
}

/** Speaks to the JSON gateway of etcd (3.4 or later). One that does not answer is left for the next one of the list. */
export class Client {
  readonly #endpoints: readonly URL[]
  readonly #login: ClientOptions['login']
  readonly #agents: { readonly 'http:': PlainAgent; readonly 'https:': TlsAgent }
  /** How an admin asks the same etcd, for messages. */
  readonly etcdctl: Etcdctl
  /** What our user is let in by; undefined before the first login, and after one that failed. */
  #token: Promise<string> | undefined
  /** When it came; by the clock of `performance`. */
  #tokenMs = 0
  #preferred = 0

  /** Throws TypeError for what is no endpoint, and for one to which plain http would go over a network. */
  constructor({
    endpoints,
    tls = {},
    login,
    etcdctl = etcdctlFor({ endpoints, user: login?.user })
  }: ClientOptions) {
    if (endpoints.length === 0) throw new TypeError('etcd needs an endpoint, like https://10.141.0.1:2379')
    this.#endpoints = endpoints.map(endpointOf)
    this.#login = login
    this.etcdctl = etcdctl
    const common = { keepAlive: true, maxSockets: 16 }
    this.#agents = {
      'http:': new PlainAgent(common),
      'https:': new TlsAgent({ ...common, ...tls, minVersion: 'TLSv1.2', rejectUnauthorized: true })
    }
  }

  /** How many there are. */
  get endpoints(): number {
    return this.#endpoints.length
  }

  /** The endpoints, for messages. */
  get where(): string {
    return this.#endpoints.map(({ origin }) => origin).join(', ')
  }

  /**
   * Asks one endpoint. Throws RefusedError, or UnclearError when there is no whole answer within `limitMs`; both name the
   * endpoint. The next question goes to another one then.
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
   * As `ask`, for what may be carried out more than once: while there is no answer, each other endpoint is asked beside
   * those before, at once where these have failed, and the first one again, and the first answer counts. What comes to a member while etcd has no leader gets none, and one that is cut off
   * says nothing. A refusal ends that; it counts where all that were asked have refused, and is Unclear otherwise.
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
            // Nobody has answered so far: the next one is not waited for.
            if (!refusal && asked < this.#endpoints.length) return one()
            if (!refusal && this.#preferred === first) this.#preferred += asked
            // What one has refused, one that gave no answer may have done.
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
   * Asks one endpoint for an answer that goes on, and gives its parts. Throws UnclearError when it cannot be had, and when it
   * breaks; then the next question goes to another endpoint.
   */
  async *stream(path: string, question: JsonObject, signal: AbortSignal): AsyncGenerator<JsonObject> {
    const { endpoint, leave } = this.#chosen()
    const from = `etcd at ${endpoint.origin}`
    try {
      const limit = { ms: OPEN_MS, end: performance.now() + OPEN_MS }
      const answer = await this.#asUser(endpoint, limit, token =>
        this.#opened(new URL(`/v3/${path}`, endpoint), question, signal, token)
      )
      for await (const line of linesOf(answer, from)) {
        const json = parsed(line)
        if (!isObject(json)) throw new UnclearError(`${from}: a part of its answer is no JSON`)
        yield json
      }
    } catch (error) {
      signal.throwIfAborted()
      leave()
      if (error instanceof UnclearError || error instanceof RefusedError) throw error
      throw new UnclearError(`${from}: ${explained(error as Error, this.etcdctl)}`)
    }
  }

  /**
   * The endpoints that do not answer within `limitMs`, each asked alone and all at once, and why. A member without a
   * leader answers. `isFull`: it answers, and has no room.
   */
  async silent(limitMs: number): Promise<readonly Silent[]> {
    const limit = { ms: limitMs, end: performance.now() + limitMs }
    const found = await Promise.all(
      this.#endpoints.map(async endpoint => {
        try {
          const { errors } = await this.#post(new URL('/v3/maintenance/status', endpoint), {}, limit)
          if (String(errors).includes('NOSPACE'))
            return [
              { endpoint: endpoint.origin, reason: WAYS_OUT[NO_ROOM]?.(this.etcdctl) ?? '', isFull: true }
            ]
        } catch (error) {
          // Who refuses has answered.
          if (error instanceof UnclearError && error.silence !== undefined)
            return [{ endpoint: endpoint.origin, reason: error.silence, isFull: false }]
        }
        return []
      })
    )
    return found.flat()
  }

  /** The endpoint to ask, and how to go on with the next one: once, however many questions it leaves without an answer. */
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
    for (const agent of Object.values(this.#agents)) agent.destroy()
  }

  /**
   * Asks with a token, and once more with a new one where etcd does not take it: it has done nothing then. A token that gets no answer
   * is not used again: one from before etcd was restored waits for a raft index that is far ahead.
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
      // A login that took most of the time is no reason for another one: nothing would ever come to an answer.
      const isMute = error instanceof NoAnswerError && this.#tokenMs < limit.end - limit.ms
      // Another request may have got a new one by now.
      if ((isStale || isMute) && this.#token === token) this.#token = undefined
      if (!isStale || isLast) throw error
      return this.#asUser(endpoint, limit, ask, true)
    }
  }

  /** A token of our user. What fails is not kept. */
  async #logIn(endpoint: URL, limit: Limit): Promise<string> {
    const { user: name = '', password = '' } = this.#login ?? {}
    try {
      const url = new URL('/v3/auth/authenticate', endpoint)
      const { token } = await this.#post(url, { name, password }, limit)
      // It becomes a header: nothing else may stand in it.
      if (typeof token !== 'string' || !/^[\x21-\x7e]{1,8192}$/.test(token))
        throw new RefusedError(`etcd at ${endpoint.origin}: its answer to a login has no token`)
      this.#tokenMs = performance.now()
      return token
    } catch (error) {
      this.#token = undefined
      if (error instanceof RefusedError)
        throw new RefusedError(
          `${error.message}: user ${JSON.stringify(name)} is not let in; look at [store] user and password_file, whether etcd ` +
            `knows that user (${this.etcdctl('user list', true)}), and whether it asks for users (${this.etcdctl('auth enable', true)})`
        )
      throw error
    }
  }

  /** An answer that goes on, on a connection of its own. */
  #opened(url: URL, question: JsonObject, signal: AbortSignal, token?: string): Promise<IncomingMessage> {
    return new Promise((resolve, reject) => {
      const asked = this.#send(url, question, token, signal)
      asked.setTimeout(OPEN_MS, () => asked.destroy(this.#unanswered(`etcd at ${url.origin}`, OPEN_MS)))
      asked.on('socket', socket => socket.setKeepAlive(true, KEEP_ALIVE_MS))
      asked.on('error', reject)
      asked.on('response', answer => {
        asked.setTimeout(0)
        if (answer.statusCode === 200) resolve(answer)
        else
          read(answer, `etcd at ${url.origin}`, this.etcdctl).then(
            () => reject(new Error('no answer')),
            reject
          )
      })
    })
  }

  #unanswered(from: string, ms: number): NoAnswerError {
    const silence = `no answer within ${ms / 1000} s`
    const look = this.etcdctl('endpoint health', true)
    return new NoAnswerError(
      `${from}: ${silence}; look whether it runs and has a majority (${look})`,
      silence
    )
  }

  #send(url: URL, question: JsonObject, token: string | undefined, signal?: AbortSignal): ClientRequest {
    const body = JSON.stringify(question)
    const isTls = url.protocol === 'https:'
    const asked = (isTls ? tlsRequest : plainRequest)(url, {
      method: 'POST',
      agent: this.#agents[isTls ? 'https:' : 'http:'],
      headers: {
        'content-type': 'application/json',
        'content-length': Buffer.byteLength(body),
        ...(token === undefined ? {} : { authorization: token })
      },
      ...(signal ? { signal } : {})
    })
    asked.end(body)
    return asked
  }

  #post(
    url: URL,
    question: JsonObject,
    { ms, end }: Limit,
    token?: string,
    signal?: AbortSignal
  ): Promise<JsonObject> {
    return new Promise((resolve, reject) => {
      const from = `etcd at ${url.origin}`
      const unclear = (reason: string, silence: string) =>
        reject(new UnclearError(`${from}: ${reason}`, silence))
      const asked = this.#send(url, question, token, signal)
      const limit = setTimeout(
        () => {
          reject(this.#unanswered(from, ms))
          asked.destroy()
          // A login before it may have taken all of the time.
        },
        Math.max(1, end - performance.now())
      )
      asked.on('error', (error: NodeJS.ErrnoException) => {
        const fault = certificateFault(error.code)
        const silence = fault ? FAULTS[fault] : (error.code ?? oneLine(error.message, WORDS))
        unclear(explained(error, this.etcdctl), silence)
      })
      asked.on('close', () => clearTimeout(limit))
      asked.on('response', answer => read(answer, from, this.etcdctl).then(resolve, reject))
    })
  }
}

/** Plain http tells passwords, tokens and every object to whoever is in between, and lets them answer for etcd. */
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
      `${oneLine(JSON.stringify(text), WORDS)} is no endpoint of etcd; one is like https://10.141.0.1:2379`
    )
  if (url.protocol === 'http:' && !/^(127\.\d+\.\d+\.\d+|\[::1\])$/.test(url.hostname))
    throw new TypeError(
      `${url.origin} would be reached by plain http over a network: use https, or http with 127.0.0.1 or [::1]`
    )
  return url
}

function explained({ code, message }: NodeJS.ErrnoException, etcdctl: Etcdctl): string {
  const fault = certificateFault(code)
  if (fault) return `${FAULTS[fault]} (${code})`
  if (
    code === 'ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED' ||
    code === 'ERR_SSL_SSL/TLS_ALERT_BAD_CERTIFICATE'
  )
    return `it asks for a certificate (${code}): name one that it trusts in [store] cert and key`
  return `${oneLine(message, WORDS)}; look whether it runs (${etcdctl('endpoint health', true)})`
}

async function* linesOf(answer: IncomingMessage, from: string): AsyncGenerator<string> {
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

async function read(answer: IncomingMessage, from: string, etcdctl: Etcdctl): Promise<JsonObject> {
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
    if (error instanceof TooLongError) throw error
    const reason = oneLine((error as Error).message, WORDS)
    throw new UnclearError(`${from}: ${reason}`, reason)
  }
  const body = Buffer.concat(chunks).toString()
  const json = parsed(body)
  if (answer.statusCode === 200 && isObject(json)) return json
  const { error, code } = isObject(json) ? json : {}
  // Where etcd knows users and asks for certificates, its gateway takes none that has a common name.
  if (answer.statusCode === 400 && body.startsWith('CommonName'))
    throw new RefusedError(
      `${from}: it knows users, and takes no certificate with a common name beside them: have the one of [store] cert issued ` +
        'without CN'
    )
  if (typeof error !== 'string' || typeof code !== 'number') {
    const reason = `what answers with ${answer.statusCode} is not etcd, or not its JSON gateway`
    throw new UnclearError(`${from}: ${reason}`, reason)
  }
  const said = `${from}: ${oneLine(error, WORDS)}`
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
  const wayOut = WAYS_OUT[code]
  const Refusal = code === NO_ROOM ? NoRoomError : code === OUT_OF_RANGE ? NoRevisionError : RefusedError
  throw new Refusal(wayOut === undefined ? said : `${said}; ${wayOut(etcdctl)}`)
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
