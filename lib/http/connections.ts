import type { Duplex } from 'node:stream'
import type { Log } from '../base/log.js'
import { clientNetworkOf } from '../base/request-source.js'
import { busy } from './concurrency-limit.js'
import type { Exchange } from './exchange.js'
import type { Limits } from './limits.js'
import { PipelineBudget, PipelineQueue } from './pipelining.js'

/** The first request of a younger connection may still be on its way. */
const FRESH_MS = 5000
/** A connection used less than this ago is likely to be used again. */
const ACTIVE_MS = 2000
/** Time between searches for idle connections; or per open connection, if that is less. */
const LOOK_EVERY_MS = 250
const LOOK_EACH_MS = 0.05
/** When none is idle, the busiest address yields some if it has this many more than the newcomer. */
const AHEAD_MIN = 16

/** Ends a socket, and destroys it once what was written has left, whatever the client still sends. */
export function endSoon(socket: Duplex): void {
  if (socket.writableFinished) socket.destroy()
  else socket.once('finish', () => socket.destroy())
  if (!socket.writableEnded) socket.end()
}

type ClientSocket = Duplex & { readonly bytesRead?: number; setTimeout?(ms: number): unknown }

/** One client connection. Its requests are served one after the other, in order (RFC 9112, 9.3.2). */
export class Connection<C> {
  current: Exchange<C> | undefined
  /** The last input was refused: nothing more is read from this client. */
  refused = false
  /** There is no room for it: its request will be refused with Retry-After. */
  isCrowded = false
  /** The latest request. */
  last: Exchange<C> | undefined
  readonly #waiting: PipelineQueue
  #guarded = false
  #bytesSeen: number | undefined
  /** When the last request came, or the connection was opened (ms of `performance`). */
  lastUsedMs = performance.now()
  #used = false
  /** Requests have been pipelined, and not all are answered. */
  #pipelines = false

  /** `address`: the party that its limits count for. */
  constructor(
    public socket: ClientSocket,
    readonly address: string,
    private readonly backlog: PipelineBudget
  ) {
    this.#bytesSeen = socket.bytesRead
    this.#waiting = new PipelineQueue(backlog, this)
  }

  /** Calls `serve` when its turn comes; never if the connection ends first. False if too many are queued. */
  enqueue(exchange: Exchange<C>, serve: () => void): boolean {
    this.last = exchange
    this.lastUsedMs = exchange.startedMs
    this.#used = true
    const begin = () => this.socket.destroyed || serve()
    if (this.current) {
      this.#pipelines = true
      const start = () => {
        this.current = exchange
        this.backlog.behind.later(begin)
      }
      return this.#waiting.push(exchange.incoming, start)
    }
    this.current = exchange
    // A crowded connection skips the queue, where it would hold one of few places.
    if (this.isCrowded) setImmediate(begin)
    else this.backlog.first.begin(begin)
    return true
  }

  /** Calls `refuse` once all requests are answered. A request that is incomplete is not served. */
  refuseLast(refuse: () => void): void {
    if (this.last?.incoming.complete === false) this.#waiting.pop()
    if (this.current) this.#waiting.pushLast(refuse)
    else refuse()
  }

  /** Starts the next request: the current answer is complete, or never will be. */
  next(): void {
    this.current = undefined
    // A long answer counts as use until its end.
    this.lastUsedMs = performance.now()
    this.#bytesSeen = this.socket.bytesRead
    if (this.socket.destroyed) return
    const start = this.#waiting.shift()
    if (!start) {
      this.last = undefined
      this.#pipelines = false
      return
    }
    this.socket.setTimeout?.(0)
    start()
  }

