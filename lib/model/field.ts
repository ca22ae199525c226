import type { JsonValue } from '../json.js'
import { formatAddress, parseAddress, parsePrefix } from './address.js'
import type { TypeName } from './docs.js'
import { fileNameRule, isDomainName, isFileName, isObjectName, objectNameRule, parseMac } from './names.js'

/** Why a value is not what its field takes; the caller adds the object and the field. */
export class ValueError extends Error {}

/** What a field may hold: reads a JSON value into the form that is stored, or throws ValueError. */
export interface FieldType<V> {
  /** For messages and documents: "a boolean". */
  readonly expected: string
  /** JSON type for the documents. */
  readonly json: 'string' | 'boolean' | 'integer' | 'array' | 'null'
  /** The empty string is a value; otherwise it stands for "not set", as null does. */
  readonly keepsEmpty?: true
  read(value: JsonValue): V
}

/** What reads a value, without what the documents say of it. */
export type Reads<V> = Pick<FieldType<V>, 'expected' | 'keepsEmpty' | 'read'>

/** One row of a type's field table; parsing, output, inheritance and references are made from it. */
export interface Field<V = unknown> {
  readonly name: string
  readonly type: FieldType<V>
  /** Other spellings that a request may use (rules 1.6). */
  readonly also?: readonly string[]
  /** Where the value comes from when the object does not set it: a node's group, and for some the cluster. */
  readonly inherited?: 'group' | 'cluster'
  /** In force when nobody sets the field; also what is shown then, null when not given. */
  readonly default?: V | ''
  readonly refers?: TypeName
  /** The name may be one that no object has; where one has it, it is a reference like any other (rules 3.2). */
  readonly soft?: true
  /** Shown as ******** to who is not an admin. */
  readonly secret?: true
  /** Shown, accepted in a request, never stored from it. */
  readonly derived?: true
  readonly meaning: string
}

/** The fields of a type, in the order of its files. */
export type Table = readonly Field[]
/** What a field holds. */
export type ValueOf<F> = F extends { readonly type: FieldType<infer V> } ? V : never
/** A stored object of a table: it holds what it sets itself, and nothing that is derived. */
export type Stored<T extends Table> = {
  readonly [F in Exclude<T[number], { readonly derived: true }> as F['name']]?: ValueOf<F>
}

const text = (value: JsonValue): string => {
  if (typeof value !== 'string') throw new ValueError('')
  if (value.includes('\u0000')) throw new ValueError('holds a NUL character')
  return value
}

const checked = (
  expected: string,
  accept: (value: string) => string | undefined,
  json: 'string' = 'string'
): FieldType<string> => ({
  expected,
  json,
  read: value => {
    const read = accept(text(value))
    if (read === undefined) throw new ValueError('')
    return read
  }
})

const passes = (test: (value: string) => boolean) => (value: string) => (test(value) ? value : undefined)

/** Free text, stored as sent. */
export const freeText: FieldType<string> = {
  expected: 'a string',
  json: 'string',
  keepsEmpty: true,
  read: text
}

export const boolean: FieldType<boolean> = {
  expected: 'a boolean',
  json: 'boolean',
  read: value => {
    if (typeof value !== 'boolean') throw new ValueError('')
    return value
  }
}

/** A JSON number without a fraction, both bounds included. */
export const integer = (least: number, most: number): FieldType<number> => ({
  expected: `an integer from ${least} to ${most}`,
  json: 'integer',
  read: value => {
    if (typeof value !== 'number' || !Number.isInteger(value) || value < least || value > most)
      throw new ValueError('')
    return value
  }
})

export const address = checked('an IPv4 address', value =>
  parseAddress(value) === undefined ? undefined : value
)

export const prefix: FieldType<string> = {
  expected: 'an IPv4 network in CIDR notation, such as 10.141.0.0/16',
  json: 'string',
  read: value => {
    const given = text(value)
    const parsed = parsePrefix(given)
    if (!parsed) throw new ValueError('')
    const clean = `${formatAddress(parsed.first)}/${parsed.length}`
    if (clean !== given) throw new ValueError(`has host bits set: the network of ${given} is ${clean}`)
    return clean
  }
}

