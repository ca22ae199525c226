import { type DataOf, flag, integer, mapOrFalse, maps, text, textMap, texts } from '../base/variables.js'

export const installInterface = {
  title: 'interface',
  meaning: 'An interface of the node, with what its network says of it.',
  variables: {
    interface: text('its name'),
    network: text("the name of its network, '' without one"),
    ipaddress: text("'' where the node has no fixed address in this network (DHCP)"),
    prefixlen: integer('prefix length of the network'),
    netmask: text('such as 255.255.0.0'),
    gateway: text("'' where the network has none"),
    nameserver: text("addresses of name servers, with blanks between them; '' without one"),
    routes: texts('static routes of the network: `10.9.0.0/16 via 10.141.0.254`'),
    ns_hostname: text("name server's host name, '' when unknown"),
    domain: text("DNS search domain: the network's name"),
    ntp_server: text("the network's NTP server, else the cluster's"),
    macaddress: text("'' when unknown"),
    options: text('free options, as the admin has set them'),
    provision: flag('whether the node is provisioned over it'),
    bmc: flag(
      'whether it is the interface of the BMC (named BMC), which the operating system does not configure'
    )
  }
} as const

const installBmc = {
  title: 'BMC',
  meaning: "The named BMC set-up, and the node's BMC interface.",
  variables: {
    name: text('name of the set-up'),
    mgmtchannel: integer('channel of the users'),
    netchannel: integer('channel of the network settings'),
    userid: integer('number of the user'),
    username: text('name of the user'),
    password: text('password of the user'),
    unmanaged_bmc_users: text<'' | 'disable' | 'delete'>(
      "what happens to users other than `userid`: `disable`, `delete`, or '', which keeps them"
    ),
    ipaddress: text("address of the BMC; '' when the node has no interface BMC with an address"),
    netmask: text("netmask of the BMC, '' when `ipaddress` is ''"),
    gateway: text("gateway of the BMC, '' without one"),
    vlan: text(
      'value of `vlan=` in the options of the interface BMC, not checked: a number, or off; ' +
        "'' keeps what the BMC has"
    ),
    ntp_server: text("the BMC network's NTP server, else the cluster's; '' when none")
  }
} as const

const secret = {
  title: 'secret',
  meaning: 'A secret of the group or of the node.',
  variables: {
    name: text('its name'),
    path: text(
      'where it is placed in the image, with mode 0600 for root unless `secret_access` says otherwise'
    ),
    content: text('in base64')
  }
} as const

const installRoot = {
  title: 'root',
  meaning: 'A file system that stays packed, in the place of the unpacked image.',
  variables: {
    format: text<'squashfs' | 'erofs'>('squashfs or erofs'),
    file: text('its file name below /files/'),
    sha256: text('lower-case hex sha256 of the file'),
    bytes: integer('bytes of the file'),
    roothash: text('root hash of dm-verity in hex: SHA-256 without salt, blocks of 4096 bytes'),
    hashoffset: integer('bytes of the file system, behind which the hash tree begins'),
    torrent: text("file name of its torrent below /files/, '' when torrent is off")
  }
} as const

/** Variables that admins set, as a node has them. */
export const nodeVariables = textMap(
  "the cluster's `variables`, those of the node's group, and its own: the last wins"
)

