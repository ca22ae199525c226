/** How a task reports and is stopped. A program's output is read on when the promise of a report resolves. */
export interface TaskHooks {
  readonly signal?: AbortSignal
  readonly timeLimitMs?: number
  /** For the record of the request. */
  line?(text: string): unknown
  /** 0..1. */
  progress?(fraction: number): void
  /** One change of a grab or a push. */
  change?(text: string): unknown
}
