import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { unavailable } from '../../lib/base/errors.js'
import { createLog } from '../../lib/base/log.js'
import { type RecordDisk, RecordFile, realDisk } from '../../lib/jobs/record-file.js'
import { Gate, openJobs, outcome, readRecord, recordFiles, settled, spec } from '../support/jobs.js'
import { scratch } from '../support/scratch.js'
import { fillDisk, smallDisk } from '../support/small-disk.js'
import { until } from '../support/until.js'

/** The real disk, whose writes can be counted and made to fail. */
class TestDisk implements RecordDisk {
  writes = 0
  full = false

  async replace(file: string, text: string): Promise<void> {
    this.writes++
    if (this.full)
      throw Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' })
    await realDisk.replace(file, text)
  }

  remove(file: string): Promise<void> {
    return realDisk.remove(file)
  }
}

t.test('lines and progress do not write each time; begin and end do', async t => {
  const disk = new TestDisk()
  const { jobs, directory } = await openJobs(t, { disk })
  const gate = new Gate('a')
  const job = await jobs.submit(gate.spec)
  t.match(readRecord(directory, job.id), { state: /queued|running/ }, 'submitted is on disk')
  const { line, progress } = await gate.began
  await until(() => readRecord(directory, job.id).state === 'running')
  for (let i = 0; i < 100_000; i++) {
    line(`line ${i}`)
    progress(i / 100_000)
  }
  await until(() => readRecord(directory, job.id).lines.left_out === 98_000)
  t.equal(readRecord(directory, job.id).progress, 1)
  t.ok(disk.writes < 20, `${disk.writes} writes`)
  gate.end()
  await job.done
  t.equal(readRecord(directory, job.id).state, 'done')
})

t.test('a full disk: nothing new is taken, what runs goes on, and is written when there is room', async t => {
  const disk = new TestDisk()
  const { jobs, directory, log } = await openJobs(t, { disk })
  const gate = new Gate('a', ['x'])
  const next = new Gate('b', ['x'])
  const job = await jobs.submit(gate.spec)
  const queued = await jobs.submit(next.spec)
  const { line, result } = await gate.began
  await until(() => readRecord(directory, job.id).state === 'running')
  disk.full = true
  const refused = await outcome({ id: '', name: '', done: jobs.submit(spec(() => {}, ['x'])).then(() => {}) })
  t.match(
    refused,
    unavailable('pack of OS image compute cannot be recorded: ENOSPC: no space left on device, write')
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
  t.equal(readRecord(directory, job.id).state, 'running')
  const complaints = log.filter(entry => entry.includes(`${job.id}.json cannot be written`))
  t.equal(complaints.length, 1, 'said once')
  disk.full = false
  await until(
    () =>
      readRecord(directory, job.id).state === 'done' && readRecord(directory, queued.id).state === 'failed'
  )
  t.match(readRecord(directory, job.id), { lines: { first: ['one'] }, delivered: { alice: 'all' } })
  await until(() => log.some(entry => entry.includes(`${job.id}.json is written again`)))
  t.same(recordFiles(directory), [job.id, queued.id].map(id => `${id}.json`).sort())
  await (await jobs.submit(spec(() => {}, ['x']))).done
})

t.test('the same failure of a real disk is said once, another one is news', async t => {
  const directory = scratch(t)
  const file = join(directory, 'missing', 'x.json')
  const said: string[] = []
  const log = createLog('info', line => said.push(line))
  const record = new RecordFile({ file, text: () => '{}', onWritten: () => {}, disk: realDisk, log })
  for (let i = 0; i < 3; i++) await t.rejects(record.now(), { code: 'ENOENT' })
  const told = `${file} cannot be written, and is tried again: `
  t.equal(said.length, 1)
  t.ok(said[0]?.trim().endsWith(`${told}ENOENT: no such file or directory, open '${file}'`))
  writeFileSync(join(directory, 'missing'), '')
  await t.rejects(record.now(), { code: 'ENOTDIR' })
  t.equal(said.length, 2)
  await record.close()
})

t.test('lines that come one by one are written once a second', async t => {
  const disk = new TestDisk()
  const { jobs, directory } = await openJobs(t, { disk })
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
  t.equal(readRecord(directory, job.id).lines.first.length, 300)
  const seconds = (performance.now() - began) / 1000
  t.ok(disk.writes <= 4 + seconds, `${disk.writes} writes in ${seconds} s`)
})

t.test('close writes what the disk did not take before', async t => {
  const disk = new TestDisk()
  const { jobs, directory } = await openJobs(t, { disk })
  const job = await jobs.submit(spec(({ line }) => line('one')))
  await job.done
  disk.full = true
  t.equal((await jobs.poll(job.id, 'alice'))?.message, 'one')
  disk.full = false
  await jobs.close(0)
  t.same(readRecord(directory, job.id).delivered, { alice: 'all' })
})

t.test('close waits for what is being written', async t => {
  const disk = new TestDisk()
  const { jobs, directory } = await openJobs(t, { disk })
  let release = () => {}
  const held = new Promise<void>(resolve => {
    release = resolve
  })
  const write = disk.replace.bind(disk)
  disk.replace = (file, text) => held.then(() => write(file, text))
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
  t.match(readRecord(directory, id), { state: 'failed', message: 'failed: interrupted' })
})

// rules 8.1
t.test('too many that wait are refused', async t => {
  const disk = new TestDisk()
  disk.replace = async () => {}
  const { jobs } = await openJobs(t, { disk, parallel: 1 })
  const gate = new Gate('a')
  await jobs.submit(gate.spec)
  await Promise.all(Array.from({ length: 1000 }, () => jobs.submit(spec(() => {}))))
  await t.rejects(jobs.submit(spec(() => {})), unavailable('1000 requests are waiting already', 'busy'))
  gate.end()
  await until(() => jobs.records().every(({ state }) => state === 'done'))
  await (await jobs.submit(spec(() => {}))).done
})

t.test('a disk that fills up for real', async t => {
  const disk = smallDisk(t)
  const directory = join(disk, 'jobs')
  const { jobs } = await openJobs(t, { directory })
  const gate = new Gate('a')
  const job = await jobs.submit(gate.spec)
  const { line } = await gate.began
  await until(() => readRecord(directory, job.id).state === 'running')
  const before = readRecord(directory, job.id)
  const free = fillDisk(disk)
  for (let i = 0; i < 100; i++) line('x'.repeat(1000))
  gate.end()
  await job.done
  t.same(readRecord(directory, job.id), before, 'the old record, whole')
  await t.rejects(jobs.submit(spec(() => {})), { status: 503, message: /ENOSPC/ })
  t.same(recordFiles(directory), [`${job.id}.json`])
  free()
  await until(() => readRecord(directory, job.id).state === 'done')
  t.equal(readRecord(directory, job.id).lines.first.length, 100)
})
