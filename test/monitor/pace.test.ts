import t from 'tap'
import { NodeRate } from '../../lib/monitor/node-rate.js'

// rules 11.17
t.test('60 at once, and then one in 5 s', t => {
  let now = 0
  const rate = new NodeRate(() => now)
  const take = (nowMs: number) => {
    now = nowMs
    rate.takeOrThrow('n1')
  }
  const refused = {
    status: 503,
    message: /^node n1 reports too often: once in 5 s is stored$/,
    headers: { 'Retry-After': '5' }
  }
  const begins = 1_000_000
  for (let i = 0; i < 60; i++) take(begins + i)
  t.throws(() => take(begins + 100), refused)
  take(begins + 5000)
  t.throws(() => take(begins + 9999), refused)
  take(begins + 10_000)
  t.throws(() => take(begins + 10_001), refused)
  const later = begins + 3_600_000
  for (let i = 0; i < 60; i++) take(later)
  t.throws(() => take(later), refused)
  t.end()
})
