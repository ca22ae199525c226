// Records of requests that controllers share, over a map in the place of etcd.
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { unavailable } from '../../lib/base/errors.js'
import { type JobContext, JobStoppedError, RESULTS_KEPT } from '../../lib/jobs/jobs.js'
import { KEPT_MS } from '../../lib/jobs/records.js'
import { Gate, openJobs, outcome, settled, spec } from '../support/jobs.js'
import { HEAD, SharedKeys } from '../support/shared-jobs.js'
import { until } from '../support/until.js'

const LOST = 'failed: interrupted: controller c1, which ran it, was lost'

/** etcd takes so many bytes in a request. */
const REQUEST_BYTES = 1.5 * 1024 * 1024

// rules 11.20
t.test('who takes over knows all records, and reports what ran as failed', async t => {
  const shared = new SharedKeys(t)
  const first = await shared.start('c1')
  const second = await shared.start('c2', () => 7)
  const ended = await first.jobs.submit(
    spec(({ line, result }) => {
      for (const text of ['one', 'two', 'three']) line(text)
      result('count', 3)
    })
  )
  await ended.done
  t.equal((await first.jobs.poll(ended.id, 'alice'))?.message, 'one;;two;;three')
  const record = await first.jobs.record(ended.id)
  const [gate, queued] = [new Gate('a', ['x']), new Gate('b', ['x'])]
  const running = await first.jobs.submit(gate.spec)
  const waiting = await first.jobs.submit(queued.spec)
  const { line, progress } = await gate.began
  line('working')
  progress(0.5)
  t.equal((await first.jobs.poll(running.id, 'alice'))?.message, 'working')
  await until(() => shared.record(running.id).delivered.alice === 1)
  t.equal(shared.record(running.id).controller, 'c1')
  line('said, and never stored')

  shared.takeover('c2')
  t.strictSame(
    second.jobs.records().map(({ id }) => id),
    [waiting.id, running.id, ended.id]
  )
  t.same(await second.jobs.record(ended.id), record, 'one that had ended is as it was')
  t.equal(await second.jobs.poll(ended.id, 'alice'), undefined, 'she was told its end')
  t.equal((await second.jobs.poll(ended.id, 'bob'))?.message, 'one;;two;;three')
  t.match(await second.jobs.poll(running.id, 'alice'), {
    message: LOST,
    status: 500,
    state: 'failed',
    progress: 0.5
  })
  t.equal(await second.jobs.poll(running.id, 'alice'), undefined)
  t.match(await second.jobs.record(running.id), { ended: 7, lines: ['working', LOST] })
  t.equal(
    second.jobs.summary(waiting.id)?.message,
    'failed: interrupted: controller c1, where it waited, was lost'
  )
  await until(
    () => shared.record(waiting.id).state === 'failed' && shared.record(running.id).state === 'failed'
  )
  t.match(second.log.join(''), new RegExp(`${running.id} .*controller c1, which ran it, was lost`))
  await (await second.jobs.submit(spec(() => {}, ['x']))).done
  gate.end()
  queued.end()
})

// rules 11.20
t.test('who was overtaken stops what runs, and writes nothing of it any more', async t => {
  const shared = new SharedKeys(t)
  const { jobs } = await shared.start('c1')
  const second = await shared.start('c2')
  const contexts: JobContext[] = []
  const gate = new Gate('a', ['x'])
  const running = await jobs.submit(gate.spec)
  const waiting = await jobs.submit(spec(job => void contexts.push(job), ['x']))
  const context = await gate.began
  context.signal.addEventListener('abort', () => gate.end(context.signal.reason))
  await until(() => shared.record(running.id).state === 'running')
  shared.takeover('c2')
  await until(() => shared.record(running.id).state === 'failed')
  context.line('from the past')
  await sleep(1100)
  t.same(shared.record(running.id).lines.first, [LOST], 'its lines reach nothing')
  shared.notice('c1')
  t.equal(context.signal.aborted, true)
  const why = 'was interrupted: another controller writes now'
  t.match(await outcome(running), new JobStoppedError(`pack of OS image a ${why}`))
  t.match(await outcome(waiting), new JobStoppedError(`pack of OS image compute ${why}`))
  t.equal(contexts.length, 0, 'what waited does not begin')
  await t.rejects(jobs.submit(spec(() => {})), { status: 503, message: /another controller writes/ })
  shared.reload('c1')
  t.equal(jobs.summary(running.id)?.message, LOST, 'it tells what the other one does')
  const after = await second.jobs.submit(spec(({ line }) => line('one')))
  await after.done
  t.equal(jobs.summary(after.id)?.state, 'done', 'it hears of each')
  t.equal(shared.record(waiting.id).state, 'failed')

  const written = shared.written.length
  shared.takeover('c1')
  await sleep(1500)
  t.equal(shared.written.length, written, 'nothing of then is written when it writes again')
  t.equal((await jobs.poll(after.id, 'alice'))?.message, 'one')
  await (await jobs.submit(spec(() => {}, ['x']))).done
})

