import t from 'tap'
import { RetryAfter } from '../../lib/http/admission/retry-after.js'

/** When each of so many that are refused at once is told to come back, in seconds. */
const told = (comebacks: RetryAfter, count: number) =>
  Array.from({ length: count }, () => Number(comebacks.refuse('too many').headers?.['Retry-After']))
const within = (seconds: readonly number[], from: number, to: number) =>
  seconds.filter(each => each >= from && each < to).length

// rules 2.13
t.test('those that are refused together come back one after the other', async t => {
  let now = 0
  const seconds = told(new RetryAfter(300, () => now), 3000)
  t.equal(seconds[0], 2)
  t.strictSame(
    [...seconds].sort((a, b) => a - b),
    seconds,
    'who was refused first comes first'
  )
  t.equal(Math.max(...seconds), 12)
  for (let at = 3; at < 12; at++) t.ok(within(seconds, at, at + 1) <= 301, `${at} s`)
  // Later they do not wait for those any more.
  now = 60_000
  const comebacks = new RetryAfter(300, () => now)
  told(comebacks, 3000)
  now += 60_000
  t.equal(told(comebacks, 1)[0], 2)
})

// rules 2.13
t.test('where many are served they come back faster', async t => {
  let now = 0
  const comebacks = new RetryAfter(300, () => now)
  for (let i = 0; i < 2000; i++) comebacks.served()
  now = 1000
  const seconds = told(comebacks, 5000)
  t.equal(Math.max(...seconds), 4)
  now = 10_000
  t.equal(Math.max(...told(comebacks, 3000)), 12, 'and slower again')
})

// rules 2.13
t.test('nobody waits for more than half a minute, and then they are spread', async t => {
  const seconds = told(new RetryAfter(300, () => 0), 50_000).slice(-30_000)
  t.equal(Math.max(...seconds), 30)
  t.equal(Math.min(...seconds), 15)
  for (let at = 15; at <= 30; at++) t.ok(within(seconds, at, at + 1) < 3000, `${at} s`)
})
