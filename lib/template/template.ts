import type { TemplateError } from './errors.js'

/** The state of one rendering of one template. */
export interface Frame {
  /** The caller's data; only own properties are read. */
  readonly data: Readonly<Record<string, unknown>>
  /** Variables of the including templates, which hide `data`. */
  readonly inherited: Inherited | undefined
  /** Variables of this template; undefined: not assigned. */
  readonly slots: unknown[]
  out: string
  /** Offset of the present computation, for errors. */
  at: number
  /** Number of including templates. */
  readonly depth: number
}

/** Resolves a name in the including templates; undefined if it is not set there. */
export type Inherited = (name: string) => unknown

export interface Template {
  /** Renders `data`; an include passes the outer variables and its depth. Throws TemplateError. */
  readonly render: (data: Readonly<Record<string, unknown>>, inherited?: Inherited, depth?: number) => string
  /** Includes of a fixed name that must exist, each with its error. */
  readonly includes: readonly { readonly file: string; readonly error: TemplateError }[]
}

/** Finds a template to include; undefined if there is none of that name. Throws TemplateError. */
export type IncludeResolver = (name: string) => Template | undefined

export type Evaluate = (frame: Frame) => unknown
export type Execute = (frame: Frame) => void
