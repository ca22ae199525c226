/** A node's name is its host name: one RFC 1123 label in lower case (rules 3.1). */
const nodeName = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/
const objectName = /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/
const domainName =
  /^(?=.{1,253}$)[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(?:\.[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*$/
const fileName = /^[A-Za-z0-9][A-Za-z0-9._+~-]{0,199}$/
const storedMac = /^[0-9a-f]{2}(?::[0-9a-f]{2}){5}$/
const longestMac = 59
const quad = /^[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+$/

export const nodeNameRule = 'a host name of 1 to 63 lower-case letters, digits and inner hyphens'
export const objectNameRule =
  '1 to 63 letters, digits, dots, underscores and hyphens, the first a letter or digit'
export const fileNameRule = 'a file name of letters, digits and . _ + ~ -, the first a letter or digit'

/** Whether a text keeps `nodeNameRule`. */
export const isNodeName = (name: string) => nodeName.test(name)
/** Whether a text keeps `objectNameRule`. */
export const isObjectName = (name: string) => objectName.test(name)
/** A network may not be named like an address, for `/config/network/{address}` has to tell them apart. */
export const isNetworkName = (name: string) => objectName.test(name) && !quad.test(name)
/** A host name, a domain or an address. */
export const isDomainName = (name: string) => domainName.test(name)
/**
 * A name in DNS as it is stored, in lower case and without the dot at its end; undefined for what is none.
 */
export function asDomainName(given: string): string | undefined {
  const name = given.replace(/\.$/, '').toLowerCase()
  return isDomainName(name) ? name : undefined
}
/** Names of the files below `[paths] files`: fit for a URL, an iPXE script and a shell as they are. */
export const isFileName = (name: string) => fileName.test(name)
/** Four numbers with dots between them, in range or not: such a name asks for an address. */
export const looksLikeAddress = (name: string) => quad.test(name)

/**
 * A MAC in any common notation as lower case with colons; undefined for anything else (rules 3.9). Of the address of an
 * InfiniBand port, which has 20 bytes, the last 8 are given: they are its GUID, and the others may change.
 */
export function parseMac(text: string): string | undefined {
  if (storedMac.test(text)) return text
  const form =
    /^(?:[0-9a-f]{2}(?:(?::[0-9a-f]{2})+|(?:-[0-9a-f]{2})+)|[0-9a-f]{4}(?:(?:\.[0-9a-f]{4})+|(?::[0-9a-f]{4}){3})|(?:0x)?[0-9a-f]+)$/i
  if (text.length > longestMac || !form.test(text)) return undefined
  const digits = text.replace(/^0x|[^0-9a-f]/gi, '').toLowerCase()
  if (digits.length !== 12 && digits.length !== 16 && digits.length !== 40) return undefined
  return (digits.length === 40 ? digits.slice(-16) : digits).replace(/(..)(?!$)/g, '$1:')
}

/** Whether a MAC, as `parseMac` gives it, is the GUID of an InfiniBand port. */
export const isGuid = (mac: string) => mac.length > 17

/** Why no card has this MAC, as `parseMac` gives it; undefined where one may have it. */
export function macProblem(mac: string): string | undefined {
  if (/^[0:]+$/.test(mac)) return 'is what firmware says that knows no address'
  if (/^[f:]+$/.test(mac)) return 'is the address of all machines'
  const isOfMany = !isGuid(mac) && Number.parseInt(mac.slice(0, 2), 16) % 2 === 1
  return isOfMany ? "is a multicast address, which is no card's own" : undefined
}

/** The parts of a node name that ends in a number: `node007` → stem `node`, digits `007`. */
export function splitNumber(name: string): { stem: string; digits: string } {
  const digits = /[0-9]*$/.exec(name)?.[0] ?? ''
  return { stem: name.slice(0, name.length - digits.length), digits }
}
