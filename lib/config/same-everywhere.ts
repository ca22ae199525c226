import { createHmac } from 'node:crypto'
import { isObject } from '../json.js'
import { isOfThisMachine } from './reachability.js'
import type { Config } from './types.js'

/** What controllers that share objects need alike, by its words for an admin: a section of the ini, or a key of one. */
function sameEverywhere(config: Config): Record<string, unknown> {
  const { http, store, users, cluster, dhcp, dns, kickstart, image } = config
  // A directory is this machine's own.
  const { ipxe_directory: _, ...boot } = config.boot
  return {
    // With one URL each has its own, or all share one. The order is each one's own: nodes begin with the first.
    '[http] url': http.urls.length > 1 ? [...http.urls].sort() : [],
    // Files and users differ in harmless ways. Who has another prefix is in another list of controllers.
    '[store] ttl': store.ttl,
    // With a member on this machine each list is another one, and not compared.
    ...(store.endpoints.some(isOfThisMachine)
      ? {}
      : { '[store] endpoints': [...new Set(store.endpoints.map(url => new URL(url).origin))].sort() }),
    '[users]': Object.fromEntries(users.map(({ name, ...user }) => [name, user])),
    '[cluster]': cluster,
    // Which server it is, and its files, service and interfaces, each machine may have differently. Each may have a TFTP server of its own.
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

/**
 * Digests of what controllers that share objects need alike in their ini: HMAC-SHA-256, the first 16 hex digits, by the words for
 * a section or a key. Neither the order of keys in the ini nor that of URLs changes one. Without `key` nobody can try
 * passwords against them.
 */
export function digestsOf(config: Config, key: Uint8Array): Record<string, string> {
  const digest = (value: unknown) =>
    createHmac('sha256', key).update(JSON.stringify(value, withSortedKeys)).digest('hex').slice(0, 16)
  return Object.fromEntries(
    Object.entries(sameEverywhere(config)).map(([words, value]) => [words, digest([words, value])])
  )
}

const withSortedKeys = (_key: string, value: unknown) =>
  isObject(value) ? Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1))) : value
