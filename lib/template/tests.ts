import { type Operation, operation } from './operation.js'
import { COMPARISONS, OPERATORS } from './operators.js'
import { BLANK, isMap, Undefined } from './values.js'

const SIGNS = ['==', '!=', '<', '>', '<=', '>='] as const

const is = (run: (value: unknown) => boolean): Operation => operation('', run, false)
const compares = (operator: keyof typeof COMPARISONS): Operation =>
  operation('other', COMPARISONS[operator], false)
const rest = (value: unknown, by: unknown): unknown => OPERATORS['%']?.(value, by)

/** The tests of `value is name(argument)`. Failure: wrong types, and an undefined value where jinja2 takes none. */
export const TESTS: ReadonlyMap<string, Operation> = new Map(
  Object.entries({
    defined: is(isDefined),
    undefined: is(value => !isDefined(value)),
    none: is(value => value === null),
    boolean: is(value => typeof value === 'boolean'),
    true: is(value => value === true),
    false: is(value => value === false),
    string: is(value => typeof value === 'string'),
    number: is(value => typeof value === 'number' || typeof value === 'boolean'),
    integer: is(value => Number.isInteger(value)),
    mapping: is(isMap),
    odd: is(value => rest(value, 2) === 1),
    even: is(value => rest(value, 2) === 0),
    divisibleby: operation('num', (value, num) => rest(value, num) === 0, false),
    in: compares('in'),
    eq: compares('=='),
    equalto: compares('=='),
    ne: compares('!='),
    lt: compares('<'),
    gt: compares('>'),
    le: compares('<='),
    ge: compares('>='),
    // selectattr() may name the operator itself
    ...Object.fromEntries(SIGNS.map(sign => [sign, compares(sign)]))
  })
)

function isDefined(value: unknown): boolean {
  return !(value instanceof Undefined) && value !== BLANK
}
