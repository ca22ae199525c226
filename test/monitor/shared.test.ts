// The states and boots of nodes where controllers share them: what is written, and when.
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { runSync } from '../../lib/base/concurrency.js'
import type { View } from '../../lib/model/stored.js'
import { Boots } from '../../lib/monitor/boots.js'
import { NodeStatus } from '../../lib/monitor/node-status.js'
import { StoreError } from '../../lib/store/errors.js'
import type { OpenRecords, Records } from '../../lib/store/records.js'
import { MemoryRecords } from '../support/memory-records.js'
import { until } from '../support/until.js'

/** Records that controllers share, in memory. */
class Shared extends MemoryRecords {
  override isShared = true
  override takesAddition = () => false
  #records: Records<never> | undefined

  readonly open: OpenRecords = async memory => {
    const records = await this.opener('kind')(memory)
    this.#records = records as unknown as Records<never>
    return records
  }

  /** The names that were written, in order. */
  get written(): string[] {
    return this.writes.flat().map(({ name }) => name)
  }

  /** Another controller writes from now on, and all is taken anew. */
  stepDown(): void {
    this.isReadOnly = true
    if (this.#records) runSync(this.#records.loading([]))
  }

  /** Another controller has stored this of a node. */
  told(name: string, ...records: object[]): void {
    this.#records?.applyRemote(name, records.map(record => `${JSON.stringify(record)}\n`).join(''))
  }
}

const log = { warn: () => {}, info: () => {} }
const statusOn = (shared: Shared) => NodeStatus.open(shared.open, Date.now, log)
const bootsOn = (shared: Shared) => Boots.open(shared.open, Date.now)
const view = (...nodes: string[]) =>
  ({
    get: (type: string, name: string) => (type === 'node' && nodes.includes(name) ? {} : undefined)
  }) as unknown as View
const seen = { step: 'script', about: 'a', from: '10.0.0.1', place: 'node' } as const

// rules 11.17
t.test('reasons, which strangers can cause, are written for 200 nodes at once', async t => {
  const shared = new Shared()
  const status = await statusOn(shared)
  for (let i = 0; i < 500; i++) status.setReason(`n${i}`, 'no image')
  await until(() => shared.written.length > 0)
  await sleep(100)
  t.equal(shared.written.length, 200)
  await until(() => shared.written.length === 400)
  await status.close()
})

t.test('a report that waits goes with its node to the new name, or nowhere', async t => {
  const shared = new Shared()
  const status = await statusOn(shared)
  for (const name of ['n1', 'n2', 'other']) await status.report(name, 'installer.started')
  let free = () => {}
  const gate = new Promise<void>(resolve => {
    free = resolve
  })
  shared.before = () => gate
  const dropped = status.drop('other')
  const reports = ['n1', 'n2'].map(name => status.report(name, 'installer.completed'))
  const changes = [status.rename('n1', 'to'), status.drop('n2')]
  free()
  await Promise.all([dropped, ...reports, ...changes])
  const completed = [...shared.texts('kind')].filter(([, text]) => text.includes('installer.completed'))
  t.strictSame(
    completed.map(([name]) => name),
    ['to']
  )
  t.equal(status.state('to'), 'installer.completed')
  t.equal(status.state('n2'), null)
  await status.close()
})

t.test('who was overtaken owes nothing, is well, and takes what the other one stores', async t => {
  const shared = new Shared()
  const status = await statusOn(shared)
  await status.report('n1', 'installer.started')
  shared.before = async () => {
    throw new StoreError('another controller writes')
  }
  await t.rejects(status.report('n1', 'installer.downloaded'), StoreError)
  await status.drop('n1')
  t.equal(status.health.ok, false)
  let fail = () => {}
  shared.before = () =>
    new Promise((_, reject) => {
      fail = () => reject(new StoreError('another controller writes'))
    })
  const late = status.report('n3', 'installer.started')
  await sleep(20)
  shared.stepDown()
  fail()
  await t.rejects(late, { status: 503, message: /another controller writes/ })
  await until(() => status.health.ok, 'it to be well: the other one writes the states')
  shared.told('n1', {
    node: 'n1',
    history: [{ state: 'installer.completed', time: '2026-01-01T00:00:00.000Z' }]
  })
  t.equal(status.state('n1'), 'installer.completed')
  status.setReason('n1', 'no image')
  shared.told('n1')
  t.equal(status.state('n1'), null)
  const { length } = shared.writes
  await status.drop('n2')
  await status.close()
  t.equal(shared.writes.length, length, 'and writes nothing')
})

t.test('boots that could not be written before another one took over are not tried for ever', async t => {
  const shared = new Shared()
  const boots = await bootsOn(shared)
  let fail = () => {}
  shared.before = () =>
    new Promise((_, reject) => {
      fail = () => reject(new StoreError('another controller writes'))
    })
  boots.record('n1', seen)
  await sleep(100)
  shared.stepDown()
  fail()
  await sleep(50)
  t.equal(boots.health.ok, true)
  await boots.close()
})

t.test('what a standby sees is written once it writes, unless the other one saw more', async t => {
  const shared = new Shared()
  shared.isReadOnly = true
  const boots = await bootsOn(shared)
  boots.record('n1', seen)
  boots.record('n2', seen)
  const newer = Date.now() + 60_000
  shared.told('n2', {
    node: 'n2',
    past: [],
    boot: JSON.stringify([newer, '10.0.0.2', 0, true, false, null, [['menu', '', '', 0]]])
  })
  shared.told('n1', {
    node: 'n1',
    past: [],
    boot: JSON.stringify([1, '10.0.0.1', 0, true, false, null, [['menu', '', '', 0]]])
  })
  t.strictSame(
    boots.of('n1').boots.map(({ steps }) => steps.map(({ step }) => step)),
    [['script']]
  )
  t.strictSame(
    boots.of('n2').boots.map(({ steps }) => steps.map(({ step }) => step)),
    [['menu']]
  )
  await sleep(100)
  t.strictSame(shared.written, [])
  shared.isReadOnly = false
  boots.catchUp(view('n1', 'n2'))
  await until(() => shared.written.length > 0)
  t.strictSame(shared.written, ['n1'])
  await boots.close()
})
