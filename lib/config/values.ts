import { isIP } from 'node:net'
import { resolve } from 'node:path'
import ipaddr from 'ipaddr.js'
import { type Grant, parseGrant } from '../auth/grant.js'
import { isThisMachine } from '../base/request-source.js'

/** An invalid value; the message completes "[section] key …" and never has the text. */
export class ValueError extends Error {}

/** Parses the text of a value; `directory` is the ini's, for relative paths. Throws ValueError. */
export type Kind<T> = (text: string, directory: string) => T

function must(holds: boolean, expected: string): asserts holds {
  if (!holds) throw new ValueError(`must be ${expected}`)
}

/** Names of everything but nodes (rules 3.1). */
export const nameRule = /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/
/** The rule in words, for the end of a sentence. */
export const nameRuleText =
  '1 to 63 letters, digits, dots, underscores and hyphens, beginning with a letter or digit'

/** Any text on one line, or empty. */
export const text: Kind<string> = value => value

/** A name; `reserved` words have another meaning where the name is used. */
export function name(reserved: readonly string[] = []): Kind<string> {
  return value => {
    must(nameRule.test(value), nameRuleText)
    must(!reserved.includes(value), `none of ${reserved.join(', ')}`)
    return value
  }
}

/** One of a fixed set of words. */
export function choice<const T extends string>(...words: readonly T[]): Kind<T> {
  return value => {
    const word = words.find(candidate => candidate === value)
    must(word !== undefined, `one of ${words.join(', ')}`)
    return word
  }
}

/** `yes` or `no`, `true` or `false`, `on` or `off`. */
export const boolean: Kind<boolean> = value => {
  const isYes = /^(?:yes|true|on)$/i.test(value)
  must(isYes || /^(?:no|false|off)$/i.test(value), 'yes or no')
  return isYes
}

const measured =
  (units: Readonly<Record<string, number>>, examples: string) =>
  (min: string, max: string): Kind<number> =>
  value => {
    const read = (part: string) => {
      const [, digits = '', unit = ''] = /^(\d{1,15})([A-Za-z])$/.exec(part) ?? []
      return Object.hasOwn(units, unit) ? Number(digits) * (units[unit] ?? Number.NaN) : Number.NaN
    }
    const amount = read(value)
    must(!Number.isNaN(amount), `a whole number with its unit, such as ${examples}`)
    must(amount >= read(min) && amount <= read(max), `between ${min} and ${max}`)
    return amount
  }

/** A duration with its unit, in milliseconds. */
export const duration = measured({ s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }, '30s, 10m, 4h or 7d')

const sizes = { k: 1024, m: 1024 ** 2, g: 1024 ** 3 }
/** A size with its unit, in bytes. */
export const size = measured({ ...sizes, K: sizes.k, M: sizes.m, G: sizes.g }, '64k, 1m or 2g')

/** A whole number. */
export function count(min: number, max: number): Kind<number> {
  return value => {
    const amount = /^\d{1,9}$/.test(value) ? Number(value) : Number.NaN
    must(amount >= min && amount <= max, `a whole number from ${min} to ${max}`)
    return amount
  }
}

/** An absolute path, or one relative to the ini's directory. */
export const path: Kind<string> = (value, directory) => {
  must(value !== '', 'a path')
  return resolve(directory, value)
}

/** A path, or empty. */
export const optionalPath: Kind<string> = (value, directory) => (value === '' ? '' : path(value, directory))

/** Returns the canonical text of an IPv4 or IPv6 address without a zone; undefined if invalid. */
function canonical(value: string): string | undefined {
  if (isIP(value) === 0 || value.includes('%')) return undefined
  return ipaddr.process(value).toString()
}

/** Whether it is 0.0.0.0 or ::. */
export function isWildcard(address: string): boolean {
  return ipaddr.process(address).range() === 'unspecified'
}

/** One address of this machine in canonical text, or empty. */
export const optionalAddress: Kind<string> = value => {
  if (value === '') return ''
  const address = canonical(value)
  must(address !== undefined, 'an IPv4 or IPv6 address')
  must(!isWildcard(address), 'one address, not all of them')
  return address
}

/** `address:port` or `[IPv6 address]:port`; port 0 stands for any free one. */
export const listen: Kind<{ readonly address: string; readonly port: number }> = value => {
  const expected = 'address:port or [IPv6 address]:port'
  const [, v6, v4, digits = ''] = /^(?:\[([^\]]*)\]|([^:]*)):(\d{1,5})$/.exec(value) ?? []
  const address = canonical(v6 ?? v4 ?? '')
  must(address !== undefined && isIP(v6 ?? '4') !== 4, expected)
  const port = Number(digits)
  must(port <= 65535, `${expected} with a port up to 65535`)
  return { address, port }
}

