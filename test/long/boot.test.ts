import { join } from 'node:path'
import t from 'tap'
import { Daemon } from '../support/daemon.js'
import { requirePrograms } from '../support/programs.js'
import { startNetwork } from '../support/provision-network.js'
import { scratch } from '../support/scratch.js'
import { type Firmware, runMachine, tail } from '../support/virtual-machine.js'
import { debianImage, reported, systemOptions, type Tool } from './debian-image.js'

// A real Debian image, unpacked into memory by this project's own initramfs and switched to, for each tool
// that builds an initramfs and each firmware. Some six minutes.

const mac = (n: number) => `52:54:00:14:01:0${n}`

interface Case {
  readonly tool: Tool
  readonly firmware: Firmware
  readonly proto: 'static' | 'dhcp'
}

const cases: readonly Case[] = [
  { tool: 'dracut', firmware: 'bios', proto: 'static' },
  { tool: 'dracut', firmware: 'uefi', proto: 'static' },
  { tool: 'initramfs-tools', firmware: 'bios', proto: 'static' },
  { tool: 'initramfs-tools', firmware: 'uefi', proto: 'static' },
  { tool: 'dracut', firmware: 'bios', proto: 'dhcp' },
  { tool: 'initramfs-tools', firmware: 'bios', proto: 'dhcp' }
]

const seconds = (since: number) => `${((Date.now() - since) / 1000).toFixed(1)} s`

/** Seconds from power on to the first line of the console that matches. */
class Times {
  readonly #start = Date.now()
  readonly #seen = new Map<string, string>()
  readonly #marks: Readonly<Record<string, RegExp>> = {
    'boot script': /svcd: booting node/,
    'node side': /svc: node\d+ \(/,
    'install script': /svc: running the install script/,
    unpacking: /svc: step unpack/,
    'switching root': /svc: node\d+ is ready/,
    'system is up': /REPORT done/
  }

  see(line: string): void {
    for (const [name, mark] of Object.entries(this.#marks))
      if (!this.#seen.has(name) && mark.test(line)) this.#seen.set(name, seconds(this.#start))
  }

  toString(): string {
    return [...this.#seen].map(([name, time]) => `${name} ${time}`).join(', ')
  }
}

t.test('a real Debian boots into memory', async t => {
  requirePrograms('debootstrap', 'zstd', 'tar')
  const directory = scratch(t)
  const network = await startNetwork(
    [
      ...cases.map((each, n) => (each.proto === 'static' ? `10.141.0.1${n + 1}` : undefined)),
      '10.141.0.20',
      '10.141.0.21'
    ].map((ipaddress, n) => ({ mac: mac(n + 1), ...(ipaddress ? { ipaddress } : {}) }))
  )
  t.teardown(() => network.close())
  const controller = await Daemon.start({
    directory,
    listen: '10.141.0.1:7050',
    enter: network.enter,
    set: ['boot.dynamic_nodes=yes']
  })
  t.teardown(() => controller.stop())
  await controller.create('network', 'cluster', {
    network: '10.141.0.0/24',
    gateway: '10.141.0.1',
    dhcp: true,
    dhcp_range_begin: '10.141.0.200',
    dhcp_range_end: '10.141.0.220'
  })
  for (const tool of ['dracut', 'initramfs-tools'] as const) {
    const start = Date.now()
    const image = await debianImage({ tool, files: join(directory, 'files'), tree: join(directory, tool) })
    t.comment(`image with ${tool}: ${seconds(start)}`)
    await controller.create('osimage', tool, {
      ...image,
      distribution: 'debian',
      kerneloptions: systemOptions
    })
  }

  const identities = new Set<string | undefined>()
  for (const [i, { tool, firmware, proto }] of cases.entries())
    await t.test(`${tool}, ${firmware}, ${proto}`, async t => {
      const name = `node00${i + 1}`
      const address = `10.141.0.1${i + 1}`
      await controller.create('node', name, {
        osimage: tool,
        macaddr: mac(i + 1),
        interfaces: [
          { interface: 'BOOTIF', network: 'cluster', ipaddress: proto === 'static' ? address : null }
        ]
      })
      const times = new Times()
      const run = await runMachine({
        name,
        mac: mac(i + 1),
        network: { tap: network.tap(mac(i + 1)) },
        enter: network.enter,
        firmware,
        memoryMiB: 2048,
        timeLimitMs: 600_000,
        until: /REPORT done .*\n/,
        onLine: line => times.see(line)
      })
      t.comment(`${tool}, ${firmware}, ${proto}: ${times}`)
      const about = { console: tail(run.console) }
      t.equal(reported(run.console, 'hostname'), `${name}.cluster`, 'its host name', about)
      const [, leased] = reported(run.console, 'address')?.split(' ') ?? []
      if (proto === 'static') t.equal(leased, `${address}/24`, 'its address', about)
      else t.match(leased, /^10\.141\.0\.2[012]\d\/24$/, 'an address of the range', about)
      t.match(reported(run.console, 'root'), /^tmpfs/, 'its root file system is in memory', about)
      t.match(reported(run.console, 'route'), /^default via 10\.141\.0\.1 /, 'one default route', about)
      t.equal(reported(run.console, 'state'), 'running', 'no unit failed', about)
      // rules 4.22
      for (const [key, form] of [
        ['machine-id', /^[0-9a-f]{32}$/],
        ['ssh', /^active ssh-ed25519 \S{60,}/]
      ] as const) {
        const identity = reported(run.console, key)
        t.match(identity, form, `${key} of its own`, about)
        t.notOk(identities.has(identity), `${key}: no other node has it`)
        identities.add(identity)
      }
      t.equal((await controller.monitor(name)).state, 'installer.completed')
    })

  // The first has no room to unpack at all, the second not enough. With root=... the kernel's own root file
  // system is a ramfs, which is never full.
  const small = [
    {
      tool: 'dracut',
      memoryMiB: 512,
      reason: /unpacking \S+ needs more than \d+ MB of memory, there are \d+ MB/
    },
    { tool: 'initramfs-tools', memoryMiB: 640, reason: /no space is left on \/sysroot, \d+ MB of memory: \S/ }
  ] as const
  for (const [i, { tool, memoryMiB, reason }] of small.entries())
    await t.test(`too little memory is a failure with its reason, ${tool}, ${memoryMiB} MB`, async t => {
      const name = `node01${i}`
      await controller.create('node', name, {
        osimage: tool,
        macaddr: mac(cases.length + 1 + i),
        interfaces: [{ interface: 'BOOTIF', network: 'cluster', ipaddress: `10.141.0.2${i}` }]
      })
      const run = await runMachine({
        name,
        mac: mac(cases.length + 1 + i),
        network: { tap: network.tap(mac(cases.length + 1 + i)) },
        enter: network.enter,
        memoryMiB,
        timeLimitMs: 600_000,
        until: /trying again in 4 s/
      })
      const about = { console: tail(run.console) }
      t.match(run.console, /FAILED in step install/, 'and it tries again', about)
      t.notMatch(run.console, /Kernel panic|Out of memory:/, 'nothing was killed', about)
      const { state } = await controller.monitor(name)
      t.match(state, /^installer\.failed: unpack: /, 'its step', about)
      t.match(state, reason, 'its reason', about)
    })
})
