// Controllers on one etcd: each has the audit log of what it wrote, and all are read as one (rules 6.11).
import { readFileSync } from 'node:fs'
import t from 'tap'
import { controllerOn, isPrimary } from '../../support/controllers.js'
import type { Daemon } from '../../support/daemon.js'
import { startEtcd } from '../../support/etcd.js'
import { giveKeys } from '../../support/keys.js'
import { until } from '../../support/until.js'

type Read = {
  readonly audit: Record<string, string>[]
  readonly missing: { controller: string; reason: string }[]
}

const read = async (daemon: Daemon): Promise<Read> => {
  const { body } = await daemon.request('GET', '/monitor/audit')
  return (body as { monitor: Read }).monitor
}
const named = ({ audit }: Read) =>
  audit.filter(({ type }) => type === 'group').map(({ controller, name }) => `${controller} ${name}`)

t.test('what several controllers wrote, one after the other, is one list on each of them', async t => {
  const etcd = await startEtcd(t)
  const [first, second] = [
    await controllerOn(t, etcd, 'controller.name=one'),
    await controllerOn(t, etcd, 'controller.name=two')
  ]
  await first.start()
  await until(() => isPrimary(first))
  giveKeys(first, second)
  await second.start()
  await until(async () => (await second.request('GET', '/config/node')).status === 200)
  await first.create('group', 'a', {})
  t.strictSame(named(await read(second)), ['one a'])

  await first.kill()
  await until(() => isPrimary(second))
  await second.create('group', 'b', {})
  const alone = await read(second)
  t.strictSame(named(alone), ['two b'])
  t.match(alone.missing, [{ controller: 'one', reason: /it cannot be asked|it is not there/ }])
  t.equal(alone.missing.length, 1)
  // Its lease ends.
  await until(async () => (await read(second)).missing[0]?.reason === 'it is not there')

  await first.start()
  await until(async () => named(await read(first)).length === 2)
  const both = await read(first)
  t.strictSame(named(both), ['two b', 'one a'])
  t.strictSame(both.missing, [])
  t.strictSame(await read(second), both)
  await t.test('and so are the machines of no node (rules 4.37)', async t => {
    // The answer is a script of iPXE, and no JSON.
    for (const [i, one] of [first, second, second].entries())
      await one
        .request('GET', `/boot/search/mac/02:00:00:00:00:0${i + 1}?serial=SN10${i}`)
        .catch(() => undefined)
    const list = async (of: Daemon) => {
      const { body } = await of.request('GET', '/monitor/unknown')
      const { unknown } = (body as { monitor: { unknown: Record<string, { serial: string }> } }).monitor
      return Object.values(unknown).map(({ serial }) => serial)
    }
    t.strictSame((await list(first)).sort(), ['SN100', 'SN101', 'SN102'])
    t.strictSame((await list(second)).sort(), ['SN100', 'SN101', 'SN102'])
  })
  const [line = ''] = readFileSync(first.path('state', 'audit.log'), 'utf8').split('\n')
  t.equal(JSON.parse(line).controller, 'one', 'the file says it too')
  await first.stop()
  await second.stop()
})
