/** How a piece of work reports, and how it ends. What is absent is not told; without a signal nothing stops it. */
export interface Course {
  readonly signal?: AbortSignal
  readonly timeLimitMs?: number
  /** For the record of the request. */
  line?(text: string): void
  /** 0..1. */
  progress?(fraction: number): void
  /** One change of a grab or a push. */
  change?(text: string): void
}
