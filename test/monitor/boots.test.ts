import { cpSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { Boots, type ObservedStep } from '../../lib/monitor/boots.js'
import { scriptToken } from '../support/callers.js'
import { Controller } from '../support/controller.js'
import { MemoryRecords } from '../support/memory-records.js'
import { until } from '../support/until.js'

const mac = '52:54:00:14:00:01'
const own = '10.141.0.1'

/** Node n1 at 10.141.0.1 and n2 at 10.141.0.2, with an image whose files are there. */
async function cluster(test: Test, ...overrides: string[]): Promise<Controller> {
  const c = await Controller.start(test, ...overrides)
  await c.cluster()
  await c.post('/config/node/n1', {
    group: 'compute',
    macaddr: mac,
    interfaces: [{ interface: 'BMC', macaddress: '52:54:00:14:01:01' }]
  })
  await c.post('/config/node/n2', { group: 'compute', macaddr: '52:54:00:14:00:02' })
  return c
}

interface Shown {
  readonly step: string
  readonly about: string
  readonly from: string
  readonly count: number
  readonly end: string | null
  readonly bytes: number | null
}

async function bootsOf(c: Controller, node = 'n1'): Promise<{ steps: Shown[] }[]> {
  return (await c.get(`/monitor/node/${node}/_boots`)).body.monitor.boots[node].boots
}
const elsewhere = async (c: Controller, node = 'n1'): Promise<Shown[]> =>
  (await c.get(`/monitor/node/${node}/_boots`)).body.monitor.boots[node].elsewhere
const why = async (c: Controller, node = 'n1'): Promise<{ rule: string; verdict: string }> =>
  (await c.get(`/monitor/node/${node}/_why`)).body.monitor.why[node]
const words = ({ steps }: { steps: Shown[] } = { steps: [] }) => steps.map(({ step }) => step)

/** What a machine asks for, from its own address. */
const asks = (c: Controller, path: string, source = own) => c.get(path, { token: null, source })
const script = (c: Controller, source = own) => asks(c, `/boot/search/mac/${mac}`, source)
const report = (c: Controller, token: string, state: string, source = own) =>
  c.post('/monitor/node/n1', { monitor: { status: { n1: { state } } } }, { token, source })

/** A whole installation. */
async function installs(c: Controller): Promise<void> {
  await asks(c, '/boot')
  await script(c)
  await asks(c, '/boot/vmlinuz')
  await asks(c, '/boot/initrd.img')
  const token = await scriptToken(c, 'n1')
  await report(c, token, 'installer.started')
  await c.get('/files/compute.tar.gz', { token, source: own })
  await report(c, token, 'installer.completed')
}

// rules 6.7
t.test('each step of a boot is kept, and the verdict follows it', async t => {
  const c = await cluster(t)
  t.match(await why(c), { rule: 'never-asked', verdict: /52:54:00:14:00:01/ })
  await asks(c, '/boot')
  await script(c)
  t.match(await why(c), { rule: 'in-progress' })
  c.clockMs += 70_000
  t.match(await why(c), { rule: 'fetched-nothing', verdict: /did not ask for the kernel/ })
  c.clockMs += 100_000
  await script(c)
  await asks(c, '/boot/vmlinuz')
  await asks(c, '/boot/initrd.img')
  await until(async () => (await bootsOf(c)).at(-1)?.steps.at(-1)?.end === 'whole')
  const [first, second] = await bootsOf(c)
  t.same(words(first), ['menu', 'script'], 'a machine that asks again after two minutes was started anew')
  t.match(second?.steps, [
    { step: 'script', about: 'vmlinuz initrd.img compute.tar.gz', from: own, count: 1, end: null },
    { step: 'kernel', about: 'vmlinuz', end: 'whole', bytes: 7, of: 7 },
    { step: 'initramfs', about: 'initrd.img', end: 'whole', bytes: 10, of: 10 }
  ])
  t.match(await why(c), { rule: 'in-progress' })
  c.clockMs += 100_000
  t.match(await why(c), {
    rule: 'no-interface',
    verdict:
      /^the kernel of n1 was sent at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC and nothing came after it: the initramfs found no interface with MAC 52:54:00:14:00:01, .*; watch the console; .*, see "no-interface" in docs\/troubleshooting\.md \(a package has it in \/usr\/share\/doc\/svcd\)$/
  })

  const token = await scriptToken(c, 'n1')
  await report(c, token, 'installer.started')
  await c.get('/files/compute.tar.gz', { token, source: own })
  await report(c, token, 'installer.failed: unpack: too little memory: 3 MB are available')
  t.match(await why(c), {
    rule: 'no-memory',
    verdict: /failed in step unpack .*3 MB are available; give the node more/
  })
  await report(c, token, 'installer.failed: unpack: cannot unpack x: no space is left on /sysroot')
  t.match(await why(c), { rule: 'disk-full' })
  await report(
    c,
    token,
    'installer.failed: download: torrent: nothing came by torrent for 60 s; http: refused'
  )
  t.match(await why(c), { rule: 'tracker-dead' })
  await report(c, token, 'installer.failed: bmcsetup: no BMC was found')
  t.match(await why(c), { rule: 'failed-step', verdict: /step bmcsetup .*no BMC was found/ })
  await report(c, token, 'installer.completed')
  t.match(await why(c), { rule: 'all-well' })
  c.clockMs += 400_000
  t.match(await why(c), { rule: 'no-system' })
  t.equal((await asks(c, '/boot/running/n1/compute.tar.gz')).status, 200)
  t.match(await why(c), { rule: 'all-well', verdict: /the system of n1 was up at/ })
  t.same(words((await bootsOf(c)).at(-1)).slice(3), [
    ...['install', 'report', 'image', 'report', 'report', 'report', 'report', 'report'],
    'running'
  ])
})

t.test('what is to be done names the node', async t => {
  const c = await cluster(t)
  await c.post('/config/node/bare', {})
  t.match((await c.get('/monitor/node/bare/_why')).body.monitor.why.bare, {
    rule: 'no-mac',
    see: 'docs/troubleshooting.md#no-mac',
    verdict: /set its MAC \(svcctl node set bare macaddr=MAC\), .*, see "no-mac" in docs\/troubleshooting\.md/
  })
})

t.test('a template with a fault: the step is not one that the machine did not take', async t => {
  const templates = t.testdir({})
  cpSync(new URL('../../templates', import.meta.url).pathname, templates, { recursive: true })
  const c = await cluster(t, `paths.templates=${templates}`)
  const file = join(templates, 'boot/templ_boot_node.cfg')
  const good = readFileSync(file, 'utf8')
  c.clockMs += 1000
  writeFileSync(file, `${good}{% if x %}\n`)
  await until(async () => (await script(c)).status === 503)
  const told = /its boot script cannot be rendered: template boot\/templ_boot_node\.cfg:\d+:4: /
  const last = (await bootsOf(c)).at(-1)?.steps.at(-1)
  t.match(last, { step: 'no-script', about: told })
  t.match(await why(c), {
    rule: 'template-fault',
    verdict: new RegExp(
      `${told.source}.* is not closed.*; correct the template, or set the variable that it names`
    )
  })
  t.match((await c.get('/monitor/node/n1')).body.monitor.status.n1, { reason: told })
  writeFileSync(file, good)
  c.clockMs += 1000
  await until(async () => /this is mended now\); start the node anew$/.test((await why(c)).verdict))
  await script(c)
  t.match(await why(c), { rule: 'in-progress', verdict: /^n1 boots: it got its boot script at \d/ })
})

