import { isDeepStrictEqual } from 'node:util'
import { badRequest, refusalsOf } from '../base/errors.js'
import { isObject, type JsonObject, type JsonValue } from '../base/json.js'
import { boolean, type Field, objectName, type Table } from './field.js'
import type { InterfacePatch, ObjectPatch, ObjectType } from './object-type.js'
import { readTable, valueText } from './table.js'
import { interfaceFields } from './types/interface.js'
import { mergeVariables, type VariableMap } from './variables.js'

/** A field of a body; answers do not have the `requestOnly` ones. */
export interface BodyField extends Field {
  readonly requestOnly?: true
}

/** Reads these fields of a body; its `name` must be that of the path (rules 1.6, 1.8). Throws 400. */
export function readFields(
  object: string,
  fields: readonly BodyField[],
  body: JsonObject,
  name?: string
): ReadonlyMap<string, unknown> {
  const no = refusalsOf(object)
  const { name: given, ...rest } = body
  const named = name !== undefined && given !== undefined
  if (named && given !== name) throw no(`field "name" is ${valueText(given)}, the path says ${name}`)
  return readTable(fields, named ? rest : body, (_path, message) => {
    throw no(message)
  })
}

/** Reads a body about the object `name` (rules 1.3, 1.6, 1.8). Throws 400 naming object and field. */
export function readObject(type: ObjectType, name: string, body: JsonValue): ObjectPatch {
  const object = `${type.title} ${name}`
  const no = refusalsOf(object)
  if (!isObject(body)) throw no(`the body must be an object, not ${valueText(body)}`, 'invalid-body')
  const fields: JsonObject = {}
  let newName: string | undefined
  let interfaces: readonly InterfacePatch[] = []
  for (const [key, value] of Object.entries(body)) {
    if (type.newName.includes(key)) newName = readNewName(type, `${object}: field "${key}"`, value, newName)
    else if (type.interfaces && key === 'interfaces')
      interfaces = readInterfaces(object, value, type.interfaces)
    else fields[key] = value
  }
  const values = readFields(object, [...type.fields, ...(type.ignoredFields ?? [])], fields, name)
  const readBack = Object.keys(body).some(key => key.startsWith('_') && key.endsWith('_source'))
  const { _override: override = null } = body
  if (override !== null && override !== '' && typeof override !== 'boolean')
    throw no(`field "_override" must be ${boolean.expected}, not ${valueText(override)}`)
  return { values, newName, interfaces, override: override === true && !readBack, readBack }
}

function readNewName(type: ObjectType, where: string, value: JsonValue, before: string | undefined): string {
  if (typeof value !== 'string')
    throw badRequest(`${where} must be a string, not ${valueText(value)}`, 'invalid-field')
  if (before !== undefined && before !== value)
    throw badRequest(`${where} is given twice with different values`, 'given-twice')
  // The operation decides about an empty name: for some it is missing, with its own status.
  if (value !== '' && !type.isName(value))
    throw badRequest(`${where} must be ${type.nameRule}`, 'invalid-name')
  return value
}

/** The fields of an interface in a body (rules 1.9, 3.8). */
export const interfaceEntry: readonly BodyField[] = [
  ...interfaceFields,
  {
    name: 'force',
    type: boolean,
    requestOnly: true,
    meaning: 'takes an address in the dynamic range, or of another node'
  },
  { name: 'newinterfacename', type: objectName, requestOnly: true, meaning: 'renames the interface' }
]

/** Reads interface entries with the fields of `table`; throws 400 naming object, interface and field. */
export function readInterfaces(object: string, value: JsonValue, table: Table): InterfacePatch[] {
  const no = refusalsOf(object)
  if (!Array.isArray(value)) throw no(`field "interfaces" must be a list, not ${valueText(value)}`)
  const seen = new Set<string>()
  const all = value.map((entry, i) => {
    const at = `${object}: field "interfaces[${i}]"`
    if (!isObject(entry)) throw badRequest(`${at} must be an object, not ${valueText(entry)}`, 'invalid-body')
    const { interface: name } = entry
    const where = typeof name === 'string' && name !== '' ? `${object}: interface ${name}` : at
    const values = Object.fromEntries(readFields(where, interfaceEntry, entry))
    const given = { ...values, force: values.force === true } as unknown as InterfacePatch
    for (const { name: key } of interfaceFields)
      if ((given[key] ?? null) !== null && !table.some(field => field.name === key))
        throw refusalsOf(where)(`field "${key}" belongs to the interfaces of nodes`)
    if (seen.has(given.interface))
      throw badRequest(`${at} names interface ${given.interface} a second time`, 'given-twice')
    seen.add(given.interface)
    return given
  })
  const renamed = all.filter(({ interface: from, newinterfacename: to }) => to && to !== from)
  for (const { interface: from, newinterfacename: to = '' } of renamed)
    if (all.some(one => one.interface === to && !renamed.includes(one)))
      throw no(`interface ${to} is given twice: ${from} gets that name, too`, 'given-twice')
  return all
}

/** Applies a request to an object. Values that are in force already do not become its own (rules 3.4). */
export function applyPatch<D extends object>(
  type: ObjectType<D>,
  before: object,
  given: ObjectPatch,
  settings: object
): D {
  const fields: Record<string, unknown> = { ...before }
  const inForce: Readonly<Record<string, unknown>> = { ...settings }
  for (const { name, inherited, derived, isMergedByKey, default: byDefault } of type.fields) {
    if (derived || !given.values.has(name)) continue
    const value = isMergedByKey
      ? mergeVariables(
          fields[name] as VariableMap | undefined,
          given.values.get(name) as VariableMap | null,
          inForce[name] as VariableMap | undefined,
          given.override
        )
      : given.values.get(name)
    const unset = value === null || value === undefined
    const wanted = unset ? (byDefault === '' ? '' : null) : value
    if (inherited && !given.override && isDeepStrictEqual(wanted, inForce[name])) continue
    // Defaults are left out, so that a file depends on the values alone.
    if (unset || (!inherited && isDeepStrictEqual(value, byDefault))) delete fields[name]
    else fields[name] = value
  }
  // `readFields` has read each value by the type of its field.
  return fields as D
}

/** Returns an object without some of its fields. */
export const omitFields = <D extends object>(doc: D, fields: readonly string[]): D =>
  Object.fromEntries(Object.entries(doc).filter(([name]) => !fields.includes(name))) as D
