import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import t from 'tap'
import type { Jobs, Poll } from '../../lib/jobs/jobs.js'
import { Gate, openJobs, outcome, readRecord, spec } from '../support/jobs.js'
import { until } from '../support/until.js'

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void

const lines = (poll: Poll | undefined) => poll?.message.split(';;').filter(line => line !== '')

// rules 2.9
t.test('each user is told each line once, and after the last ones that there is no more', async t => {
  const { jobs } = await openJobs(t)
  const gate = new Gate('a')
  const job = await jobs.submit(gate.spec)
  const { line, progress } = await gate.began
  t.same(await jobs.poll(job.id, 'alice'), { message: '', status: 200, state: 'running', progress: 0 })
  line('one')
  line('two')
  progress(0.5)
  t.same(await jobs.poll(job.id, 'alice'), {
    message: 'one;;two',
    status: 200,
    state: 'running',
    progress: 0.5
  })
  t.equal((await jobs.poll(job.id, 'alice'))?.message, '', 'nothing new')
  line('three')
  t.equal((await jobs.poll(job.id, 'alice'))?.message, 'three')
  line('four')
  gate.end()
  await job.done
  t.same(await jobs.poll(job.id, 'alice'), { message: 'four', status: 200, state: 'done', progress: 1 })
  t.equal(await jobs.poll(job.id, 'alice'), undefined)
  t.equal((await jobs.poll(job.id, 'bob'))?.message, 'one;;two;;three;;four', 'another user')
  t.equal(await jobs.poll(job.id, 'bob'), undefined)
  t.equal(await jobs.poll(job.id, 'alice'), undefined)
  t.equal(await jobs.poll('none', 'alice'), undefined)
  t.same(
    (await jobs.record(job.id))?.lines,
    ['one', 'two', 'three', 'four'],
    'the record is there, again and again'
  )
})

t.test('a queued one, a failed one', async t => {
  const { jobs } = await openJobs(t, { parallel: 1 })
  const gate = new Gate('a')
  await jobs.submit(gate.spec)
  const job = await jobs.submit(
    spec(({ progress, line }) => {
      progress(0.25)
      line('packing')
      throw new Error('disk full\nin /tmp')
    })
  )
  t.same(await jobs.poll(job.id, 'alice'), { message: '', status: 200, state: 'queued', progress: 0 })
  gate.end()
  t.match(await outcome(job), /disk full/)
  const message = 'packing;;failed: disk full\\u000ain /tmp'
  t.same(await jobs.poll(job.id, 'alice'), { message, status: 500, state: 'failed', progress: 0.25 })
  t.equal(await jobs.poll(job.id, 'alice'), undefined)
})

t.test('two polls of one user at once: the lines come once, the end comes once', async t => {
  const { jobs } = await openJobs(t)
  const job = await jobs.submit(spec(({ line }) => line('one')))
  await job.done
  const polls = await Promise.all(Array.from({ length: 5 }, () => jobs.poll(job.id, 'alice')))
  t.same(
    polls.filter(poll => poll !== undefined).map(poll => poll.message),
    ['one']
  )
})

// rules 2.9
t.test('semicolons in a line separate nothing, control characters do no harm', async t => {
  const said = [';', ';;', ';;;', 'a;', ';b', 'a;;b', 'a;;;;b;;', '', 'x\ny\u0000\u001b[31m\u2028', 'last;']
  const { jobs } = await openJobs(t)
  const job = await jobs.submit(
    spec(({ line }) => {
      for (const text of said) line(text)
    })
  )
  await job.done
  const message = (await jobs.poll(job.id, 'alice'))?.message ?? ''
  const told = message.split(';;')
  t.equal(told.length, said.length)
  t.same(
    told.map(line => line.replaceAll(' ', '')),
    said.map(line => line.replace('x\ny\u0000\u001b[31m\u2028', 'x\\u000ay\\u0000\\u001b[31m\\u2028'))
  )
  t.same((await jobs.record(job.id))?.lines[6], 'a;;;;b;;', 'the record has them as they were')
})