t.test('why a machine does not come to its kernel', async t => {
  const c = await cluster(t)
  await t.test('no file', async t => {
    await c.post('/config/osimage/compute', { kernelfile: 'gone' })
    await script(c)
    await script(c)
    t.match(await why(c), {
      rule: 'no-boot-file',
      verdict: /\(2 times\) and cannot boot: .*gone, is missing; pack/
    })
    t.match((await bootsOf(c)).at(-1)?.steps, [{ step: 'no-script', count: 2 }])
    await c.post('/config/osimage/compute', { kernelfile: 'vmlinuz' })
    t.match(await why(c), {
      rule: 'no-boot-file',
      verdict: /this is mended now\); nothing more is to be done: .*anew$/
    })
    const reason = 'OS image compute is packed, and has no kernel (kernelfile)'
    await c.post('/config/osimage/compute', { kernelfile: null })
    const { verdict } = await why(c)
    t.notMatch(verdict, /put right/)
    t.ok(verdict.includes(`gone, is missing (the reason is another now: ${reason}); `), verdict)
    await script(c)
    t.match(await why(c), {
      rule: 'no-kernel',
      verdict:
        /: OS image compute is packed, and has no kernel \(kernelfile\); put a kernel into the image's \/boot/
    })
    await c.post('/config/osimage/compute', { imagefile: null })
    await script(c)
    t.match(await why(c), {
      rule: 'no-boot-file',
      verdict: /: OS image compute has no kernel \(kernelfile\); pack/
    })
    await c.post('/config/osimage/compute/tag', { tag: 'november' })
    await c.post('/config/osimage/compute', { kernelfile: 'vmlinuz', imagefile: 'compute.tar.gz' })
    await c.post('/config/node/n1', { osimagetag: 'november' })
    await script(c)
    t.match(await why(c), {
      rule: 'tag-without-files',
      verdict: /: tag november of OS image compute has no kernel \(kernelfile\); pack the image, and give/
    })
    await c.post('/config/osimage/compute', { kernelfile: null })
    await c.post('/config/osimage/compute/tag', { tag: 'december' })
    await c.post('/config/osimage/compute', { kernelfile: 'vmlinuz' })
    await c.post('/config/node/n1', { osimagetag: 'december' })
    await script(c)
    t.match(await why(c), {
      rule: 'no-kernel',
      verdict:
        /: tag december of OS image compute is packed, and has no kernel .* give what is packed the tag/
    })
    await c.post('/config/node/n1', { osimagetag: null })
    await script(c)
    await asks(c, '/boot/nothing')
    t.match(await why(c), { rule: 'no-boot-file', verdict: /asked for the file nothing/ })
  })
  await t.test('another MAC', async t => {
    await asks(c, '/boot/search/mac/52:54:00:14:00:f2', '10.141.9.9')
    t.match(await why(c, 'n2'), {
      rule: 'wrong-mac',
      verdict: /with the MAC of n2 \(52:54:00:14:00:02\) .*52:54:00:14:00:f2 did, from 10.141.9.9/
    })
  })
  await t.test('the BMC alone', async t => {
    c.clockMs += 1000
    await asks(c, '/boot/search/mac/52:54:00:14:01:01', '10.141.9.9')
    t.match(await why(c), {
      rule: 'bmc-only',
      verdict: /only the BMC of n1 .*52:54:00:14:01:01 from 10.141.9.9/
    })
  })
  await t.test('from another network, and refused there', async t => {
    c.clockMs += 1000
    await script(c, '10.9.9.9')
    t.match(await why(c), { rule: 'other-network', verdict: /from 10.9.9.9/ })
    c.clockMs += 1000
    t.equal((await asks(c, '/boot/install/n1', '10.9.9.9')).status, 401)
    t.match(await why(c), { rule: 'refused-address', verdict: /refused to 10.9.9.9 .*no address of n1/ })
    t.match(await elsewhere(c), [{ step: 'bmc' }, { step: 'script' }, { step: 'refused', about: /10.9.9.9/ }])
  })
})

