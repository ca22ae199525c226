import { truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { kernelOptions, makeImage, partscript } from '../machine/image.js'
import { dhcpServers, dhcpSettings } from '../services/dhcp-servers.js'
import { Daemon } from '../support/daemon.js'
import { follow, inForce } from '../support/follow.js'
import { requirePrograms } from '../support/programs.js'
import { startNetwork } from '../support/provision-network.js'
import { scratch } from '../support/scratch.js'
import { type Machine, runMachine, tail } from '../support/virtual-machine.js'

const url = 'http://10.141.0.1:7050'

/**
 * A machine that is powered on: what of it asks the network first, and what it must fetch before the menu.
 */
interface Case {
  readonly node: string
  readonly mac: string
  readonly what: string
  readonly machine: Partial<Machine>
  readonly first?: RegExp
  /** It has no address of its own: DHCP's is what lets it have its install script ([boot] dynamic_nodes). */
  readonly dynamic?: boolean
}

const bios: Case = {
  node: 'node001',
  mac: '52:54:00:15:00:01',
  what: 'BIOS, iPXE in the card',
  machine: {}
}
const uefi: Case[] = [
  {
    node: 'node002',
    mac: '52:54:00:15:00:02',
    what: 'UEFI, iPXE over TFTP',
    machine: { firmware: 'uefi', asks: 'pxe' },
    first: /NBP filename is ipxe\.efi/
  },
  {
    node: 'node003',
    mac: '52:54:00:15:00:03',
    what: 'UEFI HTTP boot',
    machine: { firmware: 'uefi', asks: 'http' },
    first: /http:\/\/10\.141\.0\.1:7050\/boot\/ipxe\.efi/i
  }
]
const dynamic: Case = {
  node: 'node004',
  mac: '52:54:00:15:00:04',
  what: 'an address of the range',
  machine: {},
  dynamic: true
}
const cases = [bios, ...uefi, dynamic]

async function configure(c: Daemon): Promise<void> {
  await c.create('network', 'cluster', {
    network: '10.141.0.0/24',
    dhcp: true,
    dhcp_range_begin: '10.141.0.200',
    dhcp_range_end: '10.141.0.220'
  })
  await c.create('osimage', 'test', {
    kernelfile: 'vmlinuz',
    initrdfile: 'initrd.img',
    imagefile: 'image.tar.gz',
    kerneloptions: kernelOptions
  })
  await c.create('group', 'compute', {
    osimage: 'test',
    partscript,
    interfaces: [{ interface: 'BOOTIF', network: 'cluster' }]
  })
  for (const [i, { node, mac, dynamic }] of cases.entries()) {
    const interfaces = [{ interface: 'BOOTIF', network: 'cluster', ipaddress: `10.141.0.1${i + 1}` }]
    await c.create('node', node, { group: 'compute', bootmenu: i === 0, macaddr: mac, interfaces })
    if (!dynamic) continue
    const none = { interfaces: [{ interface: 'BOOTIF', ipaddress: null }] }
    const { status } = await c.request('POST', `/config/node/${node}`, none)
    if (status >= 300) throw new Error(`${node} keeps its address: ${status}`)
  }
}

async function installs(t: Test, server: string): Promise<void> {
  const directory = scratch(t)
  const tftp = '/usr/lib/ipxe'
  requirePrograms(join(tftp, 'ipxe.efi'))
  await makeImage(join(directory, 'files'), join(directory, 'source'))
  const network = await startNetwork(
    cases.map(({ mac }) => ({ mac })),
    { withoutDhcp: true, tftp }
  )
  t.teardown(() => network.close())
  const c = await Daemon.start({
    directory,
    listen: '10.141.0.1:7050',
    enter: network.enter,
    set: [
      ...dhcpSettings(server, { directory, namespace: network.namespace, device: 'br0' }),
      ...['controller.address=10.141.0.1', `http.url=${url}`, `boot.ipxe_directory=${tftp}`],
      'boot.dynamic_nodes=yes'
    ]
  })
  t.teardown(() => c.stop())
  await configure(c)
  await inForce(c, 'dhcp', false)
  t.match(await follow(c, '/service/dhcp/start'), { state: 'done' }, 'the server takes what was written')
  await inForce(c, 'dhcp')
  for (const [i, { node, mac, what, machine, first, dynamic }] of cases.entries()) {
    const disk = join(directory, `${node}.disk`)
    await writeFile(disk, '')
    await truncate(disk, 64 << 20)
    const began = performance.now()
    const run = await runMachine({
      name: node,
      mac,
      network: { tap: network.tap(mac) },
      enter: network.enter,
      disk,
      ...machine
    })
    const up = dynamic ? 'dhcp 10\\.141\\.0\\.2[012]\\d' : `static 10\\.141\\.0\\.1${i + 1}`
    const script = i === 0 ? /7050\/boot\.{3}/ : /7050\/boot\/short\.{3}/
    const wanted = [
      ...(first ? [first] : []),
      script,
      new RegExp(`svc: interface eth0 is up: ${up}/24`),
      new RegExp(`svc: ${node} is ready`),
      /STAGE \S+ root \/dev\/vda ext4/
    ]
    let rest = run.console
    for (const pattern of wanted) {
      const at = rest.search(pattern)
      t.not(at, -1, `${what}: the console shows ${pattern}`, { console: tail(run.console) })
      rest = rest.slice(Math.max(at, 0))
    }
    t.equal(run.exit, 0, 'it went off by itself')
    t.equal((await c.monitor(node)).state, 'installer.completed', `${what}: installed`)
    t.comment(`${server}, ${what}: ${((performance.now() - began) / 1000).toFixed(1)} s`)
  }
}

for (const server of dhcpServers)
  t.test(`machines boot and install through what is written for ${server}`, t => installs(t, server))
