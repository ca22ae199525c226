import type { IncomingHttpHeaders } from 'node:http'
import type { JsonValue } from '../json.js'
import type { Source } from '../source.js'
import type { Request } from './route.js'

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
