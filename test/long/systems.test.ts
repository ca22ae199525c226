import { mkdir, readFile, rm, symlink, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { Daemon } from '../support/daemon.js'
import { requirePrograms } from '../support/programs.js'
import { startNetwork } from '../support/provision-network.js'
import { scratch } from '../support/scratch.js'
import { runMachine, tail } from '../support/virtual-machine.js'
import { debianImage, systemOptions } from './debian-image.js'
import { type Row, rows, tells } from './systems.js'

// Each system that svcd writes network files for (docs/systems.md), in a virtual machine: a node with three
// cards boots into memory, tells what its kernel and its system made of the files, and that is compared with
// the objects of the controller. Some three minutes a row, beside what debootstrap takes for the trees.

/** The cards of each node: the one that it boots over, and two more. */
const cards = [1, 2, 3].map(n => `52:54:00:14:03:0${n}`)
const [boot = '', second = '', third = ''] = cards

/** An interface, as it is sent to the controller and as the controller shows it. */
interface Interface {
  readonly interface: string
  readonly network?: string | null
  readonly ipaddress?: string | null
  readonly macaddress?: string | null
  readonly options?: string | null
}

/**
 * A node that is installed over a bond, with a VLAN on it. Its files say eth1 and eth2; its kernel has other
 * names.
 */
const interfaces: readonly Interface[] = [
  { interface: 'bond0', network: 'cluster', options: 'bond=BOOTIF,eth1 mtu=9000' },
  { interface: 'bond0.20', network: 'backup', options: 'vlan=20 mtu=9000' },
  { interface: 'eth1', macaddress: second },
  { interface: 'eth2', macaddress: third, network: 'storage', options: 'mtu=4000' }
]

/** What `ip` tells of a link; the parts that are looked at. */
interface Link {
  readonly ifname: string
  readonly mtu: number
  readonly operstate: string
  readonly address?: string
  /** The card's own address, where it has taken another one. */
  readonly permaddr?: string
  readonly master?: string
  readonly link?: string
  readonly linkinfo?: { info_kind?: string; info_data?: { id?: number; mode?: string } }
  readonly addr_info: readonly { family: string; local: string; prefixlen: number }[]
}

/** What a booted node has told: lines by their first word. */
class Told {
  readonly #lines: readonly string[]

  constructor(text: string) {
    this.#lines = text.replaceAll('\0', '').trimEnd().split('\n')
  }

  all(key: string): readonly string[] {
    return this.#lines.filter(line => line.startsWith(`${key} `)).map(line => line.slice(key.length + 1))
  }

  one(key: string): string | undefined {
    return this.all(key)[0]
  }

  links(): readonly Link[] {
    return this.all('link').flatMap(text => JSON.parse(text) as Link[])
  }
}

const option = ({ options }: Interface, key: string) =>
  (options ?? '')
    .split(' ')
    .find(word => word.startsWith(`${key}=`))
    ?.slice(key.length + 1)

/** The addresses that asked by ARP on a VLAN, from what has reached a card. */
function askedOnVlan(dump: Buffer, vlan: number): readonly string[] {
  const found: string[] = []
  for (let at = 24; at + 16 < dump.length; at += 16 + dump.readUInt32LE(at + 8)) {
    const frame = dump.subarray(at + 16, at + 16 + dump.readUInt32LE(at + 8))
    if (frame.length < 46 || frame.readUInt16BE(12) !== 0x8100 || frame.readUInt16BE(16) !== 0x0806) continue
    if ((frame.readUInt16BE(14) & 0xfff) === vlan) found.push(frame.subarray(32, 36).join('.'))
  }
  return found
}

/** Compares the links of the node with the interfaces of the controller. */
function compare(t: Test, links: readonly Link[], interfaces: readonly Interface[], about: object): void {
  const macOf = (name: string) =>
    name === 'BOOTIF' ? boot : (interfaces.find(each => each.interface === name)?.macaddress ?? undefined)
  const ownMac = ({ permaddr, address }: Link) => permaddr ?? address
  for (const each of interfaces) {
    const name = each.interface
    const [mtu, bond, vlan] = ['mtu', 'bond', 'vlan'].map(key => option(each, key))
    const link = links.find(link =>
      bond || vlan ? link.ifname === name : !link.linkinfo?.info_kind && ownMac(link) === macOf(name)
    )
    t.match(link, { operstate: 'UP' }, `${name} is up`, about)
    if (mtu) t.equal(link?.mtu, Number(mtu), `${name} has its mtu`, about)
    t.strictSame(
      link?.addr_info
        .filter(({ family }) => family === 'inet')
        .map(each => `${each.local}/${each.prefixlen}`),
      each.ipaddress ? [`${each.ipaddress}/24`] : [],
      `${name} has its address, and no other`,
      about
    )
    if (bond) {
      const mode = option(each, 'mode') ?? 'active-backup'
      t.match(link?.linkinfo, { info_kind: 'bond', info_data: { mode } }, `${name} has its mode`, about)
      t.strictSame(
        links
          .filter(({ master }) => master === name)
          .map(ownMac)
          .sort(),
        bond.split(',').map(macOf).sort(),
        `${name} has its members`,
        about
      )
    }
    if (vlan) {
      t.match(
        link?.linkinfo,
        { info_kind: 'vlan', info_data: { id: Number(vlan) } },
        `${name} has its number`
      )
      t.equal(link?.link, option(each, 'link') ?? name.replace(/[.]\d+$/, ''), `${name} lies on its link`)
    }
  }
}

async function prepare(tree: string, row: Row): Promise<void> {
  await writeFile(join(tree, 'usr/local/sbin/svcd-report-more'), tells(row), { mode: 0o755 })
  // A login prompt that begins meanwhile takes away what is on its way to the console.
  await symlink('/dev/null', join(tree, 'etc/systemd/system/serial-getty@ttyS0.service'))
  // How long a unit takes says how busy the machine is, and nothing else. Some units have a limit of their
  // own.
  await put(tree, 'system.conf.d', '[Manager]\nDefaultTimeoutStartSec=15min\n')
  await put(tree, 'system/service.d', '[Service]\nTimeoutStartSec=15min\nWatchdogSec=0\n')
  const waits = (unit: string, text: string) =>
    put(tree, `system/${unit}-wait-online.service.d`, `[Service]\n${text}\n`)
  await waits('NetworkManager', 'Environment=NM_ONLINE_TIMEOUT=900')
  await waits(
    'systemd-networkd',
    'ExecStart=\nExecStart=/lib/systemd/systemd-networkd-wait-online --timeout=900'
  )
  await row.prepare?.(tree)
}

async function put(tree: string, directory: string, text: string): Promise<void> {
  await mkdir(join(tree, 'etc/systemd', directory), { recursive: true })
  await writeFile(join(tree, 'etc/systemd', directory, 'patient.conf'), text)
}

t.setTimeout(4 * 3_600_000)

t.test('what the node has is what the objects say', async t => {
  requirePrograms('debootstrap', 'zstd', 'tar')
  const directory = scratch(t)
  const network = await startNetwork(cards.map(mac => ({ mac })))
  t.teardown(() => network.close())
  const controller = await Daemon.start({
    directory,
    listen: '10.141.0.1:7050',
    enter: network.enter,
    // All rows take longer than an hour on a busy machine.
    set: ['boot.dynamic_nodes=yes', 'auth.token_lifetime=24h']
  })
  t.teardown(() => controller.stop())
  await controller.create('network', 'cluster', { network: '10.141.0.0/24', gateway: '10.141.0.1' })
  await controller.create('network', 'storage', { network: '10.149.0.0/24', gateway: '10.149.0.1' })
  await controller.create('network', 'backup', { network: '10.150.0.0/24' })

  for (const row of rows)
    await t.test(row.name, async t => {
      const name = row.name.replaceAll(/[^a-z0-9]+/gi, '-')
      const node = `node-${name}`.toLowerCase()
      t.teardown(() => controller.request('GET', `/config/node/${node}/_delete`))
      const tree = join(directory, name)
      const image = await debianImage({
        tool: 'initramfs-tools',
        name,
        files: join(directory, 'files'),
        tree,
        release: row.release,
        ...(row.kernel ? { kernel: row.kernel } : {}),
        packages: ['iputils-ping', ...row.packages],
        prepare: tree => prepare(tree, row)
      })
      await rm(tree, { recursive: true })
      await controller.create('osimage', name, {
        ...image,
        distribution: row.distribution,
        kerneloptions: [systemOptions, 'udev.event_timeout=900', row.options ?? ''].join(' ').trim()
      })
      const fields = { osimage: name, macaddr: boot, provision_interface: 'bond0', interfaces }
      await controller.create('node', node, fields)
      const shown = await controller.request('GET', `/config/node/${node}`)
      const body = shown.body as { config: { node: Record<string, { interfaces: Interface[] }> } }
      const objects = body.config.node[node]?.interfaces ?? []

      const start = Date.now()
      const [disk, dump] = [join(directory, `${name}.disk`), join(directory, `${name}.pcap`)]
      await writeFile(disk, '')
      await truncate(disk, 2 ** 20)
      const run = await runMachine({
        name,
        mac: boot,
        network: { tap: network.tap(boot) },
        cards: [
          { mac: second, tap: network.tap(second) },
          { mac: third, tap: network.tap(third), dump }
        ],
        enter: network.enter,
        disk,
        memoryMiB: row.memoryMiB ?? 2048,
        timeLimitMs: 1_800_000,
        until: /REPORT done .*\n/
      })
      const text = await readFile(disk, 'utf8')
      const told = new Told(text)
      const about = { told: text.replaceAll('\0', '').split('\n'), console: tail(run.console) }
      const seconds = ((Date.now() - start) / 1000).toFixed(0)
      t.comment(`${row.name}: ${told.all('version').join(', ')}, kernel ${told.one('kernel')}; ${seconds} s`)
      t.equal((await controller.monitor(node)).state, 'installer.completed', 'it is installed', about)
      t.equal(told.one('state'), 'running', 'no unit failed', about)
      t.equal(told.one('ping'), '0', 'a frame of the size of the mtu goes through the bond', about)
      compare(t, told.links(), objects, about)
      t.match(told.all('owner').join('\n'), row.owns, 'the system itself has done it', about)
      t.strictSame(told.all('warning'), [], 'and found nothing to warn of', about)
      t.strictSame(
        told.all('default').map(route => route.replace(/ (proto|metric|onlink).*/, '')),
        ['default via 10.141.0.1 dev bond0'],
        'one default route',
        about
      )
      const own = objects.find(each => each.interface === 'bond0.20')?.ipaddress
      const asked = askedOnVlan(await readFile(dump), 20)
      t.ok(asked.includes(`${own}`), 'frames of the VLAN have its number', { ...about, asked, own })
      row.more?.(t, key => told.all(key), about)
    })
})
