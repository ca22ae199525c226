import { STATUS_CODES } from 'node:http'
import { badRequest, ServiceError, tooLarge } from '../base/errors.js'
import type { Log } from '../base/log.js'
import type { ThrottledWarning } from '../base/rate-limit.js'
import { LIMITS } from './admission/limits.js'
import { dropArrivedBody, hasBody, headerTooLarge } from './body.js'
import { endSoon } from './connection.js'
import type { Exchange } from './exchange.js'
import type { Sender } from './send.js'

/** Longer bodies are cut instead of dropped. */
const LINGER_BYTES = 1024 ** 3

/**
 * The one mapper of errors to answers. A ServiceError goes out as it is, anything else as a 500 without
 * details. Each 5xx is logged here, once: 502 and 503 with message and cause, others with the stack. Frequent
 * ones go to `shed`: 503 with Retry-After (rules 2.13), and those caused by strangers, by the name `kind`
 * (rules 2.7). Never throws.
 */
export function toRefusal(
  error: unknown,
  what: string,
  { log, shed, kind }: { log: Log; shed: ThrottledWarning; kind: string | undefined }
): ServiceError {
  try {
    if (error instanceof ServiceError && isErrorStatus(error.status)) {
      const text = () => `${what}: ${error.message}${causeOf(error)}`
      // The messages of one kind differ only in numbers.
      if (error.status === 503 && error.headers?.['Retry-After'] !== undefined)
        shed.say(text(), error.message.replace(/\d+/g, ''))
      else if (error.status === 503 && kind !== undefined) shed.say(text(), kind)
      else if (error.status === 503) log.warn(text())
      else if (error.status === 502) shed.say(text(), '502')
      else if (error.status >= 500) log.error(`${what}: ${describe(error)}`)
      return error
    }
    log.error(`${what}: ${describe(error)}`)
  } catch {
    // An error with a getter that throws is still answered.
    log.error(`${what}: an error that cannot be described`)
  }
  return new ServiceError(500, 'internal error; the log of the service has the reason')
}

const isErrorStatus = (status: number) => Number.isInteger(status) && status >= 400 && status <= 599
/** The message may include the cause already. */
const causeOf = ({ cause, message }: Error) =>
  cause instanceof Error && !message.endsWith(cause.message) ? `: ${cause.message}` : ''

/** A thrown value that is no Error is not shown: it may be a body or a password. */
function describe(error: unknown): string {
  if (typeof error === 'string') return error
  if (!(error instanceof Error)) return `a value of type ${typeof error} was thrown`
  const stack = error.stack ?? error.message
  return error.cause instanceof Error
    ? `${stack}\ncaused by ${error.cause.stack ?? error.cause.message}`
    : stack
}

/**
 * Answers with `{"message"}` (rules 1.5). If the body is still coming, it closes the connection for writing
 * and drops the rest for a while: after an immediate close the client would see a reset, not the reason.
 */
export async function refuse<C>(
  exchange: Exchange<C>,
  error: ServiceError,
  sender: Sender<C>,
  lingerMs: number
): Promise<void> {
  const { incoming } = exchange
  const body = { message: error.message, code: error.code }
  const unread = hasBody(incoming) && !incoming.readableEnded
  // A body that came with the header is dropped and the connection kept.
  const small =
    !exchange.awaitsContinue && Number(incoming.headers['content-length']) <= LIMITS.shortBodyBytes
  if (!unread || (small && error.status !== 408 && (await dropArrivedBody(incoming))))
    return exchange.gone
      ? undefined
      : sender.send(exchange, { status: error.status, headers: error.headers, body })
  const text = `${JSON.stringify(body)}\n`
  const length = Buffer.byteLength(text)
  exchange.isLast = true
  sender.head(exchange, error.status, 'application/json', error.headers, length)
  if (exchange.headOnly) exchange.outgoing.flushHeaders()
  else exchange.outgoing.write(text)
  exchange.bytes = exchange.headOnly ? 0 : length
  exchange.answered = true
  linger(exchange, lingerMs)
}

function linger({ incoming }: Exchange, lingerMs: number): void {
  const { socket } = incoming
  let left = LINGER_BYTES
  const timer = setTimeout(() => socket.destroy(), lingerMs)
  socket.once('close', () => clearTimeout(timer))
  incoming
    .on('data', (chunk: Buffer) => {
      left -= chunk.length
      if (left < 0) socket.destroy()
    })
    .once('end', () => endSoon(socket))
    .on('error', () => undefined)
    .resume()
  socket.end()
}

/** Returns the complete answer to input that node's parser refused: such a socket has no response object. */
export function rawRefusal({ status, message, code }: ServiceError): string {
  const body = `${JSON.stringify({ message, code })}\n`
  return [
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
    'Content-Type: application/json',
    `Content-Length: ${Buffer.byteLength(body)}`,
    `Date: ${new Date().toUTCString()}`,
    'Connection: close',
    '',
    body
  ].join('\r\n')
}

/** Status and message for an error of node's parser; undefined if the connection itself broke. */
export function parserRefusal(
  error: NodeJS.ErrnoException & { reason?: string },
  headerBytes: number
): ServiceError | undefined {
  const { code = '' } = error
  const invalid = (what: string) => badRequest(`the request ${what}`, 'invalid-http')
  if (code === 'HPE_HEADER_OVERFLOW') return headerTooLarge(headerBytes)
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') return new ServiceError(408, 'the request header came too slowly')
  if (code === 'HPE_CHUNK_EXTENSIONS_OVERFLOW') return tooLarge('the chunk extensions are too large')
  if (code === 'HPE_INVALID_EOF_STATE') return invalid('ends before it is complete')
  if (!code.startsWith('HPE_')) return undefined
  return invalid(`is not valid HTTP/1.1: ${error.reason ?? error.message}`)
}
