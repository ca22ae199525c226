import t, { type Test } from 'tap'
import { diskWarning } from '../../lib/api/dry-run.js'
import { scriptToken } from '../support/callers.js'
import { Controller } from '../support/controller.js'

const mac = '52:54:00:00:00:01'
const source = '10.141.0.1'
const base64 = (text: string) => Buffer.from(text).toString('base64')

/** A node whose next boot from the network writes to its disk, and an image for rescues. */
async function diskNode(test: Test): Promise<Controller> {
  const c = await Controller.start(test)
  await c.cluster()
  for (const name of ['r-vmlinuz', 'r-initrd.img', 'r.tar.gz']) c.file(name)
  await c.post('/config/osimage/tools', {
    ...{ kernelfile: 'r-vmlinuz', initrdfile: 'r-initrd.img', imagefile: 'r.tar.gz' }
  })
  await c.post('/config/osimage/empty', {})
  await c.post('/config/bmcsetup/boards', { username: 'root', password: 'calvin' })
  await c.post('/config/file/fstab', { path: '/etc/fstab', template: base64('LABEL=data /data ext4\n') })
  const set = await c.post('/config/group/compute', {
    ...{ localinstall: true, netboot_once: true, setupbmc: true, bmcsetupname: 'boards', roles: 'format' },
    ...{ prescript: base64('pre'), partscript: base64('part'), postscript: base64('post'), files: ['fstab'] }
  })
  t.equal(set.status, 204, set.text)
  t.equal((await c.post('/config/node/n1', { group: 'compute', macaddr: mac })).status, 201)
  return c
}

const nodeOf = async (c: Controller) => (await c.get('/config/node/n1')).body.config.node.n1
const bootScript = async (c: Controller) =>
  (await c.get(`/boot/search/mac/${mac}`, { token: null, source })).text
const installScript = async (c: Controller) => (await c.get('/boot/install/n1', { token: null, source })).text
const writes =
  /run_step (?:prescript|postscript|roles|files|bmcsetup|bootloader)|run_step partscript partition_script/

// rules 6.15
t.test('a rescue boots the image in memory, once, with nothing that writes to a disk', async t => {
  const c = await diskNode(t)
  const own = await scriptToken(c, 'n1')
  t.match(await installScript(c), writes, 'an installation')
  t.notMatch(await bootScript(c), 'svc.rescue')
  for (const netboot of [true, false]) {
    await c.post('/config/node/n1', { netboot, rescue: 'tools' })
    t.match(await nodeOf(c), { rescue: 'tools', osimage: 'compute', localinstall: true, netboot })
    const boot = await bootScript(c)
    t.match(boot, /imgfetch .*\/boot\/r-vmlinuz/)
    t.match(boot, / svc\.service=0 svc\.rescue=1 initrd=initrd\.img /)
    const script = await installScript(c)
    t.match(script, /SVC_IMAGEFILE='r\.tar\.gz'/)
    t.match(script, 'run_step partscript partition_default')
    t.notMatch(script, writes)
    t.equal((await c.get('/kickstart/install/n1', { token: null, source })).status, 404)
    t.match((await c.get('/config/node/n1/_render/kickstart')).body.message, /svcctl node rescue n1 --end/)
    const report = (state: string) => c.post('/monitor/node/n1', { state }, { token: own, source })
    await report('installer.failed: download')
    t.match(await nodeOf(c), { rescue: 'tools' }, 'it is tried again')
    await report('installer.completed: rescue')
    t.match(await nodeOf(c), { rescue: null, netboot, _running: null }, 'it is over')
    c.clockMs += 1_200_000
    t.match((await c.get('/monitor/node/n1/_why')).body.monitor.why.n1, {
      ...{
        rule: 'rescue',
        verdict: netboot ? /is installed again if it has/ : /it starts next from its disk/
      }
    })
  }
  await c.post('/config/node/n1', { netboot: true, rescue: 'tools' })
  await c.post('/monitor/node/n1', { state: 'installer.completed' }, { token: own, source })
  t.match(
    await nodeOf(c),
    { rescue: 'tools', netboot: false },
    'an installation that ran already does not end it'
  )
  await c.post('/config/node/n1', { netboot: true })
  await c.post('/config/node/n1', { rescue: null })
  t.match(await installScript(c), writes, 'the way back')
  t.notMatch(await bootScript(c), 'svc.rescue')
})

