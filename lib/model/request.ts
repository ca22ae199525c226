import { isDeepStrictEqual } from 'node:util'
import { badRequest } from '../errors.js'
import { isObject, type JsonObject, type JsonValue } from '../json.js'
import { boolean, type Field, type Reads, ValueError } from './field.js'
import { hidden } from './hidden.js'
import type { Given, GivenInterface, ObjectType } from './object-type.js'
import { interfaceFields } from './types/interface.js'

/** JSON text of a value for a message, cut where it is long. */
function shown(value: JsonValue): string {
  const text = JSON.stringify(value)
  return text.length > 60 ? `${text.slice(0, 57)}...` : text
}

/** One value as its field stores it; null and, where it says nothing, '' stand for "not set". */
export function readValue(type: Reads<unknown>, value: JsonValue, where: string, secret = false): unknown {
  if (value === null || (value === '' && !type.keepsEmpty)) return null
  try {
    return type.read(value)
  } catch (error) {
    if (!(error instanceof ValueError)) throw error
    throw badRequest(
      error.message === ''
        ? `${where} must be ${type.expected}${secret ? '' : `, not ${shown(value)}`}`
        : `${where} ${error.message}`
    )
  }
}

/** A field of a body. */
export interface BodyField extends Field {
  /** A body without it is refused. */
  readonly required?: true
  /** No answer shows it. */
  readonly requestOnly?: true
}

/**
 * Reads a body about `object` that has these fields, under any of their spellings, and `name`, the one of the path
 * (rules 1.6, 1.8). Throws 400 naming the object and the field.
 */
export function readFields(
  object: string,
  fields: readonly BodyField[],
  body: JsonObject,
  name?: string
): ReadonlyMap<string, unknown> {
  const values = new Map<string, unknown>()
  for (const [key, value] of Object.entries(body)) {
    const where = `${object}: field "${key}"`
    const field = fields.find(field => field.name === key || field.also?.includes(key))
    if (key.startsWith('_')) continue
    if (field) setOnce(values, field, value, where)
    else if (key === 'name' && name !== undefined) checkName(name, value, where)
    else {
      const known = fields.map(field => `"${field.name}"`).join(', ')
      throw badRequest(`${object}: there is no field "${key}" here, only ${known}`)
    }
  }
  for (const { name: key, required, type } of fields) {
    if (!required || (values.get(key) ?? null) !== null) continue
    const where = `${object}: field "${key}"`
    throw badRequest(values.has(key) ? `${where} must be ${type.expected}` : `${where} is missing`)
  }
  return values
}

function checkName(name: string, value: JsonValue, where: string): void {
  if (value !== name) throw badRequest(`${where} is ${shown(value)}, the path says ${name}`)
}

/** Two spellings of one field in one body must agree (rules 1.6). */
function setOnce(values: Map<string, unknown>, field: Field, given: JsonValue, where: string): void {
  const value = readValue(field.type, given, where, field.secret)
  if (values.has(field.name) && !isDeepStrictEqual(values.get(field.name), value))
    throw badRequest(`${where} is given twice with different values`)
  values.set(field.name, value)
}

/** The field that a key of a request means, under any of its spellings (rules 1.6). */
export function fieldFor(type: ObjectType, key: string, value: JsonValue): Field | undefined {
  if (type.interfaces && key === 'bmcsetup')
    return type.fields.find(
      field => field.name === (typeof value === 'boolean' ? 'setupbmc' : 'bmcsetupname')
    )
  return type.fields.find(field => field.name === key || field.also?.includes(key))
}

/**
 * Reads a body about the object `name` of this type (rules 1.3, 1.6, 1.8). Throws 400 naming the object
 * and the field.
 */