/** A list of addresses and CIDRs, separated by commas or blanks, as CIDRs. */
export const cidrs: Kind<readonly string[]> = value =>
  partsOf(value, /[\s,]+/).map(part => {
    const expected = 'a list of CIDRs, such as 10.141.0.0/16 or fd00::/64'
    const [, head = '', bits] = /^([^/]*)(?:\/(\d{1,3}))?$/.exec(part) ?? []
    const address = canonical(head)
    must(address !== undefined, expected)
    const width = isIP(address) === 4 ? 32 : 128
    // An IPv4-mapped address was converted to IPv4, so its prefix length is refused as out of range.
    const prefix = bits === undefined ? width : Number(bits)
    must(prefix <= width, expected)
    const cidr = `${address}/${prefix}`
    const network = (
      width === 32 ? ipaddr.IPv4.networkAddressFromCIDR(cidr) : ipaddr.IPv6.networkAddressFromCIDR(cidr)
    ).toString()
    must(network === address, `${expected}, without host bits (${network}/${prefix})`)
    return cidr
  })

/** One IPv4 address, or empty. */
export const optionalIpv4: Kind<string> = value => {
  const address = optionalAddress(value, '')
  must(isIP(address) !== 6, 'an IPv4 address')
  return address
}

const shaped =
  (shape: RegExp, expected: string): Kind<string> =>
  value => {
    must(shape.test(value), expected)
    return value
  }

/** Splits a list at a sign; blanks around the parts, and empty parts, do not count. */
const partsOf = (value: string, separator: string | RegExp): string[] =>
  value
    .split(separator)
    .map(part => part.trim())
    .filter(part => part !== '')

/** A list, separated by commas, of parts that pass the test, and that is good as a whole; or empty. */
const listed =
  (
    test: (part: string) => boolean,
    expected: string,
    isGood: (parts: readonly string[]) => boolean = () => true
  ): Kind<readonly string[]> =>
  value => {
    const parts = partsOf(value, ',')
    must(parts.every(test) && isGood(parts), expected)
    return parts
  }

/** A file name without a path, as a DHCP answer, a URL and TFTP use it. */
export const fileName = shaped(
  /^[A-Za-z0-9][A-Za-z0-9._+~-]{0,99}$/,
  'a file name of letters, digits and . _ + ~ -'
)

/** The name of a service, or empty. */
export const unit = shaped(
  /^(?:[A-Za-z0-9][A-Za-z0-9@._:-]{0,199})?$/,
  'the name of a service, such as isc-dhcp-server'
)

/** A path below a web server's root that ends in a slash, or empty. */
export const optionalLocation = shaped(
  /^(?:\/(?:[A-Za-z0-9_][A-Za-z0-9._-]*\/)+)?$/,
  'a path that begins and ends with a slash, such as /svcd-files/'
)

/** A list of network interfaces, or empty. */
export const interfaces = listed(
  name => /^[A-Za-z0-9][A-Za-z0-9_.@-]{0,14}$/.test(name),
  'names of network interfaces with commas between them'
)

const label = '[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?'
const hostName = new RegExp(`^(?=.{1,253}$)${label}(?:\\.${label})*$`)

/** A host name or an address, or empty. */
export const optionalHost: Kind<string> = value => {
  if (value === '') return ''
  const address = canonical(value)
  // A name of digits and dots alone is a mistyped address.
  must(
    address !== undefined || (hostName.test(value) && !/^[\d.]+$/.test(value)),
    'a host name or an address'
  )
  return address ?? value
}

/** A URL that matches a pattern, without user or fragment, or empty. */
const optionalUrlOf =
  (shape: RegExp, expected: string, part: 'origin' | 'href'): Kind<string> =>
  value => {
    if (value === '') return ''
    must(shape.test(value) && URL.canParse(value), expected)
    const url = new URL(value)
    must(url.username === '' && url.password === '' && url.hash === '', expected)
    return url[part]
  }

