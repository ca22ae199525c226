import { readFileSync, truncateSync, writeFileSync } from 'node:fs'
import { setPriority } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { type Child, start } from '../../support/child.js'
import type { Client } from '../../support/client.js'
import { Daemon } from '../../support/daemon.js'
import { checkout, requireRoot } from '../../support/programs.js'
import { proof } from '../../support/proof.js'
import { scratch } from '../../support/scratch.js'
import type { Machines, Outcome } from './machines.js'
import type { Strangers } from './strangers.js'

// Everything over its limit at once, while machines boot, images are downloaded and an admin imports 10,000
// nodes: no boot script fails, the admin is answered within a second, and the memory is given back.

requireRoot()

/** A share of the strangers and downloads, for a look: LOAD_SHARE=0.1. */
const share = Number(process.env.LOAD_SHARE ?? 1)
/** Kinds of strangers, to look at one of them alone: LOAD_STRANGERS='pipeline,exceed'. */
const crowd = (
  [
    ['idle', 10_000, 2000],
    ['write slowly', 4000, 1000],
    ['read nothing', 2000, 500],
    ['pipeline', 300, 100],
    ['exceed', 100, 50]
  ] as const
).filter(([misuse]) => process.env.LOAD_STRANGERS?.split(',').includes(misuse) ?? true)
const seconds = Number(process.env.LOAD_SECONDS ?? 60)
// node raises its own limit as far as it may.
const files = Number(/Max open files +\d+ +(\d+)/.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1])
if (files < 18_000 * share) throw new Error(`${files} open files are too few here; type: ulimit -Hn 65536`)

// The machines and the strangers take no time of the controller's processors where they are machines of their
// own: the daemon, which inherits this, goes before them.
setPriority(-5)

const directory = scratch(t)
// As the unit starts it.
const unit = readFileSync(join(checkout, 'systemd/svcd.service'), 'utf8')
const enter = [
  'env',
  ...[...unit.matchAll(/^Environment=(.*)$/gm)].flatMap(([, words = '']) => words.split(' '))
]
const daemon = await Daemon.start({ directory, enter, set: ['log.level=warn'] })
const children: Child[] = []
t.teardown(async () => {
  await Promise.all(children.map(child => child.kill()))
  await daemon.stop()
})
const { address: host, port } = daemon.client()

function launch(name: string, options: Strangers | Machines): Child {
  const program = join(import.meta.dirname, `${name}.js`)
  const words = ['-n', '8', process.execPath, program, JSON.stringify(options)]
  const child = start('nice', words, { input: '' })
  children.push(child)
  return child
}

const strangers = (subnet: number, misuse: Strangers['misuse'], connections: number, addresses: number) =>
  launch('strangers', { host, port, misuse, subnet, connections: Math.ceil(connections * share), addresses })

const boots = (subnet: number, connection: Machines['connection'], perSecond: number, during: number) =>
  launch('machines', {
    ...{ host, port, subnet, connection, perSecond, seconds: during },
    ...{ path: '/boot/search/mac/52:54:00:00:01:#', machines: 100, patient: false }
  })

const downloads = (subnet: number, machines: number, during: number) =>
  launch('machines', {
    ...{ host, port, subnet, connection: 'new', perSecond: 1000, seconds: during },
    ...{ path: '/files/compute.tar.gz', machines, patient: true }
  })

async function outcome(child: Child): Promise<Outcome> {
  const { stdout, stderr } = await child.ended
  if (stdout === '') throw new Error(`the machines ended: ${stderr}`)
  return JSON.parse(stdout)
}

