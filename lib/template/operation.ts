/** What works out a value from another one and from arguments. */
export type Run = (value: unknown, ...args: unknown[]) => unknown

/** A filter, a test or a method. The compiler puts its arguments in order. */
export interface Operation {
  /** Names of the arguments, in order. */
  readonly params: readonly string[]
  /** How many of them must be given. */
  readonly needs: number
  /** May a template name the arguments? */
  readonly isNamed: boolean
  /** Takes the value and its arguments; one that is left out is undefined. Failure: wrong types and values. */
  readonly run: Run
}

/** An operation whose arguments are `params`, those that end in `?` being optional. */
export function operation(params: string, run: Run, isNamed = true): Operation {
  const names = params.split(' ').filter(Boolean)
  return {
    params: names.map(name => name.replace('?', '')),
    needs: names.filter(name => !name.endsWith('?')).length,
    isNamed,
    run
  }
}