/** Variables of install script and kickstart. '' means not set. Texts are an admin's: quote every use. */
export const installVariables = {
  node: text('name of the node'),
  hostname: text('`<node>.<domain>`, the bare name without a domain'),
  domain: text("'' without one"),
  group: text('name of the group'),
  comment: text("the node's comment"),
  vendor: text('who made the machine'),
  assettag: text('its asset tag'),
  url: text('the URL of svcd that nodes use, as configured'),
  urls: texts('that URL, and after it those of other controllers, which are tried when it does not answer'),
  library: text(
    'lower-case hex sha256 of `templ_library.cfg`, which is at /boot/library/{sha256}; ' +
      "'' when that needs what only a node has"
  ),
  api_protocol: text('protocol of `url`: http or https'),
  api_address: text('host of `url`; an IPv6 address is without brackets'),
  api_port: integer('port of `url`'),
  token: text('a token for the node, for its calls to svcd'),
  insecure: flag('`[node] verify_certificate = no`'),
  service: flag('`service` of the node: a failed installation opens a shell on the console'),
  osimage: text('name of the OS image'),
  osimagetag: text('its tag, `default` without one'),
  distribution: text('distribution of the image, such as redhat or debian'),
  imagefile: text(
    "file name of the packed image below /files/, '' when the image was never packed; with preseed and " +
      "autoinstall that of the installer's initramfs"
  ),
  imagesum: text("lower-case hex sha256 of `imagefile`, '' when not known"),
  imagesize: integer('bytes of `imagefile`, 0 when not known'),
  torrent: text("file name of the torrent below /files/, '' when torrent is off"),
  root: mapOrFalse(installRoot, 'false for a node that unpacks `imagefile`'),
  identity: texts('`[image] identity`: absolute paths in the image, with wildcards in the last part alone'),
  foreign: texts(
    'files of the same kind that say something of another machine: moved aside at the installation'
  ),
  kernelfile: text("the kernel's file, '' when the image has none"),
  initrdfile: text("the initramfs' file, '' when the image has none"),
  kernelversion: text("version of the kernel, '' when not known"),
  kerneloptions: text("further kernel arguments: the image's, the group's, the node's"),
  provision_method: text('torrent, http, stream (with a `root` alone), kickstart, preseed or autoinstall'),
  provision_fallback: text('such as http'),
  provision_interface: text('name of the provision interface, such as BOOTIF'),
  rescue: flag('whether this is a rescue: the image goes into memory, and nothing may write to a disk'),
  localinstall: flag('whether the image is installed on the disk, with a boot loader'),
  netboot: flag('whether the node boots from the network'),
  bootmenu: flag('whether its machine shows the menu'),
  setupbmc: flag('whether its BMC is set up'),
  bmc: mapOrFalse(installBmc, 'false when `setupbmc` is off, or names no set-up'),
  interfaces: maps(installInterface, 'the interfaces of the node'),
  network: text("with autoinstall: the interfaces in the words of netplan, as JSON; else ''"),
  prescript: text("the script before everything else, in base64; '' when unset"),
  partscript: text(
    "the script that makes and mounts file systems, or that of the disk layout, in base64; '' when unset"
  ),
  postscript: text("the script that runs when the image is in place, in base64; '' when unset"),
  roles: texts('names of roles, which the node fetches at /boot/roles/{role}'),
  missing_roles: texts('in a preview: the roles that have no file'),
  secrets: maps(secret, "the group's secrets and the node's own"),
  secret_access: textMap('mode, owner and group of those that set one of them, by name: `0400 munge munge`'),
  layout_secrets: texts('names of the secrets that encrypt file systems of the disk layout'),
  sealed_secrets: texts('those of them that are recovery keys of the TPM, and are not placed on the node'),
  ntp_server: text("cluster-wide NTP server, '' when none"),
  variables: nodeVariables,
  files: flag('whether svcd renders files for the node'),
  files_token: text('a token for the running node, which fetches its files and reports its hardware with it'),
  rootpw: text("`[kickstart] rootpw`: a crypt(3) hash; '' locks the root account"),
  masked: flag('true when the caller is not the node itself: passwords and the token are `********`')
} as const

/** Input of the install script and the kickstart template. */
export type InstallData = DataOf<typeof installVariables>
/** One interface of the node with the settings of its network. */
export type InstallInterface = DataOf<typeof installInterface.variables>
/** BMC set-up of the node: its bmcsetup object and its BMC interface. */
export type InstallBmc = DataOf<typeof installBmc.variables>
