// The states and boots of nodes in a real etcd: two controllers share them, and they come from files and go
// back.
import { copyFileSync, cpSync, readFileSync } from 'node:fs'
import { get } from 'node:http'
import t from 'tap'
import { isPrimary, twoControllers } from '../../support/controllers.js'
import { Daemon } from '../../support/daemon.js'
import { startEtcd } from '../../support/etcd.js'
import { scratch } from '../../support/scratch.js'
import { svcd } from '../../support/svcd.js'
import { until } from '../../support/until.js'

const told = (name: string, state: string) => ({ monitor: { status: { [name]: { state } } } })

async function report(daemon: Daemon, name: string, state: string): Promise<void> {
  const { status, body } = await daemon.request('POST', `/monitor/node/${name}`, told(name, state))
  if (status !== 204) throw new Error(`${status} ${JSON.stringify(body)}`)
}

async function statesOf(daemon: Daemon): Promise<Record<string, string | null>> {
  const { body } = await daemon.request('GET', '/monitor/node')
  const { status } = (body as { monitor: { status: Record<string, { state: string | null }> } }).monitor
  return Object.fromEntries(Object.entries(status).map(([name, { state }]) => [name, state]))
}

const historyOf = async (daemon: Daemon, name: string) =>
  (await daemon.monitor(name)).history.map(({ state }) => state)

/** The steps of the boots of a node. */
async function stepsOf(daemon: Daemon, name: string): Promise<string[]> {
  const { body } = await daemon.request('GET', `/monitor/node/${name}/_boots`)
  const { boots } = (
    body as { monitor: { boots: Record<string, { boots: { steps: { step: string }[] }[] }> } }
  ).monitor.boots[name] ?? { boots: [] }
  return boots.flatMap(({ steps }) => steps.map(({ step }) => step))
}

/** Node n1, n2, … asks for its boot script. */
const boot = (daemon: Daemon, i: number) =>
  new Promise<void>((resolve, reject) => {
    const { address: host, port } = daemon.client()
    const path = `/boot/search/mac/52:54:00:00:00:0${i}`
    get({ host, port, path, localAddress: `127.0.1.${i}` }, answer => answer.resume().on('end', resolve)).on(
      'error',
      reject
    )
  })

// rules 11.17
t.test('states and boots are those of both controllers, whichever writes', async t => {
  const [first, second, etcd] = await twoControllers(t)
  await first.create('network', 'cluster', { network: '127.0.0.0/8' })
  await first.create('group', 'g', { interfaces: [{ interface: 'BOOTIF', network: 'cluster' }] })
  for (const i of [1, 2, 3, 4])
    await first.create('node', `n${i}`, {
      group: 'g',
      interfaces: [{ interface: 'BOOTIF', macaddress: `52:54:00:00:00:0${i}`, ipaddress: `127.0.1.${i}` }]
    })
  await report(first, 'n1', 'installer.started')
  await report(second, 'n1', 'installer.downloaded')
  await report(second, 'n2', 'installer.started')
  await report(first, 'n3', 'installer.started')
  await report(first, 'n4', 'installer.started')
  t.equal((await second.request('GET', '/config/node/n3/_delete')).status, 204)
  await second.create('node', 'n3', { group: 'g' })
  t.match(
    await first.request('POST', '/config/node/n4', { config: { node: { n4: { newnodename: 'n5' } } } }),
    { status: 204 }
  )
  const states = { n1: 'installer.downloaded', n2: 'installer.started', n3: null, n5: 'installer.started' }
  t.strictSame(await statesOf(first), states)
  await boot(first, 1)
  await boot(second, 2)
  const key = Buffer.from('/svcd/records/node-boots/n1').toString('base64')
  await until(async () => (await etcd.ask('kv/range', { key })).count === '1', 'the boot to be in etcd')

  await first.kill()
  await until(() => isPrimary(second))
  t.strictSame(await statesOf(second), states)
  t.strictSame(await historyOf(second, 'n1'), ['installer.started', 'installer.downloaded'])
  t.strictSame(await historyOf(second, 'n5'), ['installer.started'])
  t.strictSame(await stepsOf(second, 'n1'), await stepsOf(second, 'n2'), 'each controller saw one boot')
  t.equal((await stepsOf(second, 'n1')).length, 1)
  await report(second, 'n1', 'installer.completed')

  await first.start()
  await until(async () => (await first.request('GET', '/config/node')).status === 200)
  const boots = Buffer.from('/svcd/records/node-boots/n2').toString('base64')
  await until(
    async () => (await etcd.ask('kv/range', { key: boots })).count === '1',
    'the boot that it saw before'
  )
  await second.stop()
  await until(() => isPrimary(first))
  t.strictSame(await statesOf(first), { ...states, n1: 'installer.completed' })
  t.strictSame(await stepsOf(first, 'n2'), await stepsOf(first, 'n1'))
  await report(first, 'n2', 'installer.completed')

  const asked = async () => (await first.request('GET', '/monitor/primary')).status
  t.equal(await asked(), 200)
  etcd.child.process.kill('SIGSTOP')
  await until(async () => (await asked()) === 503, 'it to say that it may have lost the right to write')
  etcd.child.process.kill('SIGCONT')
  await until(async () => (await asked()) === 200)
  await first.stop()
})

