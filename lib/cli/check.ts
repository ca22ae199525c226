import { checkAll } from '../check.js'
import { problemText } from '../config/problem.js'
import type { Config } from '../config/types.js'

/**
 * Prints problems, warnings and notes on stderr, and `ok` on stdout when there is no problem. True when there is
 * none.
 */
export async function check(config: Config): Promise<boolean> {
  const { problems, warnings, notes } = await checkAll(config)
  const lines = [
    ...problems.map(problemText),
    ...warnings.map(warning => `warning: ${warning}`),
    ...notes.map(note => `note: ${note}`)
  ]
  for (const line of lines) process.stderr.write(`${line}\n`)
  if (problems.length > 0) return false
  process.stdout.write('ok\n')
  return true
}
