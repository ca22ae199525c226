import type { IncomingHttpHeaders } from 'node:http'
import type { Trust } from '../ask-controller.js'
import type { JsonValue } from '../json.js'
import type { Sent, Visit } from '../source.js'

/** What is known of a request before its body is read. */
export interface RequestHead extends Visit {
  readonly method: 'GET' | 'POST'
  /** As the client sent it, without the query. */
  readonly path: string
  readonly params: Readonly<Record<string, string>>
  readonly query: URLSearchParams
  /** Path and query, as the client sent them. */
  readonly target: string
  readonly headers: IncomingHttpHeaders
}

export interface Request<Caller> extends RequestHead {
  readonly caller: Caller
  /** The parsed body on routes with `body: 'json'`, a string on those with `text`, else undefined. */
  readonly body: JsonValue | undefined
  /** Aborted when the client has gone before the answer was complete. */
  readonly signal: AbortSignal
}

/** An answer that goes on: it is sent a piece at a time, whenever there is something new (rules 2.20). */
export interface Feed {
  /** What is new since the last piece, '' for nothing. Called while the client takes what it is sent, and then alone. */
  next(): string
  /** Is sent when there was nothing new for a while, so that both ends see that the other is there. */
  readonly beat: string
  /** Calls `wake` whenever there may be something new; returns how to end that. */
  follow(wake: () => void): () => void
}

/** Who asked for a feed, as the number of feeds goes by it. */
export interface Follower {
  /** Those of one name have a bound of their own together. */
  readonly name: string
  /** The places that are kept back are theirs too. */
  readonly first: boolean
}

/** Another server, which answers in the place of this one. */
export interface Elsewhere {
  /** Its origin: http or https, host and port. */
  readonly url: string
  /** What is sent beside the headers of the request, with this body. */
  headersFor(body: Buffer): Promise<Readonly<Record<string, string>>>
  readonly trust: Trust
  /** Aborted when it is not the one to ask any more. */
  readonly gone: AbortSignal
  /** Told why it could not be asked; '' when it answers. It must not throw. */
  readonly told?: (failure: string) => void
}

/** Who asked for a request that another server has handed on. */
export interface HandedOn {
  readonly address: string
  /** Throws ServiceError where it was handed on with another body. */
  checkBody(body: Buffer): Promise<void>
}

/** A request that another server answers. */
export interface Forwarded {
  readonly to: Elsewhere
  /** Path and query. */
  readonly target: string
  readonly body: Buffer
}

/**
 * What a handler gives back; only http/ writes to a socket. At most one of these is set, none for an empty answer (204):
 * `body`, sent as JSON; `json`, JSON text that is serialised already (parts of it are gone through twice, and must be the
 * same both times); `text`, sent as it is with `type` (default text/plain, UTF-8); `file`, an absolute path that is
 * streamed with Range, ETag and exact Content-Length (404 when it is not a regular file); `bytes`, sent as they are with
 * `type`; `feed`, an answer that goes on until the client goes, or its token is void.
 */
export interface Answer {
  readonly status: number
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: unknown
  readonly json?: string | Iterable<string>
  readonly text?: string
  readonly file?: string
  readonly bytes?: Buffer
  readonly feed?: Feed
  /** Of a `feed`; without one it is counted by its address alone, and as nobody's who is first. */
  readonly follower?: Follower
  readonly type?: string
  /** In the place of all others: http/ makes it where another server answers. */
  readonly forwarded?: Forwarded
  /** The client takes gzip, and a long text may cost the time to compress it. */
  readonly compress?: boolean
  /** Told once how the answer with a `file` ended; not for a HEAD. It must not throw. */
  readonly ended?: (sent: Sent) => void
}

/** One row of the route table, as far as http/ goes by it. */
export interface Route<Caller> {
  readonly method: 'GET' | 'POST'
  /** `{x}` is a parameter of one segment: `/config/node/{node}/interfaces/{interface}`. */
  readonly path: string
  /** A GET that changes something does not answer HEAD. */
  readonly effect: 'reads' | 'changes'
  /** Who may call; meaningless to http/, which hands the route to `authorize`. */
  readonly access: string
  /** `json`: a strict JSON body is needed; `text`: one in UTF-8; `ignored`: that of a POST is read and dropped. */
  readonly body: 'json' | 'text' | 'ignored'
  /** Bytes of a body, where they are fewer than the caller may send elsewhere. */
  readonly maxBody?: number
  handler(request: Request<Caller>): Answer | Promise<Answer>
}
