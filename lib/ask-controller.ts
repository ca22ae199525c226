import { request as ask, type ClientRequest, type IncomingMessage } from 'node:http'
import { request as askTls } from 'node:https'
import { createSecureContext, rootCertificates, type SecureContext } from 'node:tls'
import { type CertificateFault, certificateFault } from './certificate-fault.js'

/** Whose certificates are taken of other controllers: options of Node for a connection with TLS. */
export interface Trust {
  readonly rejectUnauthorized: boolean
  /** Absent: what Node trusts by itself. */
  readonly secureContext?: SecureContext
}

/** `verified`: whether certificates are checked at all; `ca`: authorities in PEM form, beside those that the system trusts. */
export const trustIn = (verified: boolean, ca: Buffer | undefined): Trust => ({
  rejectUnauthorized: verified,
  // Made once for all connections: Node takes 20 ms to read all authorities.
  ...(verified && ca ? { secureContext: createSecureContext({ ca: [...rootCertificates, ca] }) } : {})
})

/** What another controller is asked. */
export interface Question {
  /** Its origin, http or https. */
  readonly url: string
  readonly path: string
  readonly headers: Record<string, string>
  readonly trust: Trust
  /** After so many milliseconds without the head of an answer it is left. */
  readonly answerMs: number
  readonly signal: AbortSignal
  /** Whether it is still one of the controllers: who is gone is not waited for. Absent: it is. */
  readonly isThere?: () => boolean
}

/** How a question is proved to be one of a controller, and so is its answer. */
export interface Proofs {
  /** The headers of a question with these words: its body, or its path and query. */
  headersFor(words: string): Record<string, string>
  /** Whether a controller has answered this to a question with these headers. */
  isProved(asked: Record<string, string>, answer: string, proof: string): boolean
}

/** As far apart may the clocks of controllers be: tokens, and what is proved between controllers, go by them. */
export const SLACK_MS = 60_000
/** From here on it is told. */
export const CLOCK_WARN_MS = SLACK_MS / 2

/** The sentence on two clocks that differ, with the way out. `aheadMs`: how far that of `other` is ahead of that of `own`. */
export const clocksApart = (own: string, other: string, aheadMs: number): string =>
  `the clock of ${other} is ${Math.round(Math.abs(aheadMs) / 1000)} s ${aheadMs > 0 ? 'ahead of' : 'behind'} that of ${own}, and ` +
  `${SLACK_MS / 1000} s are allowed: type timedatectl on both, and have both set theirs by the same time servers (systemctl restart chrony)`

/** The question was not answered. */
export class UnansweredError extends Error {
  constructor(
    reason: string,
    /** Whether it was reached: it may have done what was asked. */
    readonly isReached: boolean,
    /** What is wrong with its certificate, and the way out; undefined where it is something else. */
    readonly certificate: string | undefined
  ) {
    super(reason)
  }
}

const FAULTS: Readonly<Record<CertificateFault, string>> = {
  name: 'its certificate is for another host; its [store] url has to name a host of its certificate',
  time: 'its certificate has expired, or is not valid yet; renew it there, or set the clocks',
  issuer: 'its certificate is not trusted; name its authority in [store] ca of this controller'
}

/** What is wrong with the certificate of another controller, and the way out, by the code that a connection ended with; undefined where it is something else. */
export function certificateAdvice(code: string | undefined): string | undefined {
  const fault = certificateFault(code)
  return fault && FAULTS[fault]
}

/** A machine that is off answers nothing at all. */
const CONNECT_MS = 5000
const KEEP_ALIVE_MS = 2000
const LOOK_MS = 1000
/** svcd never says that an answer will follow (1xx); a proxy in between may. */
const MOST_INTERIM = 8

/**
 * Destroys a request to another controller whose side does not connect in time, or goes on saying that its answer will follow.
 * `connected` is told when it is reached.
 */
export function guard(request: ClientRequest, isTls: boolean, connected: () => void): ClientRequest {
  const connecting = setTimeout(() => request.destroy(new Error('it does not answer')), CONNECT_MS)
  let interim = 0
  return request
    .once('socket', socket => {
      // Whose machine is gone without a word is noticed.
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
 * Asks another controller, over a connection for this question alone; gives the head of the answer. Whoever reads the answer learns where it
 * breaks. Rejects with UnansweredError, and with the reason of the signal.
 */
export async function askController(question: Question): Promise<IncomingMessage> {
  const { url, path, headers, trust, answerMs, signal, isThere } = question
  signal.throwIfAborted()
  const { protocol, hostname, port, host } = new URL(url)
  const isTls = protocol === 'https:'
  return new Promise((resolve, reject) => {
    let isReached = false
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
    // One that stands still takes connections, and answers nothing.
    const looking =
      isThere &&
      setInterval(() => {
        if (!isThere()) request.destroy(new Error('it is not there any more'))
      }, LOOK_MS)
    const settled = () => {
      clearTimeout(answering)
      clearInterval(looking)
    }
    guard(request, isTls, () => {
      isReached = true
    })
      .once('close', () => {
        settled()
        // Not each end without an answer is an error.
        reject(new UnansweredError('it ended the connection', isReached, undefined))
      })
      .once('response', answer => {
        settled()
        answer.on('error', () => undefined)
        resolve(answer)
      })
      .on('error', ({ code, message }: NodeJS.ErrnoException) => {
        if (signal.aborted) reject(signal.reason)
        else reject(new UnansweredError(code ?? message, isReached, certificateAdvice(code)))
      })
      .end()
  })
}