  /** Stops reading from the client. What was read with the last request still arrives. */
  hold(): void {
    // node:http resumes the socket when it has finished a request.
    if (!this.#guarded) this.socket.on('resume', () => this.#waiting.held && this.socket.pause())
    this.#guarded = true
    this.socket.pause()
  }

  release(): void {
    this.socket.resume()
  }

  /** Ends the connection at once. Queued requests take memory until the socket is closed. */
  cut(): void {
    this.refuseMore()
    this.socket.destroy()
  }

  /** Moves the connection to `socket`, which wraps the former one. */
  readFrom(socket: ClientSocket): void {
    this.socket = socket
    this.#bytesSeen = socket.bytesRead
  }

  /** Takes no more requests, not even those that were read already. */
  refuseMore(): void {
    this.refused = true
    // Node would go on parsing what it has read. 2: what follows is not HTTP.
    const { parser } = this.socket as { parser?: { onIncoming?: () => number } | null }
    if (parser) parser.onIncoming = () => 2
  }

  /** Drops the queue: nobody is there to be answered. */
  ended(): void {
    this.#waiting.clear()
  }

  /** Whether a complete request is being served. A client can keep bodies and pipelining up forever. */
  get busy(): boolean {
    return this.current?.incoming.complete === true && !this.#pipelines
  }

  /** Whether it has no claim yet: no request, an incomplete one, or pipelined ones. */
  get silent(): boolean {
    return this.current ? !this.busy : !this.#used
  }

  /** Whether it is silent, but so young that the rest may still be on its way. */
  get fresh(): boolean {
    return this.silent && performance.now() - this.lastUsedMs < FRESH_MS
  }

  /** Whether a user is sending a long body over it. */
  get isUpload(): boolean {
    return this.current?.isUpload === true && !this.busy
  }

  /** Whether no request is being served or has begun to arrive. */
  get idle(): boolean {
    return !this.current && this.socket.bytesRead === this.#bytesSeen
  }
}

export interface ConnectionsOptions {
  /** `connections`: of all clients, together with the files being sent. */
  readonly limits: Pick<Limits, 'connections' | 'connectionsPerAddress' | 'crowded'>
  /** Whether this peer has no limit of its own: the controller itself, or a proxy for many clients. */
  isUnbound(peer: string): boolean
  readonly log: Log
}

/** All open connections, their limits (rules 2.15), and how they end. */
export class Connections<C> {
  readonly #open = new Map<Duplex, Connection<C>>()
  /** Without those that have no limit per address. */
  readonly #ofAddress = new Map<string, Set<Connection<C>>>()
  /** The connections of the busiest address, cached for this turn of the event loop. */
  #busiest: ReadonlySet<Connection<C>> | undefined
  readonly #backlog = new PipelineBudget()
  readonly #notice: ThrottledWarning
  /** Files being sent: each takes a descriptor beside its connection's. */
  #files = 0
  /** Connections for which there is no room, oldest first. */
  readonly #overLimit = new Set<Connection<C>>()
  /** Connections that were idle at the last search, idlest first. */
  #idle = new Set<Connection<C>>()
  #lookedMs = Number.NEGATIVE_INFINITY
  #listedMs = Number.NEGATIVE_INFINITY
  #whenEmpty: (() => void) | undefined
  #closing = false

  constructor(private readonly room: ConnectionsOptions) {
    this.#notice = new ThrottledWarning(room.log)
  }

