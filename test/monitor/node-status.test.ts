import { join } from 'node:path'
import t from 'tap'
import { NodeStatus } from '../../lib/monitor/node-status.js'
import { StoreError } from '../../lib/store/errors.js'
import { Journal } from '../../lib/store/journal.js'
import { until } from '../support/until.js'

/** A journal whose appends fail as long as `broken` says why. */
function breakable(test: typeof t) {
  const state = { broken: '' }
  const append = Journal.prototype.append
  Journal.prototype.append = function (record: unknown) {
    return state.broken === '' ? append.call(this, record) : Promise.reject(new StoreError(state.broken))
  }
  test.teardown(() => {
    Journal.prototype.append = append
  })
  return state
}

const open = (directory: string) => NodeStatus.open(join(directory, 'status.journal'), Date.now)

t.test(
  'what follows from a change that was made is not refused: it is owed until the disk takes it',
  async t => {
    const directory = t.testdir()
    const state = breakable(t as never)
    const status = await open(directory)
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
    const again = await open(directory)
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
  const state = breakable(t as never)
  const status = await open(t.testdir())
  state.broken = 'no space left'
  await t.rejects(status.report('a', 'x'), StoreError)
  t.equal(status.health.ok, false)
  state.broken = ''
  await until(() => status.health.ok)
  await status.close()
})
