import t from 'tap'
import { Failures } from '../../lib/auth/logins.js'

// rules 5.4
t.test('the fifth in a minute waits, a second at most, until the minute has passed', async t => {
  let now = 1_000_000
  const failures = new Failures(() => now)
  const delays = Array.from({ length: 12 }, () => {
    const ms = failures.delayMs('10.0.0.1')
    failures.add('10.0.0.1')
    return ms
  })
  t.strictSame(delays, [0, 0, 0, 0, 250, 500, 750, 1000, 1000, 1000, 1000, 1000])
  t.equal(failures.delayMs('10.0.0.2'), 0, 'others do not wait')
  now += 59_999
  t.equal(failures.delayMs('10.0.0.1'), 1000)
  now += 1
  t.equal(failures.delayMs('10.0.0.1'), 0)
})

t.test('slow failures are never slowed', async t => {
  let now = 0
  const failures = new Failures(() => now)
  for (let count = 0; count < 20; count++, now += 15_001) {
    t.equal(failures.delayMs('10.0.0.1'), 0)
    failures.add('10.0.0.1')
  }
})

t.test('a clock that is set back slows nobody', async t => {
  let now = 10_000_000
  const failures = new Failures(() => now)
  for (let count = 0; count < 9; count++) failures.add('10.0.0.1')
  now -= 3_600_000
  t.equal(failures.delayMs('10.0.0.1'), 0)
})

t.test('memory is bounded: the address whose failure is longest ago is forgotten', async t => {
  const failures = new Failures(() => 0, 100)
  const add = (address: string, times: number) => {
    for (let count = 0; count < times; count++) failures.add(address)
  }
  add('10.0.0.1', 8)
  add('10.0.0.2', 8)
  for (let host = 0; host < 98; host++) add(`10.1.0.${host}`, 1)
  add('10.0.0.1', 1)
  add('10.2.0.1', 1)
  t.equal(failures.size, 100)
  t.equal(failures.delayMs('10.0.0.1'), 1000)
  t.equal(failures.delayMs('10.0.0.2'), 0)
  for (let host = 0; host < 20_000; host++) add(`x${host}`, 1)
  t.equal(failures.size, 100)
})

t.test('an IPv6 host counts with its /64, an IPv4-mapped one as IPv4', async t => {
  const failures = new Failures(() => 0)
  for (let host = 1; host < 10; host++) failures.add(`fd00:0:0:1::${host}`)
  t.equal(failures.delayMs('fd00:0:0:1:ffff::1'), 1000)
  t.equal(failures.delayMs('fd00:0:0:2::1'), 0)
  for (let count = 1; count < 10; count++) failures.add('::ffff:10.0.0.1')
  t.equal(failures.delayMs('10.0.0.1'), 1000)
})
