import { request as ask, type IncomingMessage } from 'node:http'
import { request as askTls } from 'node:https'
import { pipeline } from 'node:stream/promises'
import { badRequest, ServiceError } from '../errors.js'
import { ClientGone } from './body.js'
import type { Exchange } from './exchange.js'
import type { Limits } from './limits.js'
import { type Place, Places } from './places.js'
import type { Forwarded } from './route.js'

/** Headers of one connection, and those that each server writes itself. */
const OF_ONE_HOP = new Set(
  'connection content-length date expect host keep-alive proxy-connection te trailer transfer-encoding upgrade x-forwarded-for'.split(
    ' '
  )
)
/** A machine that is off answers nothing at all. */
const CONNECT_MS = 5000
const KEEP_ALIVE_MS = 2000
/** So many that are refused are told to come back in a second. */
const LEAST_PER_SECOND = 300
const AGAIN = { 'Retry-After': '5' }

/** Writes the head of an answer: status, headers and, if it is known, the length. */
type Begin = (status: number, headers: Record<string, string>, length: number | undefined) => void

/** Requests that another server answers. They are bounded in number (rules 11.16). */
export class Forwards {
  readonly #places: Places

  /** `isUnbound`: whether an address may have all places. */
  constructor(
    { forwards, forwardWaitMs, yieldMs }: Pick<Limits, 'forwards' | 'forwardWaitMs' | 'yieldMs'>,
    isUnbound: (address: string) => boolean
  ) {
    this.#places = new Places({
      most: forwards,
      ofAddress: {
        most: Math.ceil(forwards / 4),
        isUnbound,
        what: 'requests that are handed on to the controller that writes, which is the most for one address'
      },
      yieldMs,
      waitMs: forwardWaitMs,
      leastPerSecond: LEAST_PER_SECOND,
      what: 'requests are handed on to the controller that writes, which is the most'
    })
  }

  /**
   * Asks the other server, and sends on what it answers, once `begin` has written the head. Throws ServiceError 503 where nothing can
   * have been done, or there is no place in time, and 502 where nobody knows.
   */
  run<C>(exchange: Exchange<C>, forwarded: Forwarded, begin: Begin): Promise<void> {
    return this.#places.run(exchange, place => forward(exchange, forwarded, place, begin))
  }
}

async function forward<C>(
  exchange: Exchange<C>,
  forwarded: Forwarded,
  place: Place,
  begin: Begin
): Promise<void> {
  const answer = await asked(exchange, forwarded)
  if (exchange.gone) return void answer.destroy()
  const { 'content-length': length } = answer.headers
  begin(answer.statusCode as number, passedOn(answer), length === undefined ? undefined : Number(length))
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

async function asked<C>(exchange: Exchange<C>, { to, target, body }: Forwarded): Promise<IncomingMessage> {
  const { incoming, outgoing, route } = exchange
  const { url, verified, gone, told } = to
  if (/[^\x21-\xff]/.test(target)) throw badRequest('the request target holds a blank or a control character')
  const added = await to.headersFor(body)
  if (exchange.gone) throw hungUp()
  return new Promise((resolve, reject) => {
    let isConnected = false
    const { protocol, hostname, port, host } = new URL(url)
    const isTls = protocol === 'https:'
    const request = (isTls ? askTls : ask)({
      ...{ hostname: hostname.replace(/^\[|\]$/g, ''), port, path: target, method: incoming.method },
      headers: { ...passedOn(incoming), ...added, host, 'content-length': body.length },
      ...{ agent: false, signal: gone, rejectUnauthorized: verified }
    })
    const connecting = setTimeout(() => request.destroy(new Error('it does not answer')), CONNECT_MS)
    request
      .once('socket', socket => {
        // Whose machine is gone without a word is noticed.
        socket.setKeepAlive(true, KEEP_ALIVE_MS)
        socket.once(isTls ? 'secureConnect' : 'connect', () => {
          isConnected = true
          clearTimeout(connecting)
        })
      })
      .once('close', () => clearTimeout(connecting))
      .once('response', answer => {
        told?.('')
        // Whoever reads it learns that it broke.
        answer.on('error', () => undefined)
        resolve(answer)
      })
      .on('error', (error: NodeJS.ErrnoException) => {
        if (outgoing.destroyed) return reject(hungUp())
        const reason = gone.aborted ? 'it writes no more' : (error.code ?? error.message)
        if (!gone.aborted) told?.(reason)
        reject(
          isConnected && route?.effect !== 'reads'
            ? new ServiceError(
                502,
                `the controller that writes gave no answer (${reason}), and may have done this: look first`
              )
            : new ServiceError(
                503,
                `the controller that writes cannot be asked now (${reason}); try again in some seconds`,
                AGAIN
              )
        )
      })
      .end(body)
    outgoing.once('close', () => request.destroy())
  })
}

const hungUp = () => new ClientGone('the client hung up before there was an answer')

function passedOn({ headers }: IncomingMessage): Record<string, string> {
  const passed: Record<string, string> = {}
  for (const [name, value] of Object.entries(headers))
    if (typeof value === 'string' && !OF_ONE_HOP.has(name)) passed[name] = value
  return passed
}
