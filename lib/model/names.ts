/** A node name is a host name: one RFC 1123 label in lower case (rules 3.1). */
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

/** Whether a text follows `nodeNameRule`. */
export const isNodeName = (name: string) => nodeName.test(name)
/** Whether a text follows `objectNameRule`. */
export const isObjectName = (name: string) => objectName.test(name)
/** Whether a text may name a network: an address may not, because of `/config/network/{address}`. */
export const isNetworkName = (name: string) => objectName.test(name) && !quad.test(name)
/** Whether a text is a host name, a domain or an address. */
export const isDomainName = (name: string) => domainName.test(name)
/** Returns a DNS name in its stored form: lower case, no final dot; undefined if it is none. */
export function asDomainName(given: string): string | undefined {
  const name = given.replace(/\.$/, '').toLowerCase()
  return isDomainName(name) ? name : undefined
}
/** Whether a text may name a file below `[paths] files`: safe in a URL, an iPXE script and a shell. */
export const isFileName = (name: string) => fileName.test(name)
/** Whether a text looks like an address, valid or not. */
export const looksLikeAddress = (name: string) => quad.test(name)

/**
 * Parses a MAC in any common notation to lower case with colons; undefined for anything else (rules 3.9).
 * Only the last 8 of the 20 bytes of an InfiniBand port address are kept: its GUID; the rest may change.
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

/** Whether a parsed MAC is the GUID of an InfiniBand port. */
export const isGuid = (mac: string) => mac.length > 17

/** Returns why no card can have a parsed MAC; undefined if one can. */
export function macProblem(mac: string): string | undefined {
  if (/^[0:]+$/.test(mac)) return 'is all zeros, which firmware reports when it has no address'
  if (/^[f:]+$/.test(mac)) return 'is the broadcast address'
  const isOfMany = !isGuid(mac) && Number.parseInt(mac.slice(0, 2), 16) % 2 === 1
  return isOfMany ? "is a multicast address, which is no card's own" : undefined
}

/** Splits the final number off a node name: `node007` → stem `node`, digits `007`. */
export function splitNumber(name: string): { stem: string; digits: string } {
  const digits = /[0-9]*$/.exec(name)?.[0] ?? ''
  return { stem: name.slice(0, name.length - digits.length), digits }
}
