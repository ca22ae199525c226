import type { Config } from './types.js'

/** One thing that is wrong, and where; `file` is `--set section.key` for a value from the command line. */
export interface Problem {
  readonly file: string
  /** Counted from 1; absent where no single line is at fault. */
  readonly line?: number
  readonly message: string
}

/** The ini cannot be used: every problem found in one pass (rules 7.3). */
export class ConfigError extends Error {
  override readonly name = 'ConfigError'
  constructor(readonly problems: readonly Problem[]) {
    super(problems.map(problemText).join('\n'))
  }
}

/** `file:line: message`, the one form in which problems are printed. */
export function problemText({ file, line, message }: Problem): string {
  return `${file}:${line === undefined ? '' : `${line}:`} ${message}`
}

/** A value as it is shown in a message: quoted, on one line, cut when long. */
export function shown(text: string): string {
  return JSON.stringify(text.length > 60 ? `${text.slice(0, 60)}…` : text)
}

/**
 * Where the key stands that a message begins with: on the command line or in the ini. Where nobody gave that one, it is the
 * place of the next key that the message names, whose value needs the first.
 */
export function placeOf(
  { file, set, lines }: Pick<Config, 'file' | 'set' | 'lines'>,
  message: string
): Omit<Problem, 'message'> {
  for (const [, section, name] of message.matchAll(/\[(\w+)\] (\w+)/g)) {
    const key = `${section}.${name}`
    const line = lines[key]
    if (set.includes(key)) return { file: `--set ${key}` }
    if (line !== undefined) return { file, line }
  }
  return { file }
}
