import type { IncomingHttpHeaders } from 'node:http'
import type { JsonValue } from '../json.js'
import type { Source } from '../source.js'

/** What is known of a request before its body is read. */
export interface RequestHead {
  readonly method: 'GET' | 'POST'
  /** As the client sent it, without the query. */
  readonly path: string
  readonly params: Readonly<Record<string, string>>
  readonly query: URLSearchParams
  readonly headers: IncomingHttpHeaders
  readonly source: Source
}

export interface Request<Caller> extends RequestHead {
  readonly caller: Caller
  /** The parsed body on routes with `body: 'json'`, else undefined. */
  readonly body: JsonValue | undefined
  /** Aborted when the client has gone before the answer was complete. */
  readonly signal: AbortSignal
}

/**
 * What a handler gives back; only http/ writes to a socket. `body` is sent as JSON, `json` is JSON text
 * that is already serialised; parts of it are gone through twice and must be the same both times, `text` goes out as it is with `type` (default text/plain, UTF-8),
 * `file` is an absolute path streamed with Range, ETag and exact Content-Length (404 when it is not a
 * regular file). None of them: an empty answer (204).
 */
export interface Answer {
  readonly status: number
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: unknown
  readonly json?: string | Iterable<string>
  readonly text?: string
  readonly file?: string
  readonly type?: string
}

/** One row of the route table: the router, the access check and the documents are made from it. */
export interface Route<Caller> {
  readonly method: 'GET' | 'POST'
  /** `{x}` is a parameter of one segment: `/config/node/{node}/interfaces/{interface}`. */
  readonly path: string
  /** A GET that changes something does not answer HEAD. */
  readonly effect: 'reads' | 'changes'
  /** Who may call; meaningless to http/, which hands the route to `authorize`. */
  readonly access: string
  /** `json`: a strict JSON body is needed; `ignored`: read up to the limit and dropped. */
  readonly body: 'json' | 'ignored'
  /** Every status this route is documented to answer with. */
  readonly codes: readonly number[]
  readonly summary: string
  /** JSON Schemas of the bodies, for the documents; http/ does not look at them. */
  readonly input?: object
  readonly output?: object
  /** Bytes of a body on this route, for a caller, where the server's own bound is too generous. */
  readonly maxBody?: number | ((caller: Caller) => number)
  handler(request: Request<Caller>): Answer | Promise<Answer>
}