/** `http(s)://host[:port]` in canonical text without a final slash, or empty. */
export const optionalOrigin = optionalUrlOf(
  /^https?:\/\/[^\s/?#\\]+\/?$/,
  'a URL of the form http://host:port or https://host',
  'origin'
)

const mostOrigins = 8
/** Nodes get all of them as a kernel argument, and Linux limits arguments to 2048 characters. */
const longestOrigins = 500

/** A list of distinct `http(s)://host[:port]` in canonical text, or empty. */
export const origins: Kind<readonly string[]> = (value, directory) => {
  const expected =
    'URLs of the form http://host:port or https://host with commas between them: each once, ' +
    `${mostOrigins} at most, and ${longestOrigins} characters in all`
  const isOne = (part: string) => /^https?:\/\/[^\s/?#\\@]+\/?$/.test(part) && URL.canParse(part)
  const found = listed(isOne, expected)(value, directory).map(part => new URL(part).origin)
  const isGood = new Set(found).size === found.length && found.length <= mostOrigins
  must(isGood && found.join().length <= longestOrigins && (found.length > 0 || value === ''), expected)
  return found
}

/** `http(s)://host[:port][/path]`, or empty. */
export const optionalUrl = optionalUrlOf(
  /^https?:\/\/[^\s/?#\\]+(?:\/[^\s?#\\]*)?$/,
  'a URL such as http://127.0.0.1:9091/transmission/rpc',
  'href'
)

/** An announce URL (http, https or udp), or empty. */
export const optionalTracker = optionalUrlOf(
  /^(?:https?|udp):\/\/[^\s/?#\\]+(?:\/[^\s\\]*)?$/,
  'a URL such as http://host:6969/announce or udp://host:6969',
  'href'
)

/** A list of etcd endpoints. Plain http would expose passwords and objects to the network. */
export const etcdEndpoints = listed(
  part =>
    /^(?:https:\/\/[^\s/?#\\@]+|http:\/\/(?:127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?)\/?$/.test(part) &&
    URL.canParse(part),
  'URLs such as https://10.141.0.1:2379 with commas between them; ' +
    'plain http is for 127.0.0.1 and [::1] alone',
  endpoints => endpoints.length > 0
)

/** Servers of a directory. Four bound the time that a log-in takes while none of them answers. */
export const ldapUrls = listed(
  part => /^ldaps?:\/\/[^\s/?#\\@]+\/?$/.test(part) && URL.canParse(part),
  'up to 4 URLs such as ldaps://ldap1.example.org with commas between them',
  urls => urls.length <= 4
)

/** A filter of LDAP that holds one of these words in braces, or empty. */
export const ldapFilter = (...words: readonly string[]) =>
  shaped(
    new RegExp(`^(?:\\(.*\\{(?:${words.join('|')})\\}.*\\))?$`),
    `a filter in parentheses with {${words.join('} or {')}}, such as (uid={${words[0]}})`
  )

/** The issuer of an OpenID provider, or empty. Plain http would let the network log in as anybody. */
export const issuer: Kind<string> = value => {
  const isOne = /^https?:\/\/[^\s?#\\@]+$/.test(value) && URL.canParse(value)
  must(
    value === '' || (isOne && (value.startsWith('https:') || isThisMachine(new URL(value)))),
    'a URL such as https://sso.example.org/realms/hpc; plain http is for 127.0.0.1 and [::1] alone'
  )
  return value
}

/** Scopes that are asked for. */
export const scopes = shaped(
  /^openid(?: [\x21\x23-\x5b\x5d-\x7e]+)*$/,
  'openid, and others behind it with a blank between them'
)

/** A claim of a token, or the way to one in an object: realm_access.roles. */
export const claim = shaped(/^[\w:./-]{1,200}$/, 'the name of a claim, such as preferred_username or groups')

/** The members of a group get a grant. The group `*` has all users. */
export interface GroupRole {
  readonly group: string
  readonly grant: Grant
}

/** Matches a comma where `|` is meant. A DN has commas, but no attribute of these names. */
const commaBeforeRole = /,\s*(?:admin|operator|viewer)(?::[^=]*)?=/

/** `ROLE=GROUP | ROLE=GROUP`: a role, or a role with groups of nodes, and who gets it. */
export const groupRoles: Kind<readonly GroupRole[]> = value =>
  partsOf(value, '|').map(part => {
    const [, role = '', group = ''] = /^([^=]*?)\s*=\s*(.*)$/.exec(part) ?? []
    const isSplit = group !== '' && !commaBeforeRole.test(group)
    must(isSplit, 'entries such as admin=svcd-admins | operator:gpu=gpu-team, with | between them')
    try {
      return { group, grant: parseGrant(role) }
    } catch (error) {
      throw new ValueError(`has an entry for ${group} whose role ${(error as Error).message}`)
    }
  })

/** The prefix of keys. */
export const keyPrefix = shaped(
  /^\/(?:[A-Za-z0-9_.-]+\/)+$/,
  'a path that begins and ends with a slash, such as /svcd/'
)

/** The name of a user of etcd, or empty. */
export const optionalUser = shaped(/^[^\s"]{0,200}$/, 'a name without blanks and quotes, or empty')

/** A program and its arguments, separated by blanks, or empty; quotes are refused, as no shell reads it. */
export const command: Kind<readonly string[]> = value => {
  must(
    !/["'`\\$|&;<>]/.test(value),
    'a program and its arguments with blanks between them, without shell signs'
  )
  return value.split(/\s+/).filter(word => word !== '')
}

/** A list of files from the root of an image; names may have the patterns *, ? and [ ]. */
export const imageFiles = listed(
  part => /^(?:\/(?!\.\.?\/)[^/*?[\]\\\s]+)*\/[^/\\\s]+$/.test(part) && !/\/\.\.?$/.test(part),
  'files from the root of an image, such as /etc/ssh/ssh_host_*, with commas between them'
)

/** A list of paths from the root of an image; they may have the patterns *, ? and [ ]. */
export const imagePaths = listed(
  part => part.startsWith('/') && !part.split('/').includes('..'),
  'paths from the root of an image, such as /var/cache/*, with commas between them'
)

/** A crypt(3) hash, or empty; never a password in clear. */
export const optionalCrypt = shaped(
  /^(?:\$[0-9a-z]{1,12}\$[./0-9A-Za-z$,=+-]{8,400})?$/,
  'a crypt(3) hash, as `openssl passwd -6` prints it, or empty'
)
