/** How one piece of work with one BMC is bounded. */
export interface Visit {
  readonly port: number
  readonly timeLimitMs: number
  readonly signal: AbortSignal
}
