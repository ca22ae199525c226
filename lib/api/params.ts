import { badRequest, notFound } from '../base/errors.js'
import { parseAddress } from '../model/address.js'
import type { TypeName } from '../model/docs.js'
import {
  asDomainName,
  isFileName,
  isNodeName,
  isObjectName,
  looksLikeAddress,
  nodeNameRule,
  objectNameRule,
  parseMac
} from '../model/names.js'
import { objectTypes, typeNames } from '../model/types.js'
import { isNodeSet } from '../node-set/evaluate.js'

/** Returns the canonical form of a value. Throws 400 or 404. */
type Check = (value: string) => string

const name =
  (what: string, rule: string, test: (value: string) => boolean): Check =>
  value => {
    if (!test(value))
      throw badRequest(`${what} ${JSON.stringify(value)}: a name must be ${rule}`, 'invalid-name')
    return value
  }
const plain = (what: string) => name(what, objectNameRule, isObjectName)
const object = (type: TypeName) => {
  const { title, nameRule, isName } = objectTypes[type]
  return name(title, nameRule, isName)
}

/** A name that breaks its rule counts as one that does not exist. */
const existing =
  (what: string, test: (value: string) => boolean, code: 'no-object' | 'no-job' = 'no-object'): Check =>
  value => {
    if (!test(value)) throw notFound(`there is no ${what} ${JSON.stringify(value)}`, code)
    return value
  }

const parsed =
  (what: string, parse: (value: string) => string | undefined): Check =>
  value => {
    const canonical = parse(value)
    if (canonical === undefined) throw badRequest(`${JSON.stringify(value)} is not ${what}`, 'invalid-field')
    return canonical
  }
/** The MAC of a boot loader, some of which put the hardware type in front, 01 for Ethernet. */
const sentMac = (value: string) =>
  parseMac(value) ??
  (/^01(?:[:-]?[\da-f]{2}){6}$/i.test(value) ? parseMac(value.slice(2).replace(/^[:-]/, '')) : undefined)
const address = parsed('an IPv4 address', value => (parseAddress(value) === undefined ? undefined : value))

/** The path parameter of a type. */
export const parameterOf = (type: TypeName): string => objectTypes[type].parameter ?? type

const plainNames = ['interface', 'controller', 'secret', 'token', 'role', 'script', 'service']

/** The path parameters by name: their check, done once at the edge (rules 3.1), and its status codes. */
const parameters: Readonly<Record<string, readonly [check: Check, ...codes: number[]]>> = {
  ...Object.fromEntries(typeNames.map(type => [parameterOf(type), [object(type), 400, 404] as const])),
  ...Object.fromEntries(plainNames.map(name => [name, [plain(name), 400, 404] as const])),
  tagname: [plain('tag'), 400, 404],
  format: [plain('export'), 400, 404],
  // No 404 for an unknown group: the console gets a script that says so (rules 4.4).
  groupname: [object('group'), 400],
  host: [parsed('a name in DNS', asDomainName), 400, 404],
  hostname: [name('host name', nodeNameRule, isNodeName), 400],
  ipaddress: [address, 400],
  macaddress: [parsed('a MAC address', sentMac), 400],
  file: [existing('file', isFileName), 404],
  tarball: [existing('file', isFileName), 404],
  sha256: [existing('library', value => /^[\da-f]{64}$/.test(value)), 404],
  pagefile: [existing('file of the status page', value => /^[a-z]+\.[a-z]+$/.test(value)), 404],
  request_id: [existing('request', value => /^[\da-f]{32}$/.test(value), 'no-job'), 404]
}

/** Returns the names of the parameters in a path. */
export const parametersOf = (path: string) =>
  [...path.matchAll(/\{(\w+)\}/g)].map(([, parameter]) => parameter as string)

/** The status codes of the parameters in a route's path. */
export const parameterCodes = (path: string) =>
  parametersOf(path).flatMap(name => rowOf(name).slice(1) as number[])

function rowOf(name: string) {
  const row = parameters[name]
  if (!row) throw new TypeError(`path parameter ${name} has no rule`)
  return row
}

/**
 * Returns the canonical form of a decoded parameter. Throws 400, or 404 for a file name or an id. A GET of
 * one network also takes an address (rules 3.6).
 */
export function checkParam(
  name: string,
  value: string,
  route: { readonly method: string; readonly path: string; readonly sets?: true }
): string {
  // Sets are evaluated where they are used.
  if (name === 'node' && route.sets && isNodeSet(value)) return value
  const [check] = rowOf(name)
  const isAddress =
    route.method === 'GET' && route.path === '/config/network/{network}' && looksLikeAddress(value)
  return (isAddress ? address : check)(value)
}
