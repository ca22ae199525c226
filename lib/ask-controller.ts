import { request as ask, type ClientRequest, type IncomingMessage } from 'node:http'
import { request as askTls } from 'node:https'
import { createSecureContext, rootCertificates, type SecureContext } from 'node:tls'
import { type CertificateFault, certificateFault } from './base/certificate-fault.js'

/** TLS options of Node that decide which certificates of other controllers are trusted. */
export interface Trust {
  readonly rejectUnauthorized: boolean
  /** Absent: Node's default. */
  readonly secureContext?: SecureContext
}

/** `verified`: whether certificates are verified; `ca`: authorities in PEM form beside the system's. */
export const trustFor = (verified: boolean, ca: Buffer | undefined): Trust => ({
  rejectUnauthorized: verified,
  // Shared by all connections: Node takes 20 ms to parse all authorities.
  ...(verified && ca ? { secureContext: createSecureContext({ ca: [...rootCertificates, ca] }) } : {})
})

/** A request to another controller. */
export interface ControllerRequest {
  /** Its origin, http or https. */
  readonly url: string
  readonly path: string
  readonly headers: Record<string, string>
  readonly trust: Trust
  /** Time limit for the head of the answer, in milliseconds. */
  readonly answerMs: number
  readonly signal: AbortSignal
  /** Whether the controller is still registered; a dead one is not waited for. Absent: always. */
  readonly isThere?: () => boolean
}

/** Authenticates requests between controllers and their answers. */
export interface RequestAuth {
  /** The headers of a request with this body, or this path and query. */
  headersFor(words: string): Record<string, string>
  /** Whether a controller gave this answer to a request with these headers. */
  isProved(asked: Record<string, string>, answer: string, proof: string): boolean
}

/** Maximum difference of controllers' clocks: tokens and proofs depend on them. */
export const SLACK_MS = 60_000
/** Difference from which a warning is shown. */
export const CLOCK_WARN_MS = SLACK_MS / 2

/** Describes two clocks that differ, with the way out. `aheadMs`: how far the clock of `other` is ahead. */
export const clocksApart = (own: string, other: string, aheadMs: number): string =>
  `the clock of ${other} is ${Math.round(Math.abs(aheadMs) / 1000)} s ` +
  `${aheadMs > 0 ? 'ahead of' : 'behind'} that of ${own}, and ${SLACK_MS / 1000} s are allowed: type ` +
  'timedatectl on both, and have both set theirs by the same time servers (systemctl restart chrony)'

/** The request got no answer. */
export class UnansweredError extends Error {
  constructor(
    reason: string,
    /** The fault of its certificate, with the way out; undefined for other causes. */
    readonly certificate: string | undefined
  ) {
    super(reason)
  }
}

const CERTIFICATE_ADVICE: Readonly<Record<CertificateFault, string>> = {
  name: 'its certificate is for another host; its [store] url has to name a host of its certificate',
  time: 'its certificate has expired, or is not valid yet; renew it there, or set the clocks',
  issuer: 'its certificate is not trusted; name its authority in [store] ca of this controller'
}

/** Describes a certificate's fault and the way out, by the error's code; undefined for other errors. */
export function certificateAdvice(code: string | undefined): string | undefined {
  const fault = certificateFault(code)
  return fault && CERTIFICATE_ADVICE[fault]
}

/** A machine that is off does not answer at all. */
const CONNECT_MS = 5000
const KEEP_ALIVE_MS = 2000
const REGISTRATION_CHECK_MS = 1000
/** svcd sends no interim answers (1xx); a proxy may. */
const MOST_INTERIM = 8

/** Destroys a request that does not connect in time, or gets too many interim answers. */
export function guardConnection(
  request: ClientRequest,
  isTls: boolean,
  connected: () => void = () => {}
): ClientRequest {
  const connecting = setTimeout(() => request.destroy(new Error('it does not answer')), CONNECT_MS)
  let interim = 0
  return request
    .once('socket', socket => {
      // Detects a machine that vanished silently.
      socket.setKeepAlive(true, KEEP_ALIVE_MS)
      const isThere = () => {
        clearTimeout(connecting)
        connected()
      }
      if (request.reusedSocket) isThere()
      else socket.once(isTls ? 'secureConnect' : 'connect', isThere)
    })
    .once('close', () => clearTimeout(connecting))
    .on('information', () => {
      interim++
      if (interim > MOST_INTERIM) request.destroy(new Error('it goes on promising an answer'))
    })
}

/**
 * Sends a request to another controller over its own connection; returns the head of the answer. A break in
 * the body is an error of the answer's stream. Rejects with UnansweredError, or the signal's reason.
 */
export async function requestController(question: ControllerRequest): Promise<IncomingMessage> {
  const { url, path, headers, trust, answerMs, signal, isThere } = question
  signal.throwIfAborted()
  const { protocol, hostname, port, host } = new URL(url)
  const isTls = protocol === 'https:'
  return new Promise((resolve, reject) => {
    const request = (isTls ? askTls : ask)({
      ...{
        hostname: hostname.replace(/^\[|\]$/g, ''),
        port,
        path
      },
      headers: { ...headers, host, 'accept-encoding': 'identity' },
      ...{ agent: false, signal, ...trust }
    })
    const answering = setTimeout(() => request.destroy(new Error('it does not answer')), answerMs)
    // A stopped process accepts connections but answers nothing.
    const looking =
      isThere &&
      setInterval(() => {
        if (!isThere()) request.destroy(new Error('it is not there any more'))
      }, REGISTRATION_CHECK_MS)
    const settled = () => {
      clearTimeout(answering)
      clearInterval(looking)
    }
    guardConnection(request, isTls)
      .once('close', () => {
        settled()
        // Some ends without an answer emit no error.
        reject(new UnansweredError('it ended the connection', undefined))
      })
      .once('response', answer => {
        settled()
        answer.on('error', () => undefined)
        resolve(answer)
      })
      .on('error', ({ code, message }: NodeJS.ErrnoException) => {
        if (signal.aborted) reject(signal.reason)
        else reject(new UnansweredError(code ?? message, certificateAdvice(code)))
      })
      .end()
  })
}
