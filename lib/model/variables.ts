import { refusalsOf } from '../base/errors.js'
import { isObject, type JsonValue } from '../base/json.js'
import { type FieldType, ValueError } from './field.js'

/** An admin's variables for templates (rules 3.16). */
export type VariableMap = Readonly<Record<string, string>>

/** Variables of a request; null removes one. */
type VariablesPatch = Readonly<Record<string, string | null>>

const mostVariables = 100
const mostBytes = 16_384
const mostValueBytes = 4_096

const variableNameRule = '1 to 63 letters, digits and underscores that begin with a letter'
const isVariableName = (name: string) => /^[A-Za-z][A-Za-z0-9_]{0,62}$/.test(name)

/** An object of texts; null is not allowed in a file. */
const variableMap: FieldType<VariableMap> = {
  expected: 'an object of texts',
  json: 'object',
  read: (value, exact) => {
    if (!isObject(value)) throw new ValueError('')
    for (const [name, text] of Object.entries(value)) checkVariable(name, text, exact)
    return sorted(Object.entries(value)) as VariableMap
  }
}

function checkVariable(name: string, value: JsonValue | undefined, exact = false): void {
  if (!isVariableName(name))
    throw new ValueError(`has a variable ${JSON.stringify(name)}: a name must be ${variableNameRule}`)
  if (value === null && !exact) return
  if (typeof value !== 'string')
    throw new ValueError(`has a variable ${name} that is not a text: put numbers in quotation marks`)
  if (value.includes('\u0000')) throw new ValueError(`has a variable ${name} that holds a NUL character`)
  const bytes = Buffer.byteLength(value)
  if (bytes > mostValueBytes)
    throw new ValueError(`has a variable ${name} of ${bytes} bytes: ${mostValueBytes} at most`)
}

/** Sorts by name, so that a file depends on the values alone. */
const sorted = <V>(entries: readonly (readonly [string, V])[]): Readonly<Record<string, V>> =>
  Object.fromEntries([...entries].sort(([a], [b]) => (a < b ? -1 : 1)))

/** Drops the variables that a request removes. */
export const withoutNull = (given: VariablesPatch): VariableMap =>
  Object.fromEntries(Object.entries(given).filter((entry): entry is [string, string] => entry[1] !== null))

/**
 * Merges the variables of a request into an object's own. Missing ones stay; null removes one, or all instead
 * of the map. A value equal to that in force does not become its own (rules 3.16), unless `storeAll`.
 */
export function mergeVariables(
  own: VariableMap = {},
  given: VariablesPatch | null,
  inForce: VariableMap = {},
  storeAll = false
): VariableMap {
  if (given === null) return {}
  const merged = new Map(Object.entries(own))
  for (const [name, value] of Object.entries(given))
    if (value === null) merged.delete(name)
    else if (storeAll || !Object.hasOwn(inForce, name) || inForce[name] !== value) merged.set(name, value)
  return sorted([...merged])
}

/** Throws 400 if the variables are too many or too long; the message begins with `title`. */
export function checkVariables(variables: VariableMap = {}, title: string): void {
  const no = refusalsOf(title)
  const entries = Object.entries(variables)
  if (entries.length > mostVariables)
    throw no(`field "variables" has ${entries.length} variables: ${mostVariables} at most`, 'too-many')
  const bytes = entries.reduce((sum, [name, value]) => sum + name.length + Buffer.byteLength(value), 0)
  if (bytes > mostBytes)
    throw no(`field "variables" has ${bytes} bytes in all: ${mostBytes} at most`, 'too-many')
}

export const variablesField = {
  name: 'variables',
  type: variableMap,
  isMergedByKey: true,
  default: {},
  meaning: 'texts for templates, by name; a request changes those that it names, and null takes one away'
} as const

/** Returns the level that sets each variable; later levels win. */
export const variableSources = <S extends string>(
  levels: readonly (readonly [S, VariableMap | undefined])[]
): Readonly<Record<string, S>> =>
  sorted(levels.flatMap(([who, map]) => Object.keys(map ?? {}).map(name => [name, who] as const)))
