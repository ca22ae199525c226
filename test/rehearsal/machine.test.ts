import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { loadConfig } from '../../lib/config/load.js'
import type { RootHelper } from '../../lib/helper/commands.js'
import { daemonActor } from '../../lib/model/model.js'
import type { PackRoot } from '../../lib/model/types/pack-roots.js'
import { run } from '../../lib/program/program.js'
import { copyOf, withOverride } from '../../lib/rehearsal/copy.js'
import { type Machine, machineOf, qemuArguments, THROUGH_PIPE } from '../../lib/rehearsal/machine.js'
import { Rehearsals } from '../../lib/rehearsal/rehearsals.js'
import { Console, decided } from '../../lib/rehearsal/watch.js'
import { Controller } from '../support/controller.js'
import { checkout, requirePrograms } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { until } from '../support/until.js'

// The parts of a rehearsal without a machine (rules 16.1, 16.2 and 16.3); test/long/rehearsal.test.ts boots
// some.

const mac = '52:54:00:00:00:0a'
const bounds = { memoryBytes: 2 ** 31, cpus: 2, hasUefi: true, hasTpm: true }
const where = { controller: '10.141.255.254', port: 7050, loader: 'ipxe' } as const
const secret = (name: string) => ({
  name,
  path: `/etc/${name}`,
  content: Buffer.from(`content of ${name}`).toString('base64')
})

async function populated(t: Test): Promise<Controller> {
  const c = await Controller.start(t)
  await c.post('/config/network/cluster', { network: '10.141.0.0/16' })
  await c.post('/config/network/bmc', { network: '10.148.0.0/16' })
  await c.post('/config/bmcsetup/bmc', { userid: 2, username: 'root', password: 'password-of-bmc' })
  for (const name of ['compute', 'other'])
    await c.post(`/config/osimage/${name}`, {
      kernelfile: `vmlinuz-${name}`,
      initrdfile: `initrd-${name}`,
      imagefile: `${name}.tar.gz`
    })
  await c.post('/config/osimage/other/tag', { tag: 'november' })
  await c.post('/config/group/compute', { osimage: 'compute', bmcsetupname: 'bmc', setupbmc: true })
  for (const [i, name] of ['node1', 'node2'].entries()) {
    await c.post(`/config/node/${name}`, {
      group: 'compute',
      trust: 'require',
      interfaces: [
        {
          interface: 'BOOTIF',
          network: 'cluster',
          ipaddress: `10.141.0.${i + 1}`,
          macaddress: `52:54:00:00:00:0${'ab'[i]}`
        },
        {
          interface: 'BMC',
          network: 'bmc',
          ipaddress: `10.148.0.${i + 1}`,
          macaddress: `52:54:00:00:01:0${i}`
        },
        {
          interface: 'eth1',
          network: 'bmc',
          ipaddress: `10.148.1.${i + 1}`,
          macaddress: `52:54:00:00:02:0${i}`
        }
      ]
    })
    await c.post(`/config/secrets/node/${name}`, [secret(`secret-of-${name}`)])
  }
  await c.post('/config/secrets/group/compute', [secret('secret-of-group')])
  return c
}

