import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { unavailable } from '../../lib/base/errors.js'
import { Gate, openJobs, outcome, readRecord, recordIds, settled, spec } from '../support/jobs.js'
import { MemoryRecords } from '../support/memory-records.js'
import { until } from '../support/until.js'

/** A store that can be full. */
class TestDisk extends MemoryRecords {
  full = false
  override before: MemoryRecords['before'] = () => {
    if (this.full) throw new Error('no space left on device (ENOSPC)')
  }
}

t.test('lines and progress do not write each time; begin and end do', async t => {
  const disk = new TestDisk()
  const { jobs } = await openJobs(t, { records: disk })
  const gate = new Gate('a')
  const job = await jobs.submit(gate.spec)
  t.match(readRecord(disk, job.id), { state: /queued|running/ }, 'submitted is on disk')
  const { line, progress } = await gate.began
  await until(() => readRecord(disk, job.id).state === 'running')
  for (let i = 0; i < 100_000; i++) {
    line(`line ${i}`)
    progress(i / 100_000)
  }
  await until(() => readRecord(disk, job.id).lines.left_out === 98_000)
  t.equal(readRecord(disk, job.id).progress, 1)
  t.ok(disk.writes.length < 20, `${disk.writes.length} writes`)
  gate.end()
  await job.done
  t.equal(readRecord(disk, job.id).state, 'done')
})

t.test('a full disk: nothing new is taken, what runs goes on, and is written when there is room', async t => {
  const disk = new TestDisk()
  const { jobs, log } = await openJobs(t, { records: disk })
  const gate = new Gate('a', ['x'])
  const next = new Gate('b', ['x'])
  const job = await jobs.submit(gate.spec)
  const queued = await jobs.submit(next.spec)
  const { line, result } = await gate.began
  await until(() => readRecord(disk, job.id).state === 'running')
  disk.full = true
  const refused = await outcome({ id: '', name: '', done: jobs.submit(spec(() => {}, ['x'])).then(() => {}) })
  t.match(
    refused,
    unavailable(
      'pack of OS image compute cannot be recorded: the store is unavailable: no space left on device (ENOSPC)'
    )
  )
  t.equal(jobs.records().length, 2, 'it left nothing')
  line('one')
  result('count', 1)
  gate.end()
  await job.done
  await next.began
  next.end(new Error('no matter'))
  await outcome(queued)
  t.match(
    await jobs.record(job.id),
    { state: 'done', lines: ['one'], results: { count: 1 } },
    'in memory all is known'
  )
  t.equal((await jobs.poll(job.id, 'alice'))?.message, 'one')
  t.equal(await jobs.poll(job.id, 'alice'), undefined)
  t.equal(readRecord(disk, job.id).state, 'running')
  const complaints = log.filter(entry => entry.includes(`${job.id} cannot be written`))
  t.equal(complaints.length, 1, 'said once')
  disk.full = false
  await until(
    () => readRecord(disk, job.id).state === 'done' && readRecord(disk, queued.id).state === 'failed'
  )
  t.match(readRecord(disk, job.id), { lines: { first: ['one'] }, delivered: { alice: 'all' } })
  await until(() => log.some(entry => entry.includes(`${job.id} is written again`)))
  t.same(recordIds(disk), [job.id, queued.id].sort())
  await (await jobs.submit(spec(() => {}, ['x']))).done
})

t.test('the same failure is said once, another one is news', async t => {
  const disk = new TestDisk()
  const { jobs, log } = await openJobs(t, { records: disk })
  const gate = new Gate('a')
  const job = await jobs.submit(gate.spec)
  const { line } = await gate.began
  await until(() => readRecord(disk, job.id).state === 'running')
  let reason = 'one'
  disk.before = () => {
    throw new Error(reason)
  }
  const said = () => log.filter(entry => entry.includes(`${job.id} cannot be written, and is tried again`))
  line('x')
  const tries = disk.writes.length
  await until(() => disk.writes.length >= tries + 2)
  t.equal(said().length, 1)
  t.match(said()[0], /: the store is unavailable: one$/m)
  reason = 'two'
  await until(() => said().length === 2)
  gate.end()
  await job.done
})

t.test('lines that come one by one are written once a second', async t => {
  const disk = new TestDisk()
  const { jobs } = await openJobs(t, { records: disk })
  const began = performance.now()
  const job = await jobs.submit(
    spec(async ({ line }) => {
      for (let i = 0; i < 300; i++) {
        line(`line ${i}`)
        await sleep(2)
      }
    })
  )
  await job.done
  t.equal(readRecord(disk, job.id).lines.first.length, 300)
  const seconds = (performance.now() - began) / 1000
  t.ok(disk.writes.length <= 4 + seconds, `${disk.writes.length} writes in ${seconds} s`)
})

t.test('close writes what the disk did not take before', async t => {
  const disk = new TestDisk()
  const { jobs } = await openJobs(t, { records: disk })
  const job = await jobs.submit(spec(({ line }) => line('one')))
  await job.done
  disk.full = true
  t.equal((await jobs.poll(job.id, 'alice'))?.message, 'one')
  disk.full = false
  await jobs.close(0)
  t.same(readRecord(disk, job.id).delivered, { alice: 'all' })
})

t.test('close waits for what is being written', async t => {
  const disk = new TestDisk()
  const { jobs } = await openJobs(t, { records: disk })
  let release = () => {}
  const held = new Promise<void>(resolve => {
    release = resolve
  })
  disk.before = () => held
  const late = jobs.submit(spec(() => {}))
  let closed = false
  const closing = jobs.close(0).then(() => {
    closed = true
  })
  await settled()
  t.equal(closed, false)
  release()
  await closing
  const { id } = await late
  t.match(readRecord(disk, id), { state: 'failed', message: 'failed: interrupted' })
})

// rules 8.1
t.test('too many that wait are refused', async t => {
  const { jobs } = await openJobs(t, { parallel: 1 })
  const gate = new Gate('a')
  await jobs.submit(gate.spec)
  await Promise.all(Array.from({ length: 1000 }, () => jobs.submit(spec(() => {}))))
  await t.rejects(jobs.submit(spec(() => {})), unavailable('1000 requests are waiting already', 'busy'))
  gate.end()
  await until(() => jobs.records().every(({ state }) => state === 'done'))
  await (await jobs.submit(spec(() => {}))).done
})