// rules 11.20
t.test('a controller that is started again says of its own requests that they were interrupted', async t => {
  const shared = new SharedKeys(t)
  const { jobs } = await shared.start('c1')
  const gate = new Gate('a')
  const { id } = await jobs.submit(gate.spec)
  const again = await shared.start('c1')
  t.equal(again.jobs.summary(id)?.message, 'failed: interrupted')
  await until(() => shared.record(id).state === 'failed')
  gate.end()
})

// rules 11.20
t.test('while etcd does not answer, what runs goes on, and is written later', async t => {
  const shared = new SharedKeys(t)
  const { jobs, log } = await shared.start('c1')
  const ended = await jobs.submit(spec(({ line }) => line('one')))
  await ended.done
  await settled()
  const gate = new Gate('a')
  const job = await jobs.submit(gate.spec)
  const { line } = await gate.began
  shared.answers = false
  t.match(
    await jobs.submit(spec(() => {})).catch(error => error),
    unavailable('pack of OS image compute cannot be recorded: the store is unavailable: no answer')
  )
  line('one')
  gate.end()
  await job.done
  t.match(await jobs.poll(job.id, 'alice'), { message: 'one', state: 'done' })
  await t.rejects(jobs.poll(ended.id, 'alice'), {
    status: 503,
    message: `the record of request ${ended.id} cannot be read: no answer`
  })
  t.equal(log.filter(entry => entry.includes(`${job.id} cannot be written`)).length, 1, 'said once')
  shared.answers = true
  await until(() => shared.record(job.id).state === 'done')
  t.match(shared.record(job.id), { lines: { first: ['one'] }, delivered: { alice: 'all' } })
  t.equal((await jobs.poll(ended.id, 'alice'))?.message, 'one')
  t.equal(shared.keys.size, 3, 'the head and two records: of what was refused, nothing is left')
})

// rules 8.2, 11.20
t.test('a record has a bound that etcd takes, and says what it leaves out', async t => {
  const shared = new SharedKeys(t)
  const { jobs } = await shared.start('c1')
  const second = await shared.start('c2')
  const job = await jobs.submit(
    spec(({ line, result }) => {
      for (let i = 0; i < 5000; i++) line(`${i} ${'"ä'.repeat(200)}`)
      result(
        'list',
        Array.from({ length: 20_000 }, () => '"ä'.repeat(20))
      )
      result('small', 1)
    })
  )
  await job.done
  const longest = Math.max(...shared.written.map(text => Buffer.byteLength(text)))
  t.ok(longest > RESULTS_KEPT && longest < REQUEST_BYTES * 0.9, `${longest} bytes`)
  const record = await jobs.record(job.id)
  const { lines, results } = record ?? { lines: [], results: {} }
  t.equal(lines[0]?.split(' ')[0], '0')
  const leftOut = lines.filter(text => /^… \d+ lines left out …$/.test(text))
  t.equal(leftOut.length, 1)
  t.equal(Number(leftOut[0]?.split(' ')[1]) + lines.length - 1, 5000 + 1, 'each is counted')
  t.match(lines.at(-1), /^result list: too large, \d+ left out$/)
  t.ok((results as { list: unknown[] }).list.length > 1000)

  shared.takeover('c2')
  t.same(await second.jobs.record(job.id), record)
})

