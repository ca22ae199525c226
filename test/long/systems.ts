import type { Test } from 'tap'
import { bookworm, noble, type Release } from './debian-tree.js'
import * as selinux from './selinux.js'

/** A system that sets up the network of a node, in a release. */
export interface Row {
  readonly name: string
  readonly release: Release
  /** Of the osimage: it decides which files svcd writes. */
  readonly distribution: string
  readonly packages: readonly string[]
  /** The package of the kernel; default: Debian's for virtual machines. */
  readonly kernel?: string
  /** Kernel options. */
  readonly options?: string
  readonly memoryMiB?: number
  /** Changes the image's tree. */
  readonly prepare?: (tree: string) => Promise<void>
  /** Whose version is the system's. */
  readonly package: string
  /** A command that tells, line by line, which interfaces the system has set up. */
  readonly owner: string
  /** What it tells if all is well. */
  readonly owns: RegExp
  /** Further commands; each line begins with a word, by which `more` asks for it. */
  readonly asks?: string
  readonly more?: (t: Test, told: (key: string) => readonly string[], about: object) => void
}

// networkctl needs a system bus, which not every image has.
const links = `for card in /sys/class/net/*/; do
    sed -n "s|^ADMIN_STATE=|$(basename "$card") |p; s|^NETWORK_FILE=|$(basename "$card") |p" \\
      "/run/systemd/netif/links/$(cat "$card/ifindex")"
  done`

const networkd = {
  distribution: 'debian',
  packages: [],
  package: 'systemd',
  owner: links,
  owns: /^bond0 configured\nbond0 \/etc\/systemd\/network\/05-svc-bond0.network$/m
}
const manager = {
  distribution: 'debian',
  packages: ['network-manager'],
  package: 'network-manager',
  owner: 'nmcli -t -f DEVICE,TYPE,STATE,CONNECTION device',
  owns: /^bond0:bond:connected:bond0/m
}
const netplan = {
  distribution: 'ubuntu',
  packages: ['netplan.io'],
  package: 'netplan.io',
  owner: links,
  owns: /^bond0 configured\nbond0 \/run\/systemd\/network\/\d+-netplan-bond0.network$/m
}
const ifupdown = {
  distribution: 'debian',
  packages: ['ifupdown'],
  package: 'ifupdown',
  owner: 'cat /run/network/ifstate',
  owns: /^bond0=bond0$/m
}

const enforcing = {
  packages: selinux.packages,
  options: selinux.kernelOptions,
  prepare: selinux.enforce,
  asks: selinux.asks,
  more: selinux.enforces
}

/** The systems on nodes, each with the release that it comes from. */
export const rows: readonly Row[] = [
  { name: 'bookworm networkd', release: bookworm, ...networkd },
  { name: 'bookworm NetworkManager', release: bookworm, ...manager },
  { name: 'bookworm netplan', release: bookworm, ...netplan },
  { name: 'bookworm ifupdown', release: bookworm, ...ifupdown },
  {
    name: 'bookworm ifupdown with ifenslave and vlan',
    release: bookworm,
    ...ifupdown,
    packages: ['ifupdown', 'ifenslave', 'vlan']
  },
  { name: 'bullseye ifupdown', release: { suite: 'bullseye' }, ...ifupdown },
  { name: 'sid networkd', release: { suite: 'sid' }, ...networkd },
  { name: 'sid NetworkManager', release: { suite: 'sid' }, ...manager },
  { name: 'sid netplan', release: { suite: 'sid' }, ...netplan },
  { name: 'noble netplan', release: noble, kernel: 'linux-image-virtual', ...netplan },
  { name: 'bookworm SELinux', release: bookworm, ...networkd, ...enforcing }
]

/**
 * A script for the booted system: it pings the controller through the bond, asks for somebody on the VLAN,
 * and writes what it found to the disk. A console loses characters while the machine is busy. Through a pipe:
 * where SELinux enforces, not every program may write to a file of this one.
 */
export const tells = (row: Row): string => `#!/bin/sh
network() { ip -4 -o address show dev "$1" | sed -n 's|.* inet \\([0-9.]*\\)[.][0-9]*/.*|\\1|p'; }
{
  ping -q -c 1 -w 600 -M do -s 8972 "$(network bond0).1" >/dev/null
  echo "ping $?"
  ping -q -c 1 -W 1 "$(network bond0.20).99" >/dev/null
  for card in /sys/class/net/*; do
    # There is a file bonding_masters, too.
    if [ -d "$card" ]; then echo "link $(ip -d -j address show dev "\${card##*/}" | tr -d '\\n')"; fi
  done
  for _ in $(seq 600); do
    if [ "$(systemctl is-system-running)" != starting ]; then break; fi
    sleep 1
  done
  echo "state $(systemctl is-system-running)"
  systemctl --failed --no-legend --plain | sed 's/^/failed /'
  for unit in $(systemctl --failed --no-legend --plain | cut -d ' ' -f 1); do
    journalctl -q -b -o short-monotonic --no-pager -u "$unit" | tail -n 20 | sed "s/^/journal /"
  done
  echo "version ${row.package} $(dpkg-query -W -f '\${Version}' ${row.package})"
  echo "kernel $(uname -r)"
  { ${row.owner}; } | sed 's/^/owner /'
  for unit in systemd-networkd NetworkManager networking netplan-configure; do
    journalctl -q -b -p warning -o cat --no-pager -u "$unit" |
      grep -iE 'svc-|netplan|keyfile|interfaces:|unknown|invalid|ignor|pars' | sed "s/^/warning $unit: /"
  done
  ip -4 route show default | sed 's/^/default /'
  ${row.asks ?? ''}
} 2>&1 | cat >/run/report
dd if=/run/report of=/dev/vda conv=fsync 2>/dev/null
`