/** Submits a job that says lines 0 … count-1. */
const talkative = (jobs: Jobs, count: number) =>
  jobs.submit(
    spec(({ line }) => {
      for (let i = 0; i < count; i++) line(`line ${i}`)
    })
  )

// rules 8.2
t.test('of many lines the first and the last are kept, and the record says how many are not', async t => {
  const { jobs } = await openJobs(t)
  for (const [count, leftOut] of [
    [2000, 0],
    [2001, 1],
    [100_000, 98_000]
  ] as const) {
    const job = await talkative(jobs, count)
    await job.done
    const kept = (await jobs.record(job.id))?.lines ?? []
    t.equal(kept.length, leftOut === 0 ? 2000 : 2001)
    t.equal(kept[999], 'line 999')
    if (leftOut > 0) t.equal(kept[1000], `… ${leftOut} lines left out …`)
    t.equal(kept.at(-1), `line ${count - 1}`)
    t.equal(kept.at(-1000), `line ${count - 1000}`)
    t.same(lines(await jobs.poll(job.id, 'alice')), kept)
  }
})

t.test('who polls often enough misses none of many lines', async t => {
  const { jobs } = await openJobs(t)
  const gate = new Gate('a')
  const job = await jobs.submit(gate.spec)
  const { line } = await gate.began
  const heard: string[] = []
  for (let i = 0; i < 10_000; i++) {
    line(`line ${i}`)
    if (i % 700 === 0) heard.push(...(lines(await jobs.poll(job.id, 'alice')) ?? []))
  }
  line(`x${'é'.repeat(5000)}`)
  gate.end()
  await job.done
  heard.push(...(lines(await jobs.poll(job.id, 'alice')) ?? []))
  t.equal(heard.pop(), `x${'é'.repeat(1999)}…`, 'a long line is cut')
  t.same(
    heard,
    Array.from({ length: 10_000 }, (_, i) => `line ${i}`)
  )
  const late = lines(await jobs.poll(job.id, 'bob')) ?? []
  t.equal(late[1000], '… 8001 lines left out …')
})

// rules 8.2
t.test('results are kept as they were when they were given, within bounds', async t => {
  const { jobs } = await openJobs(t)
  const nodes: Record<string, string> = { node001: 'done' }
  const job = await jobs.submit(
    spec(({ result }) => {
      result('nodes', nodes)
      nodes.node001 = 'changed later'
      result('__proto__', 'no trap')
      result('count', 1)
      result('count', 2)
      // What takes the place of another takes no more room.
      for (let i = 0; i < 5; i++) result('again', 'x'.repeat(400_000))
      result('again', null)
      result(
        'changes',
        Array.from({ length: 100_000 }, (_, i) => `/usr/share/doc/package/file-${i}`)
      )
      result('text', 'x'.repeat(2_000_000))
    })
  )
  await job.done
  const { results, lines: said } = (await jobs.record(job.id)) ?? {}
  t.same(results?.nodes, { node001: 'done' })
  t.equal(results?.count, 2)
  t.equal(results?.again, null)
  t.equal(Object.getOwnPropertyDescriptor(results, '__proto__')?.value, 'no trap')
  const changes = results?.changes as string[]
  t.equal(changes[0], '/usr/share/doc/package/file-0')
  t.ok(JSON.stringify(results).length < 1.1 * 1024 * 1024)
  t.ok(JSON.stringify(results).length > 0.9 * 1024 * 1024)
  t.same(said, [
    `result changes: too large, ${100_000 - changes.length} left out`,
    'result text: too large, 1 left out'
  ])
  t.notOk(Object.hasOwn(results ?? {}, 'text'))
  const wrong = await jobs.submit(spec(({ result }) => result('f', undefined as never)))
  t.match(await outcome(wrong), TypeError)
})

