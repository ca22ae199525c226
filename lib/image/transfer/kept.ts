/*
 * What a grab and a push leave alone, as rsync patterns anchored at the root of the system. docs/grab-and-push.md
 * explains the lists.
 */

/** Directories whose contents belong to the running system. */
export const volatile: readonly string[] = ['/dev', '/proc', '/run', '/sys', '/tmp', '/var/tmp']

/**
 * Files that tell one node from another, besides those of `[image] identity`. They are never taken from a node into an
 * image, and never put from an image over those of a node.
 */
export const identity: readonly string[] = [
  // Its name.
  '/etc/HOSTNAME',
  '/etc/hostname',
  '/etc/hosts',
  // Its network.
  '/etc/NetworkManager/system-connections/*',
  '/etc/netplan/*',
  '/etc/network/interfaces',
  '/etc/network/interfaces.d/*',
  '/etc/resolv.conf',
  '/etc/sysconfig/network-scripts/ifcfg-*',
  '/etc/sysconfig/network-scripts/route*-*',
  '/etc/sysconfig/network-scripts/rule*-*',
  '/etc/sysconfig/network/ifcfg-*',
  '/etc/sysconfig/network/ifroute-*',
  '/etc/sysconfig/network/routes',
  '/etc/systemd/network/*',
  '/etc/systemd/timesyncd.conf.d/svc.conf',
  '/etc/udev/rules.d/70-persistent-net.rules',
  '/var/lib/NetworkManager/*',
  '/var/lib/dhclient/*',
  '/var/lib/dhcp/*',
  '/var/lib/dhcpcd/*',
  // Its disks, and what boots from them.
  '/boot/efi/EFI/*/grub.cfg',
  '/boot/efi/EFI/BOOT/*',
  '/boot/grub/*',
  '/boot/grub2/*',
  '/boot/loader/*',
  '/etc/crypttab',
  '/etc/default/grub.d/zz-svc.cfg',
  '/etc/fstab',
  '/etc/iscsi/initiatorname.iscsi',
  '/etc/kernel/cmdline',
  '/etc/lvm/devices/*',
  '/etc/multipath/*',
  '/etc/nvme/hostid',
  '/etc/nvme/hostnqn',
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
