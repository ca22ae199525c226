import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http'
import type { JsonValue } from '../base/json.js'
import type { FileDelivery, RequestSource } from '../base/request-source.js'
import type { Request, Route } from './route.js'

/** A request and its answer on their way through the server, with what the access log needs. */
export class Exchange<C = unknown> {
  readonly startedMs = performance.now()
  /** As the client sent it, without the query. */
  path = '-'
  /** The source address; until that is known the peer's. */
  address: string
  /** 0 until the answer begins. */
  status = 0
  /** Bytes of the answer's body so far. */
  bytes = 0
  /** The whole answer has been handed to the socket. */
  answered = false
  /** Bytes of a file to be sent, or 'front' if the front server sends it; undefined without a file. */
  file: number | 'front' | undefined
  /** Called when the file was sent, or was not. */
  onEnd: ((sent: FileDelivery) => void) | undefined
  /** Set once the route is known. */
  request: ReceivedRequest<C> | undefined
  route: Route<C> | undefined
  /** The connection ends with this answer. */
  isLast = false
  /** A user is sending a long body: when slots are short, other incomplete bodies yield first. */
  isUpload = false

  constructor(
    readonly incoming: IncomingMessage,
    readonly outgoing: ServerResponse,
    /** The client sends its body only after a 100. */
    readonly awaitsContinue: boolean
  ) {
    this.address = incoming.socket.remoteAddress ?? '-'
  }

  /** Reports how the file was sent. `complete`: the whole answer was. */
  reportEnd(complete: boolean): void {
    const { onEnd, file, bytes, headOnly, status } = this
    if (!onEnd || headOnly) return
    if (file === undefined) onEnd({ end: 'refused', bytes: 0, bytesTotal: 0 })
    else if (file === 'front') onEnd({ end: 'front', bytes: 0, bytesTotal: 0 })
    else onEnd({ end: !complete ? 'cut' : status === 206 ? 'part' : 'whole', bytes, bytesTotal: file })
  }

  /** HEAD gets the head of the answer alone. */
  get headOnly(): boolean {
    return this.incoming.method === 'HEAD'
  }

  /** The client has hung up, or was refused by the parser: nothing can be sent. */
  get gone(): boolean {
    return this.outgoing.destroyed
  }
}

/** The request that a handler sees. Query and signal are made on first use: few handlers need them. */
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
    readonly source: RequestSource,
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

  /** Aborts `signal`: the client left before the answer was complete. */
  abandon(): void {
    this.#abandoned = true
    this.#controller?.abort()
  }
}
