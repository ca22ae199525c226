import { address, boolean, comment, host, hosts, prefix, type Stored, type Table } from '../field.js'
import { isNetworkName, objectNameRule } from '../names.js'
import type { ObjectType } from '../object-type.js'

const fields = [
  { name: 'network', type: prefix, meaning: 'CIDR' },
  { name: 'gateway', type: address, meaning: 'default gateway' },
  { name: 'ns_hostname', type: host, meaning: 'name server, host name' },
  { name: 'ns_ip', also: ['nameserver_ip'], type: address, meaning: 'name server, address' },
  { name: 'ntp_server', type: hosts, meaning: "NTP server, over the cluster's" },
  comment,
  { name: 'dhcp', also: ['dhcp_enable'], type: boolean, default: false, meaning: 'DHCP is served here' },
  { name: 'dhcp_range_begin', also: ['dhcp_begin'], type: address, meaning: 'dynamic range, first address' },
  { name: 'dhcp_range_end', also: ['dhcp_end'], type: address, meaning: 'dynamic range, last address' }
] as const satisfies Table

export type NetworkDoc = { readonly name: string; readonly network: string } & Omit<
  Stored<typeof fields>,
  'network'
>

declare module '../docs.js' {
  interface ObjectShapes {
    network: NetworkDoc
  }
}

/** An IPv4 network: interfaces and devices have their addresses in one. */
export const network: ObjectType<NetworkDoc> = {
  type: 'network',
  title: 'network',
  fields,
  newName: ['newnetname'],
  isName: isNetworkName,
  nameRule: `${objectNameRule}, and not like an address`,
  network: doc => doc
}
