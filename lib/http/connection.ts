import type { Duplex, Writable } from 'node:stream'
import { LIMITS } from './admission/limits.js'
import { type PipelineBudget, PipelineQueue } from './admission/pipelining.js'
import type { Exchange } from './exchange.js'

/** Ends a socket, and destroys it once what was written has left, whatever the client still sends. */
export function endSoon(socket: Duplex): void {
  if (socket.writableFinished) socket.destroy()
  else socket.once('finish', () => socket.destroy())
  if (!socket.writableEnded) socket.end()
}

/**
 * Replaces writev(2) by a plain write for an answer of one text. node:http adds an empty second piece, and
 * writev costs a sixth of what it takes for a whole request.
 */
export function writeAsOne(socket: Writable): void {
  const writev = socket._writev
  if (!writev) return
  socket._writev = (pieces, done) => {
    const [piece, empty] = pieces
    if (pieces.length === 2 && piece && empty?.chunk.length === 0)
      socket._write(piece.chunk, piece.encoding, done)
    else writev.call(socket, pieces, done)
  }
}

export type ClientSocket = Duplex & { readonly bytesRead?: number; setTimeout?(ms: number): unknown }

/** One client connection. Its requests are served one after the other, in order (RFC 9112, 9.3.2). */
export class Connection {
  current: Exchange | undefined
  /** The last input was refused: nothing more is read from this client. */
  refused = false
  /** There is no room for it: its request will be refused with Retry-After. */
  isCrowded = false
  /** The latest request. */
  last: Exchange | undefined
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
  enqueue(exchange: Exchange, serve: () => void): boolean {
    this.last = exchange
    this.lastUsedMs = exchange.startedMs
    this.#used = true
    const begin = () => this.socket.destroyed || serve()
    if (this.current) {
      this.#pipelines = true
      const start = () => {
        this.current = exchange
        this.backlog.pipelined.enqueue(begin)
      }
      return this.#waiting.push(exchange.incoming, start)
    }
    this.current = exchange
    // A crowded connection skips the queue, where it would hold one of few places.
    if (this.isCrowded) setImmediate(begin)
    else this.backlog.direct.startOrQueue(begin)
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
    if (!this.#guarded) this.socket.on('resume', () => this.#waiting.isPaused && this.socket.pause())
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
    return this.silent && performance.now() - this.lastUsedMs < LIMITS.freshMs
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