t.test('the copy holds what one node depends on, and nothing of another node or a BMC', async t => {
  const { daemon } = await populated(t)
  const { model } = daemon
  const target = withOverride(model, 'node1', {})
  const machine = machineOf(model.view, target, undefined, bounds, where)
  const copy = copyOf(model, target, machine)
  const names = copy.objects.map(([type, { name }]) => `${type} ${name}`).sort()
  t.strictSame(names, [
    'bmcsetup bmc',
    'group compute',
    'network bmc',
    'network cluster',
    'node node1',
    'osimage compute'
  ])
  const text = JSON.stringify(copy)
  for (const foreign of [
    'node2',
    'password-of-bmc',
    '10.141.0.2',
    Buffer.from('content of secret-of-node2').toString('base64')
  ])
    t.notMatch(text, foreign)
  t.match(copy.secrets, [
    { owner: 'node', secrets: [{ name: 'secret-of-node1', content: secret('secret-of-node1').content }] },
    { owner: 'group', secrets: [{ name: 'secret-of-group' }] }
  ])
  t.strictSame([...copy.files].sort(), ['compute.tar.gz', 'initrd-compute', 'vmlinuz-compute'])
  const root: PackRoot = {
    ...{ format: 'squashfs', file: 'compute-1.squashfs', sha256: 'a'.repeat(64), bytes: 8192 },
    ...{ roothash: 'c'.repeat(64), hashoffset: 4096 }
  }
  await model.change(daemonActor, tx => {
    const doc = { osimage: 'compute', sha256: 'b'.repeat(64), bytes: 1, time: 1, packer: 'system' as const }
    tx.put('pack', 'compute.tar.gz', { ...doc, name: 'compute.tar.gz', roots: [root] })
  })
  t.ok(
    copyOf(model, withOverride(model, 'node1', {}), machine).files.includes(root.file),
    'its root comes along'
  )
  const node = copy.objects.find(([type]) => type === 'node')?.[1]
  t.match(node, { setupbmc: false, netboot: true, trust: 'report', kerneloptions: /console=ttyS0/ })

  const other = withOverride(model, 'node1', { image: 'other', tag: 'november' })
  const held = copyOf(model, other, machine).objects.map(([type, { name }]) => `${type} ${name}`)
  t.ok(held.includes('osimage other') && held.includes('osimagetag other:november'), String(held))
  t.throws(() => withOverride(model, 'node1', { image: 'none' }), /OS image none/)
  t.throws(() => withOverride(model, 'node1', { tag: 'none' }), /compute has no tag none/)
})

t.test('the machine has the cards, the firmware and the memory of the node, within bounds', async t => {
  const { daemon } = await populated(t)
  const { model } = daemon
  const target = withOverride(model, 'node1', {})
  const machine = machineOf(model.view, target, undefined, bounds, where)
  const net = { prefix: '10.141.0.0/16', node: '10.141.0.1', gateway: '10.141.255.254', ...where }
  t.match(machine, {
    firmware: 'uefi',
    macs: [mac, '52:54:00:00:02:00'],
    disks: [],
    memoryMib: 2048,
    tpm: true,
    net: { ...net, loader: undefined }
  })
  const inventory = {
    ...{ source: 'boot', firmware: { mode: 'bios' }, memory: { total: 1 << 30 } },
    interfaces: [
      { mac, driver: 'e1000e' },
      { mac: '52:54:00:00:00:09,romfile=/etc/shadow,tx=bh,' },
      { mac: '80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:31:78:f2' },
      { mac: '52:54:00:00:00:0B' }
    ],
    disks: [
      { name: 'nvme0n1', size: 8e12, serial: 'S1' },
      { name: 'sda', size: 1e9, rotational: false, serial: '; rm' }
    ]
  }
  const seen = machineOf(model.view, target, inventory, bounds, where)
  t.match(seen, { firmware: 'bios', card: 'e1000e', memoryMib: 1024 })
  t.strictSame(seen.macs, [mac, '52:54:00:00:02:00', '52:54:00:00:00:0b'], 'no option of qemu')
  const odd = { source: 'boot', interfaces: [{ mac, driver: 'constructor' }] }
  t.equal(machineOf(model.view, target, odd, bounds, where).card, 'virtio-net-pci')
  t.strictSame(seen.disks, [
    { mib: 2 * 1_048_576, kind: 'nvme', serial: 'S1' },
    { mib: 10_240, kind: 'ssd', serial: 'disk1' }
  ])
  t.throws(
    () =>
      machineOf(model.view, target, inventory, { ...bounds, hasUefi: false }, { ...where, loader: 'grub' }),
    /OVMF is not installed/
  )
  const bond = (name: string, options: string) => {
    const entry = { interface: name, network: null, ipaddress: null, macaddress: null, options }
    const card = (name: string, macaddress: string) => ({
      ...entry,
      interface: name,
      macaddress,
      options: null
    })
    const cards = [card('eth8', '52:54:00:00:00:0c'), card('eth9', '52:54:00:00:00:0d')]
    const interfaces = [...target.interfaces, ...cards, entry] as unknown as typeof target.interfaces
    return machineOf(model.view, { ...target, interfaces }, undefined, bounds, where).bonded
  }
  t.strictSame(bond('bond0', 'mtu=9000 bond=BOOTIF,eth8 mode=802.3ad'), ['52:54:00:00:00:0c'])
  t.strictSame(bond('bond1', 'bond=eth8,eth9'), [], 'a bond for something else')
  t.strictSame(bond('BOOTIF', 'bond=eth8,eth9'), ['52:54:00:00:00:0c', '52:54:00:00:00:0d'])
  t.strictSame(bond('br0', 'bridge=BOOTIF,eth8'), [], 'two cards of a bridge on one network would be a loop')
  const outside = machineOf(model.view, target, undefined, bounds, { ...where, controller: '192.0.2.1' })
  t.match(outside.net, { gateway: '10.141.0.2', controller: '192.0.2.1' })
  t.not(outside.net.dns, outside.net.gateway)
})

