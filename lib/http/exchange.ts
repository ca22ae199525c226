import type { IncomingMessage, ServerResponse } from 'node:http'
import type { ReceivedRequest } from './request.js'

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
  /** Set once the route is known. */
  request: ReceivedRequest<C> | undefined

  constructor(
    readonly incoming: IncomingMessage,
    readonly outgoing: ServerResponse,
    /** The client sends its body only after a 100. */
    readonly awaitsContinue: boolean
  ) {
    this.address = incoming.socket.remoteAddress ?? '-'
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
