import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import {
  type AddressInfo,
  createServer as createListener,
  type Server as Listener,
  type Socket
} from 'node:net'
import type { Duplex } from 'node:stream'
import type { SecureContext } from 'node:tls'
import { runFairly } from '../base/concurrency.js'
import { badRequest, ServiceError, unavailable } from '../base/errors.js'
import type { Log } from '../base/log.js'
import { ThrottledWarning } from '../base/rate-limit.js'
import type { RequestSource } from '../base/request-source.js'
import { AccessLog } from './access-log.js'
import { Acceptor } from './admission/acceptor.js'
import { type ConcurrencyLimits, concurrencyLimits } from './admission/concurrency-limit.js'
import { Connections } from './admission/connections.js'
import { Handshakes } from './admission/handshakes.js'
import { defaultLimits, LIMITS, type Limits } from './admission/limits.js'
import { busyForLong } from './admission/retry-after.js'
import {
  ClientGone,
  checkBytes,
  checkHeader,
  dropArrivedBody,
  FORWARD_OVERHEAD,
  hasBody,
  isHangUp,
  readBody,
  textOf
} from './body.js'
import { writeAsOne } from './connection.js'
import { Exchange, ReceivedRequest } from './exchange.js'
import { Feeds } from './feeds.js'
import type { FrontFiles } from './files.js'
import { parserRefusal, rawRefusal, refuse, toRefusal } from './refusal.js'
import type { Answer, ForwardedCaller, RequestHead, Route, Upstream } from './route.js'
import { parseTarget, Router } from './router.js'
import { Sender } from './send.js'
import { peerMatcher, sourceReader } from './source.js'
import { parseStrict, parsingStrict } from './strict-json.js'

const shuttingDown = unavailable('the service is shutting down', 'shutting-down')
const pipelineFull = unavailable(`more than ${LIMITS.pipelinedMost} requests wait on this connection`, 'busy')
/** Longer bodies are parsed in slices, so that the event loop stays responsive. */
const LONG_BODY = 4 * 1024
/** Ends the connection of a machine that was switched off. */
const KEEP_ALIVE = { keepAlive: true, keepAliveInitialDelay: 60_000 }
/** The socket options that node:http uses itself. */
const SOCKET_OPTIONS = { allowHalfOpen: true, noDelay: true, ...KEEP_ALIVE }
const LOOPBACK = ['127.0.0.0/8', '::1']
const EMPTY: Buffer = Buffer.alloc(0)
const UNKNOWN: RequestSource = { address: '-', loopback: false }

/** A finished request. `status` is 0 when the client left before there was one. */
export interface FinishedRequest<C> {
  readonly route: Route<C> | undefined
  readonly status: number
  readonly ms: number
  /** Size of the body that was sent. */
  readonly bytes: number
}

/** Where a server listens. */
type Endpoint = Pick<AddressInfo, 'address' | 'port'>

/** Options from the composition root; `C` describes a caller. */
export interface ServerOptions<C> {
  readonly routes: readonly Route<C>[]
  /** Identifies the caller. Throws ServiceError 401 or 403. Parameters are decoded, but not yet checked. */
  authorize(route: Route<C>, head: RequestHead): C | Promise<C>
  /** Checks a decoded path parameter and returns its canonical form. Throws ServiceError 400 or 404. */
  param?(name: string, value: string, route: Route<C>): string
  /** Maximum size of a request's body in bytes, for all or by caller (413). */
  readonly maxBody: number | ((caller: C) => number)
  /** Whether each 503 of this caller is logged (rules 2.7); by default that of every caller. */
  readonly isKnown?: (caller: C) => boolean
  /** Addresses and CIDRs whose X-Forwarded-For is trusted (rules 4.5). */
  readonly trustedProxies: readonly string[]
  /** The controller's own addresses and CIDRs, without limit per address (rules 2.15); default: loopback. */
  readonly ownAddresses?: readonly string[]
  /** The original caller of a request that another controller forwarded. May throw ServiceError. */
  readonly handedOnFor?: (incoming: IncomingMessage) => ForwardedCaller | undefined
  /** The server that answers this request; undefined for this one. May throw ServiceError. */
  readonly upstreamFor?: (route: Route<C>, head: RequestHead) => Upstream | undefined
  /** An answer for clients that would not show this refusal; undefined for all others. */
  readonly visibleAnswer?: (refusal: ServiceError, incoming: IncomingMessage) => Answer | undefined
  /** Files that the trusted proxies send themselves; none by default. */
  readonly frontFiles?: FrontFiles | undefined
  /** Called for each finished request. Must not throw. */
  readonly onFinished?: (request: FinishedRequest<C>) => void
  readonly log: Log
  readonly limits?: Partial<Limits>
}

