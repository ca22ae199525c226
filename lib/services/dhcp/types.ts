/** The script of a machine's boot case (rules 4.13, 10.5); '' for what boots nothing: BMCs and other devices. */
export type BootScript = '' | 'menu' | 'short' | 'disk'

/** A machine that the server knows. */
export interface DhcpHost {
  /** "node node001 BOOTIF", of letters, digits and . _ - alone: for comments. */
  readonly title: string
  readonly mac: string
  /** '': one of the dynamic range. */
  readonly ipaddress: string
  /** All but `short` and `disk` get what an unknown machine gets (cases 2 and 4). */
  readonly boot: BootScript
  /** The `id` of its subnet. */
  readonly subnet: number
}

/** One CIDR with what its networks say of it: networks with equal CIDRs are one subnet. */
export interface DhcpSubnet {
  /** The same for a CIDR for ever: leases refer to it. */
  readonly id: number
  readonly cidr: string
  readonly network: string
  readonly netmask: string
  /** Names of its networks, with blanks between them. */
  readonly names: string
  /** False: nobody is answered there. */
  readonly dhcp: boolean
  /** The controller has its address there, and in none of its subnets with a longer prefix. */
  readonly here: boolean
  readonly ranges: readonly { readonly first: string; readonly last: string }[]
  /** '' without one. */
  readonly router: string
  readonly name_servers: readonly string[]
  readonly ntp_servers: readonly string[]
  readonly domain: string
  readonly search: readonly string[]
  /** What could not be written, one sentence each, for comments. */
  readonly notes: readonly string[]
}

/** What the templates of DHCP servers see. */
export interface DhcpData {
  /** Node-facing URL. */
  readonly url: string
  /** TFTP server, '' without one. */
  readonly next_server: string
  readonly bios: string
  readonly efi_x64: string
  readonly efi_arm64: string
  readonly lease_seconds: number
  readonly interfaces: readonly string[]
  /** Its address, '' without one that is one. */
  readonly controller: string
  /** The same server is the name server too (dnsmasq). */
  readonly dns_too: boolean
  /** Those with the longest prefix first, as the one that holds an address answers for it (rules 3.6). */
  readonly subnets: readonly DhcpSubnet[]
  readonly hosts: readonly DhcpHost[]
}
