import {
  type DataOf,
  flag,
  integer,
  map,
  mapLists,
  maps,
  text,
  textMap,
  texts,
  type Variables
} from '../../base/variables.js'
import type { Loader } from '../../model/effective.js'

/** The script of a machine's boot case (rules 4.13, 10.5); '' for BMCs and other devices. */
export type BootScript = '' | 'menu' | 'short' | 'disk'

const range = {
  title: 'range',
  meaning: 'Addresses that are lent.',
  variables: { first: text('the first address'), last: text('the last address') }
}

const host = {
  title: 'machine',
  meaning: 'A machine that the server knows.',
  variables: {
    title: text('for comments: "node node001 BOOTIF", of letters, digits and . _ - alone'),
    mac: text('MAC address, or the GUID of an InfiniBand port'),
    client_id: text("the client identifier by which a GUID is known, '' for a MAC"),
    ipaddress: text("fixed address, '' if the machine gets one of the dynamic range"),
    boot: text<BootScript>(
      "the script it boots: `menu`, `short` or `disk`; '' for BMCs and other devices, which boot nothing. " +
        'All but `short` and `disk` get what an unknown machine gets'
    ),
    loader: text<'' | Loader>(
      "`grub` or `ipxe` if its UEFI firmware starts another one than those of its subnet; '' otherwise"
    ),
    subnet: integer('the `id` of its subnet')
  }
} as const

const subnet = {
  title: 'subnet',
  meaning: 'One CIDR, with what its networks say of it. Networks with equal CIDRs are one subnet.',
  variables: {
    id: integer('its number; a CIDR always has the same one, because leases refer to it'),
    cidr: text('such as 10.141.0.0/16'),
    network: text('its first address'),
    netmask: text('such as 255.255.0.0'),
    names: text('the names of its networks, with blanks between them'),
    dhcp: flag('whether the server answers there'),
    wire: integer('the number of its wire; subnets on one wire have the same one'),
    ports: flag('whether ports of InfiniBand are on its wire, which are known by their client identifiers'),
    here: flag("whether the controller's address is in it, and in none of the subnets inside it"),
    loader: text<Loader>('what UEFI firmware starts there, if the machine is not known: `ipxe` or `grub`'),
    ranges: maps(range, 'the dynamic ranges; empty: none'),
    nodes_only: flag('whether the ranges are for the machines in `hosts` alone'),
    router: text("the gateway, '' without one"),
    route_option: text("static routes as option 121 in hexadecimal, with the gateway; '' without any"),
    name_servers: texts('addresses of name servers'),
    ntp_servers: texts('addresses of NTP servers'),
    domain: text("the domain of its machines, '' without one"),
    search: texts('the domains to look names up in'),
    notes: texts('for comments: what could not be written, a sentence for each')
  }
} as const

const variables = textMap("the cluster's `variables`")

const common = {
  variables,
  url: text('the URL of svcd that nodes use'),
  next_server: text("TFTP server, '' without one"),
  bios: text('iPXE file that BIOS machines fetch from that server'),
  efi_x64: text('the same for UEFI on x86'),
  efi_arm64: text('the same for UEFI on ARM'),
  loader: text<Loader>('the same of machines on networks that name none: `ipxe` or `grub`'),
  grub: flag('whether a subnet or a machine has `grub` as its loader'),
  shim_x64: text('shim for UEFI on x86, its name on the TFTP server and below /boot/'),
  shim_arm64: text('the same for UEFI on ARM'),
  lease_seconds: integer('how long an address is lent'),
  interfaces: texts('interfaces of the controller to listen on; empty: all'),
  controller: text("the controller's address, '' when it has no IPv4 address"),
  standby: flag(
    'whether another controller writes, whose server alone lends the ranges: ' +
      'there are none here, and the server is not authoritative'
  ),
  dns_too: flag('whether the same server is the name server too (dnsmasq)'),
  subnets: maps(subnet, 'the longest prefix first, because that subnet answers for its addresses'),
  hosts: maps(host, 'the machines that the server knows')
} as const

const link = {
  title: 'link',
  meaning: 'A network on the wire of a relay.',
  variables: { relay: text('address of the relay'), network: text('first address of the network') }
} as const

const keaSubnet = {
  title: 'subnet with its machines',
  meaning: 'What `dhcp/templ_kea_subnet.cfg` has as `subnet`.',
  variables: {
    ...subnet.variables,
    own_class: text(
      "a client class that every machine has, if the subnet is not alone on its wire; '' otherwise"
    ),
    hosts: maps(
      host,
      'its machines; if it is not alone on its wire, also the machines of the others without a fixed address'
    )
  }
} as const

const sharedNetwork = {
  title: 'shared network',
  meaning: 'Subnets on one wire.',
  variables: { name: text('its name, `svcd-<id>`'), subnets: maps(keaSubnet, 'the subnets') }
} as const

/** The variables of each template of a DHCP server: their types in code, their text in docs/templates.md. */
export const dhcpTemplates = {
  'dhcp/templ_isc.cfg': {
    ...common,
    wires: mapLists(
      subnet,
      'the subnets, those on one wire in one list; ranges are cut to what dhcpd can hold'
    )
  },
  'dhcp/templ_kea.cfg': {
    ...common,
    alone: maps(keaSubnet, 'the subnets that are alone on their wire'),
    shared: maps(sharedNetwork, 'the others'),
    lease_file: text('path of the file of leases'),
    control_socket: text("path of the socket on which Kea is told to reload, '' without one")
  },
  'dhcp/templ_dnsmasq.cfg': {
    ...common,
    shared: maps(
      subnet,
      'the subnets on the wire of the controller in which it has no address; ' +
        'these have no ranges in `subnets`'
    ),
    relayed: maps(
      link,
      'on other wires: each gateway at which a relay may be, with each other network on its wire'
    ),
    directory: text('directory of the files of machines'),
    lease_file: text('path of the file of leases')
  },
  'dhcp/templ_dnsmasq_host.cfg': { variables, host: map(host, 'the machine whose file this is') }
} as const satisfies Record<string, Variables>

export type DhcpData = DataOf<typeof common>
export type DhcpSubnet = DataOf<typeof subnet.variables>
export type DhcpHost = DataOf<typeof host.variables>
export type KeaSubnet = DataOf<typeof keaSubnet.variables>
export type SharedNetwork = DataOf<typeof sharedNetwork.variables>
