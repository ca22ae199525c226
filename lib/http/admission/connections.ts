import type { Duplex } from 'node:stream'
import { Parties } from '../../base/lists.js'
import type { Log } from '../../base/log.js'
import { ThrottledWarning } from '../../base/rate-limit.js'
import { clientNetworkOf } from '../../base/request-source.js'
import { type ClientSocket, Connection, endSoon } from '../connection.js'
import { LIMITS, type Limits } from './limits.js'
import { PipelineBudget } from './pipelining.js'
import { busy } from './retry-after.js'

/** Time between searches for idle connections; or per open connection, if that is less. */
const LOOK_EVERY_MS = 250
const LOOK_EACH_MS = 0.05

/** All open connections, their limits (rules 2.15), and how they end. */
export class Connections {
  readonly #open = new Map<Duplex, Connection>()
  /** Without those that have no limit per address. */
  readonly #ofAddress = new Parties<Connection>()
  /** The connections of the busiest address, cached for this turn of the event loop. */
  #busiest: ReadonlySet<Connection> | undefined
  readonly #backlog = new PipelineBudget()
  readonly #warning: ThrottledWarning
  /** Files being sent: each takes a descriptor beside its connection's. */
  #files = 0
  /** Connections for which there is no room, oldest first. */
  readonly #overLimit = new Set<Connection>()
  /** Connections that were idle at the last search, idlest first. */
  #idle = new Set<Connection>()
  #lookedMs = Number.NEGATIVE_INFINITY
  #listedMs = Number.NEGATIVE_INFINITY
  #whenEmpty: (() => void) | undefined
  #closing = false

  /** `isExempt`: whether a peer has no limit of its own, as the controller, or a proxy for many clients. */
  constructor(
    private readonly limits: Pick<Limits, 'connections' | 'connectionsPerAddress' | 'crowded'>,
    private readonly isExempt: (peer: string) => boolean,
    log: Log
  ) {
    this.#warning = new ThrottledWarning(log)
  }

  /**
   * Adds a new socket, and listens for its errors: without a listener an error would end the process. 'close'
   * follows it. Without room, idle connections are ended first; then the new one is refused with Retry-After,
   * others without a running request are ended, or the new one is. A peer at its own limit that has no idle
   * connection gets no answer.
   */
  add(socket: Duplex & { readonly remoteAddress?: string | undefined }): void {
    const peer = socket.remoteAddress ?? ''
    const address = clientNetworkOf(peer)
    const connection = new Connection(socket, address, this.#backlog)
    socket.on('error', () => undefined)
    // A socket that has ended already has no address.
    const isExempt = peer !== '' && this.isExempt(peer)
    const room = this.#makeRoom(peer, address, isExempt)
    if (room === 'none') {
      connection.cut()
      return
    }
    connection.isCrowded = room === 'crowded'
    if (connection.isCrowded) this.#overLimit.add(connection)
    this.#open.set(socket, connection)
    if (!isExempt) this.#ofAddress.add(address, connection)
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
  #forget(connection: Connection): void {
    if (!this.#open.delete(connection.socket)) return
    this.#overLimit.delete(connection)
    this.#idle.delete(connection)
    this.#ofAddress.delete(connection.address, connection)
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

  releaseFile(): void {
    this.#files--
  }

  get #left(): number {
    return this.limits.connections - this.#open.size + this.#overLimit.size - this.#files
  }

  get #isFull(): boolean {
    return this.#left <= 0
  }

  get #taken(): string {
    return `there are ${this.#open.size} connections, and ${this.#files} files are being sent`
  }

