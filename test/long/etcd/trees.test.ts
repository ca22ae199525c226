// Directories of images stay on the controller where they were made: what is asked of one that does not have
// them.
import { existsSync, readdirSync, renameSync, writeFileSync } from 'node:fs'
import t from 'tap'
import { makeTree } from '../../image/small-tree.js'
import { replaceModule } from '../../support/built-tree.js'
import { controllerOn, isPrimary } from '../../support/controllers.js'
import type { Daemon } from '../../support/daemon.js'
import { type EtcdServer, startEtcd } from '../../support/etcd.js'
import { adminToken } from '../../support/first-start.js'
import { giveKeys } from '../../support/keys.js'
import { notesIn } from '../../support/notes.js'
import { isThere } from '../../support/there.js'
import { until } from '../../support/until.js'
import { type Asked, watched } from '../../support/watched-etcd.js'
import { Way } from '../../support/way.js'

const answers = async (daemon: Daemon) => {
  await until(async () => (await daemon.request('GET', '/config/node')).status === 200)
}

const storedIn = (etcd: EtcdServer) => async (type: string, name: string) => {
  const key = Buffer.from(`/svcd/objects/${type}/${name}`).toString('base64')
  const { kvs = [] } = (await etcd.ask('kv/range', { key })) as unknown as { kvs?: { value: string }[] }
  return kvs[0] ? JSON.parse(Buffer.from(kvs[0].value, 'base64').toString()) : undefined
}

/** The record of a request. */
async function record(daemon: Daemon, id: string): Promise<{ state: string } | undefined> {
  const { body } = await daemon.request('GET', `/monitor/request/${id}`)
  return (body as { monitor?: { request: Record<string, { state: string }> } }).monitor?.request[id]
}

// rules 9.15
t.test('what is not done on another controller is refused, and names where the directory is', async t => {
  const etcd = await startEtcd(t)
  // Both say the same place, as the ini of two machines does.
  const [first, second] = [
    await controllerOn(t, etcd, 'controller.name=c1'),
    await controllerOn(t, etcd, 'controller.name=c2')
  ]
  const stored = storedIn(etcd)
  await first.start()
  await until(() => isPrimary(first))
  giveKeys(first, second)
  await second.start()
  await answers(second)

  makeTree(first.path('images', 'compute'))
  makeTree(first.path('images', 'login'))
  await second.create('osimage', 'compute', {})
  await until(async () => (await stored('osimage', 'compute')).controller === 'c1', 'it to be found on c1')
  await first.create('osimage', 'login', {})
  t.equal((await second.request('GET', '/config/osimage/compute/_pack')).status, 204, 'asked of the standby')
  const shown = (await first.request('GET', '/config/osimage/compute')).body as {
    config: { osimage: { compute: object } }
  }
  t.notOk('controller' in shown.config.osimage.compute, 'no answer shows it')
  t.match(await first.request('POST', '/config/osimage/compute/_clone', { newosimage: 'copy' }), {
    status: 201
  })
  t.match(await stored('tree', 'copy'), { controller: 'c1' })
  t.match(await stored('osimage', 'copy'), { controller: 'c1' })
  t.match(await first.request('POST', '/config/osimage/compute/_clone', { newosimage: 'other' }), {
    status: 201
  })

  await first.stop()
  await until(() => isPrimary(second))
  await first.start()
  await answers(first)
  await until(() => isThere(second, 'c1'))
  const why =
    /OS image compute: its directory .*\/images\/compute is on controller c1, and controller c2 writes: make c1 /
  await second.create('network', 'cluster', { network: '127.0.0.0/8' })
  await second.create('group', 'g', { interfaces: [{ interface: 'BOOTIF', network: 'cluster' }] })
  await second.create('node', 'n1', {
    group: 'g',
    interfaces: [{ interface: 'BOOTIF', ipaddress: '127.0.1.1' }]
  })
  const asked: [method: 'GET' | 'POST', path: string, body: object | undefined, status: number][] = [
    ['GET', '/config/osimage/compute/_pack', undefined, 503],
    ['POST', '/config/osimage/compute/kernel', { kernelversion: '6.1.0-9' }, 503],
    ['POST', '/config/osimage/compute/_clone', { newosimage: 'third' }, 503],
    ['POST', '/config/node/n1/_osgrab', { osimage: 'compute' }, 404],
    ['POST', '/config/node/n1/_ospush', { osimage: 'compute' }, 404],
    ['POST', '/config/group/g/_ospush', { osimage: 'compute' }, 404]
  ]
  for (const daemon of [first, second])
    for (const [method, path, body, status] of asked)
      t.match(await daemon.request(method, path, body), { status, body: { message: why } }, path)

  t.match(await second.request('POST', '/config/group/none/_ospush', { osimage: 'compute' }), { status: 404 })

  const renamed = await first.request('POST', '/config/osimage/login', {
    config: { osimage: { login: { newosimage: 'front' } } }
  })
  t.equal(renamed.status, 204)
  t.match(await stored('osimage', 'front'), { path: second.path('images', 'login'), controller: 'c1' })
  t.match(await first.request('GET', '/config/osimage/copy/_delete?dryrun=yes'), {
    status: 200,
    body: {
      message: /; the directory \S+\/copy would be removed on controller c1$/,
      directories: [second.path('images', 'copy')],
      controllers: ['c1']
    }
  })
  t.equal((await first.request('GET', '/config/osimage/copy/_delete')).status, 204)
  await until(
    () => !existsSync(first.path('images', 'copy')),
    () => first.log() + second.log()
  )
  await until(async () => (await stored('tree', 'copy')) === undefined)
  await until(() => notesIn(first.path('state')).length === 0)
  t.notOk(readdirSync(first.path('images')).some(name => name.startsWith('.svcd-')))

  // The controller that has it is away.
  await first.stop()
  t.equal((await second.request('GET', '/config/osimage/other/_delete')).status, 204)
  t.match(await stored('tree', 'other'), { abandoned: true, controller: 'c1' })
  await first.start()
  await until(
    () => !existsSync(first.path('images', 'other')),
    () => first.log() + second.log()
  )
  await until(async () => (await stored('tree', 'other')) === undefined)
  t.ok(await isPrimary(second))

  await second.stop()
  await until(() => isPrimary(first))
  t.equal((await first.request('GET', '/config/osimage/compute/_pack')).status, 204)
  await first.stop()
})

