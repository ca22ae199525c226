import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { LoopDelay } from '../../lib/monitor/loop-delay.js'
import { queueCondition } from '../../lib/monitor/queue.js'
import { Gate, openJobs, outcome } from '../jobs/fixtures.js'

/** Waits for a condition to become well, or ill. */
async function becomes(part: { readonly condition: { ok: boolean } }, ok: boolean): Promise<void> {
  while (part.condition.ok !== ok) await sleep(20)
}

function busy(ms: number): void {
  const end = performance.now() + ms
  while (performance.now() < end);
}

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
  await becomes(loop, false)
  t.match(loop.condition.reason, /event loop is more than 200 ms late/)
  late = false
  await work
  await becomes(loop, true)
  t.equal(loop.condition.reason, '')
})

t.test('more requests that wait than the ini allows are named', async t => {
  const { jobs } = await openJobs(t, { parallel: 1 })
  const gates = ['first', 'second', 'third'].map(name => new Gate(name))
  const submitted = []
  for (const gate of gates) submitted.push(await jobs.submit(gate.spec))
  await gates[0]?.began
  t.same(queueCondition(jobs, 2), { ok: true, reason: '' })
  t.same(queueCondition(jobs, 1), { ok: false, reason: 'more than 1 requests wait to be run' })
  for (const gate of gates) gate.end()
  await Promise.all(submitted.map(outcome))
  t.same(queueCondition(jobs, 1), { ok: true, reason: '' })
})
