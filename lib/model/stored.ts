import { isDeepStrictEqual } from 'node:util'
import type { JsonValue } from '../json.js'
import { FieldError } from '../store/errors.js'
import type { Kind } from '../store/types.js'
import type { Reads, Table } from './field.js'
import type { IndexedType } from './index.js'
import type { ObjectType } from './object-type.js'
import { readValue } from './request.js'
import { type InterfaceDoc, interfaceFields } from './types/interface.js'
import type { ClusterSettings, Tx, View } from './view.js'

/** What belongs to objects without being one: how it is kept on disk, and where it differs from others. */
export interface AttachedType<D extends object = object> extends Kind<D>, IndexedType<D> {
  /** What is wrong with one that a hand changed. */
  checks?(view: View, doc: D): Iterable<string>
  /** Throws 400 where one may not go. */
  checkRemoved?(tx: Tx, doc: D, cluster: ClusterSettings): void
}

type Json = { readonly [key: string]: JsonValue }
/** Where a value stands in the file: gives the line for the message. */
type Path = readonly (string | number)[]

/** A value of a file that is an object; throws FieldError. */
export function storedObject(value: unknown, path: Path, what: string): Json {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new FieldError(path, `${what} is not an object`)
  return value as Json
}

function refuseUnknown(given: Json, path: Path, known: readonly string[], what: string): void {
  for (const key of Object.keys(given))
    if (!known.includes(key)) throw new FieldError([...path, key], `${what}: there is no field "${key}"`)
}

/** One stored value, checked; a file leaves out what is not set. */
function decodeValue(type: Reads<unknown>, value: JsonValue, path: Path, what: string): unknown {
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
function decodeFields(fields: Table, given: Json, path: Path, what: string): Record<string, unknown> {
  const doc: Record<string, unknown> = {}
  for (const { name, type, derived, inherited, default: usual } of fields) {
    const value = given[name]
    if (value === undefined || derived) continue
    const read = decodeValue(type, value, [...path, name], what)
    // As after a change: a default that a hand wrote says nothing (see Model).
    if (inherited || !isDeepStrictEqual(read, usual)) doc[name] = read
  }
  return doc
}

/** What an interface entry may hold: addresses are those of nodes. */
const interfaceKeys = {
  'without addresses': ['interface', 'network', 'options'],
  'with addresses': [...interfaceFields.map(field => field.name), 'own']
} as const

/** A stored interface entry of a group or a node, checked; throws FieldError. */
export function decodeInterface(
  holds: keyof typeof interfaceKeys,
  value: JsonValue,
  path: Path,
  what: string
): InterfaceDoc {
  const given = storedObject(value, path, `${what}: an interface`)
  refuseUnknown(given, path, interfaceKeys[holds], what)
  const doc = decodeFields(interfaceFields, given, path, what)
  if (doc.interface === undefined) throw new FieldError(path, `${what}: an interface has no "interface"`)
  if (holds === 'without addresses' && doc.network === undefined)
    throw new FieldError(path, `${what}: interface ${doc.interface}: field "network" is missing`)
  if (given.own !== undefined && given.own !== true)
    throw new FieldError([...path, 'own'], `${what}: "own" can only be true`)
  return (given.own === true ? { ...doc, own: true } : doc) as InterfaceDoc
}

function decodeInterfaces(holds: ObjectType['interfaces'], value: JsonValue | undefined, what: string) {
  if (value === undefined || !holds) return {}
  if (!Array.isArray(value) || value.length === 0)
    throw new FieldError(['interfaces'], `${what}: field "interfaces" must be a list that is not empty`)
  const interfaces = value.map((entry, i) => decodeInterface(holds, entry, ['interfaces', i], what))
  for (const [i, { interface: name }] of interfaces.entries())
    if (interfaces.findIndex(entry => entry.interface === name) !== i)
      throw new FieldError(['interfaces', i], `${what}: interface ${name} is given twice`)
  return { interfaces }
}

/** What a stored object of a type may hold, in the order of its file. */
function keysOf({ fields, interfaces, hidden = [] }: ObjectType): readonly string[] {
  const stored = (table: Table) => table.filter(field => !field.derived).map(field => field.name)
  return ['name', ...stored(fields), ...(interfaces ? ['interfaces'] : []), ...stored(hidden)]
}

function decode(type: ObjectType, keys: readonly string[], name: string, json: unknown): object {
  const what = `${type.title} ${name}`
  const given = storedObject(json, [], what)
  refuseUnknown(given, [], keys, what)
  if (given.name !== name)
    throw new FieldError(['name'], `${what}: field "name" is ${JSON.stringify(given.name)}`)
  if (!type.isName(name)) throw new Error(`${what}: a ${type.title}'s name must be ${type.nameRule}`)
  return {
    name,
    ...decodeFields(type.fields, given, [], what),
    ...decodeInterfaces(type.interfaces, given.interfaces, what),
    ...decodeFields(type.hidden ?? [], given, [], what)
  }
}

const pretty = (doc: object) => `${JSON.stringify(doc, null, 2)}\n`

/** Keys in table order, whatever order a change built them in: equal objects have equal files. */
function encode(keys: readonly string[], doc: object): string {
  const fields = doc as Readonly<Record<string, unknown>>
  const ordered: Record<string, unknown> = {}
  for (const key of keys) if (fields[key] !== undefined) ordered[key] = fields[key]
  return pretty(ordered)
}

/** How the objects of a type are kept on disk: what its field table says. */
export function objectKind(type: ObjectType): Kind<object> {
  const keys = keysOf(type)
  return { decode: (name, json) => decode(type, keys, name, json), encode: doc => encode(keys, doc) }
}

/** A kind whose few fields are all needed: each read by its type, in this order. */
export function plainKind<D extends object>(
  what: string,
  fields: Readonly<Record<string, Reads<unknown>>>,
  optional: Readonly<Record<string, Reads<unknown>>> = {}
): AttachedType<D> {
  const known = ['name', ...Object.keys(fields), ...Object.keys(optional)]
  const decode = (name: string, json: unknown) => {
    const title = `${what} ${name}`
    const given = storedObject(json, [], title)
    refuseUnknown(given, [], known, title)
    if (given.name !== name) throw new FieldError(['name'], `${title}: field "name" is not ${name}`)
    const doc: Record<string, unknown> = { name }
    for (const [key, type] of Object.entries({ ...fields, ...optional })) {
      const value = given[key]
      if (value === undefined && Object.hasOwn(optional, key)) continue
      doc[key] = decodeValue(type, value ?? null, [key], title)
    }
    return doc as D
  }
  return { decode, encode: doc => pretty(Object.fromEntries(Object.entries(doc))) }
}
