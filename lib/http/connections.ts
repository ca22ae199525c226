import type { Duplex } from 'node:stream'
import type { Log } from '../log.js'
import { networkOf } from '../source.js'
import { Backlog, RequestQueue } from './backlog.js'
import type { Exchange } from './exchange.js'
import type { Limits } from './limits.js'
import { busy } from './places.js'

/** A connection that is younger may have its first request on the way: ms. */
const FRESH_MS = 5000
/** One that was used so lately is likely to be used again: ms. */
const ACTIVE_MS = 2000
/** It is looked for idle ones so often, and where there are few connections once in so long for each: that takes a while. */
const LOOK_EVERY_MS = 250
const LOOK_EACH_MS = 0.05
/** Where none is idle, an address that has so many more than the one that comes gives some of its connections up. */
const AHEAD = 16

/**
 * Ends a socket, and destroys it once what was written has left. It does not wait for what the client still sends.
 */
export function endSoon(socket: Duplex): void {
  if (socket.writableFinished) socket.destroy()
  else socket.once('finish', () => socket.destroy())
  if (!socket.writableEnded) socket.end()
}

type ClientSocket = Duplex & { readonly bytesRead?: number; setTimeout?(ms: number): unknown }

/** One client connection: its requests are served one after the other, in the order they came (RFC 9112, 9.3.2). */
export class Connection<C> {
  /** The request being served. */
  current: Exchange<C> | undefined
  /** What came last was refused: nothing more is read from this client. */
  refused = false
  /** There is no room for it: it is told to come back later. */
  isCrowded = false
  /** The request that came last. */
  last: Exchange<C> | undefined
  readonly #waiting: RequestQueue
  #guarded = false
  #bytesSeen: number | undefined
  /** When its last request came, else when it was opened; by the clock of `performance`. */
  lastUsedMs = performance.now()
  #used = false
  /** A request has come behind another one, and not all are answered. */
  #pipelines = false

  /** `address`: whose connection it is. */
  constructor(
    public socket: ClientSocket,
    readonly address: string,
    private readonly backlog: Backlog
  ) {
    this.#bytesSeen = socket.bytesRead
    this.#waiting = new RequestQueue(backlog, this)
  }