export function readObject(type: ObjectType, name: string, body: JsonValue): Given {
  const object = `${type.title} ${name}`
  if (!isObject(body)) throw badRequest(`${object}: the body must be an object, not ${shown(body)}`)
  const values = new Map<string, unknown>()
  let newName: string | undefined
  let interfaces: readonly GivenInterface[] = []
  let override = false
  let readBack = false
  for (const [key, value] of Object.entries(body)) {
    const where = `${object}: field "${key}"`
    const field = fieldFor(type, key, value)
    const dropped = type.dropped?.find(({ name }) => name === key)
    if (key === '_override') {
      if (value !== null) override = readValue(boolean, value, where) === true
    } else if (key.startsWith('_')) {
      if (key.endsWith('_source')) readBack = true
    } else if (key === 'name') checkName(name, value, where)
    else if (type.newName.includes(key)) newName = readNewName(type, where, value, newName)
    else if (type.interfaces && key === 'interfaces')
      interfaces = readInterfaces(object, value, type.interfaces)
    else if (dropped) readValue(dropped.type, value, where)
    else if (!field) throw badRequest(`${object}: there is no field "${key}"`)
    else if (field.secret && value === hidden) continue
    else setOnce(values, field, value, where)
  }
  return { values, newName, interfaces, override: override && !readBack, readBack }
}

function readNewName(type: ObjectType, where: string, value: JsonValue, before: string | undefined): string {
  if (typeof value !== 'string') throw badRequest(`${where} must be a string, not ${shown(value)}`)
  if (before !== undefined && before !== value)
    throw badRequest(`${where} is given twice with different values`)
  // An empty one is judged by the operation: for some it is a missing name, with a code of its own.
  if (value !== '' && !type.isName(value)) throw badRequest(`${where} must be ${type.nameRule}`)
  return value
}

/** The fields of an interface in a body (rules 1.9, 3.8). */
export const interfaceEntry: readonly BodyField[] = [
  ...interfaceFields.map(field =>
    field.name === 'interface' ? { ...field, required: true as const } : field
  ),
  {
    name: 'force',
    type: boolean,
    requestOnly: true,
    meaning: 'takes an address in the dynamic range, or of another node'
  }
]

/** Reads a list of interface entries. Throws 400 naming the object, the interface and the field. */
export function readInterfaces(
  object: string,
  value: JsonValue,
  holds: ObjectType['interfaces']
): GivenInterface[] {
  if (!Array.isArray(value))
    throw badRequest(`${object}: field "interfaces" must be a list, not ${shown(value)}`)
  const seen = new Set<string>()
  return value.map((entry, i) => {
    const at = `${object}: field "interfaces[${i}]"`
    if (!isObject(entry)) throw badRequest(`${at} must be an object, not ${shown(entry)}`)
    const { interface: name } = entry
    const where = typeof name === 'string' && name !== '' ? `${object}: interface ${name}` : at
    const values = Object.fromEntries(readFields(where, interfaceEntry, entry))
    const given = { ...values, force: values.force === true } as unknown as GivenInterface
    for (const key of ['ipaddress', 'macaddress'] as const)
      if (holds !== 'with addresses' && (given[key] ?? null) !== null)
        throw badRequest(`${where}: field "${key}" belongs to the interfaces of nodes`)
    if (seen.has(given.interface)) throw badRequest(`${at} names interface ${given.interface} a second time`)
    seen.add(given.interface)
    return given
  })
}

/**
 * An object with the fields of a request: those equal to what is in force (`settings`) are left as they are (rules
 * 3.4). `before` is the object so far, its name alone when it is new.
 */
export function merged<D extends object>(
  type: ObjectType<D>,
  before: object,
  given: Given,
  settings: object
): D {
  const fields: Record<string, unknown> = { ...before }
  const inForce: Readonly<Record<string, unknown>> = { ...settings }
  for (const { name, inherited, derived, default: byDefault } of type.fields) {
    if (derived || !given.values.has(name)) continue
    const value = given.values.get(name)
    const unset = value === null || value === undefined
    const wanted = unset ? (byDefault === '' ? '' : null) : value
    if (inherited && !given.override && isDeepStrictEqual(wanted, inForce[name])) continue
    // A default says nothing new: left out, so that an object's file depends on its values alone.
    if (unset || (!inherited && isDeepStrictEqual(value, byDefault))) delete fields[name]
    else fields[name] = value
  }
  // Each value was read by the type of its field.
  return fields as D
}

/** An object without some of its fields. */
export function without<D extends object>(doc: D, fields: readonly string[]): D {
  return Object.fromEntries(Object.entries(doc).filter(([name]) => !fields.includes(name))) as D
}