const machine: Machine = {
  ...{
    firmware: 'uefi',
    loader: 'ipxe',
    macs: [mac, '52:54:00:00:00:0c'],
    bonded: [],
    card: 'virtio-net-pci',
    cpus: 2
  },
  ...{ disks: [{ mib: 10, kind: 'ssd', serial: 'disk0' }], memoryMib: 512, tpm: true },
  net: {
    prefix: '10.141.0.0/16',
    node: '10.141.0.1',
    gateway: '10.141.0.254',
    dns: '10.141.0.253',
    controller: '10.141.0.254',
    port: 7050
  }
}

t.test('the arguments of qemu: one way out, to svcd, and no other', async t => {
  const words = qemuArguments(machine, 'tcg', { code: '/code.fd', settings: '/vars.fd' })
  const netdevs = words.filter((_, i) => words[i - 1] === '-netdev')
  t.strictSame(netdevs, [
    'user,id=net0,net=10.141.0.0/16,host=10.141.0.254,dhcpstart=10.141.0.1,dns=10.141.0.253,bootfile=http://10.141.0.254:7050/boot',
    'user,restrict=on,id=net1'
  ])
  t.match(words.join(' '), /-sandbox on,\S*spawn=deny/)
  t.strictSame(words.slice(0, 4), ['-accel', 'tcg,tb-size=64', '-cpu', 'Nehalem-v1,+rdrand'])
  t.strictSame(qemuArguments(machine, 'kvm').slice(0, 4), ['-accel', 'kvm', '-cpu', 'max'])
  t.ok(
    words.includes('format=raw,if=pflash,unit=1,file=settings.fd'),
    'the settings of the firmware are a copy'
  )
  t.match(words.join(' '), /scsi-hd,rotation_rate=1,drive=disk0/)
  t.match(words.join(' '), /tpm-tis/)
  // All disks together write 100 MB in a second, whatever their number.
  const disk = { mib: 10_240, kind: 'hdd', serial: 'disk0' } as const
  for (const [count, rate] of [
    [1, 100_000_000],
    [3, 33_333_333],
    [8, 12_500_000]
  ] as const) {
    const disks = Array.from({ length: count }, () => disk)
    const drives = qemuArguments({ ...machine, disks }, 'tcg').filter(word => word.includes('file=disk'))
    t.equal(drives.length, count)
    for (const drive of drives) t.match(drive, `,throttling.bps-write=${rate},`)
  }
  const grub = qemuArguments({ ...machine, loader: 'grub' }, 'tcg', {
    code: '/code.fd',
    settings: '/vars.fd'
  })
  t.match(grub.join(' '), /tftp=tftp,bootfile=shimx64\.efi .*bootindex=1,romfile=/)
})

