// rules 11.16, 11.19
import { randomBytes } from 'node:crypto'
import t from 'tap'
import { SLACK_MS } from '../../lib/client/controllers.js'
import { NonceCache } from '../../lib/peers/proofs.js'

const number = () => randomBytes(16).toString('hex')

t.test('what was said counts once for as long as its time lasts, and is forgotten then', async t => {
  const taken = new NonceCache(0)
  const start = 1_000_000
  const all = [-SLACK_MS, -1, 0, SLACK_MS].map(ahead => ({ number: number(), saidMs: start + ahead }))
  for (const { number, saidMs } of all) t.ok(taken.add(number, saidMs, start))
  for (const { number, saidMs } of all)
    for (const now of [start, saidMs + SLACK_MS]) t.notOk(taken.add(number, saidMs, Math.max(now, start)))
  t.ok(taken.size <= all.length)
  const later = start + 3 * SLACK_MS
  t.ok(taken.add(number(), later, later))
  t.equal(taken.size, 1)
})

t.test('a clock that is set back forgets nothing too early, and keeps nothing for longer', async t => {
  const taken = new NonceCache(0)
  const hour = 3_600_000
  const old = number()
  t.ok(taken.add(old, 10 * hour, 10 * hour))
  for (let now = 9 * hour; now < 10 * hour; now += SLACK_MS) {
    t.ok(taken.add(number(), now, now))
    t.ok(taken.size <= 4, `${taken.size} are kept`)
  }
  t.notOk(taken.add(old, 10 * hour, 10 * hour))
})

t.test('the start goes back with a clock that is set back: what is said now is not of before it', async t => {
  const hour = 3_600_000
  const start = 100 * hour
  const taken = new NonceCache(start)
  t.ok(taken.predatesStart(start - 1, start))
  t.notOk(taken.predatesStart(start + 1, start + 10))
  // It was an hour ahead at the start, and is right from now on.
  const now = start + 20 - hour
  t.notOk(taken.predatesStart(now, now))
  t.ok(taken.predatesStart(start - hour - 1, now), 'what was said before the start was so before, too')
  t.ok(taken.predatesStart(start - hour - 1, now + hour), 'and a clock that goes on changes nothing')
  t.notOk(taken.predatesStart(now + hour, now + hour))
})
