/** The script of a machine's boot case (rules 4.13, 10.5); '' for BMCs and other devices, which boot nothing. */
export type BootScript = '' | 'menu' | 'short' | 'disk'

/** A machine that the server knows. */
export interface DhcpHost {
  /** For comments: "node node001 BOOTIF", of letters, digits and . _ - alone. */
  readonly title: string
  readonly mac: string
  /** '': the machine gets one of the dynamic range. */
  readonly ipaddress: string
  /** All but `short` and `disk` get what an unknown machine gets (cases 2 and 4). */
  readonly boot: BootScript
  /** The `id` of its subnet. */
  readonly subnet: number
}

/** One CIDR, with what its networks say of it. Networks with equal CIDRs are one subnet. */
export interface DhcpSubnet {
  /** A CIDR always has the same one, as leases refer to it. */
  readonly id: number
  readonly cidr: string
  readonly network: string
  readonly netmask: string
  /** Names of its networks, with blanks between them. */
  readonly names: string
  /** False: nobody is answered there. */
  readonly dhcp: boolean
  /** Whether the controller's address is in it, and in none of the subnets inside it. */
  readonly here: boolean
  readonly ranges: readonly { readonly first: string; readonly last: string }[]
  /** '' without one. */
  readonly router: string
  readonly name_servers: readonly string[]
  readonly ntp_servers: readonly string[]
  readonly domain: string
  readonly search: readonly string[]
  /** For comments: what could not be written, a sentence for each. */
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
  /** The controller's address, '' when it has no IPv4 address. */
  readonly controller: string
  /** Whether the same server is the name server too (dnsmasq). */
  readonly dns_too: boolean
  /** The longest prefix first, as that subnet answers for its addresses (rules 3.6). */
  readonly subnets: readonly DhcpSubnet[]
  readonly hosts: readonly DhcpHost[]
}
