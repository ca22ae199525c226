import t from 'tap'
import { JobStoppedError } from '../../lib/jobs/jobs.js'
import { startable } from '../../lib/jobs/work.js'
import { Gate, openJobs, outcome, settled, spec } from '../support/jobs.js'
import { until } from '../support/until.js'

t.test('which jobs may begin', t => {
  const job = (name: string, lanes: string, ready = true, remote = false) => ({
    name,
    lanes: lanes.split(' ').filter(Boolean),
    ready,
    remote
  })
  const far = (name: string, lanes = '') => job(name, lanes, true, true)
  const reader = (name: string) => ({ ...far(name), reads: true })
  const names = (count: number) => Array.from({ length: count }, (_, i) => `f${i}`)
  const rows: [
    what: string,
    waiting: ReturnType<typeof job>[],
    running: string[],
    parallel: number,
    begin: string
  ][] = [
    ['nothing', [], [], 2, ''],
    ['different lanes', [job('a', 'x'), job('b', 'y')], [], 2, 'a b'],
    ['no lanes at all', [job('a', ''), job('b', '')], [], 2, 'a b'],
    ['one lane: the first', [job('a', 'x'), job('b', 'x')], [], 2, 'a'],
    ['a lane that is taken', [job('a', 'x'), job('b', 'y')], ['x'], 2, 'b'],
    ['no more than there is room for', [job('a', 'x'), job('b', 'y'), job('c', 'z')], [], 2, 'a b'],
    ['no room', [job('a', 'x')], ['y', 'z'], 2, ''],
    ['one of two lanes is taken: neither', [job('a', 'x y'), job('b', 'z')], ['x'], 3, 'b'],
    ['whoever comes later stays behind', [job('a', 'x y'), job('b', 'y')], ['x'], 3, ''],
    ['a lane in a lane that is taken', [job('a', '/x/y'), job('b', '/xy')], ['/x'], 3, 'b'],
    ['a lane that holds one', [job('a', '/x'), job('b', '/x/z'), job('c', '/x/y/z/a')], ['/x/y'], 3, ''],
    ['behind somebody who is behind', [job('a', 'x y'), job('b', 'y z'), job('c', 'z')], ['x'], 3, ''],
    [
      'one that is not ready keeps its place',
      [job('a', 'x', false), job('b', 'x'), job('c', 'y')],
      [],
      3,
      'c'
    ],
    ['remote work needs no place', [job('a', ''), far('b')], ['x', 'y'], 2, 'b'],
    ['and keeps to its lanes', [far('a', 'x'), far('b', 'y')], ['x'], 1, 'b'],
    ['nor does it take one', [far('a'), far('b'), job('c', ''), job('d', '')], [], 1, 'a b c'],
    ['16 of it at once', names(17).map(name => far(name)), [], 1, names(16).join(' ')],
    [
      'what only reads takes places of its own',
      [...names(17).map(reader), far('a')],
      [],
      1,
      `${names(16).join(' ')} a`
    ]
  ]
  for (const [what, waiting, running, parallel, begin] of rows) {
    const found = startable(
      waiting,
      running.map(lane => job('', lane)),
      parallel
    )
    t.equal(found.map(({ name }) => name).join(' '), begin, what)
  }
  t.end()
})

// rules 8.1
t.test('a lane has one job at a time, in the order they were submitted', async t => {
  const { jobs } = await openJobs(t)
  const events: string[] = []
  const gates = ['a1', 'b1', 'a2', 'a3', 'b2'].map(name => new Gate(name, [name.slice(0, 1)], events))
  // All at once: the records are written in any order.
  const submitted = await Promise.all(gates.map(gate => jobs.submit(gate.spec)))
  const [a1, b1, a2, a3, b2] = gates as [Gate, Gate, Gate, Gate, Gate]
  await Promise.all([a1.began, b1.began])
  await settled()
  t.same([...events].sort(), ['+a1', '+b1'])
  a1.end()
  await a2.began
  b1.end(new Error('b1 fails'))
  await b2.began
  t.same(events.slice(2), ['-a1', '+a2', '-b1', '+b2'], 'also after a failure')
  for (const gate of [b2, a2, a3]) gate.end()
  await Promise.all(submitted.map(outcome))
  t.same(
    events.slice(6).filter(event => event.includes('a')),
    ['-a2', '+a3', '-a3']
  )
})

