import type { TemplateError } from './errors.js'

/** One rendering of one template. */
export interface Frame {
  /** The caller's data, read by own properties only. */
  readonly data: Readonly<Record<string, unknown>>
  /** Variables of the including template, before `data`; undefined where it has set none. */
  readonly inherited: ReadonlyMap<string, unknown> | undefined
  /** Variables of this template; undefined: not assigned. */
  readonly slots: unknown[]
  /** The text so far. */
  out: string
  /** Offset of what is being computed, for errors. */
  at: number
  /** Templates around this one. */
  readonly depth: number
}

/** A compiled template. Both throw TemplateError. */
export interface Template {
  /** Renders with the data of the caller. */
  readonly render: (data: Readonly<Record<string, unknown>>) => string
  /** Renders inside another template. */
  readonly renderWithin: (
    data: Readonly<Record<string, unknown>>,
    inherited: ReadonlyMap<string, unknown> | undefined,
    depth: number
  ) => string
  /** Names of includes that are written as plain strings and have to exist, and the error if one does not. */
  readonly includes: readonly { readonly name: string; readonly error: () => TemplateError }[]
}

/** Finds a template to include; undefined where there is none of that name. Throws TemplateError. */
export type Finder = (name: string) => Template | undefined

export type Evaluate = (frame: Frame) => unknown
export type Execute = (frame: Frame) => void
