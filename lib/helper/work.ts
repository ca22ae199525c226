import type { Args, Name, Result } from './commands.js'

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

/** Does what needs root. It knows directories and words, and no object. */
export interface Work {
  /**
   * Does one command. Throws a ServiceError where the work did, unavailable (503) where nobody can do it, else an Error
   * with the reason in one sentence.
   */
  call<N extends Name>(command: N, args: Args<N>, course?: Course): Promise<Result<N>>
  /** Ends what is under way. */
  close(): Promise<void>
}
