import type { User } from '../auth/passwords.js'
import type { Key, keys } from './keys.js'

/** The parsed values of the table, by section. */
export type Values = {
  readonly [S in keyof typeof keys]: {
    readonly [K in keyof (typeof keys)[S]]: (typeof keys)[S][K] extends Key<infer T> ? T : never
  }
}

/**
 * The parsed ini: read once, validated as a whole, frozen (rules 7.1, 7.2). Sections and keys have the ini's
 * names. Paths are absolute, durations in milliseconds, sizes in bytes. Empty values stay empty, except for
 * `http.url` and `controller.address` (rules 7.6).
 */
export interface Config extends Omit<Values, 'http'> {
  readonly http: Omit<Values['http'], 'url'> & {
    /** The URL at which nodes reach this controller: the first one of the ini. */
    readonly url: string
    /** That URL, then those of other controllers, which nodes try when it does not answer. */
    readonly urls: readonly string[]
  }
  /** The path of the ini. */
  readonly file: string
  /** Keys given on the command line, as `section.key`. */
  readonly overriddenKeys: readonly string[]
  /** Lines of the keys that the ini gives and the command line does not, by `section.key`. */
  readonly keyLines: Readonly<Record<string, number>>
  readonly users: readonly User[]
}
