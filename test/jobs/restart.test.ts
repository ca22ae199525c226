import t, { type Test } from 'tap'
import { JobStoppedError, type Jobs } from '../../lib/jobs/jobs.js'
import { KEPT_MS } from '../../lib/jobs/records.js'
import { Gate, openJobs, outcome, readRecord, recordIds, settled, spec } from '../support/jobs.js'
import { until } from '../support/until.js'

// They wait more than they work.
t.jobs = 4

// rules 2.9
t.test('what was told and what was not survives a restart', { buffered: true }, async t => {
  const before = await openJobs(t)
  const { records } = before
  const gate = new Gate('a')
  const job = await before.jobs.submit(gate.spec)
  const { line, result } = await gate.began
  line('one')
  await before.jobs.poll(job.id, 'alice')
  line('two')
  result('count', 7)
  gate.end()
  await job.done
  await before.jobs.poll(job.id, 'bob')
  const record = await before.jobs.record(job.id)
  await before.jobs.close(0)

  const { jobs } = await openJobs(t, { records })
  t.same(await jobs.record(job.id), record)
  t.same(
    jobs.records().map(({ id }) => id),
    [job.id]
  )
  t.equal((await jobs.poll(job.id, 'alice'))?.message, 'two')
  t.equal(await jobs.poll(job.id, 'alice'), undefined)
  t.equal(await jobs.poll(job.id, 'bob'), undefined, 'he had the end')
  t.equal((await jobs.poll(job.id, 'carol'))?.message, 'one;;two')
  await jobs.close(0)

  const again = await openJobs(t, { records })
  for (const user of ['alice', 'bob', 'carol']) t.equal(await again.jobs.poll(job.id, user), undefined, user)
})

t.test('close: what waits is interrupted at once, what runs after the grace', { buffered: true }, async t => {
  const { jobs, records } = await openJobs(t, { parallel: 2 })
  const [quick, slow, waiting] = ['quick', 'slow', 'waiting'].map(name => new Gate(name)) as [
    Gate,
    Gate,
    Gate
  ]
  const a = await jobs.submit(quick.spec)
  const b = await jobs.submit(slow.spec)
  const c = await jobs.submit(waiting.spec)
  const { signal } = await slow.began
  signal.addEventListener('abort', () => slow.end(new Error('slow was aborted')))
  // Time for what comes before its end on a machine that is busy.
  const graceMs = 3000
  const closing = jobs.close(graceMs)
  await t.rejects(jobs.submit(spec(() => {})), { status: 503, message: 'the service is shutting down' })
  t.match(await outcome(c), new JobStoppedError('pack of OS image waiting was interrupted'))
  t.equal(signal.aborted, false, 'it is given time')
  quick.end()
  t.equal(await outcome(a), undefined, 'this one makes it')
  t.match(await outcome(b), new JobStoppedError('pack of OS image slow was interrupted'))
  await closing
  t.same([...waiting.events, ...quick.events, ...slow.events], ['+quick', '-quick', '+slow', '-slow'])
  for (const [job, state, message, lines] of [
    [a, 'done', 'done', []],
    [b, 'failed', 'failed: interrupted', ['slow was aborted', 'failed: interrupted']],
    [c, 'failed', 'failed: interrupted', ['failed: interrupted']]
  ] as const)
    t.match(readRecord(records, job.id), { state, message, lines: { first: lines } })
})

t.test('close gives up what does not end', { buffered: true, timeout: 60_000 }, async t => {
  const { jobs, records, log } = await openJobs(t)
  const gate = new Gate('stubborn')
  const job = await jobs.submit(gate.spec)
  await gate.began
  await jobs.close(0)
  t.match(readRecord(records, job.id), { state: 'failed', message: 'failed: interrupted' })
  t.match(log.join(''), /stubborn.* did not end when it was stopped/)
  t.match(await outcome(job), new JobStoppedError('pack of OS image stubborn was interrupted'))
  gate.end()
})

async function sweptBy(t: Test, jobs: Jobs, id: string): Promise<void> {
  await until(() => !jobs.records().some(record => record.id === id))
  t.equal(await jobs.record(id), undefined)
  t.equal(await jobs.poll(id, 'alice'), undefined)
}

// rules 2.9
t.test('a record is kept for 7 days after its end', { buffered: true }, async t => {
  let now = Date.parse('2026-01-01')
  const first = await openJobs(t, { now: () => now })
  const { records } = first
  const gate = new Gate('a')
  const slow = await first.jobs.submit(gate.spec)
  const old = await first.jobs.submit(spec(() => {}))
  await old.done
  now += KEPT_MS - 1
  const young = await first.jobs.submit(spec(() => {}))
  await young.done
  await settled()
  t.equal((await first.jobs.record(old.id))?.state, 'done', 'not a moment too early')
  now += 1
  const next = await first.jobs.submit(spec(() => {}))
  await next.done
  await sweptBy(t, first.jobs, old.id)
  gate.end()
  await slow.done
  t.same(recordIds(records), [slow, young, next].map(({ id }) => id).sort(), 'one that ran is young')
  await first.jobs.close(0)
  now += KEPT_MS
  const { jobs } = await openJobs(t, { records, now: () => now })
  for (const { id } of [slow, young, next]) await sweptBy(t, jobs, id)
  t.same(recordIds(records), [])
})
