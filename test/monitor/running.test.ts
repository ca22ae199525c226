import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { runSync } from '../../lib/base/concurrency.js'
import { Boots } from '../../lib/monitor/boots.js'
import { findStaleSliced } from '../../lib/monitor/stale.js'
import { scriptToken } from '../support/callers.js'
import { Controller } from '../support/controller.js'
import { MemoryRecords } from '../support/memory-records.js'

const addresses: Readonly<Record<string, string>> = { n1: '10.141.0.1', n2: '10.141.0.2' }

async function installs(c: Controller, node: string): Promise<void> {
  const token = await scriptToken(c, node)
  const body = { monitor: { status: { [node]: { state: 'installer.completed' } } } }
  await c.post(`/monitor/node/${node}`, body, { token, source: addresses[node] as string })
}

const shown = async (c: Controller, node: string) =>
  (await c.get(`/config/node/${node}`)).body.config.node[node]
const packs = async (c: Controller) =>
  (await c.get('/config/osimage/compute/_running')).body.config.osimage.compute.running

async function twoNodes(test: Test): Promise<Controller> {
  const c = await Controller.start(test)
  await c.cluster()
  for (const node of ['n1', 'n2']) await c.post(`/config/node/${node}`, { group: 'compute' })
  return c
}

// rules 6.14
t.test('a node that is installed once boots from its disk when that is done', async t => {
  const c = await twoNodes(t)
  const netboots = async () =>
    Object.fromEntries(
      await Promise.all(['n1', 'n2'].map(async name => [name, (await shown(c, name)).netboot]))
    )
  await c.post('/config/node/n1', { netboot_once: true })
  await installs(c, 'n1')
  t.same(await netboots(), { n1: true, n2: true }, 'its system is in memory')
  await c.post('/config/group/compute', { localinstall: true })
  await installs(c, 'n2')
  t.same(await netboots(), { n1: true, n2: true }, 'n2 is installed at each boot')
  const token = await scriptToken(c, 'n1')
  const report = (state: string) =>
    c.post('/monitor/node/n1', { state }, { token, source: addresses.n1 as string })
  t.equal((await report('installer.failed: unpack')).status, 204)
  t.equal((await shown(c, 'n1')).netboot, true)
  t.equal((await report('installer.completed')).status, 204)
  t.match(await shown(c, 'n1'), { netboot: false, _netboot_source: 'node', netboot_once: true })
  t.match(await netboots(), { n2: true })
  const audit = readFileSync(join(c.directory, 'state', 'audit-machines.log'), 'utf8')
    .trim()
    .split('\n')
  t.match(JSON.parse(audit.at(-1) ?? ''), {
    ...{ who: 'node n1', action: 'update', name: 'n1', after: { netboot: false } }
  })
  const before = c.state()
  await report('installer.completed')
  t.same(c.state(), before, 'again: nothing to change')

  // Its next boot brings nothing new: it has to be installed again.
  c.file('new.tar.gz')
  await c.post('/config/osimage/compute', { imagefile: 'new.tar.gz' })
  const why = async () => (await c.get('/monitor/node/n1/_why')).body.monitor.why.n1.verdict
  t.match(
    await why(),
    /would get new\.tar\.gz .* if it were installed again: it boots from its disk, so type svcctl node reinstall n1 first; start/
  )
  await c.post('/config/node/_set', { nodes: 'n1', fields: { netboot: true } })
  t.match(await why(), /would get new\.tar\.gz of OS image compute now; start it anew/)
})

