import type { IncomingMessage } from 'node:http'
import { hasBody } from '../body.js'
import { LIMITS } from './limits.js'

/** Approximate size in bytes of a request, and of each name or value in its header, beside the text. */
const REQUEST_BYTES = 4096
const FIELD_BYTES = 40

/** Starts requests in order of arrival, a limited number per turn of the event loop. */
class PerTickQueue {
  /** At most one of each connection, oldest first. */
  readonly #due: (() => void)[] = []
  /** Requests started at once in this turn. */
  #begun = 0

  constructor(private readonly most: number) {}

  /** Calls `serve` at once, or in a later turn if this one is full. */
  startOrQueue(serve: () => void): void {
    if (this.#due.length > 0 || this.#begun === this.most) {
      this.enqueue(serve)
      return
    }
    if (this.#begun++ === 0)
      setImmediate(() => {
        this.#begun = 0
      })
    serve()
  }

  /** Calls `serve` in a later turn. */
  enqueue(serve: () => void): void {
    if (this.#due.push(serve) === 1) setImmediate(() => this.#serve())
  }

  #serve(): void {
    const these = this.#due.splice(0, this.most)
    if (this.#due.length > 0) setImmediate(() => this.#serve())
    for (const serve of these) serve()
  }
}

/** Bounds the memory and time that queued requests cost, over all connections (rules 2.14). */
export class PipelineBudget {
  /** Bytes of pipelined requests. */
  bytes = 0
  /** Other requests: thousands of them in one turn would keep new connections from being accepted. */
  readonly direct = new PerTickQueue(LIMITS.directPerTick)
  /** Pipelined requests: nobody waits for a whole queue, nor for the heads of a thousand queues. */
  readonly pipelined = new PerTickQueue(LIMITS.pipelinedPerTick)
}

/** The pipelined requests of one connection. */
export class PipelineQueue {
  readonly #starts: { readonly start: () => void; readonly bytes: number }[] = []
  #bytes = 0
  /** Whether reading is stopped until the queue is empty. */
  isPaused = false

  constructor(
    private readonly backlog: PipelineBudget,
    private readonly connection: Readonly<Record<'hold' | 'release' | 'cut', () => void>>
  ) {}

  /** Queues a request that `start` will serve. Returns false if it is one too many for this connection. */
  push(incoming: IncomingMessage, start: () => void): boolean {
    const bytes = sizeOf(incoming)
    this.#starts.push({ start, bytes })
    this.#count(bytes)
    const { length } = this.#starts
    // A body that arrives before it is asked for would be kept in memory.
    const isMuch = length >= LIMITS.pipelinedRequests || this.#bytes >= LIMITS.pipelinedBytes
    if (!this.isPaused && (isMuch || hasBody(incoming))) {
      this.isPaused = true
      this.connection.hold()
    }
    if (this.backlog.bytes > LIMITS.pipelinedBytesInAll / (this.isPaused ? 2 : 1)) this.connection.cut()
    return length <= LIMITS.pipelinedMost
  }

  /** Queues a start behind all requests; it takes no memory. */
  pushLast(start: () => void): void {
    this.#starts.push({ start, bytes: 0 })
  }

  /** Takes the oldest request. */
  shift(): (() => void) | undefined {
    return this.#taken(this.#starts.shift())
  }

  /** Drops the newest request. */
  pop(): void {
    this.#taken(this.#starts.pop())
  }

  clear(): void {
    this.#starts.length = 0
    this.#count(-this.#bytes)
  }

  #taken(taken: { start: () => void; bytes: number } | undefined): (() => void) | undefined {
    if (!taken) return undefined
    this.#count(-taken.bytes)
    if (this.isPaused && this.#starts.length === 0) {
      this.isPaused = false
      this.connection.release()
    }
    return taken.start
  }

  #count(bytes: number): void {
    this.#bytes += bytes
    this.backlog.bytes += bytes
  }
}

function sizeOf({ url = '', rawHeaders }: IncomingMessage): number {
  let bytes = REQUEST_BYTES + url.length + rawHeaders.length * FIELD_BYTES
  for (const text of rawHeaders) bytes += text.length
  return bytes
}
