import { tryLater } from '../errors.js'

const AT_ONCE = 60
const EVERY_MS = 5000

/** How often something may still be written for a node, and since when. */
export interface Pace {
  readonly left: number
  readonly sinceMs: number
}

/**
 * The pace once something more is written: 60 times at once, and then once in 5 s; undefined where it is too much. `nowMs`: of a
 * clock that only grows.
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
 * The pace of a node once something more is written for it, as `within` has it. A node whose token was stolen could fill what
 * controllers share otherwise. Throws 503 with Retry-After where it is too much.
 */
export function paced(node: string, pace?: Pace, nowMs = performance.now()): Pace {
  const then = within(pace, nowMs)
  if (then) return then
  const seconds = EVERY_MS / 1000
  throw tryLater(`node ${node} reports too often: once in ${seconds} s is stored`, seconds)
}
