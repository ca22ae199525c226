import type { IncomingHttpHeaders } from 'node:http'
import { pipeline } from 'node:stream/promises'
import { badRequest, ServiceError } from '../base/errors.js'
import { CONNECT_MS } from '../client/controllers.js'
import { Connections, NoResponseError, type Response, request } from '../client/request.js'
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
  readonly #connections = new Connections({ idleMs: IDLE_MS })

  constructor(private readonly limit: ConcurrencyLimit) {}

  /** Forwards a request and its answer. Throws ServiceError: 503 if nothing was done, 502 if unknown. */
  run(exchange: Exchange, forwarded: Forwarded, begin: Begin): Promise<void> {
    return this.limit.run(exchange, async place => {
      const answer = await askUpstream(exchange, forwarded, this.#connections, place)
      await passOn(exchange, answer, place, begin)
    })
  }
}

async function passOn(exchange: Exchange, { status, headers, body }: Response, place: Slot, begin: Begin) {
  const { gone, headOnly, outgoing } = exchange
  if (gone) return void body.destroy()
  const { 'content-length': length } = headers
  begin(status, endToEndHeaders(headers), length === undefined ? undefined : Number(length))
  if (headOnly) {
    body.resume()
    outgoing.end()
    return
  }
  body.on('data', (chunk: Buffer) => {
    exchange.bytes += chunk.length
    // The client has not taken what came before.
    if (outgoing.writableNeedDrain) place.stalledSinceMs ??= performance.now()
  })
  outgoing.on('drain', () => {
    place.stalledSinceMs = undefined
  })
  await pipeline(body, outgoing)
}

async function askUpstream(
  exchange: Exchange,
  { to, target, body }: Forwarded,
  connections: Connections,
  place: Slot
): Promise<Response> {
  const { incoming, outgoing, route } = exchange
  const { url, trust, gone, onOutcome } = to
  if (/[^\x21-\xff]/.test(target))
    throw badRequest('the request target holds a blank or a control character', 'invalid-http')
  const added = await to.headersFor(body)
  if (exchange.gone) throw hungUp()
  const isChange = route?.effect !== 'reads'
  let isConnected = false
  const stop = stopOf(exchange, gone)
  place.stalledSinceMs = performance.now()
  place.abortUpstream = () =>
    stop.abort(new Error('it has been silent for long, and others wait for the place'))
  const answer = await request({
    ...{ url, path: target, method: incoming.method, tls: trust, connections, connectMs: CONNECT_MS, body },
    headers: { ...endToEndHeaders(incoming.headers), ...added },
    connected: () => {
      isConnected = true
    },
    signal: stop.signal
  })
    .catch((error: Error) => {
      if (outgoing.destroyed) throw hungUp()
      const reason = error instanceof NoResponseError ? error.reason : error.message
      if (!gone.aborted) onOutcome?.(reason)
      throw unanswered(reason, isConnected && isChange)
    })
    .finally(() => {
      place.stalledSinceMs = undefined
      place.abortUpstream = undefined
    })
  const { status } = answer
  if (answer.headers[NOT_TAKEN] !== undefined) {
    answer.body.destroy()
    onOutcome?.('another controller answers there, or it has just begun to write')
    throw unanswered('another one answers there', false)
  }
  const isSvcds = isAnswer(status)
  onOutcome?.(isSvcds ? '' : `it answers with ${status}`)
  if (isSvcds) return answer
  answer.body.destroy()
  throw foreignAnswer(status, isChange)
}

/** Aborts when the client leaves, or the other server is no longer the one to ask. */
function stopOf({ outgoing }: Exchange, gone: AbortSignal): AbortController {
  const stop = new AbortController()
  const isGone = () => stop.abort(new Error('it writes no more'))
  if (gone.aborted) isGone()
  gone.addEventListener('abort', isGone)
  outgoing.once('close', () => {
    gone.removeEventListener('abort', isGone)
    stop.abort(hungUp())
  })
  return stop
}

const unanswered = (reason: string, mayBeDone: boolean) =>
  mayBeDone
    ? new ServiceError(502, `the primary gave no answer (${reason}), and may have done this: look first`)
    : new ServiceError(503, `the primary cannot be asked now (${reason}); try again in some seconds`, AGAIN, {
        code: 'not-leader'
      })

const foreignAnswer = (status: number, mayBeDone: boolean) =>
  new ServiceError(
    502,
    `svcd never answers with ${status}: look whether [store] url, or [http] url, ` +
      `of the primary leads to it${mayBeDone ? ', and whether this was done' : ''}`
  )

const hungUp = () => new ClientGone('the client hung up before there was an answer')

/** There is no 3xx (rules 2.5). */
const isAnswer = (status: number) => (status >= 200 && status < 300) || (status >= 400 && status < 600)

function endToEndHeaders(headers: IncomingHttpHeaders): Record<string, string> {
  const passed: Record<string, string> = {}
  for (const [name, value] of Object.entries(headers))
    if (typeof value === 'string' && !OF_ONE_HOP.has(name) && !name.startsWith(FRONT_SERVERS))
      passed[name] = value
  return passed
}
