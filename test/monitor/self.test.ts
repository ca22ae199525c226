import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { Health, LoopDelay, queueCondition } from '../../lib/monitor/health.js'
import { Gate, openJobs, outcome } from '../support/jobs.js'
import { until } from '../support/until.js'

function busy(ms: number): void {
  const end = performance.now() + ms
  while (performance.now() < end);
}

// rules 6.3
t.test('an event loop that is late in the mean is named, and well again afterwards', async t => {
  const loop = new LoopDelay(200, 1000)
  t.teardown(() => loop.close())
  t.same(loop.condition, { ok: true, reason: '' })
  let late = true
  const work = (async () => {
    while (late) {
      busy(500)
      await sleep(1)
    }
  })()
  await until(() => !loop.condition.ok)
  t.match(loop.condition.reason, /event loop is more than 200 ms late/)
  late = false
  await work
  await until(() => loop.condition.ok)
  t.equal(loop.condition.reason, '')
})

// rules 6.3
t.test('more requests that wait than the ini allows are named', async t => {
  const { jobs } = await openJobs(t, { parallel: 1 })
  const gates = ['first', 'second', 'third'].map(name => new Gate(name))
  const submitted = []
  for (const gate of gates) submitted.push(await jobs.submit(gate.spec))
  await gates[0]?.began
  t.same(queueCondition(jobs, 2), { ok: true, reason: '' })
  t.same(queueCondition(jobs, 1), { ok: false, reason: 'more than 1 requests wait to run' })
  for (const gate of gates) gate.end()
  await Promise.all(submitted.map(outcome))
  t.same(queueCondition(jobs, 1), { ok: true, reason: '' })
})

t.test('since when something has failed is known also when nobody asked', async t => {
  let nowMs = Date.UTC(2026, 10, 20)
  let reason = ''
  let looks = 0
  const condition = () => {
    looks++
    return { ok: reason === '', reason }
  }
  const health = new Health({ dhcp: [condition] }, () => nowMs, 10)
  t.teardown(() => health.close())
  const looked = async () => {
    const before = looks
    await until(() => looks > before)
  }
  reason = 'the checker refuses it'
  nowMs += 3_600_000
  await looked()
  nowMs += 3_600_000
  t.same(health.of('dhcp'), { status: 'failed', reason, since: '2026-11-20T01:00:00.000Z' })
  reason = 'it refuses another line'
  t.same(health.of('dhcp'), { status: 'failed', reason, since: '2026-11-20T01:00:00.000Z' }, 'in other words')
  reason = ''
  t.same(health.of('dhcp'), { status: 'ok', reason, since: '2026-11-20T02:00:00.000Z' })
})