// rules 13.2
t.test(
  'results are given to each user once, in the order in which they came, and after a restart',
  async t => {
    const { jobs, records } = await openJobs(t)
    const gate = new Gate('a')
    const job = await jobs.submit(gate.spec)
    const { result } = await gate.began
    const told = async (of: Jobs, user: string) =>
      (await of.pollResults(job.id, user))?.results.map(([key]) => key)
    result('n10', 1)
    // Keys that an object would put first.
    result('9', 2)
    t.same(await told(jobs, 'alice'), ['n10', '9'])
    t.same(await told(jobs, 'alice'), [])
    result('1', 3)
    result('n2', 4)
    gate.end()
    await job.done
    await jobs.close(0)
    const { jobs: again } = await openJobs(t, { records })
    t.same(await told(again, 'alice'), ['1', 'n2'])
    t.equal(await told(again, 'alice'), undefined)
    t.same(await told(again, 'bob'), ['n10', '9', '1', 'n2'])
    t.ok(await again.poll(job.id, 'alice'), 'lines are given apart from results')
    await again.close(0)

    // An earlier version wrote an object, over several lines.
    const written = { ...readRecord(records, job.id), results: { n1: 'done' } }
    records.texts('jobs').set(job.id, `${JSON.stringify(written, null, 2)}\n`)
    const { jobs: older } = await openJobs(t, { records })
    t.same((await older.record(job.id))?.results, { n1: 'done' })
  }
)

t.test('progress stays between 0 and 1; what a job says after its end is not heard', async t => {
  const { jobs } = await openJobs(t)
  const gate = new Gate('a')
  const job = await jobs.submit(gate.spec)
  const context = await gate.began
  for (const [given, shown] of [
    [-1, 0],
    [1 / 3, 0.333],
    [Number.NaN, 0.333],
    [7, 1],
    [0.5, 0.5]
  ] as const) {
    context.progress(given)
    t.equal(jobs.records()[0]?.progress, shown)
  }
  gate.end()
  await job.done
  const ended = await jobs.record(job.id)
  context.line('late')
  context.progress(0.1)
  context.result('late', true)
  t.same(await jobs.record(job.id), ended)
  t.equal(ended?.progress, 1)
})

t.test('records, newest first', async t => {
  let now = 1_000_000
  const { jobs } = await openJobs(t, { now: () => now, parallel: 1 })
  const gate = new Gate('a')
  const a = await jobs.submit(gate.spec)
  now += 1000
  const b = await jobs.submit(spec(() => {}))
  t.match(jobs.records(), [
    {
      id: b.id,
      kind: 'pack',
      object: 'OS image compute',
      by: 'user admin',
      state: 'queued',
      queued: 1_001_000
    },
    {
      id: a.id,
      object: 'OS image a',
      state: 'running',
      message: 'running',
      queued: 1_000_000,
      started: 1_000_000
    }
  ])
  now += 1000
  gate.end()
  await b.done
  t.match(jobs.records()[1], { state: 'done', message: 'done', ended: 1_002_000 })
  t.notOk(jobs.records().some(record => 'lines' in record || 'results' in record))
  const ids = await Promise.all(
    Array.from({ length: 50 }, async () => (await jobs.submit(spec(() => {}))).id)
  )
  t.ok(ids.every(id => /^[\da-f]{32}$/.test(id)))
  t.equal(new Set(ids.map(id => id.slice(0, 8))).size, 50, 'no id looks like another')
  await until(() => jobs.records().every(({ state }) => state === 'done'))
})

// rules 8.2
t.test('results for which there is no room leave nothing in memory', async t => {
  const { jobs } = await openJobs(t)
  const gate = new Gate('a')
  const job = await jobs.submit(gate.spec)
  const { result } = await gate.began
  const heap = () => {
    collect()
    return process.memoryUsage().heapUsed
  }
  result('full', 'x'.repeat(1024 * 1024 - 100))
  const before = heap()
  for (let i = 0; i < 2000; i++) result(`${i}`.padEnd(20_000, 'x'), 'more')
  const grown = heap() - before
  t.ok(grown < 20_000_000, `${grown} bytes for 40,000,000 of names`)
  gate.end()
  await job.done
  t.same(Object.keys((await jobs.record(job.id))?.results ?? {}), ['full'])
})
