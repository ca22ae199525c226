import { mkdirSync, writeFileSync } from 'node:fs'
import { truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { kernelOptions, makeImage, partscript } from '../machine/image.js'
import { Daemon } from '../support/daemon.js'
import { adminToken } from '../support/first-start.js'
import { output } from '../support/programs.js'
import { startNetwork } from '../support/provision-network.js'
import { scratch } from '../support/scratch.js'
import { until } from '../support/until.js'
import { runMachine, tail } from '../support/virtual-machine.js'

// Fifty machines are racked and switched on, and nobody types a MAC: four virtual ones and forty-six that
// only ask as machines do. Some two minutes.

const REAL = 4
const ALL = 50
const url = 'http://10.141.0.1:7050'
const macOf = (i: number) => `52:54:00:14:0a:${i.toString(16).padStart(2, '0')}`
const serialOf = (i: number) => `CZ2026${String(ALL - i).padStart(4, '0')}`
const nodeOf = (i: number) => `node${String(ALL - i).padStart(3, '0')}`
const all = Array.from({ length: ALL }, (_, i) => i)
const simulated = all.slice(REAL)

t.test('fifty machines, from power on to nodes that are installed and known', async t => {
  const directory = scratch(t)
  await makeImage(join(directory, 'files'), join(directory, 'source'))
  const network = await startNetwork(all.slice(0, REAL).map(i => ({ mac: macOf(i) })))
  t.teardown(() => network.close())
  const { enter } = network
  const controller = await Daemon.start({ directory, listen: '10.141.0.1:7050', enter })
  t.teardown(() => controller.stop())
  await controller.create('network', 'cluster', {
    network: '10.141.0.0/24',
    dhcp: true,
    dhcp_range_begin: '10.141.0.200',
    dhcp_range_end: '10.141.0.220'
  })
  await controller.create('osimage', 'test', {
    ...{ kernelfile: 'vmlinuz', initrdfile: 'initrd.img', imagefile: 'image.tar.gz' },
    kerneloptions: kernelOptions
  })
  await controller.create('group', 'compute', {
    ...{ osimage: 'test', partscript, bootmenu: true },
    interfaces: [{ interface: 'BOOTIF', network: 'cluster' }]
  })
  const run = (...command: string[]) => output(enter[0] as string, [...enter.slice(1), ...command])
  const curl = (...args: string[]) => run('curl', '--silent', '--show-error', '--fail', ...args)
  const cache = join(directory, 'cache')
  mkdirSync(join(cache, 'svcd'), { recursive: true, mode: 0o700 })
  const token = await adminToken(join(directory, 'state'))
  const file = join(cache, 'svcd', `token-${encodeURIComponent(url)}`)
  writeFileSync(file, `${token}\n`, { mode: 0o600 })
  const svcctl = (...args: string[]) =>
    run('env', `XDG_CACHE_HOME=${cache}`, `SVCD_URL=${url}`, join(controller.tree, 'bin', 'svcctl'), ...args)

  const began = Date.now()
  const passed = (what: string) => t.comment(`${what}: ${((Date.now() - began) / 1000).toFixed(1)} s`)
  const machines = all.slice(0, REAL).map(async i => {
    const disk = join(directory, `disk${i}`)
    await writeFile(disk, '')
    await truncate(disk, 64 << 20)
    return runMachine({
      ...{ name: nodeOf(i), mac: macOf(i), network: { tap: network.tap(macOf(i)) }, enter, disk },
      ...{ devices: ['-smbios', `type=1,manufacturer=Maker,product=Model,serial=${serialOf(i)}`] },
      timeLimitMs: 600_000
    })
  })
  for (const i of simulated)
    await curl(
      `${url}/boot/search/mac/${macOf(i)}?serial=${serialOf(i)}&maker=Maker&product=Model&macs=${macOf(i)}`
    )
  const listed = async () => {
    const { body } = await controller.request('GET', '/monitor/unknown')
    return Object.keys((body as { monitor: { unknown: object } }).monitor.unknown).length
  }
  await until(async () => (await listed()) === ALL)
  passed('all are in the list of unknown machines')
  await svcctl(
    ...[
      'unknown',
      'adopt',
      'all',
      'as',
      `node[001-0${ALL}]`,
      '--group',
      'compute',
      '--order',
      'serial',
      '--yes'
    ]
  )
  passed('all are nodes')
  const { body } = await controller.request('GET', '/config/node')
  const nodes = (body as { config: { node: Record<string, { serial: string; macaddr: string }> } }).config
    .node
  for (const i of all) {
    const found = nodes[nodeOf(i)]
    t.match(found, { serial: serialOf(i) }, nodeOf(i))
    t.equal(JSON.stringify(found).toLowerCase().includes(macOf(i)), true, `${nodeOf(i)} has its MAC`)
  }
  for (const i of simulated) {
    const script = await curl(`${url}/boot/search/mac/${macOf(i)}`)
    const address = /svc\.ip=([\d.]+)/.exec(script)?.[1] ?? ''
    await output('ip', ['-n', network.namespace, 'address', 'add', `${address}/32`, 'dev', 'br0'])
    const install = await curl('--interface', address, `${url}/boot/install/${nodeOf(i)}`)
    const secret = /^SVC_TOKEN='?([^'\n]+)/m.exec(install)?.[1] ?? ''
    const post = (path: string, data: object) =>
      curl(
        ...['--interface', address, '--header', `x-access-tokens: ${secret}`],
        ...['--data-binary', JSON.stringify(data), `${url}${path}`]
      )
    await post(`/monitor/inventory/${nodeOf(i)}`, {
      monitor: { inventory: { [nodeOf(i)]: { system: { maker: 'Maker', serial: serialOf(i) } } } }
    })
    const state = { state: 'installer.completed' }
    await post(`/monitor/node/${nodeOf(i)}`, { monitor: { status: { [nodeOf(i)]: state } } })
  }
  passed('the simulated ones are installed')
  for (const [i, machine] of machines.entries()) {
    const { exit, console } = await machine
    t.equal(exit, 0, `${nodeOf(i)} went off by itself`, { console: tail(console) })
  }
  passed('all are installed')
  for (const i of all)
    t.match(await controller.monitor(nodeOf(i)), { state: 'installer.completed' }, nodeOf(i))
  const serials = await svcctl('node', 'inventory', '@all', '--fields', 'name,system.serial', '-o', 'csv')
  t.strictSame(
    serials.trim().split(/\r?\n/).slice(1).sort(),
    all.map(i => `${nodeOf(i)},${serialOf(i)}`).sort()
  )
  passed('and all are in the inventory')
  t.equal(await listed(), 0, 'no machine is unknown')
})
