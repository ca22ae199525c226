// Records of requests in a real etcd: a pack runs on the primary while something happens to
// that one.
import { chmodSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { makeTree } from '../../image/small-tree.js'
import { isPrimary } from '../../support/controllers.js'
import { Daemon } from '../../support/daemon.js'
import { type EtcdServer, startEtcd } from '../../support/etcd.js'
import { freePort } from '../../support/free-port.js'
import { giveKeys } from '../../support/keys.js'
import { notesIn } from '../../support/notes.js'
import { scratch } from '../../support/scratch.js'
import { svcd } from '../../support/svcd.js'
import { until } from '../../support/until.js'

// A compressor that waits for as long as a file is there.
const programs = scratch(t)
const held = join(programs, 'held')
writeFileSync(
  join(programs, 'zstd'),
  `#!/bin/sh\nPATH=${process.env.PATH}\nwhile [ -e ${held} ]; do sleep 0.1; done\nexec zstd "$@"\n`
)
chmodSync(join(programs, 'zstd'), 0o755)
const enter = ['env', `PATH=${programs}:${process.env.PATH}`]

interface Poll {
  readonly message: string
  readonly status: number
  readonly state: string
}

interface Shown {
  readonly request_id: string
  readonly kind: string
  readonly state: string
  readonly message: string
  readonly lines?: readonly string[]
}

const LOST = 'failed: interrupted: controller c1, which ran it, was lost'

/** What a controller tells the admin of a request that was not told yet; the code where it is not 200. */
async function poll(daemon: Daemon, id: string): Promise<Poll | number> {
  const { status, body } = await daemon.request('GET', `/config/status/${id}`)
  return status === 200 ? (body as Poll) : status
}

/** All requests, newest first. */
async function requests(daemon: Daemon): Promise<Shown[]> {
  const { body } = await daemon.request('GET', '/monitor/request')
  return Object.values((body as { monitor?: { request: Record<string, Shown> } }).monitor?.request ?? {})
}

async function record(daemon: Daemon, id: string): Promise<Shown | undefined> {
  const { body } = await daemon.request('GET', `/monitor/request/${id}`)
  return (body as { monitor?: { request: Record<string, Shown> } }).monitor?.request[id]
}

const imagefile = async (daemon: Daemon) => {
  const { body } = await daemon.request('GET', '/config/osimage/compute')
  return (body as { config: { osimage: { compute: { imagefile: string } } } }).config.osimage.compute
    .imagefile
}

/** A file of the first controller's image, so that each pack is another one. */
const change = (daemon: Daemon, text: string) =>
  writeFileSync(join(daemon.path('images', 'compute'), 'etc', 'motd'), text)

async function controller(t: Test, etcd: EtcdServer, name: string): Promise<Daemon> {
  const listen = `127.0.0.1:${await freePort()}`
  const set = [
    ...['store.medium=etcd', `store.endpoints=${etcd.url}`, 'store.ttl=2s'],
    ...[`http.url=http://${listen}`, `controller.name=${name}`]
  ]
  const daemon = new Daemon({ directory: scratch(t), listen, enter, set })
  t.teardown(() => daemon.kill())
  return daemon
}

/** Two controllers, c1 and c2; c1 writes, has an image and has packed it. Gives the id of that pack too. */
async function beginning(t: Test): Promise<[Daemon, Daemon, EtcdServer, string]> {
  rmSync(held, { force: true })
  t.teardown(() => rmSync(held, { force: true }))
  const etcd = await startEtcd(t)
  const [first, second] = [await controller(t, etcd, 'c1'), await controller(t, etcd, 'c2')]
  await first.start()
  await until(() => isPrimary(first))
  makeTree(first.path('images', 'compute'))
  await first.create('osimage', 'compute', {})
  t.equal((await first.request('GET', '/config/osimage/compute/_pack')).status, 204)
  giveKeys(first, second)
  await second.start()
  await until(async () => (await second.request('GET', '/config/node')).status === 200)
  return [first, second, etcd, (await requests(first))[0]?.request_id ?? '']
}

/**
 * Begins a pack that does not come to its end by itself; gives its id once its lines are in etcd, and the
 * answer.
 */
async function packing(daemon: Daemon, etcd: EtcdServer) {
  writeFileSync(held, '')
  const answer = daemon.request('GET', '/config/osimage/compute/_pack').catch(() => undefined)
  let id = ''
  await until(async () => {
    const [newest] = await requests(daemon)
    id = newest?.state === 'running' ? newest.request_id : ''
    return id !== '' && (await stored(etcd, id)).includes('packing')
  }, 'a pack to run, and to be in etcd')
  return { id, answer }
}

/** The record of a request as etcd holds it; '' for none. */
async function stored(etcd: EtcdServer, id: string): Promise<string> {
  const key = Buffer.from(`/svcd/records/jobs/${id}`).toString('base64')
  const { kvs = [] } = (await etcd.ask('kv/range', { key })) as unknown as { kvs?: { value: string }[] }
  return Buffer.from(kvs[0]?.value ?? '', 'base64').toString()
}

// rules 11.20
t.test('kill -9 of the one that writes: who takes over reports what ran, and has what had ended', async t => {
  const [first, second, etcd, ended] = await beginning(t)
  t.match(await poll(second, ended), { status: 200, state: 'done' })
  const before = await record(first, ended)
  const { id } = await packing(first, etcd)
  t.match(await poll(second, id), { message: /packing /, status: 200, state: 'running' })
  t.match(await poll(second, id), { message: '', state: 'running' })
  await until(async () => /"admin":\d/.test(await stored(etcd, id)), 'what was told to be in etcd')
  const packed = await imagefile(first)

  await first.kill()
  const codes = new Set<number>()
  let said: Poll | undefined
  await until(async () => {
    const answer = await poll(second, id)
    if (typeof answer === 'number') codes.add(answer)
    else said = answer
    return said !== undefined
  })
  t.strictSame([...codes], [503], 'no client is told that there is no such request')
  t.match(said, { message: LOST, status: 500, state: 'failed' })
  t.equal(await poll(second, id), 404)
  t.match((await record(second, id))?.lines?.join(), /packing /)
  t.same(await record(second, ended), before)
  t.equal(await poll(second, ended), 404, 'its end was told')
  t.equal(await imagefile(second), packed)

  rmSync(held)
  await first.start()
  await until(async () => (await first.request('GET', '/config/node')).status === 200)
  t.equal((await record(first, id))?.message, LOST)
  await second.stop()
  await until(() => isPrimary(first))
  t.equal((await record(first, id))?.message, LOST)
  t.same(await record(first, ended), before)
  t.equal((await first.request('GET', '/config/osimage/compute/_pack')).status, 204, 'a rerun works')
  await first.stop()
})

// rules 11.20
t.test(
  'a writer that stood still and wakes up has failed at what it ran, and changes nothing more',
  async t => {
    const [first, second, etcd] = await beginning(t)
    const packed = await imagefile(first)
    change(first, 'another')
    const { id } = await packing(first, etcd)
    first.child?.process.kill('SIGSTOP')
    await until(() => isPrimary(second))
    t.match(await poll(second, id), { message: new RegExp(`;;${LOST}$`), status: 500, state: 'failed' })
    const failed = await stored(etcd, id)
    // The program of the pack comes to its end while nobody hears of it.
    rmSync(held)
    first.child?.process.kill('SIGCONT')
    // It is stopped, or its commit is refused, whichever comes first.
    await until(
      () => /\(pack of OS image compute, by \S+ \S+\): failed: /.test(first.log()),
      () => first.log()
    )
    await until(async () => (await first.request('GET', '/config/node')).status === 200)
    t.equal((await record(first, id))?.message, LOST)
    t.equal(await imagefile(second), packed, 'no commit of it')
    await until(() => notesIn(first.path('state')).length === 0, 'what was begun to be undone')
    t.notOk(readdirSync(first.path('files')).some(name => name.startsWith('.')))
    await second.stop()
    await until(() => isPrimary(first))
    t.equal((await record(first, id))?.message, LOST)
    t.equal(await imagefile(first), packed)
    t.equal(JSON.parse(await stored(etcd, id)).ended, JSON.parse(failed).ended, 'nothing of then is written')
    t.equal((await first.request('GET', '/config/osimage/compute/_pack')).status, 204)
    t.not(await imagefile(first), packed)
    await first.stop()
  }
)

// rules 11.20
t.test('while etcd stands still what runs goes on; a stop says what it interrupted', async t => {
  const [first, second, etcd, ended] = await beginning(t)
  const { id } = await packing(first, etcd)
  etcd.child.process.kill('SIGSTOP')
  await until(async () => (await first.request('GET', '/monitor/primary')).status === 503)
  t.match(await poll(first, id), { message: /packing /, state: 'running' })
  t.equal(await poll(first, ended), 503, 'of one that has ended, etcd has the lines')
  t.match(await first.request('GET', '/config/osimage/compute/_pack'), { status: 503 })
  etcd.child.process.kill('SIGCONT')
  let writer = first
  await until(async () => {
    for (const daemon of [first, second]) if (await isPrimary(daemon)) writer = daemon
    return isPrimary(writer)
  })
  // Who gets the right again is a matter of chance.
  if (writer === first) {
    t.match(await poll(first, id), { message: '', state: 'running' })
    t.match(await poll(first, ended), { state: 'done' })
    await first.stop()
    await until(() => isPrimary(second))
    t.match(await poll(second, id), { message: /;;failed: interrupted$/, state: 'failed' })
  } else t.match(await poll(second, id), { message: new RegExp(`${LOST}$`), state: 'failed' })
  await second.stop()
})

// rules 11.12, 11.20
t.test('records are in a backup, and are files after its restore', async t => {
  const [first, second, etcd, ended] = await beginning(t)
  await second.stop()
  const shown = await record(first, ended)
  const set = [
    'store.medium=etcd',
    `store.endpoints=${etcd.url}`,
    'store.ttl=2s',
    'store.url=http://127.0.0.1:1'
  ]
  const archive = first.path('backup.tar')
  t.match(await svcd(first, set, 'backup', archive), { code: 0 })
  await first.stop()
  const back = new Daemon({ directory: scratch(t) })
  t.teardown(() => back.kill())
  t.match(await svcd(back, [], 'restore', archive), { code: 0 })
  await back.start()
  t.same(await record(back, ended), shown)
  await back.stop()
})
