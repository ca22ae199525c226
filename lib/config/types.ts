import type { User } from '../auth/passwords.js'
import type { Key, keys } from './keys.js'

/** What the keys of the table are read to, by section. */
export type Values = {
  readonly [S in keyof typeof keys]: {
    readonly [K in keyof (typeof keys)[S]]: (typeof keys)[S][K] extends Key<infer T> ? T : never
  }
}

/**
 * The ini, read once, checked whole, frozen (rules 7.1, 7.2). Sections and keys carry the ini's names. Paths are
 * absolute, durations in milliseconds, sizes in bytes. Where the ini has none, `http.url` and `controller.address` are
 * those of rules 7.6; every other empty value stays empty.
 */
export interface Config extends Omit<Values, 'http'> {
  readonly http: Omit<Values['http'], 'url'> & {
    /** The URL by which nodes reach this controller: the first one that the ini has. */
    readonly url: string
    /** That one, then those of other controllers, which nodes try when it does not answer. */
    readonly urls: readonly string[]
  }
  /** The ini file itself. */
  readonly file: string
  /** The keys that the command line gave, as `section.key`. */
  readonly set: readonly string[]
  /** The lines of the keys that the ini gave and the command line did not, by `section.key`. */
  readonly lines: Readonly<Record<string, number>>
  readonly users: readonly User[]
}
