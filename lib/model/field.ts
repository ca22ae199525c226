import { isObject, type JsonObject, type JsonValue } from '../json.js'
import { formatAddress, parseAddress, parsePrefix } from './address.js'
import type { TypeName } from './docs.js'
import {
  asDomainName,
  fileNameRule,
  isDomainName,
  isFileName,
  isObjectName,
  objectNameRule,
  parseMac
} from './names.js'

/** What a caller sees in the place of a secret that it may not see. Posted back, it is no new value. */
export const hidden = '********'

/** Why a value is not what its field takes; the caller adds the object. */
export class ValueError extends Error {
  constructor(
    message: string,
    /** Where in the value, and then the message names it; undefined: the message goes on after the field's name. */
    readonly path?: readonly (string | number)[],
    /** Further faults of the value; each has a path. */
    readonly others: readonly ValueError[] = []
  ) {
    super(message)
  }
}

/** What a field may hold: reads a JSON value into the form that is stored, or throws ValueError. */
export interface FieldType<V> {
  /** For messages and documents: "an IPv4 address". */
  readonly expected: string
  /** JSON type for the documents. */
  readonly json: 'string' | 'boolean' | 'integer' | 'array' | 'object' | 'null'
  /** The empty string is a value; otherwise it stands for "not set", as null does. */
  readonly keepsEmpty?: true
  /** `exact`: fields inside the value are read as a file has to spell them (rules 11.2). */
  read(value: JsonValue, exact?: boolean): V
}

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
  /** Shown as ******** to callers that are not admins, and encrypted on disk (rules 5.2, 11.8). */
  readonly secret?: true
  /** Shown, accepted in a request, never stored as such; `elsewhere`: a request sets what it is shown from. */
  readonly derived?: true | 'elsewhere'
  /** An object or a body without it is refused. */
  readonly required?: true
  /** svcd alone writes it, and leaves the default out: a file that holds the default was changed by hand. */
  readonly leftOut?: true
  /**
   * Why a request may not set this value; undefined: it may. An object that holds it already, from a time without the
   * limit, is left as it is, and an import takes it (rules 3.11).
   */
  readonly limit?: (value: string) => string | undefined
  /** An object that a request changes key by key (rules 3.16). */
  readonly merged?: true
  readonly meaning: string
}

/** The fields of a type, in the order of its files. */
export type Table = readonly Field[]
/** What a field holds. */
export type ValueOf<F> = F extends { readonly type: FieldType<infer V> } ? V : never
/** A stored object of a table: it holds what it sets itself, and nothing that is derived. */
export type Stored<T extends Table> = {
  readonly [F in Exclude<
    T[number],
    { readonly derived: true | 'elsewhere' } | { readonly required: true }
  > as F['name']]?: ValueOf<F>
} & { readonly [F in Extract<T[number], { readonly required: true }> as F['name']]: ValueOf<F> }

/** A type whose values `accept` gives; it gives undefined for what is none. */
const valueType = <V>(
  expected: string,
  json: FieldType<V>['json'],
  accept: (value: JsonValue) => V | undefined
): FieldType<V> => ({
  expected,
  json,
  read: value => {
    const read = accept(value)
    if (read === undefined) throw new ValueError('')
    return read
  }
})

const text = (value: JsonValue): string => {
  if (typeof value !== 'string') throw new ValueError('')
  if (value.includes('\u0000')) throw new ValueError('holds a NUL character')
  return value
}

const checked = (expected: string, accept: (value: string) => string | undefined) =>
  valueType(expected, 'string', value => accept(text(value)))

const passes = (test: (value: string) => boolean) => (value: string) => (test(value) ? value : undefined)

/** Free text, stored as sent. */
export const freeText: FieldType<string> = { ...checked('a string', value => value), keepsEmpty: true }

export const boolean = valueType('true or false', 'boolean', value =>
  typeof value === 'boolean' ? value : undefined
)

/** A JSON number without a fraction, both bounds included. */
export const integer = (least: number, most: number) =>
  valueType(`an integer from ${least} to ${most}`, 'integer', value =>
    typeof value === 'number' && Number.isInteger(value) && value >= least && value <= most
      ? value
      : undefined
  )

/** A number of things, or of milliseconds. */
export const count = integer(0, Number.MAX_SAFE_INTEGER)

export const address = checked('an IPv4 address', value =>
  parseAddress(value) === undefined ? undefined : value
)

export const prefix = checked('an IPv4 network in CIDR notation, such as 10.141.0.0/16', given => {
  const parsed = parsePrefix(given)
  const clean = parsed && `${formatAddress(parsed.first)}/${parsed.length}`
  if (clean && clean !== given) throw new ValueError(`has host bits set: the network of ${given} is ${clean}`)
  return clean
})

export const mac = checked('a MAC address, or the GUID or the address of an InfiniBand port', parseMac)
/** A SHA-256 in hexadecimal. */
export const sha256 = checked(
  '64 hexadecimal digits',
  passes(value => /^[0-9a-f]{64}$/.test(value))
)

