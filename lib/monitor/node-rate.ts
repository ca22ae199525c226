import { tryLater } from '../base/errors.js'
import { RateLimit } from '../base/rate-limit.js'

const EVERY_MS = 5000

/** Limits what a node can cause by itself: 60 times at once, and then once in 5 s. */
export class NodeRate extends RateLimit {
  /** `now`: monotonic milliseconds. */
  constructor(now?: () => number) {
    super({ burst: 60, refill: 1, everyMs: EVERY_MS }, now)
  }

  /** Throws 503 with Retry-After above the rate: a stolen node token must not fill a shared store. */
  takeOrThrow(node: string): void {
    if (this.take(node)) return
    const seconds = EVERY_MS / 1000
    throw tryLater(`node ${node} reports too often: once in ${seconds} s is stored`, seconds)
  }
}