t.test('cards of one bond are on one network, as the bond may use any of them', async t => {
  const bonded = { ...machine, macs: [...machine.macs, '52:54:00:00:00:0d'], bonded: ['52:54:00:00:00:0d'] }
  const words = qemuArguments(bonded, 'tcg')
  const after = (option: string) => words.filter((_, i) => words[i - 1] === option)
  t.strictSame(after('-netdev').slice(1), [
    ...['hubport,id=hub,hubid=0,netdev=net0', 'hubport,hubid=0,id=port0'],
    ...['user,restrict=on,id=net1', 'hubport,hubid=0,id=port2']
  ])
  t.strictSame(
    after('-device').filter(word => word.includes('mac=')),
    [
      `virtio-net-pci,netdev=port0,mac=${mac},bootindex=1`,
      'virtio-net-pci,netdev=net1,mac=52:54:00:00:00:0c,romfile=',
      'virtio-net-pci,netdev=port2,mac=52:54:00:00:00:0d,romfile='
    ]
  )
})

t.test('the console is bounded, and its faults are seen', async t => {
  const console = new Console(() => 0)
  for (let i = 0; i < 1000; i++) console.add(`\x1b[0;1mline ${i}\x07 ${'x'.repeat(100_000)}`)
  t.equal(console.lines.length, 300)
  t.equal(console.lines[0]?.length, 400)
  t.strictSame([...console.faults], [])
  console.add('[  12.3] Out of memory: Killed process 12')
  t.notOk(console.hasEnded)
  console.add('[  12.3] Kernel panic - not syncing: Attempted to kill init!')
  t.ok(console.hasEnded)
  t.equal(console.faults.size, 2)
  const loader = new Console(() => 0)
  loader.add('svcd: booting node n1')
  t.notOk(loader.hasEnded)
  loader.add('svcd: node n1 could not be booted, back to the menu')
  t.strictSame([loader.hasEnded, ...loader.faults], [true, 'the loader could not load or start the kernel'])
  const card = new Console(() => 0)
  card.add('svc: FAILED in step install: the installation failed')
  t.notOk(card.hasEnded, 'what the node reports is decided by its report')
  card.add('svc: FAILED in step interface: no network interface has the address 52:54:00:00:00:0a')
  t.ok(card.hasEnded, 'it has no network to report this by')
  t.equal(decided('all-well', true), true)
  t.equal(decided('all-well', false), undefined, 'installed, and not yet up')
  t.equal(
    decided('no-system', false),
    undefined,
    'a system that waits for a unit tells so after five minutes'
  )
  for (const rule of ['degraded', 'failed-step', 'no-boot-file', 'a rule of later'])
    t.equal(decided(rule, true), false)
})

t.test('the console shows no secret of the node', t => {
  const key = '-----BEGIN KEY-----\nabcdefghijklmnop\nshort\n'
  const base64 = (text: string) => Buffer.from(text).toString('base64')
  const long = Array.from({ length: 1000 }, (_, i) => i).join(',')
  const contents = ['hunter2hunter2', key, 'abc', long]
  const console = new Console(() => 0, contents.map(base64))
  for (const line of [
    'password: hunter2hunter2!',
    `as it is kept: ${base64('hunter2hunter2')}.`,
    'key: abcde\x1b[1mfghijklmnop',
    `${'x'.repeat(392)}hunter2hunter2`,
    'short abc'
  ])
    console.add(line)
  console.add(`long: ${long}`)
  t.match(console.lines.pop(), /^long: (?:\*\*\*)+$/, 'longer than what is read of a line')
  t.strictSame(console.lines, [
    ...['password: ***!', 'as it is kept: ***.', 'key: ***', `${'x'.repeat(392)}***`, 'short abc']
  ])
  t.end()
})