// rules 6.7
t.test(
  'an unknown machine says nothing of a node that is up, and may be each one that was never seen',
  async t => {
    const c = await cluster(t)
    await c.post('/config/node/n3', { group: 'compute', macaddr: '52:54:00:14:00:03' })
    await installs(c)
    c.clockMs += 60_000
    const unknown = '52:54:00:14:00:cc'
    await asks(c, `/boot/search/mac/${unknown}`, '10.141.77.77')
    t.match(await why(c), { rule: 'all-well' })
    t.match(await why(c, 'n2'), {
      rule: 'wrong-mac',
      verdict:
        /unknown MAC 52:54:00:14:00:cc did, .*: it may be n2, or another of 2 nodes of which nothing was seen;/
    })
    await c.post('/config/node/n3', { macaddr: unknown })
    t.match(await why(c, 'n2'), { rule: 'never-asked' }, 'a node has that MAC now')
    await c.post('/config/node/n3', { macaddr: null })

    await t.test('a node whose boot stopped short, and then its card was changed', async t => {
      await script(c)
      c.clockMs += 200_000
      await asks(c, `/boot/search/mac/${unknown}`, '10.141.77.77')
      t.match(await why(c), { rule: 'fetched-nothing' }, 'from another address')
      await asks(c, `/boot/search/mac/${unknown}`)
      t.match(await why(c), { rule: 'fetched-nothing' }, 'it was seen a few minutes ago')
      c.clockMs += 200_000
      t.match(await why(c), {
        rule: 'wrong-mac',
        verdict: /asked for a boot script after 20.* UTC, but one .* from 10.141.0.1 at 20.*: it may be n1;/
      })
    })
  }
)

