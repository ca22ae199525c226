import { LONGEST_MS } from '../base/thread.js'
import {
  type Args,
  type Command,
  commands,
  type Name,
  type Result,
  type RootHelper,
  readArgs,
  type Shape,
  type TaskHooks
} from './commands.js'
import type { HelperSettings } from './directories.js'
import { HELPER_SOCKET_PATH } from './messages.js'

/** Checks the arguments of a command and runs it. Throws Error for an unknown command or argument. */
export async function runCommand(places: HelperSettings, name: string, given: unknown, course: TaskHooks) {
  const command = Object.hasOwn(commands, name) ? commands[name as Name] : undefined
  if (command === undefined) throw new Error(`there is no command ${JSON.stringify(name)}`)
  const whole: Required<TaskHooks> = {
    ...{ signal: new AbortController().signal, timeLimitMs: LONGEST_MS },
    ...{ line: () => {}, progress: () => {}, change: () => {} },
    ...course
  }
  const { shape, run } = command as Command<Shape, unknown>
  return run(places, readArgs(shape, given), whole).catch(error => {
    throw withoutRoot(error)
  })
}

/** Explains a missing permission: this process is not root, and there is no helper. */
function withoutRoot(error: Error): Error {
  if (process.getuid?.() === 0 || !/\b(EACCES|EPERM)\b|not permitted|permission denied/i.test(error.message))
    return error
  error.message +=
    `; this needs root, and svcd is user ${process.getuid?.()} with no helper at ${HELPER_SOCKET_PATH}: ` +
    'start svcd as root, or as the installed svcd.service'
  return error
}

/** Runs helper commands in this process. */
export const localHelper = (places: HelperSettings): RootHelper => ({
  call: <N extends Name>(command: N, args: Args<N>, course: TaskHooks = {}) =>
    runCommand(places, command, args, course) as Promise<Result<N>>,
  close: async () => {}
})
