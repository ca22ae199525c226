import type { Args, Name, Result } from './commands.js'
import type { Course } from './course.js'

/** Runs commands that need root. It knows no objects. */
export interface Work {
  /** Runs one command. Throws ServiceError (503 if there is no helper), or Error with the reason. */
  call<N extends Name>(command: N, args: Args<N>, course?: Course): Promise<Result<N>>
  /** Stops all commands. */
  close(): Promise<void>
}
