import type { Verb } from './commands.js'
import type { RootHelper } from './root-helper.js'

type Run = (words: readonly string[], signal: AbortSignal) => Promise<string>

const verbs: readonly string[] = ['start', 'stop', 'restart', 'reload'] satisfies readonly Verb[]

/** Runs commands of the ini by `run`. Without root, the helper runs `systemctl` for units of the ini. */
export function systemctlBy(work: RootHelper, run: Run): Run {
  if (process.getuid?.() === 0) return run
  return (words, signal) => {
    const [program, verb = '', unit = ''] = words
    const isHelpers = program === 'systemctl' && words.length === 3 && verbs.includes(verb)
    return isHelpers ? work.call('systemctl', { verb: verb as Verb, unit }, { signal }) : run(words, signal)
  }
}
