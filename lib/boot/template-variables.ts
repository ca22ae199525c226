import { flag, integer, text, textMap, texts, type Variables } from '../base/variables.js'
import { layoutVariables } from '../disk-layout/data.js'
import type { Loader } from '../model/effective.js'
import { installVariables, nodeVariables } from './install-data.js'

const common = {
  url: text('the URL of svcd that nodes use'),
  urls: texts('that URL, and after it those of other controllers, which are tried when it does not answer'),
  variables: textMap("the cluster's `variables`")
} as const
const menu = text('path of the menu that comes next: `boot`, or `boot/short`')

/** The variables of the kernel's arguments. */
const kernel = {
  ...common,
  variables: nodeVariables,
  node: text('name of the node'),
  loader: text<Loader>('`ipxe` or `grub`'),
  bootproto: text<'static' | 'dhcp'>('`static`, or `dhcp` when the node has no fixed address'),
  mac: text('MAC address that the machine booted with; the loader may fill it in'),
  ip: text("`<address>/<prefix length>`, '' for DHCP"),
  hostname: text('`<node>.<domain>`, the bare name without a domain'),
  nameserver: text("addresses of its network's name servers, with blanks between them; '' without one"),
  service: integer('1 when `service` of the node is set, else 0'),
  rescue: flag('whether this boot is for a rescue: in memory, without touching a disk'),
  provision_method: installVariables.provision_method,
  further: text("further arguments of svcd itself, '' without any"),
  kerneloptions: text("further kernel arguments: the image's, the group's, the node's; '' without any")
} as const

/** Variables that each node template gets; also the source of docs/templates.md. */
export const bootTemplates = {
  'boot/templ_boot_ipxe.cfg': {
    ...common,
    mac: text("MAC address of the machine, if no node has it; '' when no machine was looked for"),
    timeout_ms: integer('milliseconds after which the menu looks for the machine'),
    groups: texts('names of groups, 250 at most'),
    nodes: texts('names of nodes, 250 at most'),
    all_groups: flag('whether `groups` has all of them'),
    all_nodes: flag('whether `nodes` has all of them')
  },
  'boot/templ_boot_ipxe_short.cfg': { ...common },
  'boot/templ_boot_disk.cfg': { ...common },
  'boot/templ_boot_node.cfg': {
    ...kernel,
    kernelfile: text('file of the kernel, below /boot/'),
    initrdfile: text('file of the initramfs, below /boot/'),
    warning: text("why the boot may not work, for iPXE's echo; '' when nothing speaks against it"),
    menu
  },
  'boot/arguments.cfg': kernel,
  'boot/grub/templ_grub.cfg': { ...common, manual: flag('whether a node can be chosen by its name') },
  'boot/grub/templ_grub_node.cfg': {
    ...common,
    variables: nodeVariables,
    node: text('name of the node'),
    rescue: flag('whether this boot is for a rescue: in memory, without touching a disk'),
    kernel: text('path of the kernel in the TFTP tree'),
    initrd: text('path of the initramfs in the TFTP tree'),
    arguments: text('what `boot/arguments.cfg` renders, each argument quoted for GRUB')
  },
  'boot/grub/templ_grub_nodes.cfg': {
    ...common,
    nodes: texts('names of nodes whose loader is GRUB, 250 at most'),
    all_nodes: flag('whether `nodes` has all of them')
  },
  'boot/grub/templ_grub_disk.cfg': { ...common },
  'boot/grub/templ_grub_error.cfg': {
    ...common,
    title: text('the node, and that it cannot be booted, as one word of GRUB'),
    reason: text('why, as one word of GRUB')
  },
  'boot/templ_boot_error.cfg': {
    ...common,
    node: text("name of the node, '' when it is not known"),
    reason: text("why the machine cannot be booted, for iPXE's echo"),
    menu
  },
  'install/templ_install.cfg': installVariables,
  'install/templ_kickstart.cfg': installVariables,
  'install/templ_disklayout.cfg': layoutVariables,
  'install/templ_disklayout_kickstart.cfg': layoutVariables,
  'install/templ_preseed.cfg': installVariables,
  'install/templ_autoinstall.cfg': installVariables,
  'install/templ_installer.cfg': installVariables,
  'install/templ_user_data.cfg': installVariables,
  'install/templ_vendor_data.cfg': installVariables,
  'install/templ_library.cfg': {}
} as const satisfies Record<string, Variables>
