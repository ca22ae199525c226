/** Requests are 0.5 s apart: a longer gap means no answers of etcd, or a stopped process. */
const LONGEST_GAP_MS = 1200
/** etcd's default election timeout makes no lease shorter than this. */
const SHORTEST_LEASE_MS = 2000

/** Detects a leader without heartbeats. Its lease may last longer: a new leader of etcd renews all leases. */
export class HeartbeatMonitor {
  /** The last heartbeat, and when it was first seen. */
  #heartbeat: string | undefined
  #seenMs = 0
  /** Start of the current sequence of answers, and the last answer. */
  #answersMs = 0
  #lastMs = Number.NEGATIVE_INFINITY

  /**
   * Takes the last heartbeat, undefined without a leader, and when it was asked for and answered (monotonic,
   * in ms). Returns whether there was no new one for `ttlMs` while etcd answered for at least half of it.
   * `ttlMs` undefined: the leader sends none.
   */
  isSilent(
    sign: string | undefined,
    ttlMs: number | undefined,
    askedMs: number,
    answeredMs: number
  ): boolean {
    if (answeredMs - this.#lastMs > LONGEST_GAP_MS) this.#answersMs = answeredMs
    this.#lastMs = answeredMs
    if (sign !== this.#heartbeat) {
      this.#heartbeat = sign
      this.#seenMs = answeredMs
    }
    if (sign === undefined || ttlMs === undefined) return false
    return (
      askedMs - this.#seenMs >= Math.max(ttlMs, SHORTEST_LEASE_MS) && askedMs - this.#answersMs >= ttlMs / 2
    )
  }
}
