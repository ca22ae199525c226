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
import { objectTypes } from '../model/types.js'

const text = (what: string, rule: string, test: (value: string) => boolean) => (value: string) => {
  if (!test(value)) throw badRequest(`${what} ${JSON.stringify(value)}: a name must be ${rule}`)
  return value
}
const object = (type: TypeName) =>
  text(objectTypes[type].title, objectTypes[type].nameRule, objectTypes[type].isName)
const file = (value: string) => {
  if (!isFileName(value)) throw notFound(`there is no file ${JSON.stringify(value)}`)
  return value
}

const request = (value: string) => {
  if (!/^[\da-f]{32}$/.test(value)) throw notFound(`there is no request ${JSON.stringify(value)}`)
  return value
}

const address = (value: string) => {
  if (parseAddress(value) === undefined) throw badRequest(`${JSON.stringify(value)} is not an IPv4 address`)
  return value
}

/** How each path parameter is checked, once, at the edge (rules 3.1): by its name in the route table. */
const checks: Readonly<Record<string, (value: string) => string>> = {
  group: object('group'),
  groupname: object('group'),
  node: object('node'),
  hostname: text('host name', nodeNameRule, isNodeName),
  osimage: object('osimage'),
  bmcsetup: object('bmcsetup'),
  network: object('network'),
  interface: text('interface', objectNameRule, isObjectName),
  switch: object('switch'),
  otherdev: object('otherdev'),
  tagname: text('tag', objectNameRule, isObjectName),
  secret: text('secret', objectNameRule, isObjectName),
  role: text('role', objectNameRule, isObjectName),
  script: text('script', objectNameRule, isObjectName),
  service: text('service', objectNameRule, isObjectName),
  ipaddress: address,
  macaddress: value => {
    const mac = parseMac(value)
    if (mac === undefined) throw badRequest(`${JSON.stringify(value)} is not a MAC address`)
    return mac
  },
  file,
  tarball: file,
  request_id: request
}

/**
 * Checks a decoded path parameter and gives its canonical form; throws 400, 404 for a file name or an id. Where
 * one network is read, an address in the place of its name asks for that address (rules 3.6).
 */
export function checkParam(name: string, value: string, route: { method: string; path: string }): string {
  if (route.method === 'GET' && route.path === '/config/network/{network}' && looksLikeAddress(value))
    return address(value)
  const check = checks[name]
  if (!check) throw new TypeError(`path parameter ${name} has no rule`)
  return check(value)
}