  /**
   * Calls `serve` when the requests before it are answered, and its turn has come; never, if the connection ends first. False
   * if too many wait: then it should be refused.
   */
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
    // In its turn it would keep its place, of which there are few, while all others are served. Those that are idle are known by then.
    if (this.isCrowded) setImmediate(begin)
    else this.backlog.first.begin(begin)
    return true
  }

  /** Calls `refuse` once all requests are answered; one that has not come whole is not served. */
  refuseLast(refuse: () => void): void {
    if (this.last?.incoming.complete === false) this.#waiting.pop()
    if (this.current) this.#waiting.pushLast(refuse)
    else refuse()
  }

  /** Goes on to the next request: the current answer is complete, or never will be. */
  next(): void {
    this.current = undefined
    // A long answer is use until its end.
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

  /** Reads nothing more from the client. What was read together with the last request still arrives. */
  hold(): void {
    // node:http reads on when it is done with a request.
    if (!this.#guarded) this.socket.on('resume', () => this.#waiting.held && this.socket.pause())
    this.#guarded = true
    this.socket.pause()
  }

  /** Reads again. */
  release(): void {
    this.socket.resume()
  }

  /** Ends the connection at once. What waits takes memory until the socket is closed. */
  cut(): void {
    this.refuseMore()
    this.socket.destroy()
  }

  /** Its requests come from this socket, which reads what came from the one before. */
  readFrom(socket: ClientSocket): void {
    this.socket = socket
    this.#bytesSeen = socket.bytesRead
  }

  /** Takes no more requests, not even those that were read already. */
  refuseMore(): void {
    this.refused = true
    // Node would go on making requests of what it has read. 2: what follows is not HTTP.
    const { parser } = this.socket as { parser?: { onIncoming?: () => number } | null }
    if (parser) parser.onIncoming = () => 2
  }

  /** Forgets what waits: nobody is there to be answered. */
  ended(): void {
    this.#waiting.clear()
  }

  /** Whether a request that came whole is under way. A client can take any time for its body, and pipeline any number of others. */
  get busy(): boolean {
    return this.current?.incoming.complete === true && !this.#pipelines
  }

  /** Whether it has asked nothing yet: no request has come, or the one under way is not whole, or others wait behind it. */
  get silent(): boolean {
    return this.current ? !this.busy : !this.#used
  }

  /** Whether it has asked nothing, and began so lately that the rest may be on the way still. */
  get fresh(): boolean {
    return this.silent && performance.now() - this.lastUsedMs < FRESH_MS
  }

  /** Whether a user sends a long body over it. */
  get isUpload(): boolean {
    return this.current?.isUpload === true && !this.busy
  }

  /** Whether no request is under way or has begun to arrive. */
  get idle(): boolean {
    return !this.current && this.socket.bytesRead === this.#bytesSeen
  }
}

/** How many connections there may be. */
export interface Room {
  /** `connections`: of all clients, and the files being sent with them. */
  readonly limits: Pick<Limits, 'connections' | 'connectionsPerAddress' | 'crowded'>
  /** Whether this peer has no bound of its own: it is the controller itself, or stands for many clients. */
  isUnbound(peer: string): boolean
  readonly log: Log
}

/** All open connections, how many there may be (rules 2.15), and how they come to an end. */
export class Connections<C> {
  readonly #open = new Map<Duplex, Connection<C>>()
  /** But those without a bound of their own. */
  readonly #ofAddress = new Map<string, Set<Connection<C>>>()
  /** The connections of the address that had most in this turn. */
  #most: ReadonlySet<Connection<C>> | undefined
  readonly #backlog = new Backlog()
  readonly #notice: Notice
  /** Files being sent: each takes a descriptor beside its connection's. */
  #files = 0
  /** Connections for which there is no room, the oldest first. */
  readonly #crowded = new Set<Connection<C>>()
  /** Connections that were idle when they were listed, the idlest first. */
  #idle = new Set<Connection<C>>()
  #lookedMs = Number.NEGATIVE_INFINITY
  #listedMs = Number.NEGATIVE_INFINITY
  #whenEmpty: (() => void) | undefined
  #closing = false

  constructor(private readonly room: Room) {
    this.#notice = new Notice(room.log)
  }

  /**
   * Takes in a new socket, and listens for its errors: one without a listener would end the process. 'close' follows
   * it. Where there is no room, connections that were not used for a while end; if there are none, the new one is told to come back
   * later, or others without a request under way end, or the new one does.
   */
  add(socket: Duplex & { readonly remoteAddress?: string | undefined }): void {
    const peer = socket.remoteAddress ?? ''
    const address = networkOf(peer)
    const connection = new Connection<C>(socket, address, this.#backlog)
    socket.on('error', () => undefined)
    const room = this.#makeRoom(peer, this.#ofAddress.get(address) ?? new Set())
    if (room === 'none') {
      connection.cut()
      return
    }
    connection.isCrowded = room === 'crowded'
    if (connection.isCrowded) this.#crowded.add(connection)
    this.#open.set(socket, connection)
    const siblings = this.#ofAddress.get(address)
    // A socket that has ended already has no address.
    const isBound = peer === '' || !this.room.isUnbound(peer)
    if (isBound && siblings) siblings.add(connection)
    else if (isBound) this.#ofAddress.set(address, new Set([connection]))
    socket.once('close', () => this.#forget(connection))
  }

  /** Goes on with a connection under the socket of its TLS, whose errors it listens for. */
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

  /** Counts a connection no more: it is closed, or about to be. */
  #forget(connection: Connection<C>): void {
    if (!this.#open.delete(connection.socket)) return
    this.#crowded.delete(connection)
    this.#idle.delete(connection)
    const siblings = this.#ofAddress.get(connection.address)
    siblings?.delete(connection)
    if (siblings?.size === 0) this.#ofAddress.delete(connection.address)
    connection.ended()
    if (this.#open.size === 0) this.#whenEmpty?.()
  }

  /** Whether there is room for a connection, now that its request has come: one that was crowded may have it after all. */
  admits(socket: Duplex): boolean {
    const connection = this.#open.get(socket)
    if (connection?.isCrowded && (!this.#isFull || this.#endIdle() || this.#endOfMost(connection.address)))
      connection.isCrowded = !this.#crowded.delete(connection)
    return !connection?.isCrowded
  }

  /** Counts the descriptor of a file; throws 503 with Retry-After if there is none and no connection is idle. */
  takeFile(): void {
    if (this.#isFull && !this.#endIdle() && !this.#endOfMost(''))
      throw busy(`${this.#taken}, which is the most with this limit of open files`)
    this.#files++
  }

  /** The file is closed. */
  giveFileBack(): void {
    this.#files--
  }

  get #left(): number {
    return this.room.limits.connections - this.#open.size + this.#crowded.size - this.#files
  }

  get #isFull(): boolean {
    return this.#left <= 0
  }

  get #taken(): string {
    return `there are ${this.#open.size} connections, and ${this.#files} files are being sent`
  }

  /** Whether there is room for a new connection. */
  #makeRoom(peer: string, siblings: Set<Connection<C>>): 'room' | 'crowded' | 'none' {
    const { limits, isUnbound } = this.room
    const perAddress = Math.min(limits.connectionsPerAddress, Math.ceil(limits.connections / 2))
    if (siblings.size >= perAddress && !isUnbound(peer)) {
      this.#notice.say(
        `${peer} has ${siblings.size} connections, which is the most for one address: idle ones are ended, or new ones refused`
      )
      if (!this.#endIdlest(siblings)) return 'none'
    }
    if (this.#left < limits.connections / 16) this.#lookIfFew()
    if (!this.#isFull) return 'room'
    this.#notice.say(
      `${this.#taken}, which is the most with this limit of open files: idle connections are ended, or new ones refused`
    )
    if (this.#endIdle() || this.#endOfMost(networkOf(peer))) return 'room'
    if (isUnbound(peer)) return this.#endIdlest(this.#open.values()) && !this.#isFull ? 'room' : 'none'
    return limits.crowded > this.#crowded.size || this.#endOldestCrowded() ? 'crowded' : 'none'
  }

  /**
   * Cuts one that nobody has used for a while; false if none is known. A machine that lost its connection between two requests would open
   * another one, and push out the next.
   */
  #endIdle(): boolean {
    if (this.room.limits.crowded === 0) return this.#endIdlest(this.#open.values())
    this.#lookIfFew()
    for (const one of this.#idle) {
      this.#idle.delete(one)
      // It was used meanwhile.
      if (one.busy || one.lastUsedMs > this.#listedMs) continue
      this.#forget(one)
      one.cut()
      if (!this.#isFull) return true
    }
    return false
  }

  /**
   * Cuts some connections of the address that has most, if it has many more than this one: small requests without end
   * would keep all others out. All addresses are looked at once in a turn.
   */
  #endOfMost(address: string): boolean {
    if (!this.#most) {
      for (const those of this.#ofAddress.values())
        if (those.size > (this.#most?.size ?? 0)) this.#most = those
      setImmediate(() => {
        this.#most = undefined
      })
    }
    const { size } = this.#ofAddress.get(address) ?? new Set()
    // One that has none takes the place of any that has several.
    const ahead = size === 0 ? 1 : size + AHEAD
    return (this.#most?.size ?? 0) > ahead && this.#endIdlest(this.#most ?? []) && !this.#isFull
  }

  /** Looks for idle ones before none is known: those that come until the next are known, two turns later, find no room. */
  #lookIfFew(): void {
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
    // Machines ask at once, and users send few bodies: so many that do not are a stranger's.
    const flood = [fresh, uploads].flatMap(those => (those.length > this.#open.size / 2 ? those : []))
    if (this.#idle.size === 0 || silent.length + flood.length === 0) take(asked)
    // In a storm what they have sent may wait to be read: all that came is read once more before they count.
    if (silent.length + flood.length > 0)
      setImmediate(() => setImmediate(take, [...silent, ...asked, ...flood]))
  }

  /** Cuts the oldest of those for which there is no room that has asked nothing yet; false if there is none. */
  #endOldestCrowded(): boolean {
    for (const one of this.#crowded)
      if (!one.busy) {
        this.#forget(one)
        one.cut()
        return true
      }
    return false
  }

  /**
   * Cuts the connections that have been without a request longest: a sixteenth of those without one, so that the search is
   * seldom. Fresh ones are cut only if there are no others, and fewer of them; uploads of users last of all. False if none is
   * without a request.
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

  /** True once `close` was called: what arrives now is refused. */
  get closing(): boolean {
    return this.#closing
  }

  /** Ends idle connections now, the others as they become idle, all after `graceMs`; resolves when none is left. */
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

/**
 * A warning about something that can happen thousands of times a second: one line a minute for each kind, with how often it
 * was. Kinds are few words of ours, never a client's.
 */
export class Notice {
  readonly #kinds = new Map<string, { count: number; lastMs: number }>()

  constructor(private readonly log: Log) {}

  /** `text` tells what happens, without how often. */
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
