import { tryLater } from '../errors.js'

const AT_ONCE = 60
const EVERY_MS = 5000

/** A token bucket: tokens left, and the time of the last refill. */
export interface Pace {
  readonly left: number
  readonly sinceMs: number
}

/**
 * Takes a token from a bucket of 60 that gets one every 5 s; returns undefined if it is empty. `nowMs` is of
 * a monotonic clock.
 */
export function within(
  { left, sinceMs }: Pace = { left: AT_ONCE, sinceMs: 0 },
  nowMs = performance.now()
): Pace | undefined {
  const more = Math.floor((nowMs - sinceMs) / EVERY_MS)
  const now = Math.min(AT_ONCE, left + more)
  return now === 0 ? undefined : { left: now - 1, sinceMs: sinceMs + more * EVERY_MS }
}

/**
 * Takes a token for a node, as `within` does: a stolen node token must not fill the shared store. Throws 503
 * with Retry-After if the bucket is empty.
 */
export function paced(node: string, pace?: Pace, nowMs = performance.now()): Pace {
  const then = within(pace, nowMs)
  if (then) return then
  const seconds = EVERY_MS / 1000
  throw tryLater(`node ${node} reports too often: once in ${seconds} s is stored`, seconds)
}