  /** Makes room for a new connection if there is none. */
  #makeRoom(peer: string, address: string, isExempt: boolean): 'room' | 'crowded' | 'none' {
    const { limits } = this
    const siblings = this.#ofAddress.of(address)
    const perAddress = Math.min(limits.connectionsPerAddress, Math.ceil(limits.connections / 2))
    if (siblings.size >= perAddress && !isExempt) {
      this.#warning.say(
        `${peer} has ${siblings.size} connections, which is the most for one address: ` +
          'idle ones are ended, or new ones refused'
      )
      if (!this.#endIdlest(siblings)) return 'none'
    }
    if (this.#left < limits.connections / 16) this.#searchIdle()
    if (!this.#isFull) return 'room'
    this.#warning.say(
      `${this.#taken}, which is the most with this limit of open files: ` +
        'idle connections are ended, or new ones refused'
    )
    if (this.#endIdle() || this.#endBusiest(address)) return 'room'
    if (isExempt) return this.#endIdlest(this.#open.values()) && !this.#isFull ? 'room' : 'none'
    return limits.crowded > this.#overLimit.size || this.#endOldestOverLimit() ? 'crowded' : 'none'
  }

  /** Cuts an idle connection, if there is one: a machine in use would reconnect, and displace another. */
  #endIdle(): boolean {
    if (this.limits.crowded === 0) return this.#endIdlest(this.#open.values())
    this.#searchIdle()
    for (const one of this.#idle) {
      this.#idle.delete(one)
      // It has been used since.
      if (one.busy || one.lastUsedMs > this.#listedMs) continue
      this.#end(one)
      if (!this.#isFull) return true
    }
    return false
  }

  /** Cuts some of the busiest address, if it has more: endless small requests would keep all others out. */
  #endBusiest(address: string): boolean {
    if (!this.#busiest)
      setImmediate(() => {
        this.#busiest = undefined
      })
    this.#busiest ??= this.#ofAddress.largest
    const { size } = this.#ofAddress.of(address)
    // An address without a connection displaces one of any address with several.
    const ahead = size === 0 ? 1 : size + LIMITS.aheadMin
    return this.#busiest.size > ahead && this.#endIdlest(this.#busiest) && !this.#isFull
  }

  /** Searches before none is known: connections that come during the two turns of a search find no room. */
  #searchIdle(): void {
    const now = performance.now()
    const everyMs = Math.min(LOOK_EVERY_MS, LOOK_EACH_MS * this.#open.size)
    if (this.#idle.size > this.#open.size / 3 || now - this.#lookedMs < everyMs) return
    this.#lookedMs = now
    const free = [...this.#open.values()].filter(({ busy, isCrowded }) => !busy && !isCrowded)
    free.sort((a, b) => a.lastUsedMs - b.lastUsedMs)
    const uploads: Connection[] = []
    const fresh: Connection[] = []
    const asked: Connection[] = []
    const silent: Connection[] = []
    for (const one of free)
      if (one.isUpload) uploads.push(one)
      else if (one.fresh) fresh.push(one)
      else if (now - one.lastUsedMs > LIMITS.activeMs) (one.silent ? silent : asked).push(one)
    const take = (those: Connection[]) => {
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
    for (const one of this.#overLimit) if (!one.busy) return this.#end(one)
    return false
  }

  /**
   * Cuts the connections that have been without a request longest: a sixteenth of them, so that the search is
   * rare. Fresh ones are cut only if there are no others, and fewer of them; uploads of users last. False if
   * none is without a request.
   */
  #endIdlest(connections: Iterable<Connection>): boolean {
    const free = [...connections].filter(({ busy, socket }) => !busy && !socket.destroyed)
    const others = free.filter(({ isUpload }) => !isUpload)
    const idle = others.length > 0 ? others : free
    const old = idle.filter(({ fresh }) => !fresh)
    const [those, part] = old.length > 0 ? [old, 16] : [idle, 256]
    those.sort((a, b) => a.lastUsedMs - b.lastUsedMs)
    for (const one of those.slice(0, Math.ceil(those.length / part))) this.#end(one)
    return those.length > 0
  }

  /** Cuts a connection, which counts no more from now on. */
  #end(connection: Connection): true {
    this.#forget(connection)
    connection.cut()
    return true
  }

  of(socket: Duplex): Connection | undefined {
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

  endIfIdle(connection: Connection): void {
    if (connection.idle) endSoon(connection.socket)
  }
}
