import { setImmediate as nextTurn } from 'node:timers/promises'
import t from 'tap'
import { SlidingWindow } from '../../lib/base/rate-limit.js'
import { cleanText, shortenTo } from '../../lib/control/bmc.js'
import { batch, MOST_NODES } from '../../lib/control/control.js'
import { openJobs, outcome, spec } from '../support/jobs.js'

// rules 13.2
t.test('the record has the result of each of 10,000 nodes, whatever they say', async t => {
  const { jobs } = await openJobs(t)
  const nodes = Array.from({ length: MOST_NODES }, (_, i) => `node${String(i + 1).padStart(5, '0')}`)
  let running = 0
  let most = 0
  const job = await jobs.submit(
    spec(job =>
      batch(job, nodes, 20, async node => {
        most = Math.max(most, ++running)
        await nextTurn()
        running--
        if (node.endsWith('7')) throw new Error(`10.148.1.1: no answer, "${'x'.repeat(1000)}"`)
        return `${'event\n'.repeat(5000)}last`
      })
    )
  )
  t.match(await outcome(job), {
    message: /^1000 of 10000 nodes failed: node00007, .*, node00097 and 990 more$/
  })
  t.equal(most, 20)
  const { results = {}, lines = [] } = (await jobs.record(job.id)) ?? {}
  t.same(Object.keys(results).sort(), nodes)
  t.match(results.node00001, { state: 'done', message: /^… \d+ lines left out …\n(event\n)*last$/ })
  t.match(results.node00007, { state: 'failed', message: /^10\.148\.1\.1: no answer, "x+…$/ })
  t.match(lines.at(-2), 'node10000: … ')
})

// rules 13.2
t.test('nodes that fail at once leave the event loop its turns, in however many requests', async t => {
  const { jobs } = await openJobs(t, { parallel: 8 })
  let inTurn = 0
  let most = 0
  let isOver = false
  const turns = async () => {
    for (; !isOver; inTurn = 0) await nextTurn()
  }
  const fails = async () => {
    most = Math.max(most, ++inTurn)
    const until = performance.now() + 1
    while (performance.now() < until);
    throw new Error('no interface BMC')
  }
  const nodes = Array.from({ length: 60 }, (_, i) => `n${i}`)
  const counting = turns()
  const all = await Promise.all(
    Array.from({ length: 8 }, () => jobs.submit(spec(job => batch(job, nodes, 20, fails))))
  )
  for (const error of await Promise.all(all.map(outcome))) t.match(error, { message: /^60 of 60 nodes/ })
  isOver = true
  await counting
  t.ok(most <= 20, `${most} nodes of 1 ms in one turn`)
})

// rules 13.2
t.test('no more than so many begin in a time, whoever asks', async t => {
  let now = 0
  const pace = new SlidingWindow(2, 50, () => now)
  const { signal } = new AbortController()
  const begun: string[] = []
  const turn = (name: string) => pace.turn(signal).then(() => begun.push(name))
  const all = ['a', 'b', 'c', 'd'].map(turn)
  await Promise.all(all.slice(0, 2))
  t.same(begun, ['a', 'b'])
  await Promise.all(all)
  now = 100
  const stopped = new AbortController()
  const waiting = Promise.all(['e', 'f', 'g'].map(() => pace.turn(stopped.signal)))
  stopped.abort()
  await t.rejects(waiting, { name: 'AbortError' })
})

t.test('what a BMC says fits where it is put', async t => {
  t.equal(shortenTo('short', 10), 'short')
  t.equal(shortenTo('x'.repeat(11), 10), 'xxxxxxxxx…')
  t.ok(shortenTo(`${'a\n'.repeat(100)}b`, 50).length <= 50)
  t.match(shortenTo(`${'a\n'.repeat(100)}b`, 50), /^… \d+ lines left out …\n(a\n)+b$/)
  t.equal(cleanText('a\r\n\n b\u0007\u202e\nc\u2028d'), 'a\nb\\u0007\nc\\u2028d')
})
