import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import type { View } from '../../lib/model/stored.js'
import { NodeStatus } from '../../lib/monitor/node-status.js'
import { StoreError } from '../../lib/store/errors.js'
import { MemoryRecords } from '../support/memory-records.js'
import { until } from '../support/until.js'

/** A store whose writes fail as long as `broken` says why. */
class Breakable extends MemoryRecords {
  broken = ''
  override before: MemoryRecords['before'] = () => {
    if (this.broken !== '') throw new Error(this.broken)
  }
}

const open = (records: MemoryRecords, log: string[] = []) =>
  NodeStatus.open(records.opener('node-status'), Date.now, {
    warn: line => log.push(line),
    info: line => log.push(line)
  })

t.test(
  'what follows from a change that was made is not refused: it is owed until the disk takes it',
  async t => {
    const state = new Breakable()
    const status = await open(state)
    await status.report('a', 'installer.started')
    await status.report('b', 'installer.started')
    state.broken = 'no space left'
    await status.drop('a')
    await status.rename('b', 'c')
    t.same([status.state('a'), status.state('b'), status.state('c')], [null, null, 'installer.started'])
    t.match(status.health, { ok: false, reason: /no space left/ })
    await t.rejects(status.report('c', 'installer.completed'), StoreError)
    t.equal(status.state('c'), 'installer.started', 'a report that could not be kept is not shown')

    state.broken = ''
    await status.report('a', 'installer.anew')
    t.same(status.health, { ok: true, reason: '' })
    await status.close()
    const again = await open(state)
    t.same(
      again.history('a').map(report => report.state),
      ['installer.anew'],
      'the old node is forgotten, its name may be another one'
    )
    t.equal(again.state('c'), 'installer.started')
    t.equal(again.state('b'), null)
    await again.close()
  }
)

t.test('health recovers by itself, without a report', async t => {
  const state = new Breakable()
  const status = await open(state)
  state.broken = 'no space left'
  await t.rejects(status.report('a', 'x'), StoreError)
  t.equal(status.health.ok, false)
  state.broken = ''
  await until(() => status.health.ok)
  await status.close()
})

// rules 6.2
t.test('why a node could not boot is kept over a restart, and goes with the name', async t => {
  const state = new Breakable()
  const reasons = (status: NodeStatus) => ['a', 'b', 'c', 'd'].map(node => status.reason(node))
  const first = await open(state)
  t.equal(first.setReason('a', 'no image'), true, 'news')
  t.equal(first.setReason('a', 'no image'), false)
  first.setReason('b', 'no kernel')
  first.setReason('b', null)
  first.setReason('c', 'node c has no image')
  await first.report('c', 'x')
  await first.rename('c', 'd')
  await first.close()
  const second = await open(state)
  t.same(reasons(second), ['no image', null, null, null])
  t.equal(second.state('d'), 'x')
  state.broken = 'no space left'
  second.setReason('b', 'no kernel')
  t.equal(second.reason('b'), 'no kernel', 'a disk that is full keeps nobody from reading it')
  await until(() => !second.health.ok)
  t.match(second.health, { ok: false, reason: /no space left/ })
  state.broken = ''
  await second.drop('a')
  t.same(second.health, { ok: true, reason: '' })
  await second.close()
  const third = await open(state)
  t.same(reasons(third), [null, 'no kernel', null, null])
  await third.catchUp({ get: () => undefined } as unknown as View)
  t.same(reasons(third), [null, null, null, null], 'of a node that was deleted during a crash')
  await third.close()
})

// rules 6.2
t.test('who asks in the name of a node again and again neither fills its records nor the log', async t => {
  const records = new MemoryRecords()
  const status = await open(records)
  const started = performance.now()
  let news = 0
  let last = ''
  for (let i = 0; i < 200; i++) {
    last = `template x: it knows no ${i}`
    if (status.setReason('a', last)) news++
    t.equal(status.reason('a'), last, 'it is read at once')
    await sleep(2)
  }
  t.equal(news, 10)
  const lines = () => records.lines('node-status')
  const seconds = Math.ceil((performance.now() - started) / 1000)
  t.ok(lines() <= seconds + 3, `${lines()} lines in ${seconds} s`)
  await status.close()
  const again = await open(records)
  t.equal(again.reason('a'), last)
  await again.close()
})

// rules 6.2
t.test(
  'a failed installation is in the log with node, step and cause, once for the same failure',
  async t => {
    const log: string[] = []
    const status = await open(new MemoryRecords(), log)
    const failure = 'installer.failed: download: cannot fetch http://10.141.0.1/files/x: 404'
    const told =
      'node a: the installation failed in step download: cannot fetch http://10.141.0.1/files/x: 404'
    for (const [reported, lines] of [
      ['installer.started', []],
      [failure, [told]],
      ['installer.started', []],
      [failure, []],
      ['installer.failed: init', ['node a: the installation failed in step init']],
      ['installer.failed: the installer stopped', ['node a: the installation failed: the installer stopped']],
      ['installer.failed', ['node a: the installation failed']],
      ['installer.completed', []],
      ['installer.failedlike: x', []],
      ['installer.failed', ['node a: the installation failed']],
      ['my own: installer.failed: x', []]
    ] as const) {
      log.length = 0
      await status.report('a', reported)
      t.same(log, lines, reported)
    }
    await status.close()
  }
)

// rules 6.2
t.test('a node that fails without end in other words is told at a pace', async t => {
  const log: string[] = []
  const status = await open(new MemoryRecords(), log)
  for (let n = 0; n < 100; n++) await status.report('a', `installer.failed: cause ${n}`)
  await status.report('b', 'installer.failed: cause')
  const of = (node: string) => log.filter(line => line.startsWith(`node ${node}: `)).length
  t.ok(of('a') >= 60 && of('a') < 80, `${of('a')} lines`)
  t.equal(of('b'), 1, 'another node is told')
  t.equal(status.history('a').at(-1)?.state, 'installer.failed: cause 99')
  await status.close()
})
