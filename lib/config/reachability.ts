import { createHmac } from 'node:crypto'
import ipaddr from 'ipaddr.js'
import { isObject } from '../base/json.js'
import type { Config } from './types.js'
import { isWildcard } from './values.js'

const loopback = ipaddr.IPv4.parseCIDR('127.0.0.0/8')

/** Warns of `[http] front_files` without `trusted_proxies`: svcd then sends the files itself (rules 7.7). */
export function frontWarnings({ http }: Pick<Config, 'http'>): string[] {
  if (http.front_files === '' || http.trusted_proxies.length > 0) return []
  return [
    '[http] front_files: it does nothing without trusted_proxies; name the front server there ' +
      '(trusted_proxies = 127.0.0.1 for one on this machine), or leave front_files empty'
  ]
}

/** Warns if `[users]` has no admin: its first line ends the first start's `admin` (rules 7.7). */
export function userWarnings({ users, auth }: Pick<Config, 'users' | 'auth'>): string[] {
  if (users.length === 0 || users.some(({ role }) => role === 'admin')) return []
  const outside = [
    ...(auth.ldap_url.length > 0 ? auth.ldap_roles : []),
    ...(auth.oidc_issuer === '' ? [] : auth.oidc_roles)
  ]
  const isElsewhere = outside.some(({ grant }) => grant.role === 'admin')
  const when = isElsewhere ? ' while the directory or the provider does not answer' : ''
  const first = isElsewhere ? '' : ', and the user admin of the first start is gone'
  return [
    `[users]: no user has the role admin: nobody can change anything over http${when}${first}; ` +
      'add the line that `svcd passwd NAME` prints'
  ]
}

/**
 * Warns why nodes in these networks (CIDRs), or other machines while there is none, cannot reach the listen
 * address or the nodes' URL (rules 7.7).
 */
export function reachability(config: Config, networks: readonly string[]): string[] {
  const remote = networks.filter(network => !touchesLoopback(network))
  if (networks.length > remote.length && remote.length === 0) return []
  const nodes = `${remote.length === 0 ? 'other machines' : `nodes in ${listSome(remote)}`} cannot reach`
  const warnings: string[] = []
  const { listen, trusted_proxies, urls } = config.http
  // A front server (`trusted_proxies`) excuses a listen address on loopback, but no URL on loopback.
  if (isLoopback(listen.address) && trusted_proxies.length === 0)
    warnings.push(
      `${nodes} [http] listen ${listen.address}: ` +
        `it is a loopback address; 0.0.0.0:${listen.port} is all addresses`
    )
  for (const url of urls) {
    const host = hostOf(url)
    const wayOut = host === config.controller.address ? '; set [controller] address' : ''
    if (isLoopback(host)) warnings.push(`${nodes} [http] url ${url}: it is a loopback address${wayOut}`)
    else if (ipaddr.isValid(host) && isWildcard(host))
      warnings.push(`${nodes} [http] url ${url}: it is all addresses, not one`)
    else if (host.includes(':'))
      warnings.push(`${nodes} [http] url ${url}: nodes boot over IPv4 alone, and it is an address of IPv6`)
  }
  return warnings
}

/** Whether requests of other machines to this URL are unencrypted. */
export const isPlain = (url: string) => url.startsWith('http:') && !isOfThisMachine(url)

/** Whether every machine reaches itself by this URL. */
const isOfThisMachine = (url: string) => isLoopback(hostOf(url))

const hostOf = (url: string) => new URL(url).hostname.replace(/^\[|\]$/g, '')

function isLoopback(host: string): boolean {
  if (/^(?:.*\.)?localhost\.?$/.test(host)) return true
  return ipaddr.isValid(host) && ipaddr.process(host).range() === 'loopback'
}

/** A network inside 127.0.0.0/8, or around it, has nodes on this machine. */
function touchesLoopback(network: string): boolean {
  const [address, prefix] = ipaddr.parseCIDR(network)
  if (!(address instanceof ipaddr.IPv4)) return address.range() === 'loopback'
  return address.match(loopback) || loopback[0].match(address, prefix)
}

function listSome(networks: readonly string[]): string {
  const shown = networks.slice(0, 3).join(', ')
  return networks.length > 3 ? `${shown} and ${networks.length - 3} more networks` : shown
}

/** The URLs, those with this controller's address or name first: a node that asks it can reach it. */
export function ownFirst({ http, controller }: Pick<Config, 'http' | 'controller'>): readonly string[] {
  const isOwn = (url: string) => {
    const host = hostOf(url)
    return host === controller.address || host === controller.name || host.startsWith(`${controller.name}.`)
  }
  return [...http.urls.filter(isOwn), ...http.urls.filter(url => !isOwn(url))]
}

/** Settings that controllers of a site must share, by section or key of the ini. */
function sharedSettings(config: Config): Record<string, unknown> {
  const { http, store, users, cluster, dhcp, dns, kickstart, image } = config
  // A directory may differ on each machine.
  const { ipxe_directory: _, ...boot } = config.boot
  return {
    // A single URL may differ per controller. The order may differ too: nodes begin with the first.
    '[http] url': http.urls.length > 1 ? [...http.urls].sort() : [],
    // Files and users may differ. Controllers with another prefix are not in the same list.
    '[store] ttl': store.ttl,
    // A member on this machine makes the list differ, so it is not compared.
    ...(store.endpoints.some(isOfThisMachine)
      ? {}
      : { '[store] endpoints': [...new Set(store.endpoints.map(url => new URL(url).origin))].sort() }),
    '[users]': Object.fromEntries(users.map(({ name, ...user }) => [name, user])),
    '[cluster]': cluster,
    // The server, its files, service, interfaces and TFTP server may differ per machine.
    '[dhcp]': dhcp.server !== 'none' && {
      lease_time: dhcp.lease_time,
      hasTftpServer: dhcp.tftp_server !== ''
    },
    '[dns]': dns.server !== 'none',
    '[boot]': boot,
    '[kickstart]': kickstart,
    '[image] directory': image.directory
  }
}

/** HMACs (16 hex digits) of the settings that controllers must share: nobody guesses passwords by them. */
export function digestsOf(config: Config, key: Uint8Array): Record<string, string> {
  const digest = (value: unknown) =>
    createHmac('sha256', key).update(JSON.stringify(value, withSortedKeys)).digest('hex').slice(0, 16)
  return Object.fromEntries(
    Object.entries(sharedSettings(config)).map(([words, value]) => [words, digest([words, value])])
  )
}

const withSortedKeys = (_key: string, value: unknown) =>
  isObject(value) ? Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1))) : value