/**
 * The only part that reads from and writes to sockets. Order of checks (rules 2.3): target 400, route 404,
 * method 405, `authorize` 401/403, `param` 400/404, body 413/400, handler. Every refusal is JSON.
 */
export class HttpServer<C> {
  readonly #limits: Limits
  readonly #sender: Sender<C>
  readonly #router: Router<C>
  readonly #readSource: (peer: string, forwardedFor: string | undefined) => RequestSource
  readonly #connections: Connections
  readonly #feeds: Feeds
  readonly #isOurs: (address: string) => boolean
  readonly #slots: ConcurrencyLimits
  readonly #overload: ThrottledWarning
  readonly #accessLog: AccessLog
  readonly #server: Server
  #tls: { readonly accepting: Acceptor; readonly handshakes: Handshakes } | undefined
  readonly #accepting: Acceptor
  #closed: Promise<void> | undefined

  /** Throws Error for two routes of the same shape and for a trusted proxy that is no address. */
  constructor(private readonly options: ServerOptions<C>) {
    const { ownAddresses = LOOPBACK, trustedProxies } = options
    this.#limits = { ...defaultLimits, ...options.limits }
    this.#router = new Router(options.routes)
    this.#overload = new ThrottledWarning(options.log)
    this.#isOurs = peerMatcher([...ownAddresses, ...trustedProxies])
    const isExempt = (address: string) => address === '-' || this.#isOurs(address)
    this.#slots = concurrencyLimits(this.#limits, isExempt)
    this.#feeds = new Feeds(this.#limits, isExempt)
    this.#accessLog = new AccessLog(options.log, isExempt)
    this.#connections = new Connections(this.#limits, this.#isOurs, options.log)
    this.#readSource = sourceReader(options.trustedProxies)
    this.#sender = new Sender({
      ...{ slots: this.#slots, connections: this.#connections, feeds: this.#feeds, log: options.log },
      ...{ frontFiles: options.frontFiles, isFront: peerMatcher(trustedProxies) },
      stallMs: this.#limits.stallMs,
      isStillAuthorized: exchange => this.#isStillAuthorized(exchange)
    })
    this.#server = createServer({
      maxHeaderSize: this.#limits.headerBytes + (options.handedOnFor ? FORWARD_OVERHEAD.bytes : 0),
      headersTimeout: this.#limits.headersMs,
      connectionsCheckingInterval: Math.ceil(this.#limits.headersMs / 4),
      // A limit for the whole request would cut long uploads that make progress: see readBody.
      requestTimeout: 0,
      keepAliveTimeout: this.#limits.keepAliveMs,
      // Node's own answer to a missing Host has no body.
      requireHostHeader: false,
      ...KEEP_ALIVE
    })
    this.#accepting = new Acceptor(this.#server, SOCKET_OPTIONS, options.log)
    this.#server.maxHeadersCount = LIMITS.headerLines + (options.handedOnFor ? FORWARD_OVERHEAD.lines : 0) + 1
    this.#server
      .on('connection', (socket: Duplex) => {
        // A TLS connection was counted before its handshake.
        if (!this.#connections.of(socket)) this.#connections.add(socket)
        writeAsOne(socket)
      })
      .on('request', (incoming, outgoing) => this.#arrive(incoming, outgoing, false))
      .on('checkContinue', (incoming, outgoing) => this.#arrive(incoming, outgoing, true))
      .on('checkExpectation', (incoming, outgoing) => this.#arrive(incoming, outgoing, false))
      .on('connect', (_, socket: Duplex) => this.#refuseTunnel(socket))
      .on('clientError', (error, socket) => this.#parserFailed(error, socket))
  }

  /** Starts accepting connections. Rejects when the address is unavailable. */
  listen(address: string, port: number): Promise<Endpoint> {
    return this.#listen(this.#server, address, port)
  }

  /** Listens for TLS on another port, as `listen`. All limits count from the first byte (rules 2.18). */
  listenTls(address: string, port: number, context: () => SecureContext): Promise<Endpoint> {
    const handshakes = new Handshakes({
      limits: this.#limits,
      context,
      failed: (peer, reason) => {
        if (reason !== undefined) this.#accessLog.handshake(peer, reason)
      }
    })
    const accepted = { ...SOCKET_OPTIONS, pauseOnConnect: true }
    const listener = createListener(accepted)
    listener.on('connection', (raw: Socket) => {
      this.#connections.add(raw)
      const connection = this.#connections.of(raw)
      if (!connection) return
      handshakes.take(raw, connection.address, socket => {
        this.#connections.secured(raw, socket)
        if (!socket.destroyed) this.accept(socket)
      })
    })
    const accepting = new Acceptor(listener, accepted, this.options.log)
    this.#tls = { accepting, handshakes }
    return this.#listen(listener, address, port)
  }

  async #listen(server: Listener, host: string, port: number): Promise<Endpoint> {
    server.listen({ host, port, backlog: LIMITS.acceptBacklog })
    await once(server, 'listening')
    server.on('error', error => this.options.log.error(`accepting: ${error.message}`))
    const { address, port: taken } = server.address() as AddressInfo
    return { address, port: taken }
  }

  /**
   * Stops accepting, ends idle connections, lets running requests finish, answers new ones with 503, and cuts
   * the rest after `graceMs`. Resolves when no connection is left. Idempotent.
   */
  close(graceMs: number): Promise<void> {
    this.#closed ??= (async () => {
      const stopped = [this.#accepting, this.#tls?.accepting].map(accepting => accepting?.close())
      this.#tls?.handshakes.close()
      this.#feeds.close()
      await this.#connections.close(graceMs)
      await Promise.all(stopped)
    })()
    return this.#closed
  }

  /** Serves a connection that was accepted elsewhere. It may be one end of a pair of streams. */
  accept(socket: Duplex): void {
    this.#server.emit('connection', socket)
  }

  #arrive(incoming: IncomingMessage, outgoing: ServerResponse, awaitsContinue: boolean): void {
    const connection = this.#connections.of(incoming.socket)
    if (!connection || connection.refused) return
    const exchange = new Exchange<C>(incoming, outgoing, awaitsContinue)
    // 'close' comes once; `once` costs more than `on`.
    outgoing.on('close', () => {
      this.#finish(exchange)
      connection.next()
      if (this.#connections.closing) this.#connections.endIfIdle(connection)
    })
    if (connection.enqueue(exchange, () => void this.#serve(exchange))) return
    connection.refuseMore()
    connection.refuseLast(() => this.#refuseRaw(incoming.socket, pipelineFull))
  }

  /** Awaits nothing where the answer is ready and the socket takes it at once, as for most requests. */
  async #serve(exchange: Exchange<C>): Promise<void> {
    try {
      const given = this.#answer(exchange)
      const answer = isPromise(given) ? await given : given
      exchange.onEnd = answer?.onEnd
      if (exchange.gone) return
      const sent = this.#sender.send(exchange, answer)
      if (sent) await sent
    } catch (error) {
      await this.#fail(exchange, error)
    }
  }

  #answer(exchange: Exchange<C>): Answer | Promise<Answer> {
    const { incoming, headOnly } = exchange
    const { headers } = incoming
    const options = this.options
    if (this.#connections.closing) throw shuttingDown
    if (!this.#connections.admits(incoming.socket))
      throw busyForLong('as many connections are open as there may be')
    const handedOn = options.handedOnFor?.(incoming)
    checkHeader(incoming, handedOn && LIMITS.headerLines + FORWARD_OVERHEAD.lines)
    if (options.handedOnFor && !handedOn) checkBytes(incoming, this.#limits.headerBytes)
    if (headers.expect !== undefined && !exchange.awaitsContinue) {
      throw new ServiceError(417, 'only the expectation 100-continue is known')
    }
    const { path, query, segments } = parseTarget(incoming.url as string)
    exchange.path = path
    const source = this.#sourceOf(incoming, handedOn)
    exchange.address = source.address
    const { route, params } = this.#router.find(incoming.method as string, segments)
    const request = new ReceivedRequest<C>(route.method, path, params, query, headers, source, headOnly)
    exchange.request = request
    exchange.route = route
    const caller = options.authorize(route, request)
    if (isPromise(caller) || hasBody(incoming) || route.body !== 'ignored')
      return this.#answerLater(exchange, route, request, caller, handedOn)
    request.caller = caller
    this.#checkParams(route, params)
    const to = options.upstreamFor?.(route, request)
    return to
      ? { status: 200, forwarded: { to, target: request.target, body: EMPTY } }
      : route.handler(request)
  }

  /** Answers requests with a body, and callers whose identity needs a look-up. */
  async #answerLater(
    exchange: Exchange<C>,
    route: Route<C>,
    request: ReceivedRequest<C>,
    caller: C | Promise<C>,
    handedOn: ForwardedCaller | undefined
  ): Promise<Answer> {
    const { incoming } = exchange
    const options = this.options
    request.caller = await caller
    this.#checkParams(route, request.params)
    const keep = route.body !== 'ignored'
    let body = EMPTY
    if (!keep && route.method === 'GET') {
      if (hasBody(incoming) && !(await dropArrivedBody(incoming)))
        throw badRequest(`${incoming.method} takes no body: send none`, 'invalid-body')
    } else if (hasBody(incoming) || keep) {
      const { maxBody: most } = options
      const byCaller = typeof most === 'number' ? most : most(request.caller)
      await route.admit?.(request)
      const bodyOfRoute = route.maxBody ?? (keep ? byCaller : LIMITS.shortBodyBytes)
      const maxBody = route.admit ? bodyOfRoute : Math.min(byCaller, bodyOfRoute)
      const isLong = (Number(incoming.headers['content-length']) || maxBody) > LIMITS.shortBodyBytes
      exchange.isUpload = isLong && options.isKnown?.(request.caller) === true
      await this.#slots.bodies.run(exchange, async slot => {
        if (exchange.awaitsContinue && Number(incoming.headers['content-length'] ?? 0) <= maxBody) {
          exchange.outgoing.writeContinue()
        }
        // Bodies yield their slot when there are too many, except for long bodies of users.
        if (!exchange.isUpload) slot.stalledSinceMs = performance.now()
        body = await readBody(incoming, maxBody, keep, this.#limits)
      })
      // The client may have left while it waited for a slot.
      if (exchange.gone) throw new ClientGone('the client hung up before its body was complete')
      if (keep && handedOn) await handedOn.checkBody(body)
      // A slow body may have taken minutes: the token may have been revoked.
      request.caller = await options.authorize(route, request)
    }
    const to = options.upstreamFor?.(route, request)
    if (to) return { status: 200, forwarded: { to, target: request.target, body } }
    if (route.body === 'json')
      request.body =
        body.length > LONG_BODY ? await runFairly(parsingStrict(body), request) : parseStrict(body)
    if (route.body === 'text') request.body = textOf(body)
    return route.handler(request)
  }

  #checkParams(route: Route<C>, params: Record<string, string>): void {
    const { param } = this.options
    if (param) for (const name in params) params[name] = param(name, params[name] as string, route)
  }

  #sourceOf(incoming: IncomingMessage, handedOn: ForwardedCaller | undefined): RequestSource {
    const peer = incoming.socket.remoteAddress
    // The client has left already.
    if (peer === undefined) return UNKNOWN
    // Loopback and proxies of the other controller have no rights here: it counts as the caller.
    if (handedOn) {
      const isOurs = this.#isOurs(handedOn.address)
      const { address } = isOurs ? this.#readSource(peer, undefined) : handedOn
      return { address, loopback: false, isHandedOn: true }
    }
    const forwardedFor = incoming.headers['x-forwarded-for']
    return this.#readSource(peer, Array.isArray(forwardedFor) ? forwardedFor.join() : forwardedFor)
  }

  /** Whether the caller of a request would still be authorized. */
  async #isStillAuthorized({ request, route }: Exchange<C>): Promise<boolean> {
    if (!request || !route) return false
    try {
      await this.options.authorize(route, request)
      return this.options.upstreamFor?.(route, request) === undefined
    } catch {
      return false
    }
  }

  async #fail(exchange: Exchange<C>, error: unknown): Promise<void> {
    const { incoming, outgoing } = exchange
    try {
      if (outgoing.headersSent ? isHangUp(error) : error instanceof ClientGone) return
      // The client left while the handler waited.
      const { signal } = exchange.request ?? {}
      if (signal?.aborted && error === signal.reason) return
      const refusal = error === shuttingDown ? shuttingDown : this.#toRefusal(error, exchange)
      if (exchange.gone) return
      if (outgoing.headersSent) outgoing.destroy()
      else {
        const { isCrowded } = this.#connections.of(incoming.socket) ?? {}
        exchange.isLast = isCrowded === true
        const shown = hasBody(incoming) ? undefined : this.options.visibleAnswer?.(refusal, incoming)
        await (shown
          ? this.#sender.send(exchange, shown)
          : refuse(exchange, refusal, this.#sender, this.#limits.lingerMs))
      }
    } catch {
      // Not even the refusal could be sent. Nothing below can throw.
      exchange.status ||= 500
      if (!outgoing.headersSent) incoming.socket.end(rawRefusal(new ServiceError(500, 'internal error')))
      else incoming.socket.destroy()
    }
  }

  #toRefusal(error: unknown, { incoming, path, route, request }: Exchange<C>): ServiceError {
    const { log, isKnown = () => true } = this.options
    const caller = request?.caller
    const kind = caller !== undefined && isKnown(caller) ? undefined : `503 ${route?.method} ${route?.path}`
    return toRefusal(error, `${incoming.method} ${path}`, { log, shed: this.#overload, kind })
  }

  #parserFailed(error: Error, socket: Duplex): void {
    const refusal = parserRefusal(error, this.#limits.headerBytes)
    if (refusal && socket.writable) this.#refuseConnection(socket, refusal)
    else socket.destroy()
  }

  /** Refuses CONNECT. Node has removed its listeners: a running answer would never end, so it is cut. */
  #refuseTunnel(socket: Duplex): void {
    const connection = this.#connections.of(socket)
    if (connection?.current) {
      connection.refused = true
      connection.current.outgoing.destroy()
      socket.destroy()
      return
    }
    // The rest is read and dropped, so that its end is seen.
    socket.resume()
    this.#refuseConnection(socket, badRequest('the request target must be a path', 'invalid-http'))
  }

  /** Refuses the last input of a connection after the answers to its requests, and stops reading. */
  #refuseConnection(socket: Duplex, refusal: ServiceError): void {
    const connection = this.#connections.of(socket)
    if (!connection || connection.refused) return
    connection.refused = true
    const { current } = connection
    if (!current || current.incoming.complete) connection.refuseLast(() => this.#refuseRaw(socket, refusal))
    else if (current.outgoing.headersSent) socket.destroy()
    else {
      current.status = refusal.status
      this.#refuseRaw(socket, refusal)
    }
  }

  #refuseRaw(socket: Duplex, refusal: ServiceError): void {
    if (!socket.writable) return
    const { status, message } = refusal
    const { remoteAddress = '-' } = socket as Partial<Socket>
    if (!this.#connections.of(socket)?.current) this.#accessLog.refusal(remoteAddress, status, message)
    socket.end(rawRefusal(refusal))
    const timer = setTimeout(() => socket.destroy(), this.#limits.lingerMs)
    socket.once('close', () => clearTimeout(timer))
  }

  #finish(exchange: Exchange<C>): void {
    const complete = exchange.answered || exchange.outgoing.writableFinished
    if (!complete) exchange.request?.abandon()
    exchange.reportEnd(complete)
    const { route, status, bytes, startedMs } = exchange
    this.options.onFinished?.({ route, status, bytes, ms: performance.now() - startedMs })
    this.#accessLog.request(exchange, complete)
  }
}

const isPromise = <V>(value: V | Promise<V>): value is Promise<V> => value instanceof Promise
