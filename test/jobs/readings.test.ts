import t from 'tap'
import { KEPT_MS, READING_KEPT_MS } from '../../lib/jobs/records.js'
import { Gate, openJobs, recordIds, settled, spec } from '../support/jobs.js'
import { until } from '../support/until.js'

const reading = { reads: true, remote: true } as const

// rules 8.1
t.test('of one user 8 requests that only read may be unfinished', async t => {
  const { jobs } = await openJobs(t)
  const gates = Array.from({ length: 8 }, (_, i) => new Gate(`${i}`))
  const eight = await Promise.all(gates.map(gate => jobs.submit({ ...gate.spec, ...reading })))
  const one = { ...spec(() => {}), ...reading }
  await t.rejects(jobs.submit(one), {
    status: 503,
    message: '8 requests of user admin that only read have not ended; try again in 10 s',
    headers: { 'Retry-After': '10' }
  })
  await (await jobs.submit({ ...one, by: 'user bob' })).done
  await (await jobs.submit(spec(() => {}))).done
  gates[0]?.end()
  await eight[0]?.done
  await (await jobs.submit(one)).done
  for (const gate of gates) gate.end()
})

// rules 2.9
t.test('the record of a request that only read is kept for an hour, also over a restart', async t => {
  let now = Date.parse('2026-01-01')
  const first = await openJobs(t, { now: () => now })
  const read = await first.jobs.submit({ ...spec(() => {}), ...reading })
  const changed = await first.jobs.submit(spec(() => {}))
  await Promise.all([read.done, changed.done])
  await first.jobs.close(0)
  now += READING_KEPT_MS - 1
  const { records } = first
  const second = await openJobs(t, { records, now: () => now })
  await settled()
  t.same(recordIds(records), [read, changed].map(({ id }) => id).sort())
  now += 1
  await second.jobs.close(0)
  const third = await openJobs(t, { records, now: () => now })
  await until(() => third.jobs.records().length === 1)
  t.same(recordIds(records), [changed.id])
  t.ok(READING_KEPT_MS < KEPT_MS)
})

// rules 8.2
t.test('all records have a bound: those that only read go first, then the oldest', async t => {
  const { jobs, records, log } = await openJobs(t, { mostBytes: 400_000 })
  const large = spec(({ result }) => result('x', 'x'.repeat(90_000)))
  const submit = async (more: object) => {
    const job = await jobs.submit({ ...large, ...more })
    await job.done
    return job.id
  }
  const ids: string[] = []
  for (const more of [{}, reading, {}, reading]) ids.push(await submit(more))
  const [a, b, c, d] = ids
  const left = (...expected: (string | undefined)[]) =>
    until(() => jobs.records().length === expected.length).then(() =>
      t.same(recordIds(records), [...expected].sort())
    )
  const e = await submit({})
  const f = await submit({})
  await left(a, c, d, e, f)
  const g = await submit({})
  await left(a, c, e, f, g)
  t.notMatch(log.join(''), /is removed/)
  const h = await submit({})
  await left(c, e, f, g, h)
  t.match(log.join(''), `the record of request ${a} (pack of OS image compute) is removed`)
  await jobs.close(0)
  const again = await openJobs(t, { records, mostBytes: 200_000 })
  await until(() => again.jobs.records().length === 2)
  t.same(recordIds(records), [g, h].sort(), 'a restart counts what is there')
  t.notOk([b, d].some(id => again.jobs.summary(id ?? '')))
})