// rules 6.7
t.test('what the node itself did counts before the refusal of a stranger', async t => {
  const c = await cluster(t)
  await script(c)
  await asks(c, '/boot/vmlinuz')
  await asks(c, '/boot/initrd.img')
  c.clockMs += 1000
  const stranger = '10.141.77.77'
  t.equal((await asks(c, '/boot/install/n1', stranger)).status, 401)
  t.match(await why(c), { rule: 'in-progress' }, 'the node is starting its kernel')
  c.clockMs += 100_000
  t.match(await why(c), { rule: 'refused-address', verdict: /refused to 10.141.77.77 / }, 'it went silent')

  const token = await scriptToken(c, 'n1')
  await report(c, token, 'installer.failed: image: curl: (22) 404')
  c.clockMs += 1000
  t.equal((await asks(c, '/boot/install/n1', stranger)).status, 401)
  t.match(await why(c), { rule: 'failed-step', verdict: /step image .*404/ })
  t.match(await elsewhere(c), [{ step: 'refused', from: stranger, count: 2 }])
  t.same(words((await bootsOf(c)).at(-1)), ['script', 'kernel', 'initramfs', 'install', 'report'])

  await t.test('a refusal at the address that got the boot script is of the node', async t => {
    const from = '10.141.8.8'
    await asks(c, '/boot/search/mac/52:54:00:14:00:02', from)
    await asks(c, '/boot/install/n2', from)
    t.match(await why(c, 'n2'), { rule: 'refused-address', verdict: /refused to 10.141.8.8 / })
    t.same((await bootsOf(c, 'n2')).map(words), [['script', 'refused']])
  })
})

// rules 6.7
t.test(
  'what the node said with its token counts before a stranger in its network that has its MAC',
  async t => {
    const c = await cluster(t)
    await installs(c)
    c.clockMs += 1000
    const stranger = '10.141.77.77'
    const both = (words: string) =>
      new RegExp(`^${words}.*\\. After that a machine that showed no token asked .*: `)
    await script(c, stranger)
    t.same((await bootsOf(c)).length, 2)
    t.match(await why(c), { rule: 'all-well', verdict: both('all is well: n1 was installed at') })
    c.clockMs += 100_000
    t.match(await why(c), { rule: 'all-well', verdict: /did not ask for the kernel/ })
    await asks(c, '/boot/search/mac/52:54:00:14:01:01', '10.141.9.9')
    t.match(await why(c), { rule: 'all-well', verdict: both('all is well') }, 'nor that of its BMC')

    const token = await scriptToken(c, 'n1')
    await script(c, stranger)
    await report(c, token, 'installer.failed: image: curl: (22) 404')
    await script(c, stranger)
    await script(c, '10.9.9.9')
    t.match(await why(c), {
      rule: 'failed-step',
      verdict: both('the installation of n1 failed in step image')
    })

    await script(c)
    t.match(await why(c), { rule: 'in-progress' }, 'its own address')
  }
)

