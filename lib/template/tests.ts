import { Failure } from './errors.js'
import { arithmetic, compare } from './operators.js'
import { BLANK, Float, Iter, isMap, Loop, toInteger, toNumber, Undefined, View } from './values.js'

/** `value is name(argument)` */
export interface Test {
  /** How many arguments it takes, none or one. */
  readonly args: 0 | 1
  /** Failure: wrong types, an undefined value where jinja2 takes none. */
  readonly run: (value: unknown, argument: unknown) => boolean
}

const is = (run: (value: unknown) => boolean): Test => ({ args: 0, run })
const versus = (run: (value: unknown, argument: unknown) => boolean): Test => ({ args: 1, run })
const equal = versus((a, b) => compare('==', a, b))
const unequal = versus((a, b) => compare('!=', a, b))
const below = versus((a, b) => compare('<', a, b))
const above = versus((a, b) => compare('>', a, b))
const atMost = versus((a, b) => compare('<=', a, b))
const atLeast = versus((a, b) => compare('>=', a, b))

/** jinja2's tests that templates may use. */
export const TESTS: ReadonlyMap<string, Test> = new Map<string, Test>([
  ['defined', is(value => !isUndefined(value))],
  ['undefined', is(isUndefined)],
  ['none', is(value => value === null)],
  ['boolean', is(value => typeof value === 'boolean')],
  ['true', is(value => value === true)],
  ['false', is(value => value === false)],
  ['string', is(value => typeof value === 'string')],
  ['number', is(value => toNumber(value) !== undefined)],
  ['integer', is(value => typeof value === 'number' && Number.isInteger(value))],
  ['float', is(value => value instanceof Float || (typeof value === 'number' && !Number.isInteger(value)))],
  ['mapping', is(isMap)],
  [
    'sequence',
    is(value => typeof value === 'string' || Array.isArray(value) || isMap(value) || value === BLANK)
  ],
  ['iterable', is(isIterable)],
  ['odd', is(value => remainder(value, 2) === 1)],
  ['even', is(value => remainder(value, 2) === 0)],
  ['divisibleby', versus((value, by) => remainder(value, by) === 0)],
  ['sameas', versus((a, b) => (toInteger(a) === undefined ? a === b : Object.is(a, b)))],
  ['in', versus((value, container) => compare('in', value, container))],
  ['eq', equal],
  ['equalto', equal],
  ['==', equal],
  ['ne', unequal],
  ['!=', unequal],
  ['lt', below],
  ['lessthan', below],
  ['<', below],
  ['gt', above],
  ['greaterthan', above],
  ['>', above],
  ['le', atMost],
  ['<=', atMost],
  ['ge', atLeast],
  ['>=', atLeast]
])

function isUndefined(value: unknown): boolean {
  return value instanceof Undefined || value === BLANK
}

function isIterable(value: unknown): boolean {
  if (value instanceof Undefined) throw value.failure()
  if (typeof value === 'string' || Array.isArray(value) || isMap(value)) return true
  return value === BLANK || value instanceof View || value instanceof Iter || value instanceof Loop
}

function remainder(value: unknown, by: unknown): number {
  const rest = toNumber(arithmetic('%', value, by))
  if (rest === undefined) throw new Failure('only numbers can be divided')
  return rest
}
