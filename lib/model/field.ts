import { isObject, type JsonObject, type JsonValue } from '../base/json.js'
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

/** Shown in place of a secret that the caller may not see. Sent back, it does not change the secret. */
export const secretMask = '********'

/** A value that its field does not take; the caller adds the name of the object. */
export class ValueError extends Error {
  constructor(
    message: string,
    /** Place inside the value, named by the message; otherwise the message follows the field's name. */
    readonly path?: readonly (string | number)[],
    readonly furtherErrors: readonly ValueError[] = []
  ) {
    super(message)
  }
}

/** Reads a JSON value into its stored form, or throws ValueError. */
export interface FieldType<V> {
  /** For messages and documents, such as "an IPv4 address". */
  readonly expected: string
  /** JSON type, for the documents. */
  readonly json: 'string' | 'boolean' | 'integer' | 'array' | 'object' | 'null'
  /** The empty string is a value. Otherwise it means "not set", as null does. */
  readonly keepsEmpty?: true
  /** All values, where there are few. */
  readonly values?: readonly V[]
  /** With `exact`, fields inside the value must be spelled as in a file (rules 11.2). */
  read(value: JsonValue, exact?: boolean): V
}

/** A row of a type's field table, from which parsing, output, inheritance and references are made. */
export interface Field<V = unknown> {
  readonly name: string
  readonly type: FieldType<V>
  /** Other spellings in requests (rules 1.6). */
  readonly otherSpellings?: readonly string[]
  /** The levels that a value may come from if the object does not set it: group, or group and cluster. */
  readonly inherited?: 'group' | 'cluster'
  /** In force and shown if no level sets the field. Without a default, null is shown. */
  readonly default?: V | ''
  readonly refers?: TypeName
  /** The named object need not exist; if it does, it is a reference like any other (rules 3.2). */
  readonly mayDangle?: true
  /** Masked for callers that are not admins, and encrypted on disk (rules 5.2, 11.8). */
  readonly secret?: true
  /** Shown and accepted, never stored; `settable`: a request sets the value that it comes from. */
  readonly derived?: true | 'settable'
  /** Objects and bodies without it are refused. */
  readonly required?: true
  /** Only svcd writes it, and omits the default: a file that holds the default was edited by hand. */
  readonly omitsDefault?: true
  /** Returns why a request may not set a value. Older values stay, and imports accept them (rules 3.11). */
  readonly limit?: (value: string) => string | undefined
  /** An object that requests change key by key (rules 3.16). */
  readonly isMergedByKey?: true
  readonly meaning: string
}

export type Table = readonly Field[]
export type ValueOf<F> = F extends { readonly type: FieldType<infer V> } ? V : never
/** A stored object of a table: only the values that it sets itself, none that are derived. */
export type Stored<T extends Table> = {
  readonly [F in Exclude<
    T[number],
    { readonly derived: true | 'settable' } | { readonly required: true }
  > as F['name']]?: ValueOf<F>
} & { readonly [F in Extract<T[number], { readonly required: true }> as F['name']]: ValueOf<F> }

