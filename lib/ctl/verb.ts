import type { TypeName } from '../model/docs.js'
import type { Options, Session } from './session.js'

/** What can be done with the objects of a type. */
export interface Verb<T extends string = TypeName> {
  /** What stands behind it, for a person; words in brackets may be left out. */
  readonly operands: string
  /** How many words that are at least and at most. */
  readonly count: readonly [number, number]
  readonly summary: string
  /** The options that it takes beside those that all take. */
  readonly options?: readonly (keyof Options)[]
  /** The types that have it; all, when absent. */
  readonly only?: readonly T[]
  /** The last word is one of these. */
  readonly actions?: readonly string[]
  /** It is followed by FIELD=VALUE words. */
  readonly assigns?: true
  run(session: Session, type: T, operands: readonly string[]): Promise<void>
}

/** Words without an end. */
export const any = Number.POSITIVE_INFINITY
/** The options of what lists, and of what changes. */
export const chosen = ['output', 'fields', 'sort'] as const
export const change = ['output', 'dryrun'] as const

/** The path of an object. */
export const pathOf = (type: TypeName, name: string) => `/config/${type}/${encodeURIComponent(name)}`
