import type { IncomingHttpHeaders } from 'node:http'
import type { JsonValue } from '../base/json.js'
import type { FileDelivery, RequestContext } from '../base/request-source.js'
import type { Trust } from '../client/certificates.js'
import type { EntityTag } from './entity-tag.js'

/** A request before its body is read. */
export interface RequestHead extends RequestContext {
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
  /** Aborted when the client leaves before the answer is complete. */
  readonly signal: AbortSignal
}

/** An endless answer, sent a piece at a time when there is something new (rules 2.20). */
export interface Feed {
  /** The news since the last piece, '' for none. Called only while the client reads; never overlaps. */
  next(): string
  /** Whether nothing will come any more: the answer is completed. Absent: it has no end. */
  readonly ended?: boolean
  /** Heartbeat: sent after a while without news, so that both ends see each other. */
  readonly keepAlive: string
  /** Calls `wake` whenever there may be news; returns how to stop that. */
  follow(wake: () => void): () => void
}

/** The subscriber of a feed, by whom feeds are counted. */
export interface Subscriber {
  /** Subscribers of one name share a limit. */
  readonly name: string
  /** May use the reserved slots too. */
  readonly first: boolean
}

/** Another server that answers a request. */
export interface Upstream {
  /** Its origin: http or https, host and port. */
  readonly url: string
  /** Returns the headers to send beside those of the request, for this body. */
  headersFor(body: Buffer): Promise<Readonly<Record<string, string>>>
  readonly trust: Trust
  /** Aborted when it is no longer the server to ask. */
  readonly gone: AbortSignal
  /** Reports why it could not be asked; '' when it answers. Must not throw. */
  readonly onOutcome?: (failure: string) => void
}

/** The original caller of a request that another controller forwarded. */
export interface ForwardedCaller {
  readonly address: string
  /** Throws ServiceError if it was forwarded with another body. */
  checkBody(body: Buffer): Promise<void>
}

/** A request for another server. */
export interface Forwarded {
  readonly to: Upstream
  /** Path and query. */
  readonly target: string
  readonly body: Buffer
}

/**
 * A handler's answer; only http/ writes to a socket. At most one of these is set, none for an empty answer
 * (204): `body`, sent as JSON; `json`, serialised JSON text (its parts are iterated twice, and must be the
 * same both times); `text`, sent as it is with `type` (default text/plain, UTF-8); `file`, an absolute path,
 * sent with Range, ETag and exact Content-Length (404 if it is no regular file); `bytes`, sent as they are
 * with `type`; `feed`, which ends when the client leaves or its token is void.
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
  /** Subscriber of `feed`. Without one it counts for its address alone, and gets no reserved slot. */
  readonly subscriber?: Subscriber
  readonly type?: string
  /** Sent as ETag; with long `json` it is made before the head, a piece at a time. */
  readonly etag?: EntityTag
  /** Set by http/ alone, in place of all others. */
  readonly forwarded?: Forwarded
  /** The client takes gzip, and a long text is worth compressing. */
  readonly compress?: boolean
  /** Called once when the answer with a `file` ended; not for HEAD. Must not throw. */
  readonly onEnd?: (sent: FileDelivery) => void
}

/** The part of a row of the route table that http/ needs. */
export interface Route<Caller> {
  readonly method: 'GET' | 'POST'
  /** `{x}` is a parameter of one segment: `/config/node/{node}/interfaces/{interface}`. */
  readonly path: string
  /** A GET that changes something does not answer HEAD. */
  readonly effect: 'reads' | 'changes'
  /** The permitted callers. http/ passes it to `authorize` unread. */
  readonly access: string
  /** `json`: a strict JSON body is required; `text`: UTF-8; `ignored`: a POST's body is read and dropped. */
  readonly body: 'json' | 'text' | 'ignored'
  /** Maximum size of the body in bytes, if less than the caller's general limit. */
  readonly maxBody?: number
  /** Called before the body is read. Throws to refuse; who passes may send `maxBody`, whoever that is. */
  admit?(request: Request<Caller>): Promise<void>
  handler(request: Request<Caller>): Answer | Promise<Answer>
}
