import { badRequest, notFound } from '../errors.js'
import { parseAddress } from '../model/address.js'
import type { TypeName } from '../model/docs.js'
import {
  isFileName,
  isNodeName,
  isObjectName,
  looksLikeAddress,
  nodeNameRule,
  objectNameRule,
  parseMac
} from '../model/names.js'
import { objectTypes, typeNames } from '../model/types.js'

/** The check of a path parameter, and the codes by which a route with it may refuse. */
interface Parameter {
  /** Gives the canonical form; throws 400 or 404. */
  readonly check: (value: string) => string
  readonly codes: readonly number[]
}

/** A name that must follow a rule (400), of something that must be there (404) where `codes` says so. */
const name = (
  what: string,
  rule: string,
  test: (value: string) => boolean,
  codes: readonly number[] = [400, 404]
): Parameter => ({
  check: value => {
    if (!test(value)) throw badRequest(`${what} ${JSON.stringify(value)}: a name must be ${rule}`)
    return value
  },
  codes
})
const object = (type: TypeName, codes?: readonly number[]) => {
  const { title, nameRule, isName } = objectTypes[type]
  return name(title, nameRule, isName, codes)
}
const plain = (what: string) => name(what, objectNameRule, isObjectName)

/** What is not there under a malformed name either. */
const sought = (what: string, test: (value: string) => boolean): Parameter => ({
  check: value => {
    if (!test(value)) throw notFound(`there is no ${what} ${JSON.stringify(value)}`)
    return value
  },
  codes: [404]
})
const file = sought('file', isFileName)

/** A value in a notation of its own. */
const notation = (what: string, parse: (value: string) => string | undefined): Parameter => ({
  check: value => {
    const parsed = parse(value)
    if (parsed === undefined) throw badRequest(`${JSON.stringify(value)} is not ${what}`)
    return parsed
  },
  codes: [400]
})
const address = notation('an IPv4 address', value => (parseAddress(value) === undefined ? undefined : value))

/** The path parameters by their names in the route table. Each is checked once, at the edge (rules 3.1). */
const parameters: Readonly<Record<string, Parameter>> = {
  ...Object.fromEntries(typeNames.map(type => [type, object(type)])),
  // At the console: one that is not there gets a script that says so (rules 4.4).
  groupname: object('group', [400]),
  hostname: name('host name', nodeNameRule, isNodeName, [400]),
  interface: plain('interface'),
  tagname: plain('tag'),
  secret: plain('secret'),
  role: plain('role'),
  script: plain('script'),
  service: plain('service'),
  ipaddress: address,
  macaddress: notation('a MAC address', parseMac),
  file,
  tarball: file,
  request_id: sought('request', value => /^[\da-f]{32}$/.test(value))
}

/** The names of the parameters in a route's path. */
export const parametersOf = (path: string) =>
  [...path.matchAll(/\{(\w+)\}/g)].map(([, parameter]) => parameter as string)

/** The codes by which a route with this path refuses a name that breaks its rule, and one that names nothing. */
export const parameterCodes = (path: string) => parametersOf(path).flatMap(name => parameterOf(name).codes)

function parameterOf(name: string): Parameter {
  const parameter = parameters[name]
  if (!parameter) throw new TypeError(`path parameter ${name} has no rule`)
  return parameter
}

/**
 * Checks a decoded path parameter and gives its canonical form; throws 400, or 404 for a file name or an id. Where
 * one network is read, an address in the place of its name asks for that address (rules 3.6).
 */
export function checkParam(name: string, value: string, route: { method: string; path: string }): string {
  const isAddress =
    route.method === 'GET' && route.path === '/config/network/{network}' && looksLikeAddress(value)
  return (isAddress ? address : parameterOf(name)).check(value)
}
