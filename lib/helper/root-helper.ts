import type { Args, Name, Result } from './commands.js'
import type { TaskHooks } from './task-hooks.js'

/** Runs commands that need root. It knows no objects. */
export interface RootHelper {
  /** Runs one command. Throws ServiceError (503 if there is no helper), or Error with the reason. */
  call<N extends Name>(command: N, args: Args<N>, course?: TaskHooks): Promise<Result<N>>
  /** Stops all commands. */
  close(): Promise<void>
}
