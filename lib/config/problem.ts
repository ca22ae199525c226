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
