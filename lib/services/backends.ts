import type { Config } from '../config/types.js'
import type { Backend } from './backend.js'
import { conman } from './consoles/conman.js'
import { dnsmasq as dhcpDnsmasq, isc, kea } from './dhcp/servers.js'
import { bind, dnsmasq as dnsDnsmasq } from './dns/servers.js'
import { hpa, dnsmasq as tftpDnsmasq } from './tftp/servers.js'

/** The services that svcd configures. */
export const serviceNames = ['dhcp', 'dns', 'tftp', 'consoles'] as const
export type ServiceName = (typeof serviceNames)[number]

/** Returns the server that the ini names for a service; `none` if svcd does not manage it. */
export const serverOf = (config: Config, service: ServiceName): string =>
  service !== 'consoles' ? config[service].server : config.consoles.enabled ? 'conman' : 'none'

const backends = {
  consoles: { conman },
  dhcp: { isc, kea, dnsmasq: dhcpDnsmasq },
  dns: { bind, dnsmasq: dnsDnsmasq },
  tftp: { dnsmasq: tftpDnsmasq, 'tftpd-hpa': hpa }
} as const

/** Returns the backend of the server that the ini names. Throws TypeError for an unknown one. */
export function backendOf(service: ServiceName, server: string): Backend<unknown> {
  const backend = (backends[service] as Readonly<Record<string, Backend<never>>>)[server]
  if (!backend) throw new TypeError(`there is no ${service} server ${server}`)
  return backend as Backend<unknown>
}
