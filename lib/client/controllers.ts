import { certificateFault, type Trust } from './certificates.js'
import { type RequestOptions, type Response, request } from './request.js'

/** Authenticates requests between controllers and their answers. */
export interface RequestAuth {
  /** The headers of a request with this body, or this path and query. */
  headersFor(words: string): Record<string, string>
  /** Whether a controller gave this answer to a request with these headers. */
  isAnswerAuthentic(asked: Record<string, string>, answer: string, proof: string): boolean
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

/** Describes the fault of a controller's certificate and the way out; undefined for other error codes. */
export function certificateAdvice(code: string | undefined): string | undefined {
  const fault = certificateFault(code, 'controller')
  return fault && `${fault.what}; ${fault.wayOut}`
}

/** A machine that is off does not answer at all. */
export const CONNECT_MS = 5000

/** Sends a request to another controller, as `request` does, over a connection of its own. */
export const requestController = (options: RequestOptions & { readonly tls: Trust }): Promise<Response> =>
  request({
    connectMs: CONNECT_MS,
    ...options,
    headers: { ...options.headers, 'accept-encoding': 'identity' }
  })
