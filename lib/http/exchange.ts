import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http'
import type { JsonValue } from '../json.js'
import type { Sent, Source } from '../source.js'
import type { Request, Route } from './route.js'

/** One request and its answer on their way through the server, and what the access log will say of them. */
export class Exchange<C> {
  readonly startedMs = performance.now()
  /** As the client sent it, without the query. */
  path = '-'
  /** The source address, or the peer's until that is known. */
  address: string
  /** 0 until an answer is begun. */
  status = 0
  /** Bytes of the answer's body so far. */
  bytes = 0
  /** The whole answer has been handed to the socket. */
  answered = false
  /** Of a file: the bytes that are to be sent, or that the front server sends it; undefined while none is sent. */
  file: number | 'front' | undefined
  /** Is told how the file was sent. */
  ended: ((sent: Sent) => void) | undefined
  /** Set once the route is known. */
  request: ReceivedRequest<C> | undefined
  route: Route<C> | undefined
  /** A user sends a long body: where room is short, others whose bodies are not whole end in its place. */
  isUpload = false

  constructor(
    readonly incoming: IncomingMessage,
    readonly outgoing: ServerResponse,
    /** The client sends its body only after a 100. */
    readonly awaitsContinue: boolean
  ) {
    this.address = incoming.socket.remoteAddress ?? '-'
  }

  /** Tells how the file was sent; `complete`: the whole answer was. */
  tellEnd(complete: boolean): void {
    const { ended, file, bytes, headOnly, status } = this
    if (!ended || headOnly) return
    if (file === undefined) ended({ end: 'refused', bytes: 0, of: 0 })
    else if (file === 'front') ended({ end: 'front', bytes: 0, of: 0 })
    else ended({ end: !complete ? 'cut' : status === 206 ? 'part' : 'whole', bytes, of: file })
  }

  /** HEAD: the head of the answer is sent, its body is not. */
  get headOnly(): boolean {
    return this.incoming.method === 'HEAD'
  }

  /** The client has hung up, or was refused by the parser: nothing can be sent. */
  get gone(): boolean {
    return this.outgoing.destroyed
  }
}

/** The request that a handler sees. What few handlers ask for (query, signal) is made when they do. */
export class ReceivedRequest<C> implements Request<C> {
  caller!: C
  body: JsonValue | undefined = undefined
  #query: URLSearchParams | undefined
  #controller: AbortController | undefined
  #abandoned = false

  constructor(
    readonly method: 'GET' | 'POST',
    readonly path: string,
    readonly params: Record<string, string>,
    private readonly rawQuery: string,
    readonly headers: IncomingHttpHeaders,
    readonly source: Source,
    readonly headOnly: boolean
  ) {}

  get target(): string {
    return this.rawQuery === '' ? this.path : `${this.path}?${this.rawQuery}`
  }

  get query(): URLSearchParams {
    // node:http gives one character per byte; curl sends UTF-8 as it is typed.
    this.#query ??= new URLSearchParams(
      this.rawQuery === '' ? '' : Buffer.from(this.rawQuery, 'latin1').toString('utf8')
    )
    return this.#query
  }

  get signal(): AbortSignal {
    if (!this.#controller) {
      this.#controller = new AbortController()
      if (this.#abandoned) this.#controller.abort()
    }
    return this.#controller.signal
  }

  /** The client has gone before the answer was complete. */
  abandon(): void {
    this.#abandoned = true
    this.#controller?.abort()
  }
}
