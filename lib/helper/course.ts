/**
 * How a piece of work reports, and how it ends. What is absent is not told; without a signal nothing stops it. A program whose
 * lines are told is not read any further until a promise that a report gave has resolved.
 */
export interface Course {
  readonly signal?: AbortSignal
  readonly timeLimitMs?: number
  /** For the record of the request. */
  line?(text: string): unknown
  /** 0..1. */
  progress?(fraction: number): void
  /** One change of a grab or a push. */
  change?(text: string): unknown
}
