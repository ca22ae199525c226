import type { User } from '../auth/passwords.js'
import { type Problem, ProblemsError } from '../base/errors.js'
import type { Key, keys } from './keys.js'

/** The parsed values of the table, by section. */
export type Values = {
  readonly [S in keyof typeof keys]: {
    readonly [K in keyof (typeof keys)[S]]: (typeof keys)[S][K] extends Key<infer T> ? T : never
  }
}

/**
 * The parsed ini: validated as a whole, frozen (rules 7.1, 7.2). Paths are absolute, durations in
 * milliseconds, sizes in bytes. Empty values stay so but `http.url` and `controller.address` (rules 7.6).
 */
export interface Config extends Omit<Values, 'http'> {
  readonly http: Omit<Values['http'], 'url'> & {
    /** The URL at which nodes reach this controller: the first one of the ini. */
    readonly url: string
    /** That URL, then those of other controllers, which nodes try when it does not answer. */
    readonly urls: readonly string[]
  }
  readonly file: string
  /** Keys given on the command line, as `section.key`. */
  readonly overriddenKeys: readonly string[]
  /** Lines of the keys that the ini gives and the command line does not, by `section.key`. */
  readonly keyLines: Readonly<Record<string, number>>
  readonly users: readonly User[]
}

/** The ini cannot be used; has every problem (rules 7.3). */
export class ConfigError extends ProblemsError {
  override readonly name = 'ConfigError'
}

/** A value in a message: quoted, on one line, clipped. */
export function shown(text: string): string {
  return JSON.stringify(text.length > 60 ? `${text.slice(0, 60)}…` : text)
}

/** Returns where the first given key of a message stands: on the command line or in the ini. */
export function locationOf(
  { file, overriddenKeys, keyLines }: Pick<Config, 'file' | 'overriddenKeys' | 'keyLines'>,
  message: string
): Omit<Problem, 'message'> {
  // A message may begin with a key that is missing, and name the given key that needs it next.
  for (const [, section, name] of message.matchAll(/\[(\w+)\] (\w+)/g)) {
    const key = `${section}.${name}`
    const line = keyLines[key]
    if (overriddenKeys.includes(key)) return { file: `--set ${key}` }
    if (line !== undefined) return { file, line }
  }
  return { file }
}
