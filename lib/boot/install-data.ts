/** One interface of the node, with what its network says of it. */
export interface InstallInterface {
  readonly interface: string
  readonly network: string
  /** '' where the node has no fixed address in this network (DHCP). */
  readonly ipaddress: string
  readonly prefixlen: number
  readonly netmask: string
  /** '' where the network has none. */
  readonly gateway: string
  /** '' without one (rules 10.7). */
  readonly nameserver: string
  /** Name server's host name, '' when unknown. */
  readonly ns_hostname: string
  /** DNS search domain: the network's name. */
  readonly domain: string
  /** Network's value over the cluster's. */
  readonly ntp_server: string
  /** '' when unknown. */
  readonly macaddress: string
  readonly options: string
  /** The interface that the node is provisioned over. */
  readonly provision: boolean
  /** The interface of the node's BMC (named BMC): not configured in the operating system. */
  readonly bmc: boolean
}

/** BMC set-up of the node: the named bmcsetup object and the node's BMC interface. */
export interface InstallBmc {
  readonly name: string
  readonly mgmtchannel: number
  readonly netchannel: number
  readonly userid: number
  readonly username: string
  readonly password: string
  /** What happens to users other than `userid`: '' keeps them. */
  readonly unmanaged_bmc_users: '' | 'disable' | 'delete'
  /** '' in the address fields where the node has no BMC interface with an address. */
  readonly ipaddress: string
  readonly netmask: string
  readonly gateway: string
  /** What the BMC interface's options say with `vlan=`: a number, or off; '' leaves it as it is. Not checked. */
  readonly vlan: string
  /** The BMC network's value over the cluster's; '' when none. */
  readonly ntp_server: string
}

/**
 * What the install script and the kickstart template see: strings, numbers, booleans, lists and maps of
 * them; never undefined, '' for what is not set. Text is what the admin stored, so every use is quoted.
 */
export interface InstallData {
  readonly node: string
  /** `<node>.<domain>`, the bare name without a domain. */
  readonly hostname: string
  readonly domain: string
  readonly group: string
  readonly comment: string
  readonly vendor: string
  readonly assettag: string
  /** Node-facing URL as configured, and its parts; an IPv6 address is without brackets in `api_address`. */
  readonly url: string
  readonly api_protocol: string
  readonly api_address: string
  readonly api_port: number
  /** A token for the node (rules 4.8). */
  readonly token: string
  /** `[node] verify_certificate = no`. */
  readonly insecure: boolean
  readonly service: boolean
  readonly osimage: string
  readonly osimagetag: string
  readonly distribution: string
  /** File name of the packed image below /files/, '' when the image was never packed. */
  readonly imagefile: string
  /** Lower-case hex sha256 of `imagefile`, '' when not known. */
  readonly imagesum: string
  /** Bytes of `imagefile`, 0 when not known. */
  readonly imagesize: number
  /** File name of the torrent below /files/, '' when torrent is off. */
  readonly torrent: string
  /** `[image] identity`: absolute paths in the image, with wildcards in the last part alone. */
  readonly identity: readonly string[]
  readonly kernelfile: string
  readonly initrdfile: string
  readonly kernelversion: string
  readonly kerneloptions: string
  readonly provision_method: string
  readonly provision_fallback: string
  /** Name of the provision interface, e.g. BOOTIF. */
  readonly provision_interface: string
  readonly localinstall: boolean
  readonly netboot: boolean
  readonly bootmenu: boolean
  readonly setupbmc: boolean
  /** false when setupbmc is off. */
  readonly bmc: InstallBmc | false
  readonly interfaces: readonly InstallInterface[]
  /** Base64, '' when unset. */
  readonly prescript: string
  readonly partscript: string
  readonly postscript: string
  /** Names of roles, fetched by the node at /boot/roles/{role}. */
  readonly roles: readonly string[]
  /** In a preview, those that have no file. */
  readonly missing_roles: readonly string[]
  /** Path in the image and content in base64; placed with mode 0600. */
  readonly secrets: readonly { readonly name: string; readonly path: string; readonly content: string }[]
  /** Cluster-wide NTP server, '' when none. */
  readonly ntp_server: string
  /** `[kickstart] rootpw`: a crypt(3) hash, '' locks the root account. */
  readonly rootpw: string
  /** True when the caller is not the node itself: passwords and token are shown as ******** (rules 4.7). */
  readonly masked: boolean
}