t.test('one rehearsal runs at a time, the next wait, and what was killed is removed', async t => {
  const c = await populated(t)
  const { model, jobs } = c.daemon
  const config = loadConfig(join(checkout, 'etc/svcd.ini'), c.overrides)
  const scratch = join(config.paths.state, 'rehearsal')
  mkdirSync(join(scratch, 'state'), { recursive: true })
  writeFileSync(join(scratch, 'state', 'token.key'), 'left')
  const result = {
    well: true,
    verdict: 'all is well',
    rule: 'all-well',
    faults: [],
    accel: 'tcg',
    seconds: 1,
    steps: [],
    serial: []
  }
  const bad = { well: false, faults: ['the kernel panicked'] }
  let held: (() => void) | undefined
  let ran = 0
  const seen: string[] = []
  const work = {
    call: async (_: string, args: object) => {
      ran++
      seen.push(
        ...readdirSync(scratch),
        JSON.stringify(args),
        readFileSync(join(scratch, 'plan.json'), 'utf8')
      )
      await new Promise<void>(resolve => {
        held = resolve
      })
      writeFileSync(join(scratch, 'result.json'), JSON.stringify(ran === 1 ? result : { ...result, ...bad }))
    },
    close: async () => {}
  } as unknown as RootHelper
  const log = { error: (text: string) => t.fail(text) } as never
  const rehearsals = await Rehearsals.open({
    config,
    model,
    jobs,
    work,
    log,
    now: Date.now,
    inventoryOf: () => undefined
  })
  t.notOk(existsSync(scratch), 'a killed rehearsal leaves nothing')
  const actor = { who: 'user admin', from: '-', mayTakeAddresses: true }
  const first = await rehearsals.submit('node1', {}, actor)
  const second = await rehearsals.submit('node2', {}, actor)
  const third = await rehearsals.submit('node2', {}, actor)
  await until(() => held !== undefined)
  t.equal(ran, 1, 'one at a time')
  t.ok(seen.includes('{"node":"10.141.0.1","controller":"10.141.255.254"}'))
  t.notMatch(seen.at(-1), 'secret-of-node2')
  for (let i = 0; i < 6; i++) await rehearsals.submit('node2', {}, actor)
  await t.rejects(rehearsals.submit('node2', {}, actor), { status: 503, message: /8 rehearsals are waiting/ })
  for (const { id, object, state } of jobs.records())
    if (state === 'queued' && id !== second.id) jobs.cancel(id, object)
  held?.()
  await first.done
  t.rejects(third.done, /cancelled/)
  await until(() => ran === 2)
  held?.()
  await t.rejects(second.done, {
    code: 'not-well',
    message: /rehearsed on .* as node2 \(uefi\): not well: the kernel panicked/
  })
  t.notOk(existsSync(scratch), 'nothing is left')
})

t.test('without qemu it is refused, and the package is named', async t => {
  const c = await populated(t)
  const { PATH } = process.env
  process.env.PATH = '/nonexistent'
  t.teardown(() => {
    process.env.PATH = PATH
  })
  t.match(await c.post('/config/node/node1/_rehearse', {}), {
    status: 503,
    body: { message: /apt-get install qemu-system-x86/ }
  })
})

t.test('a console is read whole, though its reader had no turn while it was written', async t => {
  requirePrograms('python3')
  const done = join(scratch(t), 'done')
  // As qemu's serial port does: a character each time, which is lost if there is no room for it.
  const port = `import os
print('begun', flush=True)
os.set_blocking(1, False)
for i in range(5000):
  try: os.write(1, b'x')
  except BlockingIOError: pass
open(${JSON.stringify(done)}, 'w')
os._exit(0)`
  const lines: string[] = []
  await run('python3', ['-c', port], {
    timeLimitMs: 60_000,
    wrapper: THROUGH_PIPE,
    onLine: line => {
      lines.push(line)
      const pause = new Int32Array(new SharedArrayBuffer(4))
      while (line === 'begun' && !existsSync(done)) Atomics.wait(pause, 0, 0, 5)
    }
  })
  t.strictSame(lines, ['begun', 'x'.repeat(5000)])
})

t.test('the last line of a console is read, though the machine ends with it', async t => {
  const directory = scratch(t)
  const consoles = Array.from({ length: 12 }, async (_, i) => {
    const lines: string[] = []
    const go = join(directory, `go${i}`)
    await run('sh', ['-c', 'echo begun; until [ -e "$0" ]; do sleep 0.05; done; echo last', go], {
      timeLimitMs: 60_000,
      wrapper: THROUGH_PIPE,
      onLine: line => {
        lines.push(line)
        writeFileSync(go, '')
      }
    })
    return lines
  })
  for (const lines of await Promise.all(consoles)) t.strictSame(lines, ['begun', 'last'])
})