// rules 11.20
t.test('a long record is written less often than a short one', async t => {
  const shared = new SharedKeys(t)
  const { jobs } = await shared.start('c1')
  const [long, short] = [new Gate('a'), new Gate('b')]
  const jobsOf = [await jobs.submit(long.spec), await jobs.submit(short.spec)]
  const [a, b] = [await long.began, await short.began]
  a.result('x', 'x'.repeat(400_000))
  const counts = () => jobsOf.map(({ id }) => shared.written.filter(text => text.includes(id)).length)
  await until(() => shared.record(jobsOf[0]?.id ?? '').results.length === 1)
  const before = counts()
  for (let i = 0; i < 35; i++) {
    a.line(`line ${i}`)
    b.line(`line ${i}`)
    await sleep(100)
  }
  const [ofLong = 0, ofShort = 0] = counts().map((count, i) => count - (before[i] ?? 0))
  t.equal(ofLong, 0, '400 kB take 6 s')
  t.ok(ofShort >= 2 && ofShort <= 4, `${ofShort} times in 3.5 s`)
  long.end()
  short.end()
  await Promise.all(jobsOf.map(({ done }) => done))
  t.equal(shared.record(jobsOf[0]?.id ?? '').lines.first.length, 35, 'the end is written at once')
})

// rules 2.9, 11.20
t.test('the one that writes removes old records, and nobody else', async t => {
  const shared = new SharedKeys(t)
  let now = Date.parse('2026-01-01')
  const first = await shared.start('c1', () => now)
  const old = await first.jobs.submit(spec(() => {}))
  await old.done
  now += KEPT_MS
  const second = await shared.start('c2', () => now)
  await settled()
  t.ok(second.jobs.summary(old.id), 'a standby leaves them')
  t.notMatch(second.log.join(''), /cannot be removed/)
  const next = await first.jobs.submit(spec(() => {}))
  await next.done
  await until(() => shared.record(old.id) === null)
  t.equal(second.jobs.summary(old.id), undefined)
  t.equal(second.jobs.records().length, 1)
})

// rules 11.20
t.test('a key that is no record is named, left out, and removed by who takes over', async t => {
  const shared = new SharedKeys(t)
  const { jobs } = await shared.start('c1')
  const job = await jobs.submit(spec(() => {}))
  await job.done
  const id = 'f'.repeat(32)
  shared.keys.set(`${HEAD}/${id}`, shared.keys.get(`${HEAD}/${job.id}`) ?? '')
  const second = await shared.start('c2')
  t.match(second.log.join('\n'), new RegExp(`${HEAD}/${id} in etcd is no record, and is left out: .*"id"`))
  t.strictSame(
    second.jobs.records().map(({ id }) => id),
    [job.id]
  )
  shared.takeover('c2')
  await until(() => !shared.keys.has(`${HEAD}/${id}`))
  t.equal(shared.record(job.id).state, 'done')
})

// rules 11.20
t.test('a stop writes what is left, and takes no more', async t => {
  const shared = new SharedKeys(t)
  const { jobs } = await shared.start('c1')
  const gate = new Gate('a')
  const job = await jobs.submit(gate.spec)
  const { signal, line } = await gate.began
  signal.addEventListener('abort', () => gate.end(signal.reason))
  line('one')
  await jobs.close(0)
  t.match(shared.record(job.id), {
    state: 'failed',
    message: 'failed: interrupted',
    lines: { first: ['one', 'failed: interrupted'] }
  })
  await t.rejects(jobs.submit(spec(() => {})), { status: 503, message: 'the service is shutting down' })
})

// rules 11.20
t.test('who loses the right while it removes old records stops, and says so once', async t => {
  const shared = new SharedKeys(t)
  let now = Date.parse('2026-01-01')
  const first = await shared.start('c1', () => now)
  await shared.start('c2', () => now)
  for (let i = 0; i < 30; i++) await (await first.jobs.submit(spec(() => {}))).done
  await settled()
  now += KEPT_MS
  await first.jobs.submit(spec(() => {}))
  shared.takeover('c2')
  const told = () => first.log.filter(line => /the old record of request \w+ cannot be removed/.test(line))
  await until(() => told().length > 0)
  await first.jobs.close(0)
  t.equal(told().length, 1)
})

