import { tryLater } from '../base/errors.js'

const BURST = 60
const REFILL_MS = 5000

/** A token bucket: tokens left, and the time of the last refill. */
export interface TokenBucket {
  readonly left: number
  readonly sinceMs: number
}

/** Takes one of 60 tokens, refilled every 5 s; undefined if empty. `nowMs`: of a monotonic clock. */
export function takeToken(
  { left, sinceMs }: TokenBucket = { left: BURST, sinceMs: 0 },
  nowMs = performance.now()
): TokenBucket | undefined {
  const more = Math.floor((nowMs - sinceMs) / REFILL_MS)
  const now = Math.min(BURST, left + more)
  return now === 0 ? undefined : { left: now - 1, sinceMs: sinceMs + more * REFILL_MS }
}

/** As `takeToken`, but throws 503 with Retry-After: a stolen node token must not fill a shared store. */
export function takeTokenOrThrow(node: string, pace?: TokenBucket, nowMs = performance.now()): TokenBucket {
  const then = takeToken(pace, nowMs)
  if (then) return then
  const seconds = REFILL_MS / 1000
  throw tryLater(`node ${node} reports too often: once in ${seconds} s is stored`, seconds)
}
