import t from 'tap'
import { HeartbeatMonitor } from '../../lib/store/etcd/leadership.js'

/**
 * What the pulse says of looks that took 10 ms each: at these times, with the last sign of life, '' where
 * nobody writes.
 */
function seen(ttlMs: number | undefined, ...looks: readonly (readonly [ms: number, sign: string])[]) {
  const pulse = new HeartbeatMonitor()
  return looks.map(([ms, sign]) => pulse.isSilent(sign || undefined, ttlMs, ms, ms + 10))
}
const everyHalf = (sign: string, from: number, to: number) =>
  Array.from({ length: (to - from) / 500 + 1 }, (_, i) => [from + 500 * i, sign] as const)

// rules 11.14
t.test('silent is who gives no sign for all of its time', async t => {
  t.strictSame(seen(3000, ...everyHalf('1', 0, 3500)).indexOf(true), 7)
  t.notOk(seen(3000, ...everyHalf('1', 0, 2500), ...everyHalf('2', 3000, 5500)).includes(true))
  t.ok(seen(3000, ...everyHalf('1', 0, 2500), ...everyHalf('2', 3000, 6500)).includes(true))
  t.notOk(seen(1000, ...everyHalf('1', 0, 2000)).includes(true), 'a lease lasts 2 s at least')
  t.ok(seen(1000, ...everyHalf('1', 0, 2500)).includes(true))
})

t.test('nobody is silent who gives no signs by its release, or who is not there', async t => {
  t.notOk(seen(undefined, ...everyHalf('1', 0, 20_000)).includes(true))
  t.notOk(seen(3000, ...everyHalf('', 0, 20_000)).includes(true))
  t.notOk(
    seen(
      3000,
      ...everyHalf('1', 0, 2000),
      ...everyHalf('', 2500, 3000),
      ...everyHalf('1', 3500, 6000)
    ).includes(true)
  )
})

t.test('after a time without an answer of etcd, signs have half of the time to come', async t => {
  const looks = seen(3000, ...everyHalf('1', 0, 1000), ...everyHalf('1', 5000, 7000))
  t.equal(looks.indexOf(true), 3 + 4, 'not before 1.5 s after it')
  t.notOk(seen(3000, ...everyHalf('1', 0, 1000), ...everyHalf('1', 5000, 6000), [6500, '2']).includes(true))
})
