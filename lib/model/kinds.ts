import type { JsonValue } from '../http/route.js'
import { FieldError } from '../store/errors.js'
import type { Kind } from '../store/types.js'
import { type Field, type FieldType, integer, objectName, type TypeName } from './field.js'
import { readValue } from './request.js'
import { type Docs, interfaceFields, type RevokedDoc } from './tables.js'
import { type ObjectType, objectTypes } from './types.js'

type Json = { readonly [key: string]: JsonValue }
/** Where a value stands in the file: gives the line for the message. */
type Path = readonly (string | number)[]

function object(value: unknown, path: Path, what: string): Json {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new FieldError(path, `${what} is not an object`)
  return value as Json
}

function refuseUnknown(given: Json, path: Path, known: readonly string[], what: string): void {
  for (const key of Object.keys(given))
    if (!known.includes(key)) throw new FieldError([...path, key], `${what}: there is no field "${key}"`)
}

/** One stored value, checked; a file leaves out what is not set. */
function decodeValue(type: FieldType<unknown>, value: JsonValue, path: Path, what: string): unknown {
  const where = `${what}: field "${path.at(-1)}"`
  let read: unknown
  try {
    read = readValue(type, value, where)
  } catch (error) {
    throw new FieldError(path, (error as Error).message)
  }
  if (read === null) throw new FieldError(path, `${where} is empty; leave it out`)
  return read
}

/** The fields of a table that a stored object sets, in table order. */
function decodeFields(
  fields: readonly Field[],
  given: Json,
  path: Path,
  what: string
): Record<string, unknown> {
  const doc: Record<string, unknown> = {}
  for (const { name, type, derived } of fields) {
    const value = given[name]
    if (value !== undefined && !derived) doc[name] = decodeValue(type, value, [...path, name], what)
  }
  return doc
}

function decodeInterface(value: JsonValue, path: Path, what: string): object {
  const given = object(value, path, `${what}: an interface`)
  refuseUnknown(given, path, [...interfaceFields.map(field => field.name), 'own'], what)
  const doc = decodeFields(interfaceFields, given, path, what)
  if (doc.interface === undefined) throw new FieldError(path, `${what}: an interface has no "interface"`)
  if (given.own !== undefined && given.own !== true)
    throw new FieldError([...path, 'own'], `${what}: "own" can only be true`)
  return given.own === true ? { ...doc, own: true } : doc
}

function decodeList<V>(
  given: Json,
  key: string,
  what: string,
  read: (entry: JsonValue, path: Path) => V
): Record<string, readonly V[]> {
  const value = given[key]
  if (value === undefined) return {}
  if (!Array.isArray(value) || value.length === 0)
    throw new FieldError([key], `${what}: field "${key}" must be a list that is not empty`)
  return { [key]: value.map((entry, i) => read(entry, [key, i])) }
}

function decode(type: ObjectType, name: string, json: unknown): object {
  const what = `${type.title} ${name}`
  const given = object(json, [], what)
  const stored = type.fields.filter(field => !field.derived).map(field => field.name)
  refuseUnknown(given, [], ['name', ...stored, ...(type.interfaces ? ['interfaces', 'removed'] : [])], what)
  if (given.name !== name)
    throw new FieldError(['name'], `${what}: field "name" is ${JSON.stringify(given.name)}`)
  if (!type.isName(name)) throw new Error(`${what}: a ${type.title}'s name must be ${type.nameRule}`)
  return {
    name,
    ...decodeFields(type.fields, given, [], what),
    ...decodeList(given, 'interfaces', what, (entry, path) => decodeInterface(entry, path, what)),
    ...decodeList(given, 'removed', what, (entry, path) => decodeValue(objectName, entry, path, what))
  }
}

const pretty = (doc: object) => `${JSON.stringify(doc, null, 2)}\n`

/** Keys in table order, whatever order a change built them in: equal objects have equal files. */
function encode(type: ObjectType, doc: object): string {
  const fields = doc as Readonly<Record<string, unknown>>
  const keys = ['name', ...type.fields.map(field => field.name), 'interfaces', 'removed']
  return pretty(
    Object.fromEntries(keys.filter(key => fields[key] !== undefined).map(key => [key, fields[key]]))
  )
}

const kind = (type: ObjectType): Kind<object> => ({
  decode: (name, json) => decode(type, name, json),
  encode: doc => encode(type, doc)
})

const revoked: Kind<RevokedDoc> = {
  decode: (name, json) => {
    const what = `revoked ${name}`
    const { at = null, renamed } = object(json, [], what)
    const time = decodeValue(integer(0, Number.MAX_SAFE_INTEGER), at, ['at'], what) as number
    if (renamed === undefined) return { name, at: time }
    return { name, at: time, renamed: decodeValue(objectName, renamed, ['renamed'], what) as string }
  },
  encode: pretty
}

/** How every type of object is kept on disk (architecture: one field table per object type). */
export const kinds = {
  ...(Object.fromEntries(
    (Object.keys(objectTypes) as TypeName[]).map(name => [name, kind(objectTypes[name])])
  ) as unknown as { [K in TypeName]: Kind<Docs[K]> }),
  revoked
}
