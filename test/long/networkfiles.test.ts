import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import t from 'tap'
import { output } from '../support/programs.js'
import { debianTree } from './debian-tree.js'

// The network files that the install script writes (the golden files of test/install), read by the programs
// that they are for. A machine that boots with systemd-networkd is in localinstall.test.ts.

const golden = join(import.meta.dirname, '../install/golden')
const packages = ['netplan.io', 'network-manager', 'ifupdown', 'isc-dhcp-client', 'iproute2']

/** Puts the files of a golden listing below a directory. */
async function unfold(name: string, directory: string): Promise<void> {
  const text = await readFile(join(golden, `${name}.txt`), 'utf8')
  for (const part of text.split(/^=== /m).slice(1)) {
    const [, path = '', mode] = part.match(/^(\S+) (\d+)\n/) ?? []
    if (mode === undefined) continue
    await mkdir(dirname(join(directory, path)), { recursive: true })
    await writeFile(join(directory, path), part.slice(part.indexOf('\n') + 1), {
      mode: Number.parseInt(mode, 8)
    })
  }
}

// $1 is the tree, $2 the directory with the files, on its /mnt; the rest is run in a network of its own,
// where no card is the machine's. Nothing of it is left afterwards. With /sys read-only nothing waits for
// udev.
const inside = `set -e
mount --bind "$2" "$1/mnt"
mount -t sysfs -o ro sysfs "$1/sys"
mount -t proc proc "$1/proc"
mount -t tmpfs tmpfs "$1/run"
mkdir "$1/run/network" "$1/run/systemd"
for n in 1 2 3; do ip link add "ens$n" address "52:54:00:00:00:0$n" type veth peer name "p$n"; done
for name in ib0 eth1 eth3 eth4; do
  ip link add "$name" type veth peer name "p$name"
  ip link set "p$name" up
done
exec chroot "$1" sh -ec "$3"`

