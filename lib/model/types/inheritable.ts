import {
  alwaysNull,
  base64,
  boolean,
  domain,
  kernelOptions,
  nameList,
  names,
  nodeMethod,
  noInit,
  objectName,
  oneOf,
  provisionMethod,
  type Table,
  valueType
} from '../field.js'
import { variablesField } from '../variables.js'
import { rootFormat } from './pack-roots.js'

/** Fields of the BMC, which come first in groups and nodes. */
export const bmcFields = [
  flag('setupbmc', false, 'sets up the BMC while installing'),
  { name: 'bmcsetupname', type: objectName, refers: 'bmcsetup', inherited: 'group', meaning: 'BMC set-up' }
] as const satisfies Table

/** Fields for installation and boot: before a group's comment, after a node's. */
export const installFields = [
  { name: 'domain', type: domain, inherited: 'group', meaning: 'DNS domain of the host name' },
  { name: 'osimage', type: objectName, refers: 'osimage', inherited: 'group', meaning: 'OS image' },
  {
    name: 'osimagetag',
    type: objectName,
    inherited: 'group',
    default: 'default',
    meaning: 'tag of the OS image; `default` means its current files'
  },
  { name: 'osimagetagid', type: alwaysNull, derived: true, meaning: 'always null' },
  script('prescript', 'before the installation'),
  script('partscript', 'to partition, format and mount'),
  script('postscript', 'after the image is unpacked'),
  flag('netboot', true, 'boots from the network, not from its disk'),
  flag('bootmenu', false, 'shows the normal menu instead of the short one'),
  flag('localinstall', false, 'installs a boot loader on the disk')
] as const satisfies Table

/** Roles, and the way an image is fetched. */
export const provisionFields = [
  { name: 'roles', type: nameList, inherited: 'group', meaning: 'comma-separated roles' },
  {
    name: 'provision_interface',
    type: objectName,
    inherited: 'group',
    default: 'BOOTIF',
    meaning: 'interface used for provisioning'
  },
  {
    name: 'provision_method',
    type: nodeMethod,
    inherited: 'cluster',
    default: 'torrent',
    meaning: 'how the image is fetched, or the installer of a distribution that installs the node'
  },
  {
    name: 'provision_fallback',
    type: provisionMethod,
    inherited: 'cluster',
    default: 'http',
    meaning: 'how it is fetched when that fails'
  }
] as const satisfies Table

/** Before the later fields of a group; in a node with the BMC fields. */
export const unmanagedBmcUsers = {
  name: 'unmanaged_bmc_users',
  type: oneOf('disable', 'delete'),
  inherited: 'group',
  meaning: 'what happens to other users of the BMC; empty keeps them'
} as const

/** Files of one group or node. */
const mostAttached = 32
const attached = valueType(`a list of names of files, each once, ${mostAttached} at most`, 'array', value => {
  const read = names.read(value)
  return read.length > mostAttached || new Set(read).size < read.length ? undefined : read
})

/** The last fields of groups and nodes, which follow those that the contract lists. */
export const laterFields = [
  flag(
    'netboot_once',
    false,
    'sets `netboot` of the node to false when an installation onto its disk is completed: with ' +
      '`localinstall`, or by kickstart, preseed or autoinstall'
  ),
  {
    // Not inherited but appended: image, then group, then node (rules 4.2).
    name: 'kerneloptions',
    otherSpellings: ['kernopts'],
    type: kernelOptions,
    limit: noInit,
    meaning: "kernel options that follow those of the image; a node's follow its group's"
  },
  variablesField,
  {
    name: 'files',
    type: attached,
    refers: 'file',
    default: [],
    meaning: "files that svcd renders for it; a node has its group's as well"
  },
  {
    name: 'disklayout',
    type: objectName,
    refers: 'disklayout',
    inherited: 'group',
    meaning: 'disk layout; a `partscript` of the same object, or of the node, is used instead'
  },
  {
    // That of a network is between the group's and that of the ini (rules 4.42).
    name: 'loader',
    type: oneOf('ipxe', 'grub'),
    inherited: 'group',
    meaning: 'what UEFI firmware starts: `ipxe`, or `grub` behind shim, for Secure Boot'
  },
  {
    name: 'trust',
    type: oneOf('none', 'report', 'require'),
    inherited: 'group',
    default: 'none',
    meaning:
      'whether its machine proves by its TPM what it is and what it booted: `report` shows that, `require` ' +
      'gives no install script without it'
  },
  {
    name: 'root_format',
    type: rootFormat,
    inherited: 'group',
    meaning: "form of a root in memory, in the place of the image's: `tar`, `squashfs` or `erofs`"
  }
] as const satisfies Table

/** Most of these fields a node inherits from its group, and some a group from the cluster (rules 3.3). */
export const inheritable = [
  ...bmcFields,
  ...installFields,
  ...provisionFields,
  unmanagedBmcUsers,
  ...laterFields
] as const satisfies Table

function script<N extends string>(name: N, when: string) {
  return { name, type: base64, inherited: 'group', default: '', meaning: `script run ${when}` } as const
}
function flag<N extends string>(name: N, value: boolean, meaning: string) {
  return { name, type: boolean, inherited: 'group', default: value, meaning } as const
}