t.test('the image of a rescue has to be there and packed, and stays while it is needed', async t => {
  const c = await diskNode(t)
  const set = async (rescue: string) => (await c.post('/config/node/n1', { rescue })).body?.message
  t.match(await set('nothing'), /nothing/)
  t.match(
    await set('empty'),
    /node n1: field "rescue": OS image empty has no packed files: svcctl osimage pack empty/
  )
  t.match(await nodeOf(c), { rescue: null })
  const whole = (await c.get('/config/cluster/export')).body
  whole.config.node.n1.rescue = 'empty'
  const refused = await c.post('/config/cluster/import', whole)
  t.equal(refused.status, 404, 'an import')
  t.match(refused.body.message, /config\.node\.n1: field "rescue": OS image empty has no packed files/)
  t.match((await c.post('/config/node/n3', { group: 'compute', rescue: 'empty' })).status, 400, 'a new node')
  t.match((await c.post('/config/node/_set', { nodes: 'n1', fields: { rescue: 'empty' } })).status, 400)
  await c.post('/config/osimage/empty/tag', { tag: 'bare' })
  for (const name of ['r-vmlinuz', 'r-initrd.img', 'r.tar.gz']) c.file(name)
  await c.post('/config/osimage/empty', {
    ...{ kernelfile: 'r-vmlinuz', initrdfile: 'r-initrd.img', imagefile: 'r.tar.gz' }
  })
  await c.post('/config/node/n1', { osimage: 'empty', osimagetag: 'bare' })
  t.match(await set('empty'), /OS image empty has no packed files in its tag bare: .*pack empty, and tag it/)
  await c.post('/config/node/n1', { osimage: null, osimagetag: null })
  await set('empty')
  for (const [path, body] of [
    ['/config/node/n1', { osimage: 'empty', osimagetag: 'bare' }],
    ['/config/group/compute', { osimage: 'empty', osimagetag: 'bare' }],
    ['/config/osimage/empty', { kernelfile: '' }]
  ] as const)
    t.match(await c.post(path, body), { status: 400, body: { message: /node n1: field "rescue"/ } }, path)
  await set('tools')
  t.match((await c.get('/config/osimage/tools/_delete')).body.message, /n1/)
  await c.post('/config/osimage/tools', { newosimage: 'kit' })
  t.match(await nodeOf(c), { rescue: 'kit' })
  await c.post('/config/node/n1/_clone', { newhostname: 'n2' })
  t.match((await c.get('/config/node/n2')).body.config.node.n2, { rescue: null }, 'another machine')
  t.match((await c.get('/config/node/n1/_render/install')).text, "SVC_OSIMAGE='kit'")
})

// rules 3.10, 6.15
t.test('a rescue is none of what the node is besides: its members, its files and its tag stay', async t => {
  const c = await diskNode(t)
  await c.post('/config/file/fstab', { template: '{{ osimage }} {{ osimagetag }} {{ roles | length }}\n' })
  for (const osimage of ['compute', 'tools']) await c.post(`/config/osimage/${osimage}/tag`, { tag: 'v1' })
  await c.post('/config/group/compute', { osimagetag: 'v1' })
  const all = async () => ({
    file: (await c.get('/config/node/n1/_render/files')).body.config.node.n1.files[0].text,
    tagged: (await c.get('/config/osimagetag/compute/_member')).body.config.osimagetag.compute.members,
    ofRescue: (await c.get('/config/osimagetag/tools/_member')).body,
    members: (await c.get('/config/osimage/tools/_member')).body,
    set: (await c.post('/config/node/_set', { nodes: '@osimage:tools', fields: { comment: 'x' } })).status
  })
  const before = await all()
  t.match(before, { file: 'compute v1 1\n', tagged: ['n1'] })
  t.equal((await c.post('/config/node/n1', { rescue: 'tools' })).status, 204)
  t.same(await all(), before)
})