// rules 8.1
t.test('at most `parallel` run', async t => {
  const { jobs } = await openJobs(t, { parallel: 2 })
  let running = 0
  let most = 0
  const submitted = await Promise.all(
    Array.from({ length: 20 }, (_, i) =>
      jobs.submit(
        spec(async () => {
          most = Math.max(most, ++running)
          await settled()
          running--
          if (i % 3 === 0) throw new Error('no matter')
        }, [`lane ${i % 5}`])
      )
    )
  )
  await Promise.all(submitted.map(outcome))
  t.equal(most, 2)
  t.ok(jobs.records().every(({ state }) => state === 'done' || state === 'failed'))
})

// rules 8.3
t.test('cancel: one that waits goes at once, and its lane to the next', async t => {
  const { jobs } = await openJobs(t)
  const events: string[] = []
  const [first, second, third] = ['1', '2', '3'].map(name => new Gate(name, ['x'], events)) as [
    Gate,
    Gate,
    Gate
  ]
  const a = await jobs.submit(first.spec)
  const b = await jobs.submit(second.spec)
  const c = await jobs.submit(third.spec)
  t.equal(jobs.cancel(b.id, 'user root'), true)
  t.match(await outcome(b), new JobStoppedError('pack of OS image 2 was cancelled by user root'))
  t.match(await jobs.record(b.id), {
    state: 'failed',
    message: 'failed: cancelled by user root',
    lines: ['failed: cancelled by user root']
  })
  t.equal((await jobs.record(b.id))?.started, undefined)
  first.end()
  third.end()
  await Promise.all([a.done, c.done])
  t.same(events, ['+1', '-1', '+3', '-3'])
  for (const { id } of [a, b, c, { id: 'unknown' }]) t.equal(jobs.cancel(id), false, 'unknown or ended')
})

// rules 8.3
t.test('cancel: one that runs is aborted, and ends as it does', async t => {
  const { jobs } = await openJobs(t, { parallel: 1 })
  const obeys = await jobs.submit(
    spec(
      job => new Promise((_, reject) => job.signal.addEventListener('abort', () => reject(job.signal.reason)))
    )
  )
  const cleans = await jobs.submit(
    spec(async job => {
      await new Promise(resolve => job.signal.addEventListener('abort', resolve))
      throw new Error('a mount is left')
    })
  )
  const finishes = new Gate('finishes')
  const ignores = await jobs.submit(finishes.spec)

  t.equal(jobs.cancel(obeys.id), true)
  t.match(await outcome(obeys), new JobStoppedError('pack of OS image compute was cancelled'))
  t.same((await jobs.record(obeys.id))?.lines, ['failed: cancelled'])

  await until(async () => (await jobs.record(cleans.id))?.state === 'running')
  t.equal(jobs.cancel(cleans.id), true)
  t.match(await outcome(cleans), new JobStoppedError('pack of OS image compute was cancelled'))
  t.same((await jobs.record(cleans.id))?.lines, ['a mount is left', 'failed: cancelled'])

  await finishes.began
  t.equal(jobs.cancel(ignores.id), true)
  t.equal(jobs.cancel(ignores.id), true, 'again, while it has not ended')
  t.equal((await jobs.record(ignores.id))?.state, 'running')
  finishes.end()
  t.equal(await outcome(ignores), undefined)
  t.equal((await jobs.record(ignores.id))?.state, 'done', 'it was done before it could be stopped')
})
