import type { Config } from './types.js'

/** One problem and its location; `file` is `--set section.key` for the command line. */
export interface Problem {
  readonly file: string
  /** Counted from 1; absent if no single line is at fault. */
  readonly line?: number
  readonly message: string
}

/** The ini cannot be used; has every problem (rules 7.3). */
export class ConfigError extends Error {
  override readonly name = 'ConfigError'
  constructor(readonly problems: readonly Problem[]) {
    super(problems.map(problemText).join('\n'))
  }
}

/** `file:line: message`, the printed form of problems. */
export function problemText({ file, line, message }: Problem): string {
  return `${file}:${line === undefined ? '' : `${line}:`} ${message}`
}

/** A value in a message: quoted, on one line, clipped. */
export function shown(text: string): string {
  return JSON.stringify(text.length > 60 ? `${text.slice(0, 60)}…` : text)
}

/**
 * Returns the location of the first key in a message that was given: the command line or the ini. The message
 * may begin with a key that is missing but needed by the next.
 */
export function locationOf(
  { file, overriddenKeys, keyLines }: Pick<Config, 'file' | 'overriddenKeys' | 'keyLines'>,
  message: string
): Omit<Problem, 'message'> {
  for (const [, section, name] of message.matchAll(/\[(\w+)\] (\w+)/g)) {
    const key = `${section}.${name}`
    const line = keyLines[key]
    if (overriddenKeys.includes(key)) return { file: `--set ${key}` }
    if (line !== undefined) return { file, line }
  }
  return { file }
}
