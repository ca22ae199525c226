// The cases of the contract, on objects in a real etcd: asked of the primary, and of one that
// follows it.
import { cpSync, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { createLog } from '../../../lib/base/log.js'
import { loadConfig } from '../../../lib/config/load.js'
import { type Daemon, startDaemon } from '../../../lib/daemon.js'
import { openEtcd } from '../../../lib/store/etcd/open.js'
import { check, rows, type Step } from '../../api/contract/case.js'
import { refusals, steps } from '../../api/contract/cases.js'
import { pretended } from '../../api/contract/services.js'
import { Stage } from '../../api/contract/world.js'
import { type EtcdServer, startEtcd } from '../../support/etcd.js'
import { freePort } from '../../support/free-port.js'
import { inject } from '../../support/inject.js'
import { ended, endedText } from '../../support/planted-request.js'
import { scratch } from '../../support/scratch.js'
import { until } from '../../support/until.js'

const ini = fileURLToPath(new URL('../../../etc/svcd.ini', import.meta.url))

/** A stage whose objects are in etcd. */
async function stageOn(t: Test, etcd: EtcdServer): Promise<Stage> {
  const port = await freePort()
  const stage = await Stage.open(t, ...sharing(etcd, port, 'controller'))
  // A request that has ended, where controllers share the records.
  const base64 = (text: string) => Buffer.from(text).toString('base64')
  const value = base64(`${JSON.stringify(JSON.parse(endedText()))}\n`)
  await etcd.ask('kv/put', { key: base64(`/svcd/records/jobs/${ended.id}`), value })
  await stage.c.restart()
  const { store } = loadConfig(ini, stage.c.overrides)
  const medium = await openEtcd(store)
  t.teardown(() => medium.close())
  stage.c.elsewhere = async () => Object.fromEntries([...(await medium.read()).files()].map(withoutPlace))
  return stage
}

/** Where the directory of an image is, is noted behind the answers. */
const withoutPlace = ([path, text]: readonly [string, string]): readonly [string, string] => {
  if (!/^(osimage|tree)\//.test(path)) return [path, text]
  const { controller: _, ...doc } = JSON.parse(text)
  return [path, JSON.stringify(doc)]
}

const sharing = ({ url }: EtcdServer, port: number, name: string) => [
  ...['store.medium=etcd', `store.endpoints=${url}`, `store.url=http://127.0.0.1:${port}`],
  ...[`http.listen=127.0.0.1:${port}`, `controller.name=${name}`]
]

const revisionOf = async (daemon: Daemon): Promise<[string, number]> => {
  const { body } = await inject(daemon.server, { method: 'GET', path: '/version' })
  const { role, revision } = JSON.parse(body.toString()).controller
  return [role, revision]
}

/** A controller that follows the one of a stage, with its keys and files, and is asked in its place. */
async function follow(t: Test, { c }: Stage, etcd: EtcdServer): Promise<void> {
  const directory = scratch(t)
  const state = join(directory, 'state')
  mkdirSync(state, { mode: 0o700 })
  for (const name of ['secret.key', 'token.key', 'admin-password'])
    cpSync(join(c.directory, 'state', name), join(state, name))
  cpSync(join(c.directory, 'files'), join(directory, 'files'), { recursive: true })
  const log: string[] = []
  const config = loadConfig(ini, [
    ...c.overrides,
    ...[`paths.state=${state}`, `paths.files=${join(directory, 'files')}`],
    // [image] directory has to be the same; this one works on no directory there.
    ...sharing(etcd, await freePort(), 'second'),
    ...pretended(directory)
  ])
  const daemon = await startDaemon(
    config,
    createLog('info', line => log.push(line))
  )
  t.teardown(() => daemon.close(1000))
  const caughtUp = () =>
    until(
      async () => {
        const [[, written], [role, known]] = [await revisionOf(c.daemon), await revisionOf(daemon)]
        return role === 'standby' && known >= written
      },
      () => log.join('\n')
    )
  await caughtUp()
  const { server } = daemon
  c.asked = { server, from: FROM, caughtUp }
  await until(async () => (await c.get('/config/node')).status === 200)
}

/**
 * The loopback of another controller has no rights at the one that writes: an address of the world's network
 * is in its place.
 */
const FROM = '10.141.7.7'

/** What is otherwise with objects in etcd. `role`: what the daemon says of itself. */
function here(key: string, step: Step, role: 'primary' | 'standby'): Step {
  const { files, ...rest } = step
  if (role === 'standby' && key === 'GET /monitor/primary' && step.status === 200)
    return {
      what: step.what,
      ask: step.ask,
      status: 503,
      says: /this controller is a standby: it does not write/
    }
  const told = JSON.parse(JSON.stringify(files ?? {}).replaceAll('"127.0.0.1"', `"${FROM}"`))
  // What a standby answers by itself leaves no reason of the node in what is stored.
  if (role === 'standby' && isAnsweredThere(key)) delete told['node-status.journal']
  return {
    ...rest,
    ...(step.what === 'the daemon itself'
      ? { shows: { monitor: { service: { svcd: { status: 'ok' } } } } }
      : {}),
    ...(files && role === 'standby' ? { files: told } : files ? { files } : {})
  }
}

const isAnsweredThere = (key: string) => /^GET \/boot(\/(short|disk|search|install)|$)/.test(key)

// rules 1.5, 11.15, 11.16
t.test('asked of the primary', async t => {
  const stage = await stageOn(t, await startEtcd(t))
  for (const row of rows)
    await t.test(row.key, async t => {
      for (const step of [...steps(row), ...refusals(row)])
        await check(t, stage, row, here(row.key, step, 'primary'))
    })
})

// rules 1.5, 11.15, 11.16
t.test('asked of a controller that follows', async t => {
  const etcd = await startEtcd(t)
  const stage = await stageOn(t, etcd)
  await follow(t, stage, etcd)
  for (const row of rows)
    await t.test(row.key, async t => {
      for (const step of [...steps(row), ...refusals(row)])
        await check(t, stage, row, here(row.key, step, 'standby'))
    })
})