export const objectName = checked(objectNameRule, passes(isObjectName))
export const domain = checked('a domain name', passes(isDomainName))
/** A name in DNS, in lower case, without the dot at its end; no address. */
export const recordName = checked('a name of letters, digits, dots, underscores and inner hyphens', given => {
  const value = asDomainName(given)
  return value !== undefined && !/^[\d.]+$/.test(value) && value.length <= 180 ? value : undefined
})
/** An address or a host name. */
export const host = checked('an address or a host name', passes(isDomainName))
/** A text of several values, which may be given as a list. */
const joined = (value: JsonValue) => (Array.isArray(value) ? value.map(text).join(',') : text(value))
/** Files from a time without limits may have any blanks; `oneLine` says which ones a request may use. */
export const hosts = valueType('addresses or host names, separated by commas or blanks', 'string', given => {
  const value = joined(given)
  return value.split(/[\s,]+/).every(isDomainName) ? value : undefined
})
/** Several addresses as one text, each once. Resolvers ask three of them. */
export const addresses = valueType('up to 8 IPv4 addresses, separated by commas', 'string', value => {
  const all = [...new Set(joined(value).match(/[^\s,]+/g) ?? [''])]
  return all.length <= 8 && all.every(one => parseAddress(one) !== undefined) ? all.join(',') : undefined
})

/** Static routes; option 121 of DHCP has room for so many (RFC 3442). */
export const routes = valueType<readonly string[]>(
  'up to 24 routes such as "10.9.0.0/16 via 10.141.0.254"',
  'array',
  value => {
    const all = Array.isArray(value) ? value.map(text) : text(value).split(',')
    const read = all.flatMap(one => {
      const [, to = '', gateway = ''] = /^(\S+)\s+via\s+(\S+)$/.exec(one.trim()) ?? []
      return parsePrefix(to) && parseAddress(gateway) !== undefined ? `${prefix.read(to)} via ${gateway}` : []
    })
    return read.length === all.length && read.length <= 24 ? read : undefined
  }
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

export const strings = valueType<readonly string[]>('an array of strings', 'array', value =>
  Array.isArray(value) ? value.map(text) : undefined
)

/** A list of names. */
export const names = valueType<readonly string[]>('a list of names', 'array', value =>
  Array.isArray(value) ? value.map(name => objectName.read(name)) : undefined
)

/** A list of anything. */
export const array = valueType<JsonValue[]>('a list', 'array', value =>
  Array.isArray(value) ? value : undefined
)

/** The fields of an object, which are read by their own table. */
export const anObject = valueType<JsonObject>('an object', 'object', value =>
  isObject(value) ? value : undefined
)

/** One of a few words. */
export const oneOf = <V extends string>(...values: readonly V[]) =>
  valueType<V>(`one of ${values.join(', ')}`, 'string', value => values.find(one => one === value))

/** One of a few numbers. */
export const oneNumberOf = <V extends number>(...values: readonly V[]) =>
  valueType<V>(`one of ${values.join(', ')}`, 'integer', value => values.find(one => one === value))

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
export const port = valueType<number | string>('an integer or a port name', 'integer', value =>
  // Beyond the safe integers another number than the one sent would be kept.
  typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : text(value)
)

/** An absolute path; no component is `..`. */
export const path = checked('an absolute path without ..', value =>
  value.startsWith('/') && !value.split('/').includes('..') ? value : undefined
)

/** A field of which only null is known. */
export const alwaysNull = valueType<never>('null', 'null', () => undefined)

/** A limit: at most so many bytes. `whose` limit it is: "a BMC". */
export const atMost = (bytes: number, whose: string) => (value: string) => {
  const length = Buffer.byteLength(value)
  return length > bytes ? `has ${length} bytes, and ${whose} takes ${bytes} at most` : undefined
}

/** A limit of kernel options: no disk, which would be that of another machine, nor svcd's own argument (rules 4.2). */
export const noRoot = (value: string) => {
  const words = value.split(' ')
  const word = words.find(word => /^(?:root|resume|nfsroot|netroot)=/.test(word))
  if (word)
    return `holds ${word}: svcd tells the kernel root=svc, or the disk that it was installed on; take it out`
  const awaited = words.find(word =>
    /^rd\.(?:lvm\.lv|luks\.(?:uuid|name|partuuid|serial)|md\.uuid)=/.test(word)
  )
  if (awaited)
    return `holds ${awaited}: the initramfs waits for that disk, and a machine that boots an image does not have it yet; take it out`
  const init = words.find(word => /^(?:rdinit=|init=(?!\/))/.test(word))
  return init && `holds ${init}: it starts no image; take it out`
}

/** The same for a group or a node: whether an image has its own "init" its pack looks, and of another one nobody does. */
export const noInit = (value: string) => {
  const init = /(?:^| )(init=(?!\/(?:usr\/)?(?:sbin\/init|lib\/systemd\/systemd)(?: |$))\S*)/.exec(value)?.[1]
  return (
    noRoot(value) ??
    (init && `holds ${init}: set it in "kerneloptions" of the image, whose pack looks whether it is there`)
  )
}

/** A limit: on one line, with no blanks but spaces and tabs. */
export const oneLine = (value: string) => {
  if (/[\u0000-\u0008\n-\u001f\u007f-\u009f\u2028\u2029]/.test(value))
    return 'holds a line break or another control character'
  return /[^\S \t]/.test(value) ? 'holds a blank that is neither a space nor a tab' : undefined
}

/** A comment of an admin, which every type has. */
export const comment = { name: 'comment', type: freeText, meaning: 'free text' } as const satisfies Field
