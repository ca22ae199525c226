import { LONGEST_MS } from '../concurrency.js'
import { type Args, commands, type Name, type Result, readArgs, type Shape, type Values } from './commands.js'
import type { Course } from './course.js'
import { STANDARD } from './messages.js'
import type { Places } from './places.js'
import type { Work } from './work.js'

/** Checks the arguments of a command and runs it. Throws Error for an unknown command or argument. */
export async function perform(
  places: Places,
  name: string,
  given: unknown,
  course: Course
): Promise<unknown> {
  const command = Object.hasOwn(commands, name) ? commands[name as Name] : undefined
  if (command === undefined) throw new Error(`there is no command ${JSON.stringify(name)}`)
  const whole: Required<Course> = {
    signal: course.signal ?? new AbortController().signal,
    timeLimitMs: course.timeLimitMs ?? LONGEST_MS,
    line: text => course.line?.(text),
    progress: fraction => course.progress?.(fraction),
    change: text => course.change?.(text)
  }
  const run = command.run as (
    places: Places,
    args: Values<Shape>,
    course: Required<Course>
  ) => Promise<unknown>
  const args = readArgs(command.shape as Shape, given)
  return run(places, args, whole).catch(error => {
    throw withoutRoot(error)
  })
}

/** Explains a missing permission: this process is not root, and there is no helper. */
function withoutRoot(error: Error): Error {
  if (process.getuid?.() === 0 || !/\b(EACCES|EPERM)\b|not permitted|permission denied/i.test(error.message))
    return error
  const lacking = `this needs root, and svcd is user ${process.getuid?.()} with no helper at ${STANDARD}`
  error.message += `; ${lacking}: start svcd as root, or as the installed svcd.service`
  return error
}

/** Runs helper commands in this process. */
export const localWork = (places: Places): Work => ({
  call: <N extends Name>(command: N, args: Args<N>, course: Course = {}) =>
    perform(places, command, args, course) as Promise<Result<N>>,
  close: async () => {}
})
