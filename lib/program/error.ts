import { escapeControls } from '../log.js'

/** Why a program did not succeed. `failed`: a status that is not `ok`, a signal, too much output, not startable. */
export type Why = 'missing' | 'failed' | 'time limit' | 'aborted'

/** A program did not do what it was run for; `message` is one sentence with its name and its last words. */
export class ProgramError extends Error {
  override readonly name = 'ProgramError'
  readonly program: string
  readonly why: Why
  /** The exit status, where it came to that. */
  readonly status: number | undefined
  /** The last 8 KiB of its standard error. */
  readonly stderr: string

  constructor(program: string, why: Why, what: string, status?: number, stderr = '') {
    const words = lastWords(stderr)
    super(`${program} ${what}${words === '' ? '' : `: ${words}`}`)
    this.program = program
    this.why = why
    this.status = status
    this.stderr = stderr
  }
}

const LONGEST_WORDS = 300

/** The last line with something on it, on one line whatever it holds. */
function lastWords(stderr: string): string {
  const line =
    stderr
      .split(/[\r\n]+/)
      .findLast(text => text.trim() !== '')
      ?.trim() ?? ''
  const shown = escapeControls(line)
  return shown.length > LONGEST_WORDS ? `${shown.slice(0, LONGEST_WORDS)}…` : shown
}