const rssMb = () =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${daemon.child?.pid}/status`, 'utf8'))?.[1]) / 1024

const hex = (n: number) => n.toString(16).padStart(2, '0')
const nodes = (count: number, third: number) =>
  Object.fromEntries(
    Array.from({ length: count }, (_, n) => {
      const macaddress = `52:54:00:${hex(third)}:${hex((n >> 8) + 1)}:${hex(n & 255)}`
      const ipaddress = `10.${third}.${n >> 8}.${n & 255 || 1}`
      const entry = { interface: 'BOOTIF', network: 'cluster', ...(n & 255 ? { ipaddress } : {}), macaddress }
      return [`n${third}-${n}`, { group: 'compute', interfaces: [entry] }]
    })
  )

/** Milliseconds that requests of the admin took, by what they were. */
const admin: { what: string; ms: number; status: number }[] = []

async function timed(what: string, work: () => Promise<{ status: number }>): Promise<void> {
  const begun = performance.now()
  const status = await work().then(
    answer => answer.status,
    () => 0
  )
  admin.push({ what, ms: performance.now() - begun, status })
}

/** What an admin does meanwhile, over a connection that is kept and over new ones. */
async function administer(client: Client, until: number): Promise<void> {
  const password = readFileSync(daemon.path('state', 'admin-password'), 'utf8').trim()
  for (let n = 0; performance.now() < until; n++) {
    await timed('read a node', () => client.get('/config/node/n0-1'))
    await timed('change a group', () => client.post('/config/group/compute', { comment: `change ${n}` }))
    const fresh = daemon.client()
    await timed('log in', () => fresh.post('/token', { username: 'admin', password }))
    fresh.close()
    await timed('look at the monitor', () => client.get('/monitor/node/n0-1'))
    await sleep(200)
  }
}

/**
 * The least memory within a minute after all have left. Lists are asked for meanwhile: what nobody uses any
 * more is collected when something new is made.
 */
async function memoryAfter(client: Client): Promise<number> {
  let leastMb = Number.POSITIVE_INFINITY
  for (let i = 0; i < 60; i++) {
    for (let n = 0; n < 5; n++) await client.get('/config/node')
    leastMb = Math.min(leastMb, rssMb())
    await sleep(1000)
  }
  return leastMb
}

const percentile = (values: readonly number[], part: number) =>
  [...values].sort((a, b) => a - b)[Math.min(values.length - 1, Math.floor(values.length * part))] ?? 0

const told = ({ asked, failed, refused, medianMs, p99Ms, maxMs, bytes, reasons }: Outcome) =>
  `${asked} asked, ${failed} failed, ${refused} refused for later, median ${medianMs} ms, 99% ${p99Ms} ms, ` +
  `most ${maxMs} ms, ${Math.round(bytes / 1e6)} MB ${reasons.join('; ')}`

// rules 2.11, 2.15, 2.19
t.test('everything over its limit at once', { timeout: 900_000 }, async t => {
  const client = daemon.client()
  for (const name of ['vmlinuz', 'initrd.img']) writeFileSync(daemon.path('files', name), name)
  writeFileSync(daemon.path('files', 'compute.tar.gz'), '')
  truncateSync(daemon.path('files', 'compute.tar.gz'), 64 << 20)
  const image = { kernelfile: 'vmlinuz', initrdfile: 'initrd.img', imagefile: 'compute.tar.gz' }
  const network = { network: '10.0.0.0/8' }
  const interfaces = [{ interface: 'BOOTIF', network: 'cluster' }]
  for (const [path, body] of [
    ['/config/network/cluster', network],
    ['/config/osimage/compute', image],
    ['/config/group/compute', { osimage: 'compute', interfaces }]
  ] as const)
    t.equal((await client.post(path, body)).status, 201)
  const document = { config: { node: nodes(256, 0) } }
  t.equal((await client.post('/config/cluster/import', document)).status, 201)
  // What this machine serves in peace, beside whatever else it does. Under fire it is asked for a quarter of
  // each, which is half of all.
  const quiet = {
    kept: await outcome(boots(80, 'kept', 100_000, 5)),
    new: await outcome(boots(81, 'new', 100_000, 5))
  }
  t.comment(`boot scripts in peace over kept connections: ${told(quiet.kept)}`)
  t.comment(`boot scripts in peace over new connections: ${told(quiet.new)}`)
  const rate = (connection: 'kept' | 'new', most: number) =>
    Math.min(most, Math.ceil(quiet[connection].asked / 5 / 4))
  const beforeMb = rssMb()

  const crowds = crowd.map(([misuse, connections, addresses], i) =>
    strangers(60 + i, misuse, connections, addresses)
  )
  await sleep(15_000)
  const armedMb = rssMb()
  const machines = [
    boots(70, 'kept', rate('kept', 3000), seconds),
    boots(71, 'new', rate('new', 2000), seconds),
    downloads(72, Math.ceil(50 * share), seconds)
  ]
  const administering = administer(client, performance.now() + seconds * 1000)
  let highMb = armedMb
  const looking = setInterval(() => {
    highMb = Math.max(highMb, rssMb())
  }, 500)
  await sleep(seconds * 200)
  const importer = daemon.client()
  const begun = performance.now()
  const large = { config: { node: { ...nodes(256, 0), ...nodes(10_000, 1) } } }
  const imported = await importer
    .post('/config/cluster/import', large)
    .catch(error => ({ status: 0, text: String(error) }))
  const importMs = performance.now() - begun
  importer.close()
  await administering
  const [kept, fresh, downloaded] = await Promise.all(machines.map(outcome))
  clearInterval(looking)
  const standing = crowds.map(child => JSON.parse(child.output().trim().split('\n').at(-1) ?? '{}'))
  const alive = (await client.get('/version').catch(() => ({ status: 0 }))).status === 200
  await Promise.all(crowds.map(child => child.kill()))
  const afterMb = await memoryAfter(client)
  // The same cluster in a daemon that nobody has attacked.
  await daemon.stop()
  await daemon.start()
  await daemon.request('GET', '/config/cluster/export')
  const freshMb = rssMb()

  const slowest = admin.toSorted((a, b) => b.ms - a.ms).slice(0, 3)
  const failed = admin.filter(({ status }) => status < 200 || status > 299)
  for (const line of [
    `boot scripts over kept connections: ${kept && told(kept)}`,
    `boot scripts over new connections: ${fresh && told(fresh)}`,
    `downloads: ${downloaded && told(downloaded)}`,
    `strangers (${crowd.map(([misuse]) => misuse).join(', ')}): ${JSON.stringify(standing)}`,
    `admin: ${admin.length} requests, ${failed.length} failed, median ${percentile(
      admin.map(({ ms }) => ms),
      0.5
    ).toFixed()} ms, ` +
      `95% ${percentile(
        admin.map(({ ms }) => ms),
        0.95
      ).toFixed()} ms, slowest ${slowest.map(({ what, ms }) => `${what} ${ms.toFixed()} ms`).join(', ')}`,
    `import of 10,000 nodes: ${imported.status} in ${importMs.toFixed()} ms`,
    `memory: ${beforeMb.toFixed()} MB before, ${armedMb.toFixed()} with the strangers, ${highMb.toFixed()} at most, ` +
      `${afterMb.toFixed()} within a minute after, ${freshMb.toFixed()} in a new process with the same nodes`
  ])
    t.comment(line)
  const bootsFailed = (kept?.failed ?? 0) + (fresh?.failed ?? 0)
  proof('everything over its limit at once', {
    tried: (kept?.asked ?? 0) + (fresh?.asked ?? 0),
    crashes: alive ? 0 : 1,
    memoryMb: highMb - beforeMb,
    note:
      `${bootsFailed} boot scripts failed, ${Math.round(((kept?.asked ?? 0) + (fresh?.asked ?? 0)) / seconds)}/s, ` +
      `new connection ${fresh?.medianMs} ms; admin 95% ${percentile(
        admin.map(({ ms }) => ms),
        0.95
      ).toFixed()} ms; ` +
      `import ${(importMs / 1000).toFixed(1)} s; ${(afterMb - freshMb).toFixed()} MB more than a new process after it`
  })
  t.ok(alive, 'the daemon answers')
  t.same([kept?.failed, kept?.reasons], [0, []], 'no boot script over a kept connection fails')
  t.same([fresh?.failed, fresh?.reasons], [0, []], 'no boot script over a new connection fails')
  t.equal(imported.status, 201, `the import: ${imported.text.slice(0, 200)}`)
  t.same(failed.slice(0, 3), [], "none of the admin's requests fails")
  t.ok(
    percentile(
      admin.map(({ ms }) => ms),
      0.95
    ) <= 1000,
    "the admin's requests take a second at most"
  )
  t.ok(highMb - beforeMb < 500, `memory at most: ${(highMb - beforeMb).toFixed()} MB more`)
  t.ok(
    afterMb - freshMb < 150,
    `memory is given back: ${(afterMb - freshMb).toFixed()} MB more than in a new process`
  )
})
