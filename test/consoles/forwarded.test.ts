import { copyFileSync, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { Controller } from '../support/controller.js'
import { startEtcd } from '../support/etcd.js'
import { freePort } from '../support/free-port.js'
import { scratch } from '../support/scratch.js'
import { until } from '../support/until.js'
import { attach, lab, type } from './lab.js'

// rules 13.6: the leader has the consoles. A user who asks a follower sees and types all the same.

const etcd = await startEtcd(t)
const reachable = async () => {
  const listen = `127.0.0.1:${await freePort()}`
  return [
    ...['store.medium=etcd', `store.endpoints=${etcd.url}`, 'store.ttl=2s'],
    ...[`http.listen=${listen}`, `http.url=http://${listen}`]
  ]
}
const leads = async (one: Controller) =>
  JSON.stringify((await one.get('/monitor/service/svcd')).body).includes('primary')
const leaderSettings = await reachable()
const { c: leader, machines } = await lab(t, ['n1'], async (...set) => {
  const started = await Controller.start(t, ...set, ...leaderSettings)
  await until(() => leads(started))
  return started
})
const state = join(scratch(t), 'state')
mkdirSync(state, { mode: 0o700 })
for (const key of ['secret.key', 'token.key', 'admin-password'])
  copyFileSync(join(leader.directory, 'state', key), join(state, key))
const follower = await Controller.start(t, ...(await reachable()), `paths.state=${state}`)
await until(async () => (await follower.get('/config/node')).status === 200)
const machine = machines.n1 as NonNullable<typeof machines.n1>

t.test('a console is attached, typed into and read through a follower', async t => {
  t.notOk(await leads(follower), 'the other controller leads')
  const mine = await attach(follower, 'n1')
  t.equal(mine.status, 200, mine.message)
  machine.says('login: ')
  await until(() => mine.text.includes('login: '))
  t.match(await type(follower, 'n1', { session: mine.session, input: 'root\r' }), { status: 204 })
  await until(() => machine.received === 'root\r')
  t.match(
    await type(leader, 'n1', { session: mine.session, input: 'x' }),
    { status: 204 },
    'the same session'
  )
  await until(async () => JSON.stringify((await follower.get('/monitor/console/n1')).body).includes('login:'))
  t.equal((await follower.get('/monitor/console/n1', { method: 'HEAD' })).status, 200, 'HEAD as GET')
  mine.leave()
  const audited = async () => JSON.stringify((await leader.get('/monitor/audit')).body)
  await until(async () => (await audited()).includes('"console":"detach"'))
  t.match(await audited(), /"who":"user admin"[^}]*"from":"127\.0\.0\.1"/, 'by whom, from where')
})

t.test('a follower passes on the refusal, and the end of the leader ends the console', async t => {
  t.match(await attach(follower, 'n9'), { status: 404 })
  t.equal((await attach(follower, 'n1', null)).status, 401)
  const mine = await attach(follower, 'n1')
  t.equal(mine.status, 200, mine.message)
  await leader.daemon.close(1000)
  await until(() => mine.closed)
})
