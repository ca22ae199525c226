import {
  alwaysNull,
  base64,
  boolean,
  domain,
  nameList,
  objectName,
  oneOf,
  provisionMethod,
  type Table
} from '../field.js'

/** The fields that a node takes from its group, and some a group from the cluster (rules 3.3). */
export const inheritable = [
  flag('setupbmc', false, 'sets up the BMC while installing'),
  {
    name: 'bmcsetupname',
    type: objectName,
    refers: 'bmcsetup',
    inherited: 'group',
    meaning: 'BMC set-up'
  },
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
  flag('localinstall', false, 'installs a boot loader on the disk'),
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
    type: provisionMethod,
    inherited: 'cluster',
    default: 'torrent',
    meaning: 'how the image is fetched'
  },
  {
    name: 'provision_fallback',
    type: provisionMethod,
    inherited: 'cluster',
    default: 'http',
    meaning: 'how it is fetched when that fails'
  },
  {
    name: 'unmanaged_bmc_users',
    type: oneOf('disable', 'delete'),
    inherited: 'group',
    meaning: 'what happens to other users of the BMC; null keeps them'
  }
] as const satisfies Table

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
