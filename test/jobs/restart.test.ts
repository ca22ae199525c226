import { mkdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { JobStoppedError, type Jobs } from '../../lib/jobs/jobs.js'
import { KEPT_MS } from '../../lib/jobs/records.js'
import { start } from '../support/child.js'
import { Gate, openJobs, outcome, readRecord, recordFiles, settled, spec } from '../support/jobs.js'
import { scratch } from '../support/scratch.js'
import { until } from '../support/until.js'

// They wait more than they work.
t.jobs = 4

// rules 2.9
t.test('what was told and what was not survives a restart', { buffered: true }, async t => {
  const directory = join(scratch(t), 'jobs')
  const before = await openJobs(t, { directory })
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

  const { jobs } = await openJobs(t, { directory })
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

  const again = await openJobs(t, { directory })
  for (const user of ['alice', 'bob', 'carol']) t.equal(await again.jobs.poll(job.id, user), undefined, user)
})

t.test('files are 0600, named by their ids, in a directory of 0700', { buffered: true }, async t => {
  const { jobs, directory } = await openJobs(t)
  const job = await jobs.submit(spec(({ line }) => line('one')))
  await job.done
  t.equal(statSync(directory).mode & 0o777, 0o700)
  t.equal(statSync(join(directory, `${job.id}.json`)).mode & 0o777, 0o600)
  t.same(recordFiles(directory), [`${job.id}.json`])
  t.match(readRecord(directory, job.id), { id: job.id, state: 'done', lines: { first: ['one'] } })
})

t.test('close: what waits is interrupted at once, what runs after the grace', { buffered: true }, async t => {
  const { jobs, directory } = await openJobs(t, { parallel: 2 })
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
    t.match(readRecord(directory, job.id), { state, message, lines: { first: lines } })
})

t.test('close gives up what does not end', { buffered: true, timeout: 60_000 }, async t => {
  const { jobs, directory, log } = await openJobs(t)
  const gate = new Gate('stubborn')
  const job = await jobs.submit(gate.spec)
  await gate.began
  await jobs.close(0)
  t.match(readRecord(directory, job.id), { state: 'failed', message: 'failed: interrupted' })
  t.match(log.join(''), /stubborn.* did not end when it was stopped/)
  t.match(await outcome(job), new JobStoppedError('pack of OS image stubborn was interrupted'))
  gate.end()
})

// rules 2.9
t.test(
  'kill -9: what ran or waited is interrupted, what had ended is as it was',
  { buffered: true },
  async t => {
    const directory = join(scratch(t), 'jobs')
    const holder = start(process.execPath, [join(import.meta.dirname, 'holder-program.js'), directory])
    t.teardown(() => holder.kill())
    const [ended, running, waiting] = (await holder.says(/^(\w+\n){3}/)).split('\n') as [
      string,
      string,
      string
    ]
    await holder.kill()
    const crashed = recordFiles(directory)
    t.same(crashed, [ended, running, waiting].map(id => `${id}.json`).sort())
    t.equal(readRecord(directory, running).state, 'running')
    // As an atomic write leaves it when it is cut off.
    writeFileSync(join(directory, `${running}.json.123456`), '{"id"')

    const { jobs, log } = await openJobs(t, { directory, now: () => 5 })
    t.same(recordFiles(directory), crashed)
    for (const id of [running, waiting]) {
      t.match(
        jobs.records().find(record => record.id === id),
        {
          ...{ state: 'failed', message: 'failed: interrupted', ended: 5 }
        }
      )
      t.match(log.join(''), new RegExp(`${id}.*interrupted`))
      const record = await jobs.record(id)
      t.equal(record?.lines.at(-1), 'failed: interrupted')
      t.equal((await jobs.poll(id, 'alice'))?.status, 500)
      t.equal(await jobs.poll(id, 'alice'), undefined)
      t.equal(jobs.cancel(id), false)
    }
    t.same((await jobs.record(running))?.lines, ['working', 'failed: interrupted'])
    t.match(await jobs.record(ended as string), { state: 'done', lines: ['well done'] })
    const after = await jobs.submit(spec(() => {}, ['lane']))
    await after.done
    t.pass('its lane is free')
  }
)

t.test('a file that is no record is reported and left alone', { buffered: true }, async t => {
  const directory = join(scratch(t), 'jobs')
  const first = await openJobs(t, { directory })
  const good = await first.jobs.submit(spec(() => {}))
  await good.done
  await first.jobs.close(0)
  const text = readFileSync(join(directory, `${good.id}.json`), 'utf8')
  const id = 'f'.repeat(32)
  const broken: Record<string, string> = {
    [`${id}.json`]: text,
    'half.json': text.slice(0, 100),
    'empty.json': '',
    'list.json': '[]',
    'state.json': text.replace(good.id, 'state').replace('"done"', '"lost"'),
    'ended.json': text.replace(good.id, 'ended').replace(/"ended": \d+,/, ''),
    'lines.json': text.replace(good.id, 'lines').replace('"first": []', '"first": [1]'),
    'notes.txt': 'foreign',
    '.hidden': 'foreign'
  }
  for (const [name, content] of Object.entries(broken)) writeFileSync(join(directory, name), content)
  mkdirSync(join(directory, 'folder.json'))
  symlinkSync('/nonexistent', join(directory, 'link.json'))
  const files = recordFiles(directory)

  const { jobs, log } = await openJobs(t, { directory })
  t.same(
    jobs.records().map(record => record.id),
    [good.id]
  )
  for (const name of [
    ...Object.keys(broken).filter(name => name.endsWith('.json')),
    'folder.json',
    'link.json'
  ])
    t.ok(
      log.some(line => line.includes(`/${name} is no record`)),
      name
    )
  await jobs.close(0)
  t.same(recordFiles(directory), files)
  for (const [name, content] of Object.entries(broken))
    t.equal(readFileSync(join(directory, name), 'utf8'), content)
})

t.test(
  'a record that is damaged while the daemon runs: 503, and it is not written over',
  { buffered: true },
  async t => {
    const { jobs, directory } = await openJobs(t)
    const job = await jobs.submit(spec(({ line }) => line('one')))
    await job.done
    const file = join(directory, `${job.id}.json`)
    writeFileSync(file, 'damaged')
    const refusal = { status: 503, message: new RegExp(`request ${job.id} cannot be read`) }
    await t.rejects(jobs.record(job.id), refusal)
    await t.rejects(jobs.poll(job.id, 'alice'), refusal)
    await jobs.close(0)
    t.equal(readFileSync(file, 'utf8'), 'damaged')
  }
)

async function sweptBy(t: Test, jobs: Jobs, id: string): Promise<void> {
  await until(() => !jobs.records().some(record => record.id === id))
  t.equal(await jobs.record(id), undefined)
  t.equal(await jobs.poll(id, 'alice'), undefined)
}

// rules 2.9
t.test('a record is kept for 7 days after its end', { buffered: true }, async t => {
  const directory = join(scratch(t), 'jobs')
  let now = Date.parse('2026-01-01')
  const first = await openJobs(t, { directory, now: () => now })
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
  t.same(
    recordFiles(directory),
    [slow, young, next].map(({ id }) => `${id}.json`).sort(),
    'one that ran is young'
  )
  await first.jobs.close(0)
  now += KEPT_MS
  const { jobs } = await openJobs(t, { directory, now: () => now })
  for (const { id } of [slow, young, next]) await sweptBy(t, jobs, id)
  t.same(recordFiles(directory), [])
})
