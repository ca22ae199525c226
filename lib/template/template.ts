import type { TemplateError } from './errors.js'

/** One rendering of one template. */
export interface Frame {
  /** The data of the caller; own properties only are read. */
  readonly data: Readonly<Record<string, unknown>>
  /** The variables of the including templates, which come before `data`. */
  readonly inherited: Inherited | undefined
  /** The variables of this template; undefined: not assigned. */
  readonly slots: unknown[]
  /** The text so far. */
  out: string
  /** Offset of what is being computed, for errors. */
  at: number
  /** How many templates are around this one. */
  readonly depth: number
}

/** What a name means in an including template; undefined: it has not set it. */
export type Inherited = (name: string) => unknown

/** A compiled template. */
export interface Template {
  /**
   * Renders with the data of the caller, inside other templates with their variables and their number. Throws
   * TemplateError.
   */
  readonly render: (data: Readonly<Record<string, unknown>>, inherited?: Inherited, depth?: number) => string
  /** The includes that are written as a plain string and have to exist, each with the error if it does not. */
  readonly includes: readonly { readonly file: string; readonly error: TemplateError }[]
}

/** Finds a template to include; undefined where there is none of that name. Throws TemplateError. */
export type Finder = (name: string) => Template | undefined

export type Evaluate = (frame: Frame) => unknown
export type Execute = (frame: Frame) => void
