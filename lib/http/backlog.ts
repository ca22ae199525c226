import type { IncomingMessage } from 'node:http'
import { hasBody } from './body.js'

/** When so many requests of a connection wait, or so many bytes of them, nothing more is read from it. */
const MOST_REQUESTS = 16
const MOST_BYTES = 32 * 1024
/** Requests that were read together with those wait too, up to this many. */
export const MOST_READ = 32
/**
 * Bytes of the waiting requests of all connections. A connection whose request is one more is cut; one that has more than
 * its bound at half of that.
 */
const MOST_BYTES_IN_ALL = 64 * 1024 * 1024
/** About what a request takes beside its text, and each name and value in its header beside theirs, in bytes. */
const REQUEST_BYTES = 4096
const FIELD_BYTES = 40

/** What a queue can do to its connection. */
export interface Reader {
  /** Reads nothing more from the client. */
  hold(): void
  /** Reads again. */
  release(): void
  /** Ends the connection; the queue is cleared when it is closed. */
  cut(): void
}

/** So many waiting requests are begun in one turn of the event loop. */
const MOST_BEHIND_IN_A_TURN = 8
/** So many of those that wait behind no other one. */
const MOST_FIRST_IN_A_TURN = 16

/** Begins requests in the order in which they came, so many in each turn of the event loop. */
class Turns {
  /** One of each connection at most; the one that came first stands first. */
  readonly #due: (() => void)[] = []
  /** How many were begun at once in this turn. */
  #begun = 0

  constructor(private readonly most: number) {}

  /** Calls `serve` at once, or in a later turn where so many have come in this one. */
  begin(serve: () => void): void {
    if (this.#due.length > 0 || this.#begun === this.most) {
      this.later(serve)
      return
    }
    if (this.#begun++ === 0)
      setImmediate(() => {
        this.#begun = 0
      })
    serve()
  }

  /** Calls `serve` in a later turn. */
  later(serve: () => void): void {
    if (this.#due.push(serve) === 1) setImmediate(() => this.#serve())
  }

  #serve(): void {
    const these = this.#due.splice(0, this.most)
    if (this.#due.length > 0) setImmediate(() => this.#serve())
    for (const serve of these) serve()
  }
}

/** The requests of all connections that wait: what they may cost in memory and in time (rules 2.14). */
export class Backlog {
  /** The bytes that those take that wait behind others of their connection. */
  bytes = 0
  /**
   * Those that wait behind no other one. In a storm there is one of each of thousands of connections: if all were served in the
   * turn in which they came, new connections would be accepted too seldom.
   */
  readonly first = new Turns(MOST_FIRST_IN_A_TURN)
  /** Those that have waited behind others: nobody waits for a whole queue, nor for one of each of a thousand queues. */
  readonly behind = new Turns(MOST_BEHIND_IN_A_TURN)
}

/** The requests of one connection that wait behind the one that is being served. */
export class RequestQueue {
  readonly #starts: { readonly start: () => void; readonly bytes: number }[] = []
  #bytes = 0
  /** Whether nothing more is read from the client until none waits. */
  held = false

  constructor(
    private readonly backlog: Backlog,
    readonly reader: Reader
  ) {}

  /** Lets a request wait; `start` serves it. False if it is one too many for this connection. */
  push(incoming: IncomingMessage, start: () => void): boolean {
    const bytes = sizeOf(incoming)
    this.#starts.push({ start, bytes })
    this.#count(bytes)
    const { length } = this.#starts
    // A body that was not asked for would be kept.
    if (!this.held && (length >= MOST_REQUESTS || this.#bytes >= MOST_BYTES || hasBody(incoming))) {
      this.held = true
      this.reader.hold()
    }
    const most = this.held ? MOST_BYTES_IN_ALL / 2 : MOST_BYTES_IN_ALL
    if (this.backlog.bytes > most) this.reader.cut()
    return length <= MOST_READ
  }

  /** Lets something wait behind all requests that takes no memory. */
  pushLast(start: () => void): void {
    this.#starts.push({ start, bytes: 0 })
  }

  /** Takes the request that came first. */
  shift(): (() => void) | undefined {
    return this.#taken(this.#starts.shift())
  }

  /** Drops the request that came last. */
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
    if (this.held && this.#starts.length === 0) {
      this.held = false
      this.reader.release()
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