// rules 6.7
t.test(
  'what is asked for over loopback is no boot of a node, unless its network holds that address',
  async t => {
    const c = await cluster(t)
    await installs(c)
    const before = await bootsOf(c)
    for (const path of [`/boot/search/mac/${mac}`, '/boot/vmlinuz', '/boot/install/n1'])
      await asks(c, path, '127.0.0.1')
    t.same([await bootsOf(c), await elsewhere(c)], [before, []])
    t.match(await why(c), { rule: 'all-well' })
    await asks(c, '/boot/search/mac/52:54:00:14:00:02', '127.0.0.1')
    t.match(await why(c, 'n2'), { rule: 'never-asked' })

    await c.post('/config/network/inside', { network: '127.0.0.0/24' })
    await c.post('/config/node/n2', {
      interfaces: [{ interface: 'BOOTIF', network: 'inside', ipaddress: '127.0.0.1' }]
    })
    await asks(c, '/boot/search/mac/52:54:00:14:00:02', '127.0.0.1')
    t.same((await bootsOf(c, 'n2')).map(words), [['script']])
  }
)

// rules 6.7
t.test('a stranger fills nothing and pushes out nothing', async t => {
  const c = await cluster(t)
  for (let i = 0; i < 12; i++) {
    await installs(c)
    c.clockMs += 1000
  }
  const before = await bootsOf(c)
  t.equal(before.length, 10, 'the last 10')
  for (let i = 0; i < 14; i++) {
    c.clockMs += 130_000
    // From another network, from the address of another node, and from one of its own network that nobody
    // has.
    for (const source of [`10.9.9.${i}`, '10.141.0.2', `10.141.7.${i}`]) {
      await script(c, source)
      await asks(c, '/boot/vmlinuz', source)
      await asks(c, '/boot/initrd.img', source)
      await asks(c, '/boot/install/n1', source)
    }
    await asks(c, `/boot/search/mac/52:54:00:99:00:${String(i).padStart(2, '0')}`, '10.141.7.7')
    await asks(c, `/boot/f${i}`, '10.141.7.7')
  }
  const after = await bootsOf(c)
  t.equal(after.length, 10)
  t.same(after.slice(0, 9), before.slice(1), 'what is proven to be of the node stays')
  t.ok((await elsewhere(c)).length <= 16)
  t.same((await bootsOf(c, 'n2')).map(words), [['kernel', 'initramfs']], 'files that its address asked for')

  const token = await scriptToken(c, 'n1')
  for (let i = 0; i < 60; i++) await report(c, token, `installer.step${i} ${'x'.repeat(600)}`)
  const [last] = (await bootsOf(c)).slice(-1)
  t.ok(last && last.steps.length <= 48, 'a boot has a bound')
  t.ok(JSON.stringify(last).length < 16_384)
  t.match(last?.steps.at(-1)?.about, /^installer\.step59 /, 'the newest are kept')
})

t.test('the boots survive a restart, follow a rename, and go with the node', async t => {
  const c = await cluster(t)
  await installs(c)
  await script(c)
  const before = await bootsOf(c)
  t.equal(before.length, 2)
  const anonymous = { token: null }
  t.same((await c.get('/monitor/node/n1/_why', anonymous)).body.monitor.why, { n1: { rule: 'in-progress' } })
  const { boots } = (await c.get('/monitor/node/n1/_boots', anonymous)).body.monitor
  t.same(Object.keys(boots.n1.boots[0]), ['began'])
  for (const path of ['_boots', '_why']) t.equal((await c.get(`/monitor/node/n9/${path}`)).status, 404)
  await c.restart()
  t.same(await bootsOf(c), before)
  await c.post('/config/node/n1', { newhostname: 'm1' })
  t.same(await bootsOf(c, 'm1'), before)
  await c.restart()
  t.same(await bootsOf(c, 'm1'), before)
  await c.get('/config/node/m1/_delete')
  await c.post('/config/node/m1', { group: 'compute', macaddr: mac })
  t.same(await bootsOf(c, 'm1'), [], 'a new node of that name has none of them')
  await c.restart()
  t.same(await bootsOf(c, 'm1'), [])
})