t.test('the programs of each system understand its network files', async t => {
  const tree = await debianTree({ packages })
  const run = async (name: string, command: string): Promise<string> => {
    const directory = await mkdtemp(join(tmpdir(), 'svcd-network-'))
    try {
      await unfold(name, directory)
      const apart = ['--mount', '--propagation', 'private', '--net']
      return await output('unshare', [...apart, 'sh', '-c', inside, 'sh', tree, directory, command])
    } finally {
      await rm(directory, { recursive: true })
    }
  }

  t.test('NetworkManager', async t => {
    for (const name of (await readdir(golden)).filter(leaf => /^(redhat|opensuse)/.test(leaf))) {
      const profiles = await run(
        name.replace('.txt', ''),
        'for i in /mnt/etc/NetworkManager/system-connections/*; do echo "=== $i"; cat "$i"; echo "=== as read"; ' +
          'nmcli --offline connection modify connection.autoconnect-priority 99 <"$i"; done'
      )
      const parts = profiles.split(/^=== .*\n/m).slice(1)
      t.ok(parts.length >= 4, `${name} holds profiles`)
      for (let i = 0; i < parts.length; i += 2) {
        const understood = new Set(parts[i + 1]?.split('\n'))
        const ours = parts[i]?.split('\n').filter(line => /=/.test(line) && !/^autoconnect/.test(line)) ?? []
        t.strictSame(
          ours.filter(line => !understood.has(line)),
          [],
          `${name}: every line of ${ours[0]} is understood`
        )
      }
    }
  })

  t.test('netplan makes of its file what we write for systemd-networkd', async t => {
    const keys =
      /^(PermanentMACAddress|Name|Kind|Id|Mode|MIIMonitorSec|Address|Gateway|DNS|Domains|Bond|Bridge|VLAN|DHCP|ClientIdentifier|RequiredForOnline|Metric|Destination)=(?!0\.0\.0\.0\/0$)/
    /** The lines that matter of each file, by interface and kind of file. */
    const read = (text: string) =>
      Object.fromEntries(
        text
          .split(/^=== /m)
          .slice(1)
          .map(part => [part.match(/(?:netplan|svc)-(\S+)/)?.[1] ?? '', part.split('\n')] as const)
          .map(([name, lines]) => [name, lines.filter(line => keys.test(line)).sort()])
      )
    const show = 'for i in $(find . -name "*.network" -o -name "*.netdev"); do echo "=== $i"; cat "$i"; done'
    for (const kind of ['', '-dhcp', '-stacked', '-further']) {
      const made = await run(
        `ubuntu${kind}`,
        `netplan generate --root-dir /mnt; cd /mnt/run/systemd/network; ${show}`
      )
      const ours = await run(`debian-networkd${kind}`, `cd /mnt/etc/systemd/network; ${show}`)
      t.strictSame(read(made), read(ours), `ubuntu${kind}`)
      t.ok(Object.keys(read(ours)).length >= 2)
    }
  })

  t.test('systemd-networkd', async t => {
    const networkd = (address: string) => `
      mount --bind /mnt/etc/systemd/network /etc/systemd/network
      /usr/lib/systemd/systemd-networkd 2>&1 & networkd=$!
      for _ in $(seq 100); do
        ip -4 -brief address | grep -q '${address}' && break
        sleep 0.2
      done
      ip -4 -brief address
      ip -4 route
      bridge link
      kill $networkd
      wait $networkd`
    const plain = await run('debian-networkd', networkd('10[.]149[.]0[.]1/16'))
    t.match(plain, /^ib0\S* .* 10\.149\.0\.1\/16/m)
    const stacked = await run('debian-networkd-stacked', networkd('10[.]151[.]0[.]1/24'))
    t.match(stacked, /^br0 .* 10\.151\.0\.1\/24/m)
    for (const card of ['eth3', 'eth4'])
      t.match(stacked, new RegExp(` ${card}@.* master br0 state forwarding`))
    // A card of this kind has no permanent address.
    const named =
      "sed -i -e 's/^Permanent.*:01$/Name=ens1/' -e '/^Type=/d' /mnt/etc/systemd/network/*BOOTIF*; ip link set p1 up"
    const further = await run('debian-networkd-further', `${named}${networkd('10[.]152[.]0[.]1/24')}`)
    t.match(further, /^ens1\S* .* 10\.141\.0\.1\/16 10\.151\.0\.1\/24 10\.152\.0\.1\/24/m)
    t.match(further, /^10\.7\.0\.0\/16 via 10\.151\.0\.254 dev ens1 .*metric 50/m)
    for (const said of [plain, stacked, further]) {
      t.match(said, 'Enumeration completed')
      t.notMatch(said, /unknown|ignoring|parse/i, 'every line is understood')
    }
  })

  t.test('ifupdown', async t => {
    const command = 'ifup --no-act --verbose --all --interfaces /mnt/etc/network/interfaces 2>&1'
    const plain = await run('debian-ifupdown', command)
    t.match(plain, /ip addr add 10\.141\.0\.1\/255\.255\.0\.0 .*\bdev ens1\b/)
    t.match(plain, /ip link set dev ens2 mtu 9000/)
    t.match(plain, /ip link set dev ib0 mtu 2044/)
    t.strictSame(plain.match(/route add default.*ens\d/g), ['route add default via 10.141.255.254  dev ens1'])
    const dhcp = await run('debian-ifupdown-dhcp', command)
    t.match(dhcp, /dhclient .* ens1/)
    t.match(dhcp, /ens2 \t-e IF_METRIC=1000/)
    const further = await run('debian-ifupdown-further', command)
    t.match(further, /ip address replace 10\.151\.0\.1\/24 dev \$IFACE/)
    t.match(further, /ip route replace 10\.7\.0\.0\/16 via 10\.151\.0\.254 dev \$IFACE metric 50/)
    t.match(further, /route add default via 10\.150\.0\.254 .*metric 200/)
    const stacked = await run('debian-ifupdown-stacked', command)
    t.match(stacked, /configuring interface ens1=eth0/)
    t.match(stacked, /ip link set dev bond0 mtu 9000 address 52:54:00:00:00:01/)
    t.match(stacked, /ip addr add 10\.151\.0\.1\/255\.255\.255\.0 .*\bdev br0\b/)
    t.strictSame(stacked.match(/route add default.*/g), [
      'route add default via 192.0.2.1  dev outside onlink '
    ])
  })

  t.test('ifupdown, for a single interface and for all', async t => {
    // A bridge in the bond's place: not every kernel that tests are run on has bonds, or VLANs.
    const said = await run(
      'debian-ifupdown-stacked',
      `
      for part in pre-up up down post-down; do mkdir -p "/mnt/etc/network/if-$part.d"; done
      mkdir -p /mnt/etc/network/interfaces.d
      mount --bind /mnt/etc/network /etc/network
      sed -i -e 's/type bond mode 802.3ad miimon 100/type bridge/' -e '/type bond/d' /etc/network/interfaces
      show() {
        echo "=== $1"
        ip -brief link
        ip -4 -brief address
        bridge link
        cat /run/network/ifstate
      }
      ifup -a 2>&1 || true
      show up
      ifdown br0 && ifup br0 && echo "br0 again"
      ifdown bond0 && ifup bond0 && echo "bond0 again"
      show single
      ifdown -a --exclude=lo 2>&1 || true
      show down
      ifup -a 2>&1 || true
      show again`
    )
    const [, up = '', single = '', down = '', again = ''] = said.split(/^=== \w+$/m)
    for (const text of [up, single, again]) {
      t.match(text, /^br0 .* 10\.151\.0\.1\/24/m)
      t.match(text, /^bond0 .* 10\.141\.0\.1\/16/m)
      for (const pair of ['ens1 bond0', 'eth1 bond0', 'eth3 br0', 'eth4 br0'])
        t.match(text, new RegExp(` ${pair.replace(' ', '@.* master ')} `), pair)
      t.match(text, /^ens3=eth2$/m, 'a VLAN that cannot be made leaves its link up')
    }
    t.match(up, /bond0 again/, 'each alone')
    t.match(up, /br0 again/, 'each alone')
    t.notMatch(down, /^(br0|bond0)/m, 'what the file made is gone')
  })
})
