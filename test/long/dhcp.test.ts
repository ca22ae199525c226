import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import t from 'tap'
import { BootingNode, installScript } from '../node/booting-node.js'
import { scratch } from '../support/scratch.js'
import { debianTree } from './debian-tree.js'

// Each DHCP client that an initramfs may have. A server takes another client identifier for another machine:
// the address must be the one that iPXE got, since the controller may know the node by it.

const clients: Readonly<Record<string, string>> = {
  udhcpc: 'bin/busybox',
  dhclient: 'sbin/dhclient',
  dhcpcd: 'sbin/dhcpcd',
  ipconfig: 'lib/klibc/bin/ipconfig'
}

for (const [client, path] of Object.entries(clients))
  t.test(client, async t => {
    const packages = ['busybox', 'curl', 'iproute2', 'isc-dhcp-client', 'dhcpcd-base', 'klibc-utils']
    const tree = await debianTree({ packages })
    const copy = scratch(t)
    execFileSync('cp', ['-a', '-x', join(tree, 'usr'), copy])
    const script = installScript('cat /etc/resolv.conf >/result; ip route >>/result')
    const programs = {
      usr: join(copy, 'usr'),
      further: { [client]: path },
      without: Object.keys(clients).filter(name => name !== client)
    }
    const node = await BootingNode.make(t, 'bash', [{ status: 200, body: script }], programs)
    await node.dhcpServer()
    const address = await node.leaseOfFirmware()
    t.ok(address, 'iPXE has an address')
    const console = await node.boot(
      { 'svc.bootproto': 'dhcp', 'svc.ip': '' },
      /node001 is ready|again in 8 s/
    )
    // klibc's cannot send an identifier.
    const expected = client === 'ipconfig' ? /is up: dhcp 10\.142\.0\.1\d\d\/24/ : `is up: dhcp ${address}/24`
    t.match(console, expected)
    t.match(node.text('result'), /^nameserver 10\.142\.0\.1$/m)
    t.match(node.text('result'), /^default via 10\.142\.0\.1 dev/m)
    t.notMatch(await node.interface(), 'inet 10.', 'and no client is left that keeps the address')
  })
