import { request as ask, type IncomingMessage, Agent as PlainAgent } from 'node:http'
import { request as askTls, Agent as TlsAgent } from 'node:https'
import { pipeline } from 'node:stream/promises'
import { guardConnection } from '../ask-controller.js'
import { badRequest, ServiceError } from '../base/errors.js'
import type { ConcurrencyLimit, Slot } from './admission/concurrency-limit.js'
import { ClientGone } from './body.js'
import type { Exchange } from './exchange.js'
import type { Forwarded } from './route.js'

/** Hop-by-hop headers, and those that each server sets itself. */
const OF_ONE_HOP = new Set(
  (
    'connection content-length date expect host keep-alive proxy-connection te trailer ' +
    'transfer-encoding upgrade x-forwarded-for'
  ).split(' ')
)
/** A server sends this header when it did nothing of a forwarded request because another one leads. */
export const NOT_TAKEN = 'x-svcd-not-taken'
/** Orders to a front server to send files: they are for the one in front of the server that answers. */
const FRONT_SERVERS = 'x-accel-'
const AGAIN = { 'Retry-After': '5' }
/** Idle connections are reused for this long. The other server ends them earlier only to stop, or if full. */
const IDLE_MS = 1500

/** Writes the head of an answer: status, headers and, if it is known, the length. */
type Begin = (status: number, headers: Record<string, string>, length: number | undefined) => void

/** Forwards requests to the server that answers them. Their number is limited (rules 11.16). */
export class Forwards {
  readonly #agents = agents()

  constructor(private readonly limit: ConcurrencyLimit) {}

  /** Forwards a request and its answer. Throws ServiceError: 503 if nothing was done, 502 if unknown. */
  run<C>(exchange: Exchange<C>, forwarded: Forwarded, begin: Begin): Promise<void> {
    return this.limit.run(exchange, place => forward(exchange, forwarded, this.#agents, place, begin))
  }
}

/** Agents with keep-alive, by protocol. */
function agents() {
  const options = { keepAlive: true, timeout: IDLE_MS }
  const both = { 'http:': new PlainAgent(options), 'https:': new TlsAgent(options) }
  // Node does not restart a time-out that expired while the connection was in use.
  for (const agent of Object.values(both)) agent.on('free', socket => socket.setTimeout(IDLE_MS))
  return both
}
type Agents = ReturnType<typeof agents>

async function forward<C>(
  exchange: Exchange<C>,
  forwarded: Forwarded,
  agents: Agents,
  place: Slot,
  begin: Begin
): Promise<void> {
  const answer = await askUpstream(exchange, forwarded, agents, place)
  if (exchange.gone) return void answer.destroy()
  const { 'content-length': length } = answer.headers
  begin(
    answer.statusCode as number,
    endToEndHeaders(answer),
    length === undefined ? undefined : Number(length)
  )
  if (exchange.headOnly) {
    answer.resume()
    exchange.outgoing.end()
    return
  }
  const { outgoing } = exchange
  answer.on('data', (chunk: Buffer) => {
    exchange.bytes += chunk.length
    // The client has not taken what came before.
    if (outgoing.writableNeedDrain) place.waitingSince ??= performance.now()
  })
  outgoing.on('drain', () => {
    place.waitingSince = undefined
  })
  await pipeline(answer, outgoing)
}

async function askUpstream<C>(
  exchange: Exchange<C>,
  { to, target, body }: Forwarded,
  agents: Agents,
  place: Slot
): Promise<IncomingMessage> {
  const { incoming, outgoing, route } = exchange
  const { url, trust, gone, told } = to
  if (/[^\x21-\xff]/.test(target))
    throw badRequest('the request target holds a blank or a control character', 'invalid-http')
  const added = await to.headersFor(body)
  if (exchange.gone) throw hungUp()
  const isChange = route?.effect !== 'reads'
  return new Promise((resolve, reject) => {
    let isConnected = false
    const { protocol, hostname, port, host } = new URL(url)
    const isTls = protocol === 'https:'
    const request = (isTls ? askTls : ask)({
      ...{ hostname: hostname.replace(/^\[|\]$/g, ''), port, path: target, method: incoming.method },
      headers: { ...endToEndHeaders(incoming), ...added, host, 'content-length': body.length },
      ...{ agent: agents[isTls ? 'https:' : 'http:'], signal: gone, ...trust }
    })
    const waits = (since: number | undefined, giveUp: (() => void) | undefined) => {
      place.waitingSince = since
      place.giveUp = giveUp
    }
    const refuse = (reason: string) => {
      request.off('close', ended)
      waits(undefined, undefined)
      if (outgoing.destroyed) return reject(hungUp())
      if (!gone.aborted) told?.(reason)
      reject(unanswered(reason, isConnected && isChange))
    }
    const ended = () => refuse('it ended the connection')
    waits(performance.now(), () =>
      request.destroy(new Error('it has been silent for long, and others wait for the place'))
    )
    guardConnection(request, isTls, () => {
      isConnected = true
    })
      // A connection may end without an answer and without an error.
      .once('close', ended)
      .once('response', answer => {
        request.off('close', ended)
        waits(undefined, undefined)
        // The reader of the answer learns of it.
        answer.on('error', () => undefined)
        const { statusCode = 0 } = answer
        if (answer.headers[NOT_TAKEN] !== undefined) {
          answer.destroy()
          told?.('another controller answers there, or it has just begun to write')
          return reject(unanswered('another one answers there', false))
        }
        const isSvcds = isAnswer(statusCode)
        told?.(isSvcds ? '' : `it answers with ${statusCode}`)
        if (isSvcds) return resolve(answer)
        answer.destroy()
        reject(foreignAnswer(statusCode, isChange))
      })
      .on('error', (error: NodeJS.ErrnoException) =>
        refuse(gone.aborted ? 'it writes no more' : (error.code ?? error.message))
      )
      .end(body)
    outgoing.once('close', () => request.destroy())
  })
}

const unanswered = (reason: string, mayBeDone: boolean) =>
  mayBeDone
    ? new ServiceError(
        502,
        `the controller that writes gave no answer (${reason}), and may have done this: look first`
      )
    : new ServiceError(
        503,
        `the controller that writes cannot be asked now (${reason}); try again in some seconds`,
        AGAIN,
        { code: 'not-leader' }
      )

const foreignAnswer = (status: number, mayBeDone: boolean) =>
  new ServiceError(
    502,
    `svcd never answers with ${status}: look whether [store] url, or [http] url, ` +
      `of the controller that writes leads to it${mayBeDone ? ', and whether this was done' : ''}`
  )

const hungUp = () => new ClientGone('the client hung up before there was an answer')

/** There is no 3xx (rules 2.5). */
const isAnswer = (status: number) => (status >= 200 && status < 300) || (status >= 400 && status < 600)

function endToEndHeaders({ headers }: IncomingMessage): Record<string, string> {
  const passed: Record<string, string> = {}
  for (const [name, value] of Object.entries(headers))
    if (typeof value === 'string' && !OF_ONE_HOP.has(name) && !name.startsWith(FRONT_SERVERS))
      passed[name] = value
  return passed
}