/** A right to write that is not lost by a busy machine. */
const unhurried = 'store.ttl=6s'

/** Packs once this file is there. */
const packerBehind = (file: string) => `
import { existsSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { builtinPacker } from './builtin-packer.js'
export async function choosePacker() {
  while (!existsSync(${JSON.stringify(file)})) await sleep(20)
  return builtinPacker
}`

// rules 9.15
t.test('who is cut off removes no directory of an image that another controller has by now', async t => {
  const etcd = await startEtcd(t)
  const stored = storedIn(etcd)
  const way = await Way.to(t, etcd)
  const more = ['image.initramfs=no', unhurried]
  const first = await controllerOn(t, etcd, 'controller.name=c1', `store.endpoints=${way.url}`, ...more)
  const second = await controllerOn(t, etcd, 'controller.name=c2', ...more)
  const gate = first.path('gate')
  replaceModule(first.tree, 'helper/packer/choose-packer.js', packerBehind(gate))
  await first.start()
  await until(() => isPrimary(first))
  giveKeys(first, second)
  await second.start()
  await answers(second)
  makeTree(first.path('images', 'compute'))
  await first.create('osimage', 'compute', { distribution: 'debian' })
  t.match(await first.request('POST', '/config/osimage/compute/_clone', { newosimage: 'copy' }), {
    status: 201
  })

  // The removal waits for the pack.
  const { port } = first.client()
  const headers = { 'x-access-tokens': await adminToken(first.path('state')), prefer: 'respond-async' }
  const pack = await fetch(`http://127.0.0.1:${port}/config/osimage/copy/_pack`, { headers })
  const { request_id: id } = (await pack.json()) as { request_id: string }
  await until(async () => (await record(first, id))?.state === 'running')
  t.equal((await first.request('GET', '/config/osimage/copy/_delete')).status, 204)
  way.silence()
  await until(() => isPrimary(second))
  const directory = first.path('images', 'copy')
  await second.create('osimage', 'copy', { path: directory })
  writeFileSync(gate, '')
  await until(
    () => /delete of OS image copy, by .*: failed/.test(first.log()),
    () => first.log()
  )
  const stands = (when: string) => t.ok(existsSync(`${directory}/etc/hostname`), when)
  stands('cut off')
  way.release()
  way.cut()
  await answers(first)
  stands('as a standby')
  await first.stop()
  await first.start()
  await answers(first)
  stands('started again as a standby')
  await second.stop()
  await until(() => isPrimary(first))
  await until(
    async () => (await stored('tree', 'copy'))?.abandoned === undefined,
    () => first.log()
  )
  t.match(await stored('tree', 'copy'), { osimage: 'copy' })
  stands('as the one that writes')
  t.strictSame(readdirSync(first.path('images')).sort(), ['compute', 'copy'])
  // One that the controller before it has asked for may just be ending.
  await until(() => notesIn(first.path('state')).length === 0)
  await first.stop()
})

