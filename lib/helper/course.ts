/**
 * How a task reports and how it is stopped. All parts are optional. The output of a program is not read
 * further until the promise of a report resolves.
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
