import {
  address,
  alwaysNull,
  base64,
  boolean,
  domain,
  type Field,
  type FieldType,
  file,
  freeText,
  host,
  hosts,
  integer,
  kernelOptions,
  mac,
  nameList,
  objectName,
  oid,
  oneOf,
  path,
  port,
  prefix,
  provisionMethod,
  strings
} from './field.js'

type Table = readonly Field[]
type ValueOf<F> = F extends { readonly type: FieldType<infer V> } ? V : never
type Stored<T extends Table> = {
  readonly [F in Exclude<T[number], { readonly derived: true }> as F['name']]?: ValueOf<F>
}

/** An interface as a group holds it, and as a node does with its address (rules 1.9, 3.14). */
export const interfaceFields = [
  { name: 'interface', type: objectName, meaning: 'interface name' },
  { name: 'network', type: objectName, refers: 'network', meaning: 'name of a network' },
  { name: 'ipaddress', type: address, meaning: 'address in that network (nodes only)' },
  { name: 'macaddress', type: mac, meaning: 'hardware address (nodes only)' },
  { name: 'options', type: freeText, default: '', meaning: 'free options' }
] as const satisfies Table

/** Settings that a node takes from its group, and some a group from the cluster (rules 3.3). */
const inheritable = {
  domain: { name: 'domain', type: domain, inherited: 'group', meaning: 'DNS domain of the host name' },
  osimage: { name: 'osimage', type: objectName, refers: 'osimage', inherited: 'group', meaning: 'OS image' },
  osimagetag: {
    name: 'osimagetag',
    type: objectName,
    inherited: 'group',
    default: 'default',
    meaning: 'tag of the OS image; `default` means its current files'
  },
  osimagetagid: { name: 'osimagetagid', type: alwaysNull, derived: true, meaning: 'always null' },
  prescript: script('prescript', 'before the installation'),
  partscript: script('partscript', 'to partition, format and mount'),
  postscript: script('postscript', 'after the image is unpacked'),
  netboot: flag('netboot', true, 'boots from the network, not from its disk'),
  bootmenu: flag('bootmenu', false, 'shows the normal menu instead of the short one'),
  localinstall: flag('localinstall', false, 'installs a boot loader on the disk'),
  setupbmc: flag('setupbmc', false, 'sets up the BMC while installing'),
  bmcsetupname: {
    name: 'bmcsetupname',
    type: objectName,
    refers: 'bmcsetup',
    inherited: 'group',
    meaning: 'BMC set-up'
  },
  unmanaged_bmc_users: {
    name: 'unmanaged_bmc_users',
    type: oneOf('disable', 'delete'),
    inherited: 'group',
    meaning: 'what happens to other users of the BMC; null keeps them'
  },
  roles: { name: 'roles', type: nameList, inherited: 'group', meaning: 'comma-separated roles' },
  provision_interface: {
    name: 'provision_interface',
    type: objectName,
    inherited: 'group',
    default: 'BOOTIF',
    meaning: 'interface used for provisioning'
  },
  provision_method: {
    name: 'provision_method',
    type: provisionMethod,
    inherited: 'cluster',
    default: 'torrent',
    meaning: 'how the image is fetched'
  },
  provision_fallback: {
    name: 'provision_fallback',
    type: provisionMethod,
    inherited: 'cluster',
    default: 'http',
    meaning: 'how it is fetched when that fails'
  }
} as const satisfies Record<string, Field>

function script<N extends string>(name: N, when: string) {
  return {
    name,
    type: base64,
    inherited: 'group',
    default: '',
    meaning: `base64 script run ${when}`
  } as const
}
function flag<N extends string>(name: N, value: boolean, meaning: string) {
  return { name, type: boolean, inherited: 'group', default: value, meaning } as const
}

const comment = { name: 'comment', type: freeText, meaning: 'free text' } as const satisfies Field