t.test('the leases of the DHCP server, and files that a front server sends', async t => {
  const directory = t.testdir({ leases: `4000000000 ${mac} 10.141.3.3 x 01:52\n` })
  const server = [
    'server=dnsmasq',
    `config=${directory}/dhcp.conf`,
    `directory=${directory}/hosts`,
    'check=true'
  ]
  const dhcp = [...server, 'control=true', `lease_file=${directory}/leases`].map(line => `dhcp.${line}`)
  const c = await cluster(t, ...dhcp, 'http.trusted_proxies=10.9.9.9', 'http.front_files=/files/')
  t.match(await why(c), {
    rule: 'address-only',
    verdict: /n1 got the address 10.141.3.3 by DHCP and then asked for no/
  })
  t.match(await why(c, 'n2'), { rule: 'never-asked' })

  const headers = { 'X-Forwarded-For': own }
  const through = (path: string) => c.get(path, { token: null, source: '10.9.9.9', headers })
  await through(`/boot/search/mac/${mac}`)
  t.match((await through('/boot/vmlinuz')).headers, { 'x-accel-redirect': '/files/vmlinuz' })
  t.match((await bootsOf(c)).at(-1)?.steps, [
    { step: 'script', from: own },
    { step: 'kernel', from: own, end: 'front', bytes: 0 }
  ])
})

const noted = (
  place: ObservedStep['place'],
  step: ObservedStep['step'] = 'script',
  about = ''
): ObservedStep => ({
  ...{ step, about, from: own, place }
})

t.test('boots are written soon and a few nodes at a time, and nothing waits for it', async t => {
  const records = new MemoryRecords()
  const open = records.opener('node-boots')
  const lines = () => records.lines('node-boots')
  let now = 1_700_000_000_000
  const boots = await Boots.open(open, () => now)
  for (let i = 0; i < 400; i++) {
    boots.record(`node${i}`, noted('node'))
    const step = boots.record(`node${i}`, noted('node', 'kernel', 'vmlinuz'))
    boots.recordDelivery(`node${i}`, step, { end: 'cut', bytes: 1, bytesTotal: 2 })
  }
  t.equal(lines(), 0, 'nothing was written in this turn')
  await until(() => lines() === 400)
  t.ok(
    records.writes.every(({ length }) => length <= 200),
    'a few nodes at a time'
  )
  now += 1
  boots.record('node0', noted('elsewhere', 'refused', 'x'))
  await boots.close()
  t.equal(lines(), 400, 'what strangers ask for writes nothing')
  const again = await Boots.open(open, () => now)
  t.match(again.of('node7').boots, [
    { steps: [{ step: 'script' }, { step: 'kernel', end: 'cut', bytes: 1, bytesTotal: 2 }] }
  ])
  await again.close()
})

t.test('while the disk takes nothing the boots are kept in memory, and written when it does', async t => {
  const records = new MemoryRecords()
  records.before = () => {
    throw new Error('no space left')
  }
  const boots = await Boots.open(records.opener('node-boots'), Date.now)
  boots.record('n1', noted('node'))
  await until(() => !boots.health.ok)
  t.match(boots.health.reason, /no space left/)
  t.equal(boots.of('n1').boots.length, 1)
  records.before = () => {}
  await until(() => boots.health.ok && records.lines('node-boots') > 0)
  await boots.close()
})

t.test('the memory that a boot takes has a bound, also in the store', async t => {
  const records = new MemoryRecords()
  const open = records.opener('node-boots')
  let now = 1_700_000_000_000
  const boots = await Boots.open(open, () => now++)
  for (let boot = 0; boot < 30; boot++)
    for (let i = 0; i < 100; i++) {
      boots.record('n1', noted('node', i === 0 ? 'script' : 'report', `${i} ${'y'.repeat(500)}`))
    }
  await boots.close()
  t.ok(JSON.stringify(records.writes).length < 10 * 8192, 'in one turn it is written once')
  const again = await Boots.open(open, Date.now)
  t.equal(again.of('n1').boots.length, 10)
  for (const boot of again.of('n1').boots) t.ok(JSON.stringify(boot).length < 16_384)
  await again.close()
})