  /**
   * Adds a new socket, and listens for its errors: without a listener an error would end the process. 'close'
   * follows it. Without room, idle connections are ended first; then the new one is refused with Retry-After,
   * others without a running request are ended, or the new one is.
   */
  add(socket: Duplex & { readonly remoteAddress?: string | undefined }): void {
    const peer = socket.remoteAddress ?? ''
    const address = clientNetworkOf(peer)
    const connection = new Connection<C>(socket, address, this.#backlog)
    socket.on('error', () => undefined)
    const room = this.#makeRoom(peer, this.#ofAddress.get(address) ?? new Set())
    if (room === 'none') {
      connection.cut()
      return
    }
    connection.isCrowded = room === 'crowded'
    if (connection.isCrowded) this.#overLimit.add(connection)
    this.#open.set(socket, connection)
    const siblings = this.#ofAddress.get(address)
    // A socket that has ended already has no address.
    const isBound = peer === '' || !this.room.isUnbound(peer)
    if (isBound && siblings) siblings.add(connection)
    else if (isBound) this.#ofAddress.set(address, new Set([connection]))
    socket.once('close', () => this.#forget(connection))
  }

  /** Moves a connection to its TLS socket, and listens for the errors of that. */
  secured(raw: Duplex, socket: ClientSocket): void {
    const connection = this.#open.get(raw)
    socket.on('error', () => undefined)
    if (!connection) {
      socket.destroy()
      return
    }
    this.#open.delete(raw)
    connection.readFrom(socket)
    this.#open.set(socket, connection)
  }

  /** Stops counting a connection that is closed, or about to be. */
  #forget(connection: Connection<C>): void {
    if (!this.#open.delete(connection.socket)) return
    this.#overLimit.delete(connection)
    this.#idle.delete(connection)
    const siblings = this.#ofAddress.get(connection.address)
    siblings?.delete(connection)
    if (siblings?.size === 0) this.#ofAddress.delete(connection.address)
    connection.ended()
    if (this.#open.size === 0) this.#whenEmpty?.()
  }

  /** Whether there is room for a connection whose request has come. A crowded one may get in after all. */
  admits(socket: Duplex): boolean {
    const connection = this.#open.get(socket)
    if (connection?.isCrowded && (!this.#isFull || this.#endIdle() || this.#endBusiest(connection.address)))
      connection.isCrowded = !this.#overLimit.delete(connection)
    return !connection?.isCrowded
  }

  /** Counts the descriptor of a file. Throws 503 with Retry-After if none is left and none can be freed. */
  takeFile(): void {
    if (this.#isFull && !this.#endIdle() && !this.#endBusiest(''))
      throw busy(`${this.#taken}, which is the most with this limit of open files`)
    this.#files++
  }

  giveFileBack(): void {
    this.#files--
  }

  get #left(): number {
    return this.room.limits.connections - this.#open.size + this.#overLimit.size - this.#files
  }

  get #isFull(): boolean {
    return this.#left <= 0
  }

  get #taken(): string {
    return `there are ${this.#open.size} connections, and ${this.#files} files are being sent`
  }

  /** Makes room for a new connection if there is none. */
  #makeRoom(peer: string, siblings: Set<Connection<C>>): 'room' | 'crowded' | 'none' {
    const { limits, isUnbound } = this.room
    const perAddress = Math.min(limits.connectionsPerAddress, Math.ceil(limits.connections / 2))
    if (siblings.size >= perAddress && !isUnbound(peer)) {
      this.#notice.say(
        `${peer} has ${siblings.size} connections, which is the most for one address: ` +
          'idle ones are ended, or new ones refused'
      )
      if (!this.#endIdlest(siblings)) return 'none'
    }
    if (this.#left < limits.connections / 16) this.#searchIdle()
    if (!this.#isFull) return 'room'
    this.#notice.say(
      `${this.#taken}, which is the most with this limit of open files: ` +
        'idle connections are ended, or new ones refused'
    )
    if (this.#endIdle() || this.#endBusiest(clientNetworkOf(peer))) return 'room'
    if (isUnbound(peer)) return this.#endIdlest(this.#open.values()) && !this.#isFull ? 'room' : 'none'
    return limits.crowded > this.#overLimit.size || this.#endOldestOverLimit() ? 'crowded' : 'none'
  }

  /** Cuts an idle connection, if there is one: a machine in use would reconnect, and displace another. */
  #endIdle(): boolean {
    if (this.room.limits.crowded === 0) return this.#endIdlest(this.#open.values())
    this.#searchIdle()
    for (const one of this.#idle) {
      this.#idle.delete(one)
      // It has been used since.
      if (one.busy || one.lastUsedMs > this.#listedMs) continue
      this.#forget(one)
      one.cut()
      if (!this.#isFull) return true
    }
    return false
  }

  /**
   * Cuts connections of the busiest address, if it has many more than this one: endless small requests would
   * keep all others out.
   */
  #endBusiest(address: string): boolean {
    if (!this.#busiest) {
      for (const those of this.#ofAddress.values())
        if (those.size > (this.#busiest?.size ?? 0)) this.#busiest = those
      setImmediate(() => {
        this.#busiest = undefined
      })
    }
    const { size } = this.#ofAddress.get(address) ?? new Set()
    // An address without a connection displaces one of any address with several.
    const ahead = size === 0 ? 1 : size + AHEAD_MIN
    return (this.#busiest?.size ?? 0) > ahead && this.#endIdlest(this.#busiest ?? []) && !this.#isFull
  }

  /** Searches before none is known: connections that come during the two turns of a search find no room. */
  #searchIdle(): void {
    const now = performance.now()
    const everyMs = Math.min(LOOK_EVERY_MS, LOOK_EACH_MS * this.#open.size)
    if (this.#idle.size > this.#open.size / 3 || now - this.#lookedMs < everyMs) return
    this.#lookedMs = now
    const free = [...this.#open.values()].filter(({ busy, isCrowded }) => !busy && !isCrowded)
    free.sort((a, b) => a.lastUsedMs - b.lastUsedMs)
    const uploads: Connection<C>[] = []
    const fresh: Connection<C>[] = []
    const asked: Connection<C>[] = []
    const silent: Connection<C>[] = []
    for (const one of free)
      if (one.isUpload) uploads.push(one)
      else if (one.fresh) fresh.push(one)
      else if (now - one.lastUsedMs > ACTIVE_MS) (one.silent ? silent : asked).push(one)
    const take = (those: Connection<C>[]) => {
      this.#idle = new Set(those.filter(({ socket }) => this.#open.has(socket)))
      this.#listedMs = now
    }
    // Machines ask at once and users send few bodies, so this many silent connections are an attack.
    const flood = [fresh, uploads].flatMap(those => (those.length > this.#open.size / 2 ? those : []))
    if (this.#idle.size === 0 || silent.length + flood.length === 0) take(asked)
    // In a storm their requests may wait in the socket: pending input is read once more first.
    if (silent.length + flood.length > 0)
      setImmediate(() => setImmediate(take, [...silent, ...asked, ...flood]))
  }

  /** Cuts the oldest crowded connection without a complete request; false if there is none. */
  #endOldestOverLimit(): boolean {
    for (const one of this.#overLimit)
      if (!one.busy) {
        this.#forget(one)
        one.cut()
        return true
      }
    return false
  }

  /**
   * Cuts the connections that have been without a request longest: a sixteenth of them, so that the search is
   * rare. Fresh ones are cut only if there are no others, and fewer of them; uploads of users last. False if
   * none is without a request.
   */
  #endIdlest(connections: Iterable<Connection<C>>): boolean {
    const free = [...connections].filter(({ busy, socket }) => !busy && !socket.destroyed)
    const others = free.filter(({ isUpload }) => !isUpload)
    const idle = others.length > 0 ? others : free
    const old = idle.filter(({ fresh }) => !fresh)
    const [those, part] = old.length > 0 ? [old, 16] : [idle, 256]
    those.sort((a, b) => a.lastUsedMs - b.lastUsedMs)
    for (const connection of those.slice(0, Math.ceil(those.length / part))) {
      this.#forget(connection)
      connection.cut()
    }
    return those.length > 0
  }

  of(socket: Duplex): Connection<C> | undefined {
    return this.#open.get(socket)
  }

  /** True once `close` was called: new requests are refused. */
  get closing(): boolean {
    return this.#closing
  }

  /** Ends idle connections now, others once idle, all after `graceMs`. Resolves when none is left. */
  async close(graceMs: number): Promise<void> {
    this.#closing = true
    for (const connection of this.#open.values()) this.endIfIdle(connection)
    if (this.#open.size === 0) return
    const timer = setTimeout(() => {
      for (const socket of this.#open.keys()) socket.destroy()
    }, graceMs)
    await new Promise<void>(resolve => {
      this.#whenEmpty = resolve
    })
    clearTimeout(timer)
  }

  endIfIdle(connection: Connection<C>): void {
    if (connection.idle) endSoon(connection.socket)
  }
}

const EVERY_MS = 60_000

/** Limits a frequent warning to one line a minute, with a count. A `kind` never comes from a client. */
export class ThrottledWarning {
  readonly #kinds = new Map<string, { count: number; lastMs: number }>()

  constructor(private readonly log: Log) {}

  /** `text` says what happens, without a count. */
  say(text: string, kind = ''): void {
    const said = this.#kinds.get(kind) ?? { count: 0, lastMs: Number.NEGATIVE_INFINITY }
    this.#kinds.set(kind, said)
    said.count++
    const now = performance.now()
    if (now - said.lastMs < EVERY_MS) return
    this.log.warn(said.count === 1 ? text : `${text} (${said.count} times since this was said last)`)
    said.lastMs = now
    said.count = 0
  }
}
