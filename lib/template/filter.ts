/** What a filter may use besides its arguments. */
export interface FilterContext {
  /** Named arguments that are not in the filter's `params`. */
  readonly named: ReadonlyMap<string, unknown>
  /** Applies a filter by its name. Failure: there is none. */
  readonly filter: (name: unknown, value: unknown, args: readonly unknown[]) => unknown
  /** Applies a test by its name. Failure: there is none. */
  readonly test: (name: unknown, value: unknown, args: readonly unknown[]) => boolean
}

/** A filter as the compiler calls it. */
export interface Filter {
  /** Names of the arguments, in order. */
  readonly params: readonly string[]
  /** How many of them must be given. */
  readonly needs: number
  /** More arguments than `params`, named ones too, may follow. */
  readonly variadic?: boolean
  /** Arguments left out are undefined. Failure: wrong types and values. */
  readonly run: (value: unknown, args: readonly unknown[], context: FilterContext) => unknown
}

/** A filter that admins of this package's user add: plain values in, plain value out. */
export type CustomFilter = (value: unknown, ...args: unknown[]) => unknown
