import { posix } from 'node:path'

/* Paths that a grab and a push leave alone: rsync patterns anchored at the root (docs/grab-and-push.md). */

/** Directories whose contents belong to the running system. */
const volatile: readonly string[] = ['/dev', '/proc', '/run', '/sys', '/tmp', '/var/tmp']

/**
 * Files that describe one machine or container: an installation moves those of an image aside
 * (templates/install/lib/identity.sh), grabs and pushes skip them. Only the last part of a path has
 * wildcards.
 */
export const ofMachine: readonly string[] = [
  // Its network.
  '/etc/NetworkManager/system-connections/*',
  '/etc/netplan/*',
  '/etc/network/interfaces',
  '/etc/network/interfaces.d/*',
  '/etc/sysconfig/network-scripts/ifcfg-*',
  '/etc/sysconfig/network-scripts/route*-*',
  '/etc/sysconfig/network-scripts/rule*-*',
  '/etc/sysconfig/network/ifcfg-*',
  '/etc/sysconfig/network/ifroute-*',
  '/etc/sysconfig/network/routes',
  '/etc/systemd/network/*',
  '/etc/udev/rules.d/70-persistent-net.rules',
  '/var/lib/NetworkManager/*',
  '/var/lib/dhclient/*',
  '/var/lib/dhcp/*',
  '/var/lib/dhcpcd/*',
  // Its disks.
  '/etc/initramfs-tools/conf.d/resume',
  '/etc/iscsi/initiatorname.iscsi',
  '/etc/lvm/devices/*',
  '/etc/multipath/*',
  '/etc/nvme/hostid',
  '/etc/nvme/hostnqn',
  // Marks by which programs take it for a container.
  '/.dockerenv',
  '/.dockerinit',
  '/.containerenv',
  '/run/.containerenv',
  '/run/systemd/container'
]

/** Files that identify a node, beside `[image] identity`: not copied into an image or back. */
export const identity: readonly string[] = [
  ...ofMachine,
  '/etc/svc/aside',
  // Its name.
  '/etc/HOSTNAME',
  '/etc/hostname',
  '/etc/hosts',
  '/etc/resolv.conf',
  '/etc/systemd/timesyncd.conf.d/svc.conf',
  // Its disks, and what boots from them.
  '/boot/efi/EFI/*/grub.cfg',
  '/boot/efi/EFI/BOOT/*',
  '/boot/grub/*',
  '/boot/grub2/*',
  '/boot/loader/*',
  '/etc/crypttab',
  '/etc/default/grub.d/zz-svc.cfg',
  '/etc/default/grub.d/zz-svc-default.cfg',
  '/etc/fstab',
  '/etc/kernel/cmdline',
  '/swap.img',
  '/swapfile',
  // Its report to svcd when it is up.
  '/etc/svc/running',
  '/etc/systemd/system/svc-running.service',
  '/etc/systemd/system/*.wants/svc-running.service',
  // Its fetcher of files, with its own token.
  '/etc/svc/files.*',
  '/etc/systemd/system/svc-files.*',
  '/etc/systemd/system/*.wants/svc-files.timer',
  '/usr/local/sbin/svc-files',
  // Its report of its hardware, with its own token.
  '/etc/svc/inventory*',
  '/etc/systemd/system/svc-inventory.*',
  '/etc/systemd/system/*.wants/svc-inventory.*',
  // The programs that open its sealed file systems.
  '/etc/dracut.conf.d/svc-seal.conf',
  '/etc/initramfs-tools/hooks/svc-seal',
  '/etc/initramfs-tools/scripts/local-top/svc-seal',
  // Its roles.
  '/etc/systemd/system/svc-role-*.service',
  '/etc/systemd/system/*.wants/svc-role-*.service',
  '/usr/local/lib/svc/roles/*'
]

/** A push also keeps files that the install script completed, and the node's logs. */
export const keptByPush: readonly string[] = [
  '/etc/chrony.conf',
  '/etc/chrony/chrony.conf',
  '/etc/default/grub',
  '/etc/ntp.conf',
  '/etc/systemd/system/*.wants/systemd-networkd*',
  '/var/log/*'
]

/** A push adds files here and removes none: homes of users, and the keys that let the controller in. */
const neverDeleted: readonly string[] = ['/home/***', '/root/.ssh/***']

/** rsync's own limit, less what it adds. */
const LONGEST_PATTERN = 4000

