import { tryLater } from '../errors.js'

const AT_ONCE = 60
const EVERY_MS = 5000

/** A token bucket: tokens left, and the time of the last refill. */
export interface Pace {
  readonly left: number
  readonly sinceMs: number
}

/** Takes one of 60 tokens, refilled every 5 s; undefined if empty. `nowMs`: of a monotonic clock. */
export function within(
  { left, sinceMs }: Pace = { left: AT_ONCE, sinceMs: 0 },
  nowMs = performance.now()
): Pace | undefined {
  const more = Math.floor((nowMs - sinceMs) / EVERY_MS)
  const now = Math.min(AT_ONCE, left + more)
  return now === 0 ? undefined : { left: now - 1, sinceMs: sinceMs + more * EVERY_MS }
}

/** As `within`, but throws 503 with Retry-After: a stolen node token must not fill a shared store. */
export function paced(node: string, pace?: Pace, nowMs = performance.now()): Pace {
  const then = within(pace, nowMs)
  if (then) return then
  const seconds = EVERY_MS / 1000
  throw tryLater(`node ${node} reports too often: once in ${seconds} s is stored`, seconds)
}
