import t from 'tap'
import { parsePrefix, toAddress } from '../../lib/model/address.js'
import { DiskSpace } from '../../lib/monitor/health.js'
import { subtractRanges } from '../../lib/services/dhcp/data.js'
import { reverseNameOf, reverseZones } from '../../lib/services/dns/data.js'
import { nextSerial, serials } from '../../lib/services/dns/serials.js'

const r = (first: number, last = first) => ({ first, last })

// rules 10.4
t.test('a range without the addresses that are somebody’s', async t => {
  t.same(subtractRanges([r(10, 20)], []), [r(10, 20)])
  t.same(
    subtractRanges(
      [r(10, 20)],
      [1, 10, 15, 20, 30].map(n => r(n))
    ),
    [r(11, 14), r(16, 19)]
  )
  t.same(subtractRanges([r(10, 12)], [r(10), r(11), r(12)]), [], 'all taken')
  t.same(
    subtractRanges([r(10, 20), r(15, 30), r(31, 33), r(40, 41)], [r(32)]),
    [r(10, 31), r(33, 33), r(40, 41)],
    'joined'
  )
  t.same(subtractRanges([r(0, 5)], [r(0), r(0), r(5)]), [r(1, 4)], 'an address twice')
  t.same(
    subtractRanges([r(0, 9), r(20, 29)], [r(3, 4), r(8, 21), r(29, 40)]),
    [r(0, 2), r(5, 7), r(22, 28)],
    'ranges'
  )
})

t.test('what is taken is read once for all ranges', t => {
  const ranges = Array.from({ length: 200 }, (_, i) => r(i * 1000, i * 1000 + 900))
  const addresses = Array.from({ length: 20_000 }, (_, i) => r(i * 10))
  let reads = 0
  const taken = new Proxy(addresses, {
    get(target, key, receiver) {
      if (typeof key === 'string' && /^\d+$/.test(key)) reads++
      return Reflect.get(target, key, receiver)
    }
  })
  t.equal(subtractRanges(ranges, taken).length, 200 * 90)
  t.ok(reads < 3 * (200 + 20_000), `${reads} reads`)
  t.end()
})

t.test('reverse zones at any prefix length', async t => {
  const zones = (cidr: string) =>
    reverseZones(parsePrefix(cidr) as NonNullable<ReturnType<typeof parsePrefix>>)
  t.same(zones('10.0.0.0/8'), ['10.in-addr.arpa'])
  t.same(zones('10.141.0.0/16'), ['141.10.in-addr.arpa'])
  t.same(zones('10.141.7.0/24'), ['7.141.10.in-addr.arpa'])
  for (const cidr of ['10.141.7.0/25', '10.141.7.192/26', '10.141.7.8/30', '10.141.7.8/31', '10.141.7.9/32'])
    t.same(zones(cidr), ['7.141.10.in-addr.arpa'], cidr)
  t.same(
    zones('10.141.4.0/22'),
    ['4', '5', '6', '7'].map(n => `${n}.141.10.in-addr.arpa`)
  )
  t.equal(zones('172.16.0.0/12').length, 16)
  t.same(zones('12.0.0.0/7'), ['12.in-addr.arpa', '13.in-addr.arpa'])
  t.same(zones('127.0.0.0/8'), [], 'every name server has it already')
  t.equal(zones('0.0.0.0/0').length, 253)
  const known = new Map(['10', '141.10', '7.141.10'].map(name => [`${name}.in-addr.arpa`, true]))
  const place = (address: string) => reverseNameOf(toAddress(address), known)
  t.same(place('10.141.7.9'), { zone: '7.141.10.in-addr.arpa', name: '9' }, 'the smallest zone')
  t.same(place('10.141.8.9'), { zone: '141.10.in-addr.arpa', name: '9.8' })
  t.same(place('10.1.2.3'), { zone: '10.in-addr.arpa', name: '3.2.1' })
  t.equal(place('11.1.2.3'), undefined)
})

t.test('a serial grows, whatever the clock does', async t => {
  const now = Date.UTC(2026, 10, 20)
  t.equal(nextSerial(undefined, now), now / 1000)
  t.equal(nextSerial(5, now), now / 1000)
  t.equal(nextSerial(now / 1000, now), now / 1000 + 1, 'twice in a second')
  t.equal(nextSerial(now / 1000 + 9_000, now), now / 1000 + 9_001, 'the clock stepped back')
  t.equal(nextSerial(2 ** 32 - 1, 0), 0, 'round the circle')
  // RFC 1982: what comes after is less than half the circle ahead.
  for (const last of [0, 1, 2 ** 31, 2 ** 32 - 2, now / 1000]) {
    const ahead = (nextSerial(last, now) - last + 2 ** 32) % 2 ** 32
    t.ok(ahead > 0 && ahead < 2 ** 31, `after ${last}`)
  }
})

t.test('a serial is after that of the file in force, whatever is remembered', async t => {
  const now = Date.UTC(2026, 10, 20)
  const body = (text: string) => (serial: number) =>
    `@ SOA ns. hostmaster.ns. (\n  ${serial} ; serial\n  3600 ; refresh\n)\n${text}\n`
  const inForce = now / 1000 + 9_000
  const next = (known: Record<string, number>, text: string, file = body('old')(inForce)) => {
    const { of, given } = serials(known, now, () => file)
    return [of('zone', '/zone', body(text)) === body(text)(given.zone ?? inForce), given.zone]
  }
  t.same(next({}, 'new'), [true, inForce + 1], 'nothing is remembered')
  t.same(next({ zone: now / 1000 - 5 }, 'new'), [true, inForce + 1], 'something older is')
  t.same(next({ zone: inForce + 7 }, 'new'), [true, inForce + 8], 'something newer is')
  t.same(next({}, 'old'), [true, undefined], 'the same text keeps what it has')
  t.same(next({}, 'new', 'no zone\n'), [true, now / 1000], 'a file that is no zone says nothing')
})

t.test('room on a disk', async t => {
  const directory = t.testdir({})
  const roomy = await DiskSpace.open([directory], 1)
  t.teardown(() => roomy.close())
  t.same(roomy.condition, { ok: true, reason: '' })
  const gone = await DiskSpace.open([`${directory}/gone`], 1)
  t.teardown(() => gone.close())
  t.match(gone.condition, { ok: false, reason: /gone cannot be looked at: ENOENT/ })
})