t.test('the disks of very many nodes are told in short steps', t => {
  const written = Array.from({ length: 10_000 }, (_, i) => `n${i * 2}`)
  const steps = diskWarning({ reinstalled: written })
  let [count, step] = [0, steps.next()]
  for (; !step.done; step = steps.next()) count++
  t.ok(count > written.length, `${count} steps`)
  t.match(step.value, /^; the disks of 10000 nodes would be written .*: n\[0,2,.*…$/)
  t.end()
})

// rules 12.7
t.test('a dry run says whose disk is written at the next boot', async t => {
  const c = await diskNode(t)
  await c.post('/config/group/compute', { netboot: false })
  await c.post('/config/group/memory', {
    osimage: 'compute',
    interfaces: [{ interface: 'BOOTIF', network: 'cluster' }]
  })
  await c.post('/config/node/n2', { group: 'compute' })
  await c.post('/config/node/m1', { group: 'memory' })
  const says = async (path: string, body: object) =>
    (await c.post(`${path}?dryrun=yes`, body)).body.message as string
  const one = /; the disk of 1 node would be written at the next boot from the network: n1$/
  const both = /; the disks of 2 nodes would be written at the next boot from the network: n\[1-2\]$/
  t.match(await says('/config/node/n1', { netboot: true }), one)
  t.match(
    await says('/config/node/_set', { nodes: 'n[1-2]', fields: { netboot: true, netboot_once: true } }),
    both
  )
  t.match(await says('/config/group/compute', { netboot: true }), both)
  t.notMatch(await says('/config/group/compute', { osimage: 'tools' }), 'disk', 'they boot from their disks')
  t.match(await says('/config/node/m1', { partscript: base64('part') }), /the disk of 1 node .*: m1$/)
  t.match(await says('/config/group/memory', { localinstall: true }), /the disk of 1 node .*: m1$/)
  t.match(
    await says('/config/node/m2', { group: 'memory', partscript: base64('part') }),
    /: m2$/,
    'a new one'
  )
  t.notMatch(await says('/config/node/m1', { osimage: 'tools' }), 'disk', 'in memory')
  t.notMatch(await says('/config/node/n1', { rescue: 'tools' }), 'disk', 'a rescue')
  await c.post('/config/group/compute', { netboot: true })
  t.match(await says('/config/node/m1', { group: 'compute' }), /the disk of 1 node .*: m1$/)
  t.match(await says('/config/group/compute', { osimage: 'tools' }), both)
  t.match(await says('/config/osimage/compute', { imagefile: 'r.tar.gz' }), both)
  t.match(await says('/config/node/n1', { macaddr: '52:54:00:00:00:09' }), one)
  t.match(await says('/config/node/n1', { comment: 'x' }), /1 node would be changed$/)
  const { config } = (await c.get('/config/cluster/export')).body
  Object.assign(config.node.m1, { group: 'compute', partscript: base64('part') })
  t.match(
    await says('/config/cluster/import', { node: config.node }),
    /1 node would be changed; the disk of 1 node .*: m1$/
  )
  await c.post('/config/node/n1', { rescue: 'tools' })
  t.match(await says('/config/node/n1', { rescue: null }), one, 'the end of a rescue')
  t.notMatch(
    await says('/config/group/compute', { osimage: 'tools' }),
    /: n1$/,
    'its next boot is the rescue'
  )
  t.match(await says('/config/osimage/tools', { kerneloptions: 'quiet' }), /; 1 node would get other values$/)
})
