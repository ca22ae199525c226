import { mkdirSync, readdirSync, renameSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { identityIn } from '../../lib/disk/steps.js'
import { Audit } from '../../lib/monitor/audit.js'
import { scriptToken } from '../support/callers.js'
import { populated } from '../support/routes.js'
import { read } from '../support/state.js'
import { until } from '../support/until.js'

// rules 11.3, 11.9
t.test(
  'while another directory is in its place, the daemon writes nothing there, and comes back by itself',
  async t => {
    const c = await populated(t)
    const state = join(c.directory, 'state')
    const by = { token: await scriptToken(c, 'n1') }
    const report = async (word: string) => (await c.post('/monitor/node/n1', { state: word }, by)).status
    t.equal(await report('installer.first'), 204)
    renameSync(state, `${state}-away`)
    mkdirSync(state)
    c.log.length = 0
    for (let i = 0; i < 3; i++) {
      t.equal(await report('installer.lost'), 503, 'an open file is not enough')
      t.match((await c.post('/config/group/g', {})).body, {
        message: /is another directory than at the start/
      })
    }
    t.equal((await read(c, 'node', 'n1')).status, 'installer.first')
    t.equal((await c.get('/monitor/service/svcd')).status, 503)
    t.same(readdirSync(state), [])
    rmSync(state, { recursive: true })
    renameSync(`${state}-away`, state)
    await until(async () => (await c.get('/monitor/service/svcd')).status === 200)
    t.equal(await report('installer.second'), 204)
    t.equal((await c.post('/config/group/g', {})).status, 201)
    const count = (said: RegExp) => c.log.filter(line => said.test(line)).length
    for (const said of [
      /the store cannot be changed/,
      /the store can be changed again/,
      /the states of nodes cannot be written/,
      /the states of nodes are written again/
    ])
      t.equal(count(said), 1, `said once: ${said}`)
    await c.restart()
    t.equal((await read(c, 'node', 'n1')).status, 'installer.second')
  }
)

// rules 11.4, 11.9
t.test('the audit log comes back by itself, with the lines that waited, and says so once', async t => {
  const directory = t.testdir()
  const file = join(directory, 'audit.log')
  const log: string[] = []
  const ours = { same: directory, identity: 'another', otherwise: 'it is another directory' }
  const audit = new Audit({
    file,
    machinesFile: join(directory, 'audit-machines.log'),
    maxBytes: 10_000,
    keep: 1,
    now: () => 0,
    log: { error: line => log.push(`error ${line}`), info: line => log.push(`info ${line}`) },
    ownershipCheck: ours
  })
  const actor = { who: 'user admin', from: '127.0.0.1', mayTakeAddresses: true }
  for (const name of ['a', 'b'])
    await audit.record(actor, [{ type: 'group', name, before: undefined, after: { name } }], 'change')
  t.same(audit.health, { ok: false, reason: 'the audit log cannot be written: it is another directory' })
  t.same(readdirSync(directory), [])
  ours.identity = identityIn(statSync(directory, { bigint: true }))
  await until(() => audit.health.ok)
  t.match(log, [
    /^error the audit log cannot be written, .*another directory$/,
    /^info the audit log is written again$/
  ])
  t.same(readdirSync(directory), ['audit.log'])
  await audit.close()
})
