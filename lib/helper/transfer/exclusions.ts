/* Paths that a grab and a push leave alone: rsync patterns anchored at the root (docs/grab-and-push.md). */

/** Directories whose contents belong to the running system. */
export const volatile: readonly string[] = ['/dev', '/proc', '/run', '/sys', '/tmp', '/var/tmp']

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
export const neverDeleted: readonly string[] = ['/home/***', '/root/.ssh/***']