// rules 6.8
t.test('what a node installed, what it would get now, and how many run which pack', async t => {
  const c = await twoNodes(t)
  t.match(await shown(c, 'n1'), { _running: null, _stale: null })
  await installs(c, 'n1')
  const old = { osimage: 'compute', osimagetag: 'default', pack: 'compute.tar.gz', sha256: '' }
  t.match(await shown(c, 'n1'), { _running: { ...old, since: /Z$/ }, _stale: null })
  t.same(await packs(c), [{ pack: 'compute.tar.gz', sha256: '', nodes: 1, current: true }])

  c.file('new.tar.gz')
  await c.post('/config/osimage/compute', { imagefile: 'new.tar.gz' })
  t.match(await shown(c, 'n1'), { _running: old, _stale: { ...old, pack: 'new.tar.gz' } })
  t.match((await c.get('/monitor/node/n1/_why')).body.monitor.why.n1, {
    rule: 'image-changed',
    verdict:
      /^n1 runs compute.tar.gz of OS image compute since .* and would get new.tar.gz .* now; start it anew/
  })
  await installs(c, 'n2')
  t.same(runSync(findStaleSliced(c.daemon.model, c.daemon.boots)), ['n1'])
  t.same(Object.keys((await c.get('/config/node/@stale:yes')).body.config.node), ['n1'], 'as a node set')
  t.same(await packs(c), [
    { pack: 'new.tar.gz', sha256: '', nodes: 1, current: true },
    { pack: 'compute.tar.gz', sha256: '', nodes: 1, current: false }
  ])

  await t.test('and posting what was read changes nothing', async t => {
    const before = c.state()
    t.equal((await c.post('/config/node/n1', { config: { node: { n1: await shown(c, 'n1') } } })).status, 204)
    t.same(c.state(), before)
  })

  await t.test('it is kept over a restart and a rename', async t => {
    await c.restart()
    t.match(await shown(c, 'n1'), { _running: old })
    await c.post('/config/node/n1', { newhostname: 'm1' })
    t.match(await shown(c, 'm1'), { _running: old, _stale: { pack: 'new.tar.gz' } })
    await c.get('/config/node/m1/_delete')
    t.same(runSync(findStaleSliced(c.daemon.model, c.daemon.boots)), [])
  })

  await t.test('a node without an image would get none', async t => {
    await c.post('/config/group/compute', { osimage: null })
    t.match(await shown(c, 'n2'), { _stale: { osimage: null, pack: null } })
  })
})

// rules 6.7, 6.8
t.test('a report that the disk still writes follows a rename, and goes with a delete', async t => {
  const records = new MemoryRecords()
  const open = () => Boots.open(records.opener('node-boots'), Date.now)
  const pack = (name: string) => ({ osimage: 'a', osimagetag: '', pack: name, sha256: '' })
  const revoked = (name: string, renamed?: string) =>
    [{ type: 'revoked', name, before: undefined, after: { name, at: 0, renamed } }] as const
  const noted = { step: 'report', about: '', from: '10.141.0.1', place: 'node' } as const
  const boots = await open()
  const renaming = boots.recordRunning('n1', pack('p1'))
  boots.follow(revoked('n1', 'm1'))
  t.equal(await renaming, 'm1')
  boots.record('n2', noted)
  const deleting = boots.recordRunning('n2', pack('p2'))
  boots.follow(revoked('n2'))
  boots.record('n2', noted)
  t.equal(await deleting, undefined)
  await boots.recordRunning('n3', pack('p3'))
  records.before = () => {
    throw new Error('no space left')
  }
  await t.rejects(boots.recordRunning('n3', pack('p4')), { message: /no space left/ })
  records.before = () => {}
  const packs = (of: Boots) => ['n1', 'm1', 'n2', 'n3'].map(node => of.running(node)?.pack)
  t.same(packs(boots), [undefined, 'p1', undefined, 'p3'])
  await boots.close()
  const again = await open()
  t.same(packs(again), [undefined, 'p1', undefined, 'p3'], 'also after a restart')
  await again.close()
})

// rules 4.26
t.test('the installed system tells from its own address that it is up', async t => {
  const c = await twoNodes(t)
  const up = (source: string, pack = 'compute.tar.gz', ask = {}) =>
    c.get(`/boot/running/n1/${pack}`, { token: null, source, ...ask })
  for (const source of ['10.141.0.2', '10.9.9.9', '127.0.0.1'])
    t.equal((await up(source)).status, 401, source)
  t.match(await shown(c, 'n1'), { _running: null }, 'nothing was noted')
  t.equal((await up('10.141.0.1', 'compute.tar.gz', { method: 'HEAD' })).status, 405)
  t.equal((await up('10.141.0.1', '..')).status, 404)
  t.equal((await up('10.141.0.1')).status, 200)
  const { _running: first } = await shown(c, 'n1')
  t.match(first, { pack: 'compute.tar.gz' })
  c.clockMs += 60_000
  await up('10.141.0.1')
  const { _running: second } = await shown(c, 'n1')
  t.equal(second.since, first.since)
  t.not(second.seen, first.seen)
  const { boots } = (await c.get('/monitor/node/n1/_boots')).body.monitor.boots.n1
  t.equal(boots.length, 2, 'started anew without svcd')
})
