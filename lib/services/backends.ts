import type { Backend } from './backend.js'
import { dnsmasq as dhcpDnsmasq, isc, kea } from './dhcp/servers.js'
import { bind, dnsmasq as dnsDnsmasq } from './dns/servers.js'

export type ServiceName = 'dhcp' | 'dns'

const backends = { dhcp: { isc, kea, dnsmasq: dhcpDnsmasq }, dns: { bind, dnsmasq: dnsDnsmasq } } as const

/** Returns the backend of the server that the ini names. Throws TypeError for an unknown one. */
export function backendOf(service: ServiceName, server: string): Backend<unknown> {
  const backend = (backends[service] as Readonly<Record<string, Backend<never>>>)[server]
  if (!backend) throw new TypeError(`there is no ${service} server ${server}`)
  return backend as Backend<unknown>
}
