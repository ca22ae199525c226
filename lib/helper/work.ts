import type { Args, Name, Result } from './commands.js'
import type { Course } from './course.js'

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
