// Records of requests in the state directory: one file each, written behind the log.
import { mkdirSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { createLog } from '../../lib/base/log.js'
import { Jobs } from '../../lib/jobs/jobs.js'
import { FileMedium } from '../../lib/store/files/medium.js'
import { start } from '../support/child.js'
import { Gate, spec } from '../support/jobs.js'
import { scratch } from '../support/scratch.js'
import { fillDisk, smallDisk } from '../support/small-disk.js'
import { until } from '../support/until.js'

// They wait more than they work.
t.jobs = 4

/** The jobs of a state directory; `close` ends them and the medium. */
async function openJobs(t: Test, state: string, now = Date.now) {
  const log: string[] = []
  const say = (level: string, message: string) => log.push(`${level} ${message}`)
  const medium = new FileMedium({ directory: state, log: say })
  await medium.lock()
  await medium.start([])
  const jobs = await Jobs.open({
    open: memory => medium.openRecords('jobs', memory),
    ...{ now, parallel: 4, log: createLog('info', line => log.push(line)) }
  })
  jobs.becameLeader()
  const close = async () => {
    await jobs.close(0)
    await medium.close()
  }
  t.teardown(close)
  return { jobs, log, close, directory: join(state, 'jobs') }
}

const filesIn = (directory: string) => readdirSync(directory).sort()
const fileOf = (directory: string, id: string) => join(directory, `${id}.json`)
const readRecord = (directory: string, id: string) => JSON.parse(readFileSync(fileOf(directory, id), 'utf8'))

t.test('files are 0600, named by their ids, in a directory of 0700', { buffered: true }, async t => {
  const { jobs, directory, close } = await openJobs(t, join(scratch(t), 'state'))
  const job = await jobs.submit(spec(({ line }) => line('one')))
  await job.done
  await close()
  t.equal(statSync(directory).mode & 0o777, 0o700)
  t.equal(statSync(fileOf(directory, job.id)).mode & 0o777, 0o600)
  t.same(filesIn(directory), [`${job.id}.json`])
  t.match(readRecord(directory, job.id), { id: job.id, state: 'done', lines: { first: ['one'] } })
})

// rules 2.9
t.test('a restart knows all, those of an earlier release too, and a removed one is no file', async t => {
  const state = join(scratch(t), 'state')
  const { jobs, directory, close } = await openJobs(t, state)
  const [a, b] = [await jobs.submit(spec(({ line }) => line('one'))), await jobs.submit(spec(() => {}))]
  await Promise.all([a.done, b.done])
  const record = await jobs.record(a.id)
  t.match(record, { state: 'done', lines: ['one'] }, 'also before its file is written')
  await close()
  const file = fileOf(directory, a.id)
  writeFileSync(file, `${JSON.stringify(readRecord(directory, a.id), null, 2)}\n`)
  const again = await openJobs(t, state)
  t.same(await again.jobs.record(a.id), record)
  t.equal((await again.jobs.poll(a.id, 'alice'))?.message, 'one')
  await again.close()
  const late = await openJobs(t, state, () => Date.now() + 8 * 24 * 3_600_000)
  await until(() => late.jobs.records().length === 0)
  await late.close()
  t.same(filesIn(directory), [])
})

// rules 2.9
t.test(
  'kill -9: what ran or waited is interrupted, what had ended is as it was',
  { buffered: true },
  async t => {
    const state = join(scratch(t), 'state')
    const holder = start(process.execPath, [join(import.meta.dirname, 'holder-program.js'), state])
    t.teardown(() => holder.kill())
    const ids = (await holder.says(/^(\w+\n){3}/)).split('\n') as [string, string, string]
    const [ended, running, waiting] = ids
    await holder.kill()
    // As an atomic write leaves it when it is cut off.
    mkdirSync(join(state, 'jobs'), { recursive: true })
    writeFileSync(join(state, 'jobs', `${running}.json.123456`), '{"id"')

    const { jobs, log, directory, close } = await openJobs(t, state, () => 5)
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
    t.match(await jobs.record(ended), { state: 'done', lines: ['well done'] })
    const after = await jobs.submit(spec(() => {}, ['lane']))
    await after.done
    t.pass('its lane is free')
    await close()
    t.same(filesIn(directory), [ended, running, waiting, after.id].map(id => `${id}.json`).sort())
  }
)

t.test('a file that is no record is reported and left alone', { buffered: true }, async t => {
  const state = join(scratch(t), 'state')
  const first = await openJobs(t, state)
  const { directory } = first
  const good = await first.jobs.submit(spec(() => {}))
  await good.done
  await first.close()
  const text = readFileSync(fileOf(directory, good.id), 'utf8')
  const id = 'f'.repeat(32)
  const broken: Record<string, string> = {
    [`${id}.json`]: text,
    'half.json': text.slice(0, 100),
    'empty.json': '',
    'list.json': '[]',
    'state.json': text.replace(good.id, 'state').replace('"done"', '"lost"'),
    'ended.json': text.replace(good.id, 'ended').replace(/"ended":\d+,/, ''),
    'lines.json': text.replace(good.id, 'lines').replace('"first":[]', '"first":[1]'),
    'notes.txt': 'foreign',
    '.hidden': 'foreign'
  }
  for (const [name, content] of Object.entries(broken)) writeFileSync(join(directory, name), content)
  mkdirSync(join(directory, 'folder.json'))
  symlinkSync('/nonexistent', join(directory, 'link.json'))
  const files = filesIn(directory)

  const { jobs, log, close } = await openJobs(t, state)
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
  await close()
  t.same(filesIn(directory), files)
  for (const [name, content] of Object.entries(broken))
    t.equal(readFileSync(join(directory, name), 'utf8'), content)
})

t.test(
  'a record that is damaged while the daemon runs: 503, and it is not written over',
  { buffered: true },
  async t => {
    const { jobs, directory, close } = await openJobs(t, join(scratch(t), 'state'))
    const job = await jobs.submit(spec(({ line }) => line('one')))
    await job.done
    const file = fileOf(directory, job.id)
    await until(() => filesIn(directory).includes(`${job.id}.json`))
    await until(() => readRecord(directory, job.id).state === 'done')
    // A line that is written is no longer in memory.
    await new Promise(resolve => setTimeout(resolve, 300))
    writeFileSync(file, 'damaged')
    const refusal = { status: 503, message: new RegExp(`request ${job.id} cannot be read`) }
    await t.rejects(jobs.record(job.id), refusal)
    await t.rejects(jobs.poll(job.id, 'alice'), refusal)
    await close()
    t.equal(readFileSync(file, 'utf8'), 'damaged')
  }
)

t.test('a disk that fills up for real', { buffered: true }, async t => {
  const disk = smallDisk(t, '2m')
  const { jobs, directory, close } = await openJobs(t, join(disk, 'state'))
  const gate = new Gate('a')
  const job = await jobs.submit(gate.spec)
  const { line, result } = await gate.began
  await until(() => filesIn(directory).includes(`${job.id}.json`))
  await until(() => readRecord(directory, job.id).state === 'running')
  const before = readRecord(directory, job.id)
  const free = fillDisk(disk)
  for (let i = 0; i < 100; i++) line('x'.repeat(1000))
  // More than the log has room for.
  result('x', 'x'.repeat(900_000))
  gate.end()
  await job.done
  t.same(readRecord(directory, job.id), before, 'the old record, whole')
  await t.rejects(jobs.submit(spec(() => {})), { status: 503, message: /ENOSPC/ })
  t.same(filesIn(directory), [`${job.id}.json`])
  free()
  await until(async () => (await jobs.record(job.id))?.state === 'done')
  await until(() => readRecord(directory, job.id).state === 'done')
  t.equal(readRecord(directory, job.id).lines.first.length, 100)
  await close()
})