export const mac = checked('a MAC address', parseMac)
export const objectName = checked(objectNameRule, passes(isObjectName))
export const domain = checked('a domain name', passes(isDomainName))
/** An address or a host name. */
export const host = checked('an address or a host name', passes(isDomainName))
export const hosts = checked('addresses or host names, separated by commas or blanks', value =>
  value.split(/[\s,]+/).every(isDomainName) ? value : undefined
)

const bootRoutes = new Set(['short', 'disk', 'search', 'manual', 'roles', 'scripts', 'install'])
export const file = checked(`${fileNameRule}, and not the name of a boot route`, value =>
  isFileName(value) && !bootRoutes.has(value) ? value : undefined
)

/** Not one expression: a group that repeats over a long text overflows the stack of the regular expression. */
function isBase64(text: string): boolean {
  const digits = text.replace(/={1,2}$/, '')
  return text.length % 4 === 0 && !/[^A-Za-z0-9+/]/.test(digits)
}

/** Base64 as it came, line breaks included (`base64` without -w0 makes them). */
export const base64 = checked('valid base64', value =>
  isBase64(value.replace(/\r?\n/g, '')) ? value : undefined
)

export const strings: FieldType<readonly string[]> = {
  expected: 'an array of strings',
  json: 'array',
  read: value => {
    if (!Array.isArray(value)) throw new ValueError('')
    return value.map(text)
  }
}

/** A list of names, never an empty one. */
export const names: FieldType<readonly string[]> = {
  expected: 'a list of names that is not empty',
  json: 'array',
  read: value => {
    if (!Array.isArray(value) || value.length === 0) throw new ValueError('')
    return value.map(objectName.read)
  }
}

/** A list of anything. */
export const array: FieldType<JsonValue[]> = {
  expected: 'a list',
  json: 'array',
  read: value => {
    if (!Array.isArray(value)) throw new ValueError('')
    return value
  }
}

/** One of a few words. */
export const oneOf = (...values: readonly string[]): FieldType<string> =>
  checked(`one of ${values.join(', ')}`, value => (values.includes(value) ? value : undefined))

/** How an image gets to a node. */
export const provisionMethod = oneOf('torrent', 'http')

/** Comma-separated names, blanks around them allowed. */
export const nameList = checked('comma-separated names', value =>
  value.split(',').every(name => isObjectName(name.trim())) ? value : undefined
)

/** What a kernel command line and an iPXE script (where # opens a comment) both carry unchanged (rules 4.2). */
export const kernelOptions = checked(
  'printable ASCII on one line, without ${, a word that is ;, && or ||, or one that begins with #',
  value =>
    /^[\x20-\x7e]*$/.test(value) &&
    !value.includes('${') &&
    !value.split(' ').some(word => word === ';' || word === '&&' || word === '||' || word.startsWith('#'))
      ? value
      : undefined
)

/** At most 128 numbers of up to 10 digits (RFC 2578). */
export const oid = checked('an SNMP object identifier, such as .1.3.6.1.2.1.17.7.1.2.2.1.2', value =>
  /^\.?\d{1,10}(?:\.\d{1,10}){1,127}$/.test(value) ? value : undefined
)

/** A switch port: its number, or its name as the switch spells it. */
export const port: FieldType<number | string> = {
  expected: 'an integer or a port name',
  json: 'integer',
  read: value => {
    // Beyond the safe integers another number than the one sent would be kept.
    if (typeof value === 'number' && Number.isSafeInteger(value) && value >= 0) return value
    return text(value)
  }
}

/** An absolute path; no component is `..`. */
export const path = checked('an absolute path without ..', value =>
  value.startsWith('/') && !value.split('/').includes('..') ? value : undefined
)

/** A field of which only null is known. */
export const alwaysNull: FieldType<never> = {
  expected: 'null',
  json: 'null',
  read: () => {
    throw new ValueError('')
  }
}

/** A comment of an admin, which every type has. */
export const comment = { name: 'comment', type: freeText, meaning: 'free text' } as const satisfies Field