export const networkFields = [
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

export const groupFields = [
  inheritable.setupbmc,
  inheritable.bmcsetupname,
  inheritable.domain,
  inheritable.osimage,
  inheritable.osimagetag,
  inheritable.osimagetagid,
  inheritable.prescript,
  inheritable.partscript,
  inheritable.postscript,
  inheritable.netboot,
  inheritable.bootmenu,
  inheritable.localinstall,
  comment,
  inheritable.roles,
  inheritable.provision_interface,
  inheritable.provision_method,
  inheritable.provision_fallback,
  inheritable.unmanaged_bmc_users
] as const satisfies Table

export const nodeFields = [
  { name: 'group', type: objectName, refers: 'group', meaning: 'group the node belongs to' },
  { name: 'macaddr', type: mac, derived: true, meaning: 'hardware address of the provision interface' },
  { name: 'switch', type: freeText, refers: 'switch', soft: true, meaning: 'switch the node hangs on' },
  { name: 'switchport', type: port, meaning: 'port on that switch' },
  { name: 'service', type: boolean, default: false, meaning: 'boots into a shell instead of installing' },
  inheritable.setupbmc,
  inheritable.bmcsetupname,
  inheritable.unmanaged_bmc_users,
  {
    name: 'status',
    type: freeText,
    derived: true,
    meaning: 'last state the installer reported (read-only here)'
  },
  comment,
  inheritable.domain,
  inheritable.osimage,
  inheritable.osimagetag,
  inheritable.osimagetagid,
  inheritable.prescript,
  inheritable.partscript,
  inheritable.postscript,
  inheritable.netboot,
  inheritable.bootmenu,
  inheritable.localinstall,
  inheritable.roles,
  inheritable.provision_interface,
  inheritable.provision_method,
  inheritable.provision_fallback,
  { name: 'tpm_uuid', type: freeText, meaning: 'TPM identifier' },
  { name: 'tpm_pubkey', type: freeText, meaning: 'TPM public key' },
  { name: 'tpm_sha256', type: freeText, meaning: 'TPM key digest' },
  { name: 'vendor', type: freeText, meaning: 'vendor, from the hardware inventory' },
  { name: 'assettag', type: freeText, meaning: 'asset tag, from the hardware inventory' }
] as const satisfies Table

export const osimageFields = [
  comment,
  { name: 'distribution', type: objectName, default: 'redhat', meaning: 'kind of Linux in the image' },
  { name: 'path', type: path, meaning: 'image directory' },
  { name: 'kernelfile', type: file, meaning: 'kernel below the files directory' },
  { name: 'initrdfile', type: file, meaning: 'initramfs below the files directory' },
  { name: 'kernelversion', also: ['kernver'], type: freeText, meaning: 'kernel version' },
  { name: 'kernelmodules', also: ['kernmodules'], type: freeText, meaning: 'modules, comma-separated' },
  { name: 'kerneloptions', also: ['kernopts'], type: kernelOptions, meaning: 'kernel options' },
  { name: 'dracutmodules', type: freeText, meaning: 'dracut modules, comma-separated' },
  {
    name: 'grab_exclude',
    also: ['grab_exclude_list'],
    type: strings,
    default: [],
    meaning: 'paths left out of a grab'
  },
  { name: 'grab_filesystems', type: strings, default: [], meaning: 'file systems a grab takes' },
  { name: 'imagefile', also: ['tarball'], type: file, meaning: 'packed image below the files directory' }
] as const satisfies Table

export const bmcsetupFields = [
  { name: 'mgmtchannel', type: integer(0, 15), default: 1, meaning: 'channel of the users' },
  { name: 'netchannel', type: integer(0, 15), default: 1, meaning: 'channel of the LAN settings' },
  { name: 'userid', type: integer(1, 63), default: 2, meaning: 'slot of the user' },
  { name: 'username', type: freeText, meaning: 'user name' },
  { name: 'password', type: freeText, secret: true, meaning: 'password' },
  comment
] as const satisfies Table

const deviceFields = [
  { name: 'network', type: objectName, refers: 'network', meaning: 'network of its address' },
  { name: 'ipaddress', type: address, meaning: 'address in that network' },
  { name: 'macaddress', type: mac, meaning: 'hardware address' }
] as const satisfies Table

export const switchFields = [
  ...deviceFields,
  { name: 'oid', type: oid, meaning: 'OID of the table of MAC addresses' },
  { name: 'read', type: freeText, secret: true, meaning: 'SNMP read community' },
  { name: 'rw', type: freeText, secret: true, meaning: 'SNMP write community' },
  { name: 'uplinkports', type: freeText, meaning: 'ports that lead to other switches, comma-separated' },
  { name: 'vendor', type: freeText, meaning: 'vendor' },
  comment
] as const satisfies Table

export const otherdevFields = [
  ...deviceFields,
  { name: 'vendor', type: freeText, meaning: 'vendor' },
  comment
] as const satisfies Table

/** A stored interface entry; `own`: the node brought it itself and keeps it when its group changes. */
export type InterfaceDoc = { readonly interface: string } & Omit<
  Stored<typeof interfaceFields>,
  'interface'
> & {
    readonly own?: true
  }
export type NetworkDoc = { readonly name: string; readonly network: string } & Omit<
  Stored<typeof networkFields>,
  'network'
>
export type GroupDoc = { readonly name: string } & Stored<typeof groupFields> & {
    readonly interfaces?: readonly InterfaceDoc[]
  }
export type NodeDoc = { readonly name: string } & Stored<typeof nodeFields> & {
    readonly interfaces?: readonly InterfaceDoc[]
    /** Interfaces of the group that were deleted on this node (rules 3.5). */
    readonly removed?: readonly string[]
  }
export type OsimageDoc = { readonly name: string } & Stored<typeof osimageFields>
export type SwitchDoc = { readonly name: string } & Stored<typeof switchFields>
export type OtherdevDoc = { readonly name: string } & Stored<typeof otherdevFields>
/** What a switch and another device have of an interface. */
export type DeviceDoc = { readonly name: string } & Stored<typeof deviceFields>
export type BmcsetupDoc = { readonly name: string } & Stored<typeof bmcsetupFields>

/** A tag pins the files an image had; named `<osimage>:<tag>` (rules 1.2). */
export type OsimagetagDoc = {
  readonly name: string
  readonly osimage: string
  readonly tag: string
  /** Age among the images with a tag of this name: 1 is the first, whose tag is listed under its plain name. */
  readonly order: number
  readonly kernelfile?: string
  readonly initrdfile?: string
  readonly imagefile?: string
}

/**
 * What svcd packed, named by its image file: who names the file finds its checksum here, and the sweep what to
 * remove when nobody does. `osimage` had that name then; `kernel` and `initrd` are the files below the tree's /boot
 * that `kernelfile` and `initrdfile` are copies of; `omitted` is what the packer could not carry.
 */
export type PackDoc = {
  readonly name: string
  readonly osimage: string
  readonly sha256: string
  readonly bytes: number
  /** Milliseconds since 1970. */
  readonly time: number
  readonly packer: 'system' | 'builtin'
  readonly kernelfile?: string
  readonly initrdfile?: string
  readonly kernel?: string
  readonly initrd?: string
  readonly omitted?: readonly string[]
}

/** A directory right below `[image] directory` that svcd made: deleting its image removes it (rules 3.12). */
export type TreeDoc = { readonly name: string; readonly at: number }

/** A cluster setting changed over http: in force until the ini's value is another one than it was then. */
export type SettingDoc = { readonly value: string | boolean; readonly ini: string | boolean }
export type ClusterDoc = { readonly name: string; readonly settings: Readonly<Record<string, SettingDoc>> }

/** The secrets of one node or group, named `node.<name>` or `group.<name>`; contents are encrypted. */
export type SecretsDoc = {
  readonly name: string
  readonly secrets: readonly { readonly name: string; readonly path: string; readonly content: string }[]
}

/** The shapes in the store, by type; `revoked` marks node names whose tokens were voided, and when. */
export type Docs = {
  network: NetworkDoc
  group: GroupDoc
  node: NodeDoc
  osimage: OsimageDoc
  bmcsetup: BmcsetupDoc
  switch: SwitchDoc
  otherdev: OtherdevDoc
  osimagetag: OsimagetagDoc
  pack: PackDoc
  tree: TreeDoc
  cluster: ClusterDoc
  secrets: SecretsDoc
  revoked: RevokedDoc
}
export type RevokedDoc = {
  readonly name: string
  readonly at: number
  /** The name that the node was given; absent: it was deleted. */
  readonly renamed?: string
}
