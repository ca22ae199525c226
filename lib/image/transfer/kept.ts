/*
 * What a grab and a push leave alone, as rsync patterns anchored at the root of the system. docs/grab-and-push.md
 * explains the lists.
 */

/** Directories whose contents belong to the running system. */
export const volatile: readonly string[] = ['/dev', '/proc', '/run', '/sys', '/tmp', '/var/tmp']

/**
 * Files in which the system of another machine speaks of that machine, or of its container: an installation moves them aside
 * (templates/install/lib/identity.sh), and grabs and pushes leave it alone. Wildcards are in the last part alone.
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

/**
 * Files that tell one node from another, besides those of `[image] identity`. They are never taken from a node into an
 * image, and never put from an image over those of a node.
 */
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
  // What it tells svcd when it is up.
  '/etc/svc/running',
  '/etc/systemd/system/svc-running.service',
  '/etc/systemd/system/*.wants/svc-running.service',
  // What fetches its files, with its own token.
  '/etc/svc/files.*',
  '/etc/systemd/system/svc-files.*',
  '/etc/systemd/system/*.wants/svc-files.timer',
  '/usr/local/sbin/svc-files',
  // Its roles.
  '/etc/systemd/system/svc-role-*.service',
  '/etc/systemd/system/*.wants/svc-role-*.service',
  '/usr/local/lib/svc/roles/*'
]

/** What a push also leaves as it is: files that the install script has completed, and the node's own records. */
export const keptByPush: readonly string[] = [
  '/etc/chrony.conf',
  '/etc/chrony/chrony.conf',
  '/etc/default/grub',
  '/etc/ntp.conf',
  '/etc/systemd/system/*.wants/systemd-networkd*',
  '/var/log/*'
]

/** Where a push brings files and removes none: the homes of users, and what lets the controller in. */
export const neverDeleted: readonly string[] = ['/home/***', '/root/.ssh/***']