// rules 9.15
t.test('what a removal has hidden goes though its controller is started again as a standby', async t => {
  const etcd = await startEtcd(t)
  const stored = storedIn(etcd)
  const [first, second] = [
    await controllerOn(t, etcd, 'controller.name=c1', unhurried),
    await controllerOn(t, etcd, 'controller.name=c2', unhurried)
  ]
  await first.start()
  await until(() => isPrimary(first))
  giveKeys(first, second)
  await second.start()
  await answers(second)
  makeTree(first.path('images', 'compute'))
  await first.create('osimage', 'compute', {})
  t.match(await first.request('POST', '/config/osimage/compute/_clone', { newosimage: 'copy' }), {
    status: 201
  })
  // As a kill leaves it that comes before the record is removed.
  const { at } = await stored('tree', 'copy')
  await first.kill()
  await until(() => isPrimary(second))
  t.equal((await second.request('GET', '/config/osimage/copy/_delete')).status, 204)
  const id = '0123456789abcdef'
  const note = { kind: 'removal', id, target: 'copy', at }
  writeFileSync(first.path('state', 'work', `${id}.json`), `${JSON.stringify(note)}\n`)
  const hidden = first.path('images', `.svcd-${id}`)
  renameSync(first.path('images', 'copy'), hidden)
  await first.start()
  await until(
    async () => (await stored('tree', 'copy')) === undefined,
    () => first.log() + second.log()
  )
  await until(
    () => !existsSync(hidden) && notesIn(first.path('state')).length === 0,
    () => first.log()
  )
  t.ok(await isPrimary(second))
  t.notMatch(first.log(), /is not put right/)
  for (const daemon of [first, second]) await daemon.stop()
})

// rules 9.15
t.test('a clone to which etcd gave no answer is what the controller that takes over has', async t => {
  for (const isStored of [true, false]) {
    const etcd = await startEtcd(t)
    const stored = storedIn(etcd)
    let isCut = false
    const cut = ({ writes }: Asked, isNow: boolean) => {
      if (isNow && '/svcd/objects/osimage/copy' in writes) isCut = true
      if (isCut) throw new Error('cut')
    }
    const url = await watched(t, etcd, {
      before: asked => cut(asked, !isStored),
      after: asked => cut(asked, true),
      part: asked => cut(asked, false)
    })
    const more = ['image.initramfs=no', unhurried]
    const first = await controllerOn(t, etcd, 'controller.name=c1', `store.endpoints=${url}`, ...more)
    const second = await controllerOn(t, etcd, 'controller.name=c2', ...more)
    await first.start()
    await until(() => isPrimary(first))
    giveKeys(first, second)
    await second.start()
    await answers(second)
    makeTree(first.path('images', 'compute'))
    await first.create('osimage', 'compute', { distribution: 'debian' })
    const made = await first.request('POST', '/config/osimage/compute/_clone', { newosimage: 'copy' })
    t.equal(made.status, 503, JSON.stringify(made.body))
    await until(() => isPrimary(second))
    t.equal((await stored('osimage', 'copy')) !== undefined, isStored)
    const directory = first.path('images', 'copy')
    t.ok(existsSync(directory), 'it is not known so far')
    isCut = false
    await answers(first)
    await until(
      () => notesIn(first.path('state')).length === 0,
      () => first.log()
    )
    t.strictSame(readdirSync(first.path('images')).sort(), isStored ? ['compute', 'copy'] : ['compute'])
    t.ok(await isPrimary(second))
    if (isStored) {
      await until(() => isThere(second, 'c1'))
      const { status, body } = await second.request('GET', '/config/osimage/copy/_pack')
      t.match([status, body], [503, { message: /\/copy is on controller c1/ }])
    }
    for (const daemon of [first, second]) await daemon.stop()
  }
})
