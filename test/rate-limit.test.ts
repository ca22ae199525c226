import t from 'tap'
import { RateLimit, SlidingWindow } from '../lib/base/rate-limit.js'

t.test('a bucket gives what it holds, and then what comes back', async t => {
  let now = 7
  const rate = new RateLimit({ burst: 3, refill: 2, everyMs: 100 }, () => now)
  const taken = (key: string) => Array.from({ length: 5 }, () => rate.take(key)).filter(Boolean).length
  t.equal(taken('a'), 3)
  t.equal(taken('b'), 3, 'each key has its own')
  now += 99
  t.equal(taken('a'), 0)
  now += 1
  t.equal(taken('a'), 2)
  now += 1000
  t.equal(taken('a'), 3, 'no more is saved up than it holds')
  now += 99
  t.equal(taken('a'), 0, 'the time of a full bucket counts from its next use')
})

t.test('a key can owe tokens', async t => {
  let now = 0
  const rate = new RateLimit({ burst: 10, refill: 1, everyMs: 100 }, () => now)
  rate.spend('a', 12)
  t.equal(rate.left('a'), -2)
  now += 299
  t.equal(rate.take('a'), false)
  now += 1
  t.equal(rate.take('a'), true)
  t.equal(rate.take('a'), false)
})

t.test('a window lets no more begin in any of its periods', async t => {
  let now = 50
  const window = new SlidingWindow(2, 100, () => now)
  window.book()
  now += 60
  window.book()
  t.equal(window.waitMs, 40)
  window.book()
  t.equal(window.waitMs, 100, 'it is booked after the second')
  now += 100
  t.equal(window.waitMs, 0)
  t.equal(new SlidingWindow(0, 100, () => now).waitMs, 100, 'none at all')
})