/** Makes a type from `accept`, which returns undefined for a value that it does not take. */
export const valueType = <V>(
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

/** Makes a type of texts from `accept`, which returns undefined for a text that it does not take. */
export const checked = (expected: string, accept: (value: string) => string | undefined) =>
  valueType(expected, 'string', value => accept(text(value)))

/** Makes a type of the texts that pass a test. */
export const passing = (expected: string, test: (value: string) => boolean) =>
  checked(expected, value => (test(value) ? value : undefined))

/** Makes a type of the texts that match. */
export const matching = (expected: string, pattern: RegExp) => passing(expected, value => pattern.test(value))

export const freeText: FieldType<string> = { ...checked('a string', value => value), keepsEmpty: true }

export const boolean = valueType('true or false', 'boolean', value =>
  typeof value === 'boolean' ? value : undefined
)

/** A JSON number without a fraction; both bounds are included. */
export const integer = (least: number, most: number) =>
  valueType(`an integer from ${least} to ${most}`, 'integer', value =>
    typeof value === 'number' && Number.isInteger(value) && value >= least && value <= most
      ? value
      : undefined
  )

/** A number of things or of milliseconds. */
export const count = integer(0, Number.MAX_SAFE_INTEGER)

export const address = passing('an IPv4 address', value => parseAddress(value) !== undefined)

export const prefix = checked('an IPv4 network in CIDR notation, such as 10.141.0.0/16', given => {
  const parsed = parsePrefix(given)
  const clean = parsed && `${formatAddress(parsed.first)}/${parsed.length}`
  if (clean && clean !== given) throw new ValueError(`has host bits set: the network of ${given} is ${clean}`)
  return clean
})

export const mac = checked('a MAC address, or the GUID or the address of an InfiniBand port', parseMac)
export const serialNumber = matching('up to 64 printable ASCII characters', /^[\x20-\x7e]{1,64}$/)
export const uuid = checked('a UUID such as 4c4c4544-0033-5610-8052-b4c04f4d3132', value =>
  /^[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}$/i.test(value) ? value.toLowerCase() : undefined
)
export const sha256 = matching('64 hexadecimal digits', /^[0-9a-f]{64}$/)

export const objectName = passing(objectNameRule, isObjectName)
export const domain = passing('a domain name', isDomainName)
/** A DNS name in lower case without its final dot; not an address. */
export const recordName = checked('a name of letters, digits, dots, underscores and inner hyphens', given => {
  const value = asDomainName(given)
  return value !== undefined && !/^[\d.]+$/.test(value) && value.length <= 180 ? value : undefined
})
export const host = passing('an address or a host name', isDomainName)
/** Joins a list of texts; a text stays as it is. */
const joined = (value: JsonValue) => (Array.isArray(value) ? value.map(text).join(',') : text(value))
/** Old files may hold any white space; `oneLine` restricts it in requests. */
export const hosts = valueType('addresses or host names, separated by commas or blanks', 'string', given => {
  const value = joined(given)
  return value.split(/[\s,]+/).every(isDomainName) ? value : undefined
})
/** Several addresses as one text without duplicates. Resolvers only ask three of them. */
export const addresses = valueType('up to 8 IPv4 addresses, separated by commas', 'string', value => {
  const all = [...new Set(joined(value).match(/[^\s,]+/g) ?? [''])]
  return all.length <= 8 && all.every(one => parseAddress(one) !== undefined) ? all.join(',') : undefined
})

/** Static routes, as many as fit into DHCP option 121 (RFC 3442). */
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
export const file = passing(
  `${fileNameRule}, and not the name of a boot route`,
  value => isFileName(value) && !bootRoutes.has(value)
)

/** Avoids a repeated group, which overflows the stack of the regular expression on a long text. */
function isBase64(text: string): boolean {
  const digits = text.replace(/={1,2}$/, '')
  return text.length % 4 === 0 && !/[^A-Za-z0-9+/]/.test(digits)
}

/** Base64 as sent, including line breaks, which `base64` without -w0 makes. */
export const base64 = passing('valid base64', value => isBase64(value.replace(/\r?\n/g, '')))

export const strings = valueType<readonly string[]>('an array of strings', 'array', value =>
  Array.isArray(value) ? value.map(text) : undefined
)

export const names = valueType<readonly string[]>('a list of names', 'array', value =>
  Array.isArray(value) ? value.map(name => objectName.read(name)) : undefined
)

export const array = valueType<JsonValue[]>('a list', 'array', value =>
  Array.isArray(value) ? value : undefined
)

/** An object whose fields are read by their own table. */
export const anObject = valueType<JsonObject>('an object', 'object', value =>
  isObject(value) ? value : undefined
)

/** Makes a type of a few words. */
export const oneOf = <V extends string>(...values: readonly V[]): FieldType<V> => ({
  ...valueType<V>(`one of ${values.join(', ')}`, 'string', value => values.find(one => one === value)),
  values
})

/** Makes a type of a few numbers. */
export const oneNumberOf = <V extends number>(...values: readonly V[]) =>
  valueType<V>(`one of ${values.join(', ')}`, 'integer', value => values.find(one => one === value))

export const provisionMethod = oneOf('torrent', 'http')

/** How a node gets its system: as an image, or from the installer of a distribution. */
export const nodeMethod = oneOf('torrent', 'http', 'stream', 'kickstart', 'preseed', 'autoinstall')

/** Comma-separated names; blanks around them are allowed. */
export const nameList = passing('comma-separated names', value =>
  value.split(',').every(name => isObjectName(name.trim()))
)

/** Text that kernel command lines and iPXE scripts (where # starts a comment) pass on (rules 4.2). */
export const kernelOptions = passing(
  'printable ASCII on one line, without ${, a word that is ;, && or ||, or one that begins with #',
  value =>
    /^[\x20-\x7e]*$/.test(value) &&
    !value.includes('${') &&
    !value.split(' ').some(word => word === ';' || word === '&&' || word === '||' || word.startsWith('#'))
)

/** At most 128 numbers of up to 10 digits (RFC 2578). */
export const oid = matching(
  'an SNMP object identifier, such as .1.3.6.1.2.1.17.7.1.2.2.1.2',
  /^\.?\d{1,10}(?:\.\d{1,10}){1,127}$/
)

/** A switch port, by number or by the switch's name for it. */
export const port = valueType<number | string>('an integer or a port name', 'integer', value =>
  // A larger number would be stored as another one.
  typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : text(value)
)

/** Whether a text is an absolute path without `..`. */
export const isPath = (value: string) => value.startsWith('/') && !value.split('/').includes('..')
export const path = passing('an absolute path without ..', isPath)

export const alwaysNull = valueType<never>('null', 'null', () => undefined)

/** Limits a text to a number of bytes; `whose` names the limit's owner, such as "a BMC". */
export const atMost = (bytes: number, whose: string) => (value: string) => {
  const length = Buffer.byteLength(value)
  return length > bytes ? `has ${length} bytes, and ${whose} takes ${bytes} at most` : undefined
}

/** Words that kernel options may not have, and why. */
const refusedOptions = [
  [
    /^(?:root|resume|nfsroot|netroot)=/,
    'svcd tells the kernel root=svc, or the disk that it was installed on'
  ],
  [/^svc\.(?:trust|key|pin)(?:=|$)/, 'svcd alone tells a node what it has to prove, field "trust"'],
  [
    /^rd\.(?:lvm\.lv|luks\.(?:uuid|name|partuuid|serial)|md\.uuid)=/,
    'the initramfs waits for that disk, and a machine that boots an image does not have it yet'
  ],
  [/^(?:rdinit=|init=(?!\/))/, 'it starts no image']
] as const

/** Refuses kernel options that name a disk or that start no image (rules 4.2). */
export const noDiskOptions = (value: string) => {
  // The kernel and GRUB drop quotes, wherever they stand in a word.
  const words = value.replaceAll('"', '').split(' ')
  for (const [pattern, why] of refusedOptions) {
    const word = words.find(word => pattern.test(word))
    if (word) return `holds ${word}: ${why}; take it out`
  }
  return undefined
}

/** As `noDiskOptions`, for a group or node. Refuses "init" too: only a pack checks that its image has it. */
export const noInit = (value: string) => {
  const init = /(?:^| )(init=(?!\/(?:usr\/)?(?:sbin\/init|lib\/systemd\/systemd)(?: |$))\S*)/.exec(value)?.[1]
  return (
    noDiskOptions(value) ??
    (init && `holds ${init}: set it in "kerneloptions" of the image, whose pack looks whether it is there`)
  )
}

/** Limits a text to one line without white space other than spaces and tabs. */
export const oneLine = (value: string) => {
  if (/[\u0000-\u0008\n-\u001f\u007f-\u009f\u2028\u2029]/.test(value))
    return 'holds a line break or another control character'
  return /[^\S \t]/.test(value) ? 'holds a blank that is neither a space nor a tab' : undefined
}

export const comment = { name: 'comment', type: freeText, meaning: 'free text' } as const satisfies Field
