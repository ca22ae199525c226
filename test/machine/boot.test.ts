import { truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { dhcpSettings } from '../services/dhcp-servers.js'
import { Daemon } from '../support/daemon.js'
import { follow, inForce } from '../support/follow.js'
import { output, requirePrograms } from '../support/programs.js'
import { type DhcpHost, startNetwork } from '../support/provision-network.js'
import { scratch } from '../support/scratch.js'
import { type Machine, type Run, runMachine, tail } from '../support/virtual-machine.js'
import { bootSector, bootSectorExit, bootSectorText } from './boot-sector.js'
import { fasterOptions, makeImage, partscript, treeSum } from './image.js'

const url = 'http://10.141.0.1:7050'
const mac = (n: number) => `52:54:00:14:00:0${n}`
const address = (n: number) => `10.141.0.1${n}`
const unknownMac = mac(9)
const isLong = process.env.SVCD_LONG !== undefined
/** An emulated machine takes a second to sum up the 8 MB of the long tests. */
const imageBytes = isLong ? 8 << 20 : 1 << 20

// A DHCP server that svcd does not write for has this of each node (rules 4.13, 10.5).
const hosts: DhcpHost[] = [
  { mac: mac(1), ipaddress: address(1) },
  { mac: mac(2), ipaddress: address(2), bootfile: `${url}/boot/short` },
  { mac: mac(3), ipaddress: address(3), bootfile: `${url}/boot/disk` },
  { mac: mac(4), ipaddress: address(4) },
  { mac: unknownMac }
]

async function configure(controller: Daemon): Promise<void> {
  await controller.create('network', 'cluster', {
    network: '10.141.0.0/24',
    dhcp: true,
    dhcp_range_begin: '10.141.0.200',
    dhcp_range_end: '10.141.0.220'
  })
  const image = {
    kernelfile: 'vmlinuz',
    initrdfile: 'initrd.img',
    imagefile: 'image.tar.gz',
    kerneloptions: fasterOptions
  }
  await controller.create('osimage', 'test', image)
  await controller.create('osimage', 'curious', {
    ...image,
    kerneloptions: `${fasterOptions} test.other=node001`
  })
  await controller.create('osimage', 'broken', { ...image, imagefile: 'gone.tgz' })
  await controller.create('group', 'compute', {
    osimage: 'test',
    bootmenu: true,
    interfaces: [{ interface: 'BOOTIF', network: 'cluster' }]
  })
  const node = (n: number, fields: object = {}) =>
    controller.create('node', `node00${n}`, {
      group: 'compute',
      macaddr: mac(n),
      interfaces: [{ interface: 'BOOTIF', network: 'cluster', ipaddress: address(n) }],
      ...fields
    })
  await node(1, { partscript })
  await node(2, { osimage: 'curious', bootmenu: false })
  await node(3, { netboot: false })
  await node(4, { osimage: 'broken' })
}

/** An empty disk of 64 MiB, or one that begins with `content`. */
async function makeDisk(file: string, content: Uint8Array = new Uint8Array()): Promise<string> {
  await writeFile(file, content)
  await truncate(file, 64 << 20)
  return file
}

/** Each pattern must stand on the console, in this order. */
function shows(t: Test, run: Run, ...patterns: RegExp[]): void {
  let rest = run.console
  for (const pattern of patterns) {
    const at = rest.search(pattern)
    t.not(at, -1, `the console shows ${pattern}`, { console: tail(run.console) })
    rest = rest.slice(Math.max(at, 0))
  }
}

/**
 * What iPXE shows of a file that it has fetched; one that takes more than a second shows dots or its share.
 */
const fetched = (path: RegExp) => new RegExp(`${path.source}\\.{3}[. \\d%]* ok`)

/** The network of the machines and its daemon. `dhcp`: a server that svcd writes for; absent: one by hand. */
async function start(t: Test, directory: string, dhcp?: string) {
  const network = await startNetwork(hosts, { withoutDhcp: dhcp !== undefined })
  t.teardown(() => network.close())
  const place = { directory, namespace: network.namespace, device: 'br0' }
  const set = dhcp ? [...dhcpSettings(dhcp, place), 'controller.address=10.141.0.1', `http.url=${url}`] : []
  const controller = await Daemon.start({ directory, listen: '10.141.0.1:7050', enter: network.enter, set })
  t.teardown(() => controller.stop())
  await configure(controller)
  if (dhcp === undefined) return { network, controller }
  await inForce(controller, 'dhcp', false)
  const started = await follow(controller, '/service/dhcp/start')
  t.match(started, { state: 'done' }, 'the server takes what was written')
  await inForce(controller, 'dhcp')
  return { network, controller }
}

async function boots(t: Test, dhcp?: string): Promise<void> {
  requirePrograms('debugfs')
  const directory = scratch(t)
  const source = await makeImage(join(directory, 'files'), join(directory, 'source'), [], imageBytes)
  const { network, controller } = await start(t, directory, dhcp)
  const boot = (name: string, address: string, rest: Partial<Machine> = {}): Promise<Run> =>
    runMachine({ name, mac: address, network: { tap: network.tap(address) }, enter: network.enter, ...rest })

  // Two at a time, for a machine with two cores.
  t.jobs = 2

  t.test(
    'node001: menu, default entry, kernel, install script, an empty disk filled',
    { buffered: true },
    async t => {
      t.equal((await controller.monitor('node001')).history.length, 0, 'nothing is known before')
      const disk = await makeDisk(join(directory, 'node001.disk'))
      const run = await boot('node001', mac(1), { disk })
      t.equal(run.exit, 0, 'the machine went off by itself')
      shows(
        t,
        run,
        fetched(/10\.141\.0\.1:7050\/boot/),
        fetched(/\/boot\/search\/mac\/52%3A54%3A00%3A14%3A00%3A01/),
        fetched(/\/boot\/vmlinuz/),
        // Its "ok" may be cut off: the kernel starts at once and empties the serial port's queue.
        /\/boot\/initrd\.img\.{3}/,
        /svc: node001 \(node001\.cluster\), controller http:\/\/10\.141\.0\.1:7050/,
        /svc: interface eth0 has the address 52:54:00:14:00:01/,
        /svc: interface eth0 is up: static 10\.141\.0\.11\/24/,
        /svc: node001 is ready/,
        /STAGE \S+ host name node001\.cluster\n/,
        /STAGE \S+ addresses left:\n/,
        /STAGE \S+ root \/dev\/vda ext4/
      )
      t.equal(run.console.match(/STAGE \S+ tree (\S+)/)?.[1], source, 'the machine unpacked what was packed')
      await output('debugfs', ['-R', `rdump /usr ${directory}`, disk])
      t.equal(await treeSum(join(directory, 'usr')), source, 'and it is on the disk')
      const { state, history } = await controller.monitor('node001')
      t.equal(state, 'installer.completed')
      t.ok(history.length > 3, 'each step was reported', { history })
      t.match(history.at(-1), { state: 'installer.completed' })
      t.equal(
        history.filter(step => !/^installer\.(?!failed)\w+/.test(step.state)).length,
        0,
        'none failed',
        { history }
      )
    }
  )

  t.test(
    'an unknown machine comes back to the menu, which names its address',
    { buffered: true },
    async t => {
      const run = await boot('unknown', unknownMac, { until: /MAC 52:54:00:14:00:09 is unknown/ })
      shows(t, run, fetched(/\/boot/), fetched(/\/boot\/search\/mac\/52%3A54%3A00%3A14%3A00%3A09/))
      const { body } = await controller.request('GET', '/config/node')
      const nodes = Object.keys((body as { config: { node: object } }).config.node)
      t.same(nodes, ['node001', 'node002', 'node003', 'node004'], 'no node was made')
    }
  )

  const short =
    'node002: bootmenu off, DHCP gives the short menu; the script of node001 is not for it, its own is'
  t.test(short, { buffered: true }, async t => {
    const run = await boot('node002', mac(2))
    t.equal(run.exit, 0, 'the machine went off by itself')
    shows(
      t,
      run,
      fetched(/\/boot\/short/),
      fetched(/\/boot\/search\/mac\/52%3A54%3A00%3A14%3A00%3A02/),
      /svc: interface eth0 is up: static 10\.141\.0\.12\/24/,
      /svc: running the install script of node002/,
      /svc: node002 is ready/,
      /STAGE \S+ script of node001: .*401/
    )
    t.equal(run.console.match(/STAGE \S+ tree (\S+)/)?.[1], source, 'the image is in memory')
    t.equal((await controller.monitor('node002')).state, 'installer.completed')
  })

  t.test('node003: netboot off, DHCP gives the disk script', { buffered: true }, async t => {
    const disk = await makeDisk(join(directory, 'node003.disk'), bootSector())
    const run = await boot('node003', mac(3), { disk })
    shows(t, run, fetched(/\/boot\/disk/), new RegExp(bootSectorText))
    t.equal(run.exit, bootSectorExit, 'the boot sector of the disk ran')
  })

  t.test('node004: an image that was never packed is said on the console', { buffered: true }, async t => {
    const run = await boot('node004', mac(4), { until: /gone\.tgz, is missing/ })
    shows(
      t,
      run,
      fetched(/\/boot\/search\/mac\/\S+04/),
      /node004: this machine cannot be booted/,
      /gone\.tgz/
    )
    t.match((await controller.monitor('node004')).reason, /gone\.tgz/)
  })
}

// The other servers and firmwares are in test/long/pxe.test.ts. A server with host entries by hand is in the
// long form alone: its machines ask the same routes.
t.test('machines boot with the real iPXE and daemon, through what svcd writes for kea', t => boots(t, 'kea'))
if (isLong) t.test('and through a DHCP server that svcd does not write for', t => boots(t))