/** Returns mount points (default: /) and rsync patterns with a first slash. Errors name field and entry. */
export function checkSelection(filesystems: readonly string[], exclude: readonly string[]) {
  return {
    filesystems: [...new Set((filesystems.length === 0 ? ['/'] : filesystems).map(filesystem))],
    exclude: exclude.map(pattern)
  }
}

function filesystem(path: string): string {
  const refused = (why: string) => new Error(`grab_filesystems: ${JSON.stringify(path)} ${why}`)
  if (!path.startsWith('/')) throw refused('is no absolute path')
  if (path.split('/').some(part => part === '.' || part === '..')) throw refused('holds . or ..')
  // rsync on the node would expand them.
  if (/[*?[\]\\\u0000-\u001f\u007f]/.test(path)) throw refused('holds a wildcard or a control character')
  return posix.normalize(path).replace(/(?<=.)\/$/, '')
}

function pattern(text: string): string {
  const refused = (why: string) => new Error(`grab_exclude: ${JSON.stringify(text)} ${why}`)
  if (text.replaceAll('/', '') === '') throw refused('names no path below the root')
  if (text.includes('\0')) throw refused('holds a NUL character')
  if (Buffer.byteLength(text) > LONGEST_PATTERN) throw refused(`is longer than ${LONGEST_PATTERN} bytes`)
  return text.replace(/^\/*/, '/')
}

/** File systems of a node that are transferred, and mount points below them that are not. */
interface FilesystemChoice {
  /** Mount points, parents first. */
  readonly taken: readonly string[]
  /** Named, but no mount points on this node: parts of file systems that are taken. */
  readonly partsOfTaken: readonly string[]
  /** Mount points that are left alone, with all they hold. */
  readonly left: readonly string[]
}

/** Left out in any case: a node may have hundreds of mounts there. */
const PSEUDO = ['/proc', '/sys', '/dev', '/run']

/**
 * Chooses among a node's mount points by `filesystems`, as `checkSelection` returns them. Throws Error for a
 * path that is neither a mount point nor a part of a chosen one, as it could be a link to somewhere else.
 */
export function chooseFilesystems(node: string, filesystems: readonly string[], mounted: readonly string[]) {
  const there = new Set(['/', ...mounted])
  const taken = filesystems.filter(path => there.has(path)).sort()
  const missing = filesystems.filter(path => !there.has(path))
  for (const path of missing)
    if (!within(path, taken))
      throw new Error(
        `grab_filesystems: no file system is mounted at ${JSON.stringify(path)} on node ${node}`
      )
  const left = mounted.filter(
    path => path !== '/' && !taken.includes(path) && within(path, taken) && !within(path, PSEUDO)
  )
  return { taken, partsOfTaken: missing, left }
}

const within = (path: string, parents: readonly string[]) =>
  parents.some(parent => path === parent || path.startsWith(parent === '/' ? '/' : `${parent}/`))

/** Returns the pattern that matches only this path; more may follow it. */
const literal = (path: string) =>
  path.replace(/[*?[\\]/g, character => (character === '\\' ? '[\\\\]' : `[${character}]`))
const hide = (pattern: string) => `- ${pattern}`
const hidePath = (path: string) => hide(literal(posix.normalize(path)))
const lostAndFound = (taken: readonly string[]) => taken.map(path => hide(posix.join(path, 'lost+found')))

/** `exclude`: patterns; `own`: paths of the node. Neither is copied. */
type RulesOf = (exclude: readonly string[], own: readonly string[], chosen: FilesystemChoice) => string[]

/** Returns rsync's filter rules of a grab. Volatile directories, and mounts left alone, are copied empty. */
export const grabRules: RulesOf = (exclude, own, { taken, left }) => [
  ...own.map(hidePath),
  ...exclude.map(hide),
  ...volatile.map(path => hide(`${path}/*`)),
  ...lostAndFound(taken),
  ...identity.map(hide),
  ...taken.filter(path => path !== '/').map(path => `+ ${literal(path)}/`),
  ...left.map(literal).flatMap(path => [`+ ${path}/`, hide(`${path}/*`), hide(path)])
]

/** Returns rules of a push: excluded paths are neither sent nor deleted; mounts left alone keep modes too. */
export const pushRules: RulesOf = (exclude, own, { taken, left }) => [
  ...left.map(path => hide(literal(path))),
  ...own.map(hidePath),
  ...[...exclude, ...volatile].map(hide),
  ...lostAndFound(taken),
  ...[...identity, ...keptByPush].map(hide),
  ...neverDeleted.map(path => `P ${path}`)
]
