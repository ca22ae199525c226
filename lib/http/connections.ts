import type { Duplex } from 'node:stream'
import type { Exchange } from './exchange.js'

/** No honest client sends more requests than this without waiting for an answer. */
const MAX_PIPELINED = 1000

/**
 * Ends a socket, and destroys it once what was written has left. It does not wait for what the client still sends.
 */
export function endSoon(socket: Duplex): void {
  if (socket.writableFinished) socket.destroy()
  else socket.once('finish', () => socket.destroy())
  if (!socket.writableEnded) socket.end()
}

/** One client connection: its requests are served one after the other, in the order they came (RFC 9112, 9.3.2). */
export class Connection<C> {
  /** The request being served. */
  current: Exchange<C> | undefined
  /** What came last was refused: nothing more is read from this client. */
  refused = false
  /** The request that came last. */
  last: Exchange<C> | undefined
  readonly #waiting: (() => void)[] = []
  #bytesSeen: number | undefined

  constructor(readonly socket: Duplex & { readonly bytesRead?: number; setTimeout?(ms: number): unknown }) {
    this.#bytesSeen = socket.bytesRead
  }

  /** Calls `serve` when the requests before it are answered; never, if the connection ends first. */
  enqueue(exchange: Exchange<C>, serve: () => void): void {
    const start = () => {
      this.current = exchange
      serve()
    }
    this.last = exchange
    if (!this.current) start()
    else if (this.#waiting.length < MAX_PIPELINED) this.#waiting.push(start)
    else this.socket.destroy()
  }

  /** Calls `refuse` once all requests are answered; one that has not come whole is not served. */
  refuseLast(refuse: () => void): void {
    if (this.last?.incoming.complete === false) this.#waiting.pop()
    if (this.current) this.#waiting.push(refuse)
    else refuse()
  }

  /** Goes on to the next request: the current answer is complete, or never will be. */
  next(): void {
    this.current = undefined
    this.#bytesSeen = this.socket.bytesRead
    if (this.socket.destroyed) return
    const start = this.#waiting.shift()
    if (!start) {
      this.last = undefined
      return
    }
    this.socket.setTimeout?.(0)
    start()
  }

  /** Whether no request is under way or has begun to arrive. */
  get idle(): boolean {
    return !this.current && this.socket.bytesRead === this.#bytesSeen
  }
}

/** All open connections, and how they come to an end. */
export class Connections<C> {
  readonly #open = new Map<Duplex, Connection<C>>()
  #whenEmpty: (() => void) | undefined
  #closing = false

  /**
   * Takes in a new socket, and listens for its errors: one without a listener would end the process. 'close' follows
   * it.
   */
  add(socket: Duplex): void {
    this.#open.set(socket, new Connection(socket))
    socket.on('error', () => undefined)
    socket.once('close', () => {
      this.#open.delete(socket)
      if (this.#open.size === 0) this.#whenEmpty?.()
    })
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
