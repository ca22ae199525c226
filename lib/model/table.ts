import { isDeepStrictEqual } from 'node:util'
import { didYouMean } from '../base/did-you-mean.js'
import { isObject, type JsonObject, type JsonValue } from '../base/json.js'
import { type Field, type FieldType, secretMask, type Table, ValueError } from './field.js'
import { type VariableMap, withoutNull } from './variables.js'

export type Report = (path: readonly (string | number)[], message: string) => void

/** Returns a value as JSON text for a message, cut if long. */
export function valueText(value: JsonValue): string {
  const text = JSON.stringify(value)
  return text.length > 60 ? `${text.slice(0, 57)}...` : text
}

/** Returns the field for a key in any spelling; `bmcsetup` depends on the type of its value (rules 1.6). */
export function fieldFor(table: Table, key: string, value: JsonValue): Field | undefined {
  const wanted = key !== 'bmcsetup' ? key : typeof value === 'boolean' ? 'setupbmc' : 'bmcsetupname'
  return table.find(({ name, otherSpellings }) => name === wanted || otherSpellings?.includes(key))
}

/**
 * Reads a value in its stored form. null, and '' where it is no value, mean "not set"; an `exact` file must
 * omit such a field. Throws ValueError to follow the field's name: "must be true or false, not 5".
 */
function readField(
  { type, secret, omitsDefault, default: byDefault }: Field,
  value: JsonValue,
  exact: boolean
) {
  const isUnset = value === null || (value === '' && !type.keepsEmpty)
  if (exact && (isUnset || (omitsDefault && isDeepStrictEqual(value, byDefault))))
    throw new ValueError(`is ${valueText(value)}; leave it out`)
  if (isUnset) return null
  try {
    return type.read(value, exact)
  } catch (error) {
    if (!(error instanceof ValueError) || error.message !== '') throw error
    throw new ValueError(`must be ${type.expected}${secret ? '' : `, not ${valueText(value)}`}`)
  }
}

/**
 * Reads an object of a request or import: fields in any spelling, null where not set (rules 1.6, 1.8). Keys
 * that begin with `_` are skipped, and so are masked secrets (rules 1.11). `exact` reads a file, which must
 * hold stored fields under their own names and nothing else (rules 11.2).
 */
export function readTable(
  table: Table,
  given: JsonObject,
  report: Report,
  exact = false
): Map<string, unknown> {
  const values = new Map<string, unknown>()
  const wrong = new Set<string>()
  const stored = (key: string) => table.find(({ name, derived }) => name === key && !derived)
  for (const [key, value] of Object.entries(given)) {
    const field = exact ? stored(key) : fieldFor(table, key, value)
    if (!exact && (key.startsWith('_') || (field?.secret && value === secretMask))) continue
    if (!field) {
      const names = table.filter(({ derived }) => derived !== true).map(({ name }) => name)
      report([key], `there is no field "${key}"${exact ? didYouMean(key, names) : listFields(names, key)}`)
    } else
      try {
        const read = readField(field, value, exact)
        if (values.has(field.name) && !isDeepStrictEqual(values.get(field.name), read))
          report([], `field "${key}" is given twice with different values`)
        values.set(field.name, read)
      } catch (error) {
        if (!(error instanceof ValueError)) throw error
        wrong.add(field.name)
        for (const { path, message } of [error, ...error.furtherErrors])
          report([key, ...(path ?? [])], path ? message : `field "${key}" ${message}`)
      }
  }
  for (const { name, required, type } of table)
    if (required && values.get(name) === null) report([name], `field "${name}" must be ${type.expected}`)
    else if (required && !values.has(name) && !wrong.has(name)) report([], `field "${name}" is missing`)
  return values
}

/** Lists the fields of a request, with a hint for fields that belong to interfaces. */
function listFields(names: readonly string[], key: string): string {
  const ofInterface = key === 'ipaddress' || key === 'macaddress' || key === 'options'
  const hint = ofInterface && names.includes('provision_interface') ? `; "interfaces" take "${key}"` : ''
  return ` here${didYouMean(key, names)}, only ${names.map(name => `"${name}"`).join(', ')}${hint}`
}

/** Returns the fields to store, in table order, without defaults: a file depends on the values alone. */
export function storedFields(table: Table, values: ReadonlyMap<string, unknown>): Record<string, unknown> {
  const doc: Record<string, unknown> = {}
  for (const { name, derived, inherited, isMergedByKey, default: byDefault } of table) {
    const given = values.get(name) ?? null
    const value = isMergedByKey && given !== null ? withoutNull(given as VariableMap) : given
    const saysNothing = value === null || (!inherited && isDeepStrictEqual(value, byDefault))
    if (!derived && !saysNothing) doc[name] = value
  }
  return doc
}

/** Yields why the limits of the fields forbid a change. */
export function* limitViolations(table: Table, before: object | undefined, after: object): Generator<string> {
  const [old, now] = [(before ?? {}) as Record<string, unknown>, after as Record<string, unknown>]
  for (const { name, limit } of table) {
    const why = !limit || now[name] === old[name] ? undefined : limit(String(now[name] ?? ''))
    if (why !== undefined) yield `field "${name}" ${why}`
  }
}

/** Makes a type for an object with these fields. */
export const objectOf = <D>(table: Table): FieldType<D> => {
  // Masking and encryption do not look inside values.
  if (table.some(({ secret }) => secret))
    throw new TypeError('a secret field belongs to an object of its own')
  return {
    expected: 'an object',
    json: 'object',
    read: (value, exact) => {
      if (!isObject(value)) throw new ValueError('')
      const wrong: ValueError[] = []
      const report: Report = (path, message) => wrong.push(new ValueError(message, path))
      const values = readTable(table, value, report, exact)
      throwAll(wrong)
      return storedFields(table, values) as D
    }
  }
}

function throwAll([first, ...others]: readonly ValueError[]): void {
  if (first) throw new ValueError(first.message, first.path, others)
}

/** Makes a type for a list of objects, identified by their first field. `what` names one: "interface". */
export const listOf = <D>(
  what: string,
  table: Table,
  expected = `a list of ${what}s`
): FieldType<readonly D[]> => {
  const key = table[0]?.name ?? ''
  const entryType = objectOf<D>(table)
  return {
    expected,
    json: 'array',
    read: (value, exact) => {
      if (!Array.isArray(value) || !value.every(isObject)) throw new ValueError('')
      const seen = new Set<JsonValue | undefined>()
      const wrong: ValueError[] = []
      const read = value.flatMap((entry, i) => {
        const name = entry[key]
        const where = `${what} ${name ?? i + 1}`
        try {
          if (seen.has(name)) throw new ValueError('is given twice')
          seen.add(name)
          return [entryType.read(entry, exact)]
        } catch (error) {
          if (!(error instanceof ValueError)) throw error
          for (const { path, message } of [error, ...error.furtherErrors]) {
            wrong.push(new ValueError(`${where}${path ? ':' : ''} ${message}`, [i, ...(path ?? [])]))
          }
          return []
        }
      })
      throwAll(wrong)
      return read
    }
  }
}