// rules 8.2, 11.20
t.test('results are counted as they are stored, with their names', async t => {
  const shared = new SharedKeys(t)
  const { jobs } = await shared.start('c1')
  const escaped = await jobs.submit(
    spec(({ result }) => {
      result('\u0001'.repeat(600_000), 1)
      result('small', 1)
    })
  )
  const many = await jobs.submit(
    spec(({ result }) => {
      for (let i = 0; i < 170_000; i++) result(`${i}`, 1)
    })
  )
  await Promise.all([escaped.done, many.done])
  const longest = Math.max(...shared.written.map(text => Buffer.byteLength(text)))
  t.ok(longest < REQUEST_BYTES * 0.9, `${longest} bytes`)
  const { lines, results } = (await jobs.record(escaped.id)) ?? {}
  t.same(results, { small: 1 })
  t.match(lines?.[0], /^result \\u0001.*…$/)
  t.ok(Object.keys((await jobs.record(many.id))?.results ?? {}).length > 50_000)
})

// rules 11.20
t.test('a record is made into JSON once for each time that it is stored', async t => {
  const shared = new SharedKeys(t)
  const { jobs } = await shared.start('c1')
  const gate = new Gate('a')
  const job = await jobs.submit(gate.spec)
  const { result } = await gate.began
  result('long', 'x'.repeat(400_000))
  await until(() => shared.record(job.id).results.length === 1)
  const { parse, stringify } = JSON
  const calls: string[] = []
  t.teardown(() => Object.assign(JSON, { parse, stringify }))
  Object.assign(JSON, {
    parse: (...what: Parameters<typeof parse>) => {
      if (what[0].length > 100_000) calls.push('parse')
      return parse(...what)
    },
    stringify: (...what: Parameters<typeof stringify>) => {
      const text = stringify(...what)
      if (text?.length > 100_000) calls.push('stringify')
      return text
    }
  })
  gate.end()
  await job.done
  Object.assign(JSON, { parse, stringify })
  t.strictSame(calls, ['stringify'])
  t.equal(shared.record(job.id).state, 'done')
})

const reading = { reads: true, remote: true } as const

// rules 11.20
t.test('a record of a request that only reads is written less often', async t => {
  const shared = new SharedKeys(t)
  const { jobs } = await shared.start('c1')
  const gates = [new Gate('a'), new Gate('b')]
  const ids: string[] = []
  for (const [i, { spec }] of gates.entries())
    ids.push((await jobs.submit({ ...spec, ...(i === 0 ? reading : {}) })).id)
  const contexts = await Promise.all(gates.map(({ began }) => began))
  for (const { result } of contexts) result('x', 'x'.repeat(60_000))
  await until(() => ids.every(id => shared.record(id).results.length === 1))
  const counts = () => ids.map(id => shared.written.filter(text => text.includes(id)).length)
  const before = counts()
  const began = performance.now()
  for (let i = 0; i < 25; i++) {
    for (const { line } of contexts) line(`line ${i}`)
    await sleep(100)
  }
  const [ofReading = 0, ofOther = 0] = counts().map((count, i) => count - (before[i] ?? 0))
  // On a machine that does other work the loop takes longer.
  const due = Math.floor((performance.now() - began) / 7000)
  t.ok(ofReading <= due, `60 kB take 7 s: ${ofReading} times, ${due} due`)
  t.ok(ofOther >= 1, `${ofOther} times in 2.5 s`)
  for (const gate of gates) gate.end()
})

// rules 8.1, 11.20
t.test('what requests of one user that only read store has a bound, where it is in etcd', async t => {
  const shared = new SharedKeys(t)
  const { jobs } = await shared.start('c1')
  const run = async ({ result }: JobContext) => {
    // Its beginning is stored before.
    await settled()
    result('x', 'x'.repeat(1_000_000))
  }
  const long = { ...spec(run), ...reading }
  const began = performance.now()
  let stored = 0
  const refusal = await (async () => {
    for (; stored < 100; stored++) await (await jobs.submit(long)).done
    return undefined
  })().catch(error => error)
  t.match(refusal, {
    status: 503,
    message:
      /^requests of user admin that only read have stored too much in etcd: ask less often, or for fewer nodes/,
    headers: { 'Retry-After': /^\d+$/ }
  })
  // 32 MiB, and 64 KiB more each second; the last one may go beyond.
  const most = 1 + Math.floor((32 * 2 ** 20 + 64 * 1.024 * (performance.now() - began)) / 1_000_000)
  t.ok(stored >= 30 && stored <= most, `${stored} MB, at most ${most}`)
  await (await jobs.submit({ ...long, by: 'user bob' })).done
  await (await jobs.submit(spec(() => {}))).done
  const files = await openJobs(t)
  for (let i = 0; i < 36; i++) await (await files.jobs.submit(long)).done
})
