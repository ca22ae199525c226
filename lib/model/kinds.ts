import { isDeepStrictEqual } from 'node:util'
import type { JsonValue } from '../json.js'
import { FieldError } from '../store/errors.js'
import type { Kind } from '../store/types.js'
import {
  base64,
  type Field,
  file,
  integer,
  objectName,
  oneOf,
  path,
  type Reads,
  strings,
  type TypeName,
  ValueError
} from './field.js'
import { readValue } from './request.js'
import { type SettingName, settingTypes } from './settings.js'
import {
  type ClusterDoc,
  type Docs,
  type InterfaceDoc,
  interfaceFields,
  type OsimagetagDoc,
  type PackDoc,
  type RevokedDoc,
  type SecretsDoc,
  type TreeDoc
} from './tables.js'
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
function decodeFields(
  fields: readonly Field[],
  given: Json,
  path: Path,
  what: string
): Record<string, unknown> {
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
  group: ['interface', 'network', 'options'],
  node: [...interfaceFields.map(field => field.name), 'own']
} as const

/** A stored interface entry of a group or a node, checked; throws FieldError. */
export function decodeInterface(
  type: 'group' | 'node',
  value: JsonValue,
  path: Path,
  what: string
): InterfaceDoc {
  const given = object(value, path, `${what}: an interface`)
  refuseUnknown(given, path, interfaceKeys[type], what)
  const doc = decodeFields(interfaceFields, given, path, what)
  if (doc.interface === undefined) throw new FieldError(path, `${what}: an interface has no "interface"`)
  if (type === 'group' && doc.network === undefined)
    throw new FieldError(path, `${what}: interface ${doc.interface}: field "network" is missing`)
  if (given.own !== undefined && given.own !== true)
    throw new FieldError([...path, 'own'], `${what}: "own" can only be true`)
  return (given.own === true ? { ...doc, own: true } : doc) as InterfaceDoc
}

function decodeInterfaces(type: ObjectType, given: Json, what: string) {
  if (type.type !== 'group' && type.type !== 'node') return {}
  const owner = type.type
  const list = decodeList(given, 'interfaces', what, (entry, path) =>
    decodeInterface(owner, entry, path, what)
  )
  for (const [i, { interface: name }] of (list.interfaces ?? []).entries())
    if (list.interfaces?.findIndex(entry => entry.interface === name) !== i)
      throw new FieldError(['interfaces', i], `${what}: interface ${name} is given twice`)
  return list
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

/** What a stored object of a type may hold, in the order of its file. */
function keysOf(type: ObjectType): readonly string[] {
  const stored = type.fields.filter(field => !field.derived).map(field => field.name)
  const lists = [...(type.interfaces ? ['interfaces'] : []), ...(type.type === 'node' ? ['removed'] : [])]
  return ['name', ...stored, ...lists]
}

function decode(type: ObjectType, keys: readonly string[], name: string, json: unknown): object {
  const what = `${type.title} ${name}`
  const given = object(json, [], what)
  refuseUnknown(given, [], keys, what)
  if (given.name !== name)
    throw new FieldError(['name'], `${what}: field "name" is ${JSON.stringify(given.name)}`)
  if (!type.isName(name)) throw new Error(`${what}: a ${type.title}'s name must be ${type.nameRule}`)
  return {
    name,
    ...decodeFields(type.fields, given, [], what),
    ...decodeInterfaces(type, given, what),
    ...decodeList(given, 'removed', what, (entry, path) => decodeValue(objectName, entry, path, what))
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

function kind(type: ObjectType): Kind<object> {
  const keys = keysOf(type)
  return { decode: (name, json) => decode(type, keys, name, json), encode: doc => encode(keys, doc) }
}

/** A kind whose few fields are all needed: each read by its type, in this order. */
function plainKind<D extends object>(
  what: string,
  fields: Readonly<Record<string, Reads<unknown>>>,
  optional: Readonly<Record<string, Reads<unknown>>> = {}
): Kind<D> {
  const known = ['name', ...Object.keys(fields), ...Object.keys(optional)]
  const decode = (name: string, json: unknown) => {
    const title = `${what} ${name}`
    const given = object(json, [], title)
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

/** A cluster setting as it is stored; no NTP server is a choice too. */
function readSetting(name: SettingName, value: JsonValue): unknown {
  const type: Reads<unknown> = settingTypes[name]
  if (name === 'ntp_server' && value === '') return value
  try {
    return type.read(value)
  } catch {
    throw new ValueError(`holds "${name}", whose value must be ${type.expected}`)
  }
}

const settings: Reads<unknown> = {
  expected: 'an object of settings {value, ini}',
  read: value => {
    const read: Record<string, unknown> = {}
    for (const [name, entry] of Object.entries(object(value, ['settings'], 'cluster')) as [
      SettingName,
      JsonValue
    ][]) {
      const { value: changed, ini } = object(entry, ['settings', name], 'cluster')
      if (!Object.hasOwn(settingTypes, name) || changed === undefined || ini === undefined)
        throw new ValueError(`holds "${name}", which is no setting`)
      read[name] = { value: readSetting(name, changed), ini }
    }
    return read
  }
}

const sealedSecrets: Reads<unknown> = {
  expected: 'a list of secrets {name, path, content}',
  read: value => {
    if (!Array.isArray(value)) throw new ValueError('')
    return value.map(entry => {
      const given = object(entry, ['secrets'], 'secrets')
      const secret = { name: objectName, path, content: base64 }
      return Object.fromEntries(
        Object.entries(secret).map(([key, type]) => [key, type.read(given[key] ?? null)])
      )
    })
  }
}

const positive = integer(1, Number.MAX_SAFE_INTEGER)
const amount = integer(0, Number.MAX_SAFE_INTEGER)

const sha256: Reads<string> = {
  expected: '64 hexadecimal digits',
  read: value => {
    if (typeof value !== 'string' || !/^[0-9a-f]{64}$/.test(value)) throw new ValueError('')
    return value
  }
}

/** How every type of object is kept on disk (architecture: one field table per object type). */
export const kinds = {
  ...(Object.fromEntries(
    (Object.keys(objectTypes) as TypeName[]).map(name => [name, kind(objectTypes[name])])
  ) as unknown as { [K in TypeName]: Kind<Docs[K]> }),
  osimagetag: plainKind<OsimagetagDoc>(
    'OS image tag',
    { osimage: objectName, tag: objectName, order: positive },
    { kernelfile: file, initrdfile: file, imagefile: file }
  ),
  pack: plainKind<PackDoc>(
    'pack',
    { osimage: objectName, sha256, bytes: amount, time: amount, packer: oneOf('system', 'builtin') },
    { kernelfile: file, initrdfile: file, kernel: file, initrd: file, omitted: strings }
  ),
  tree: plainKind<TreeDoc>('image directory', { at: amount }),
  cluster: plainKind<ClusterDoc>('cluster', { settings }),
  secrets: plainKind<SecretsDoc>('secrets of', { secrets: sealedSecrets }),
  revoked: plainKind<RevokedDoc>('revoked', { at: amount }, { renamed: objectName })
}