// rules 11.17
t.test('a node that reports without end is told to wait', async t => {
  const [first, second] = await twoControllers(t)
  await first.create('network', 'cluster', { network: '10.141.0.0/16' })
  await first.create('group', 'g', {})
  for (const name of ['n1', 'n2']) await first.create('node', name, { group: 'g' })
  const client = second.client()
  const statuses: number[] = []
  for (let i = 0; i < 70; i++)
    statuses.push((await client.post('/monitor/node/n1', told('n1', `installer.${i}`))).status)
  t.strictSame(statuses.slice(0, 60), Array(60).fill(204))
  t.equal(statuses.at(-1), 503)
  await report(first, 'n2', 'installer.started')
  t.equal((await historyOf(first, 'n1')).length, 20)
  await first.stop()
  await second.stop()
})

// rules 11.17
t.test('states come along from files, are in a backup, and go back', async t => {
  const etcd = await startEtcd(t)
  const set = [
    'store.medium=etcd',
    `store.endpoints=${etcd.url}`,
    'store.ttl=2s',
    'store.url=http://127.0.0.1:1'
  ]
  /** A daemon that goes on with the state of another one. */
  const on = (more: string[], before?: Daemon) => {
    const daemon = new Daemon({ directory: scratch(t), set: more })
    t.teardown(() => daemon.kill())
    if (before) cpSync(before.path('state'), daemon.path('state'), { recursive: true })
    return daemon
  }
  const files = on([])
  await files.start()
  await files.create('network', 'cluster', { network: '10.141.0.0/16' })
  await files.create('group', 'g', {})
  for (const name of ['n1', 'n2']) await files.create('node', name, { group: 'g' })
  await report(files, 'n1', 'installer.downloaded')
  await report(files, 'n2', 'installer.downloaded')
  await files.stop()
  t.match(await svcd(files, set, 'store', 'copy', 'files', 'etcd'), { code: 0 })

  const daemon = on(set, files)
  await daemon.start()
  await until(() => isPrimary(daemon))
  t.strictSame(await statesOf(daemon), { n1: 'installer.downloaded', n2: 'installer.downloaded' })
  await report(daemon, 'n1', 'installer.completed')
  t.equal((await daemon.request('GET', '/config/node/n2/_delete')).status, 204)
  await daemon.stop()
  const again = on(set, daemon)
  await again.start()
  await until(() => isPrimary(again))
  t.strictSame(await statesOf(again), { n1: 'installer.completed' }, 'the files count once')
  const archive = daemon.path('backup.tar')
  const base64 = (text: string) => Buffer.from(text).toString('base64')
  await etcd.ask('kv/put', { key: base64('/svcd/records/node-status/n9'), value: base64('5\n{"half') })
  t.match(await svcd(again, set, 'backup', archive), { code: 0 })
  const tar = readFileSync(archive).toString('latin1')
  t.match(tar, /state\/node-status\.journal/)
  t.match(tar, /installer\.completed/)
  t.notMatch(tar, /half/, 'what is no record is left out')
  t.equal(tar.split('state/node-status.journal').length, 2, 'once')
  await again.stop()

  const back = on([])
  t.match(await svcd(back, set, 'store', 'copy', 'etcd', 'files'), { code: 0 })
  for (const name of ['secret.key', 'token.key', 'admin-password'])
    copyFileSync(again.path('state', name), back.path('state', name))
  await back.start()
  t.strictSame(await historyOf(back, 'n1'), ['installer.downloaded', 'installer.completed'])
  await back.stop()
})
