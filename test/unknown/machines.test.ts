import t from 'tap'
import { serialKey, uuidKey } from '../../lib/model/machine-id.js'
import {
  claimsOf,
  MOST_MACHINES,
  MOST_OF_SOURCE,
  type SeenMachine,
  tame,
  UnknownMachines
} from '../../lib/unknown/machines.js'

// rules 4.37

const day = 86_400_000
const macOf = (n: number) =>
  `02:00:${[24, 16, 8, 0].map(by => ((n >> by) & 255).toString(16).padStart(2, '0')).join(':')}`

function listOf() {
  const clock = { ms: 1000 }
  const told: (SeenMachine | undefined)[] = []
  const log: string[] = []
  const machines = new UnknownMachines({
    log: { info: line => log.push(line), warn: line => log.push(line) },
    now: () => 1_700_000_000_000 + clock.ms,
    ticks: () => clock.ms,
    ageMs: 7 * day,
    onNew: machine => told.push(machine)
  })
  const asks = (mac: string, address: string, query = '') => {
    clock.ms++
    machines.note(mac, new URLSearchParams(query), address)
  }
  return {
    clock,
    told,
    log,
    machines,
    asks,
    has: (mac: string) => machines.all().some(one => one.mac === mac)
  }
}

t.test('a machine is listed with what it says, how often, and since when', t => {
  const { machines, asks, clock } = listOf()
  asks(macOf(1), '10.0.0.1', `serial=S%20123&maker=Dell%20Inc.&uuid=&macs=${macOf(1)},,${macOf(2)},x,`)
  clock.ms += 5000
  asks(macOf(1), '10.0.0.2', 'serial=S%20123')
  const [one] = machines.all()
  t.match(one, { mac: macOf(1), macs: [macOf(1)], serial: 'S 123', address: '10.0.0.2', count: 2 })
  t.equal((one?.last ?? 0) - (one?.first ?? 0), 5001)
  t.equal(one?.first, 1_700_000_001_001)
  t.notOk(one && 'before' in one)
  asks(macOf(1), '10.0.0.2', 'serial=OTHER')
  t.equal(machines.all()[0]?.before, 'S 123', 'another serial number is told')
  t.end()
})

t.test('a request without a serial number does not hide that it changed', t => {
  const { machines, asks } = listOf()
  for (const query of ['serial=FIRST', '', 'serial=None', 'serial=SECOND', ''])
    asks(macOf(1), '10.0.0.1', query)
  t.equal(machines.all()[0]?.before, 'FIRST')
  const { serial } = machines.all()[0] ?? {}
  t.equal(serial, undefined, 'the list has what it said last')
  t.end()
})

t.test('the time of the first request is the same in each list', t => {
  const clock = { ticks: 1000.4 }
  const machines = new UnknownMachines({
    log: { info: () => undefined, warn: () => undefined },
    now: () => 1_700_000_000_000 + Math.floor(clock.ticks),
    ticks: () => clock.ticks,
    ageMs: day
  })
  machines.note(macOf(1), new URLSearchParams(), '10.0.0.1')
  machines.addScanned({ macs: [], bmc: '10.0.0.2', network: 'ipmi' })
  const times = new Set<number | undefined>()
  for (let i = 0; i < 100; i++) {
    clock.ticks += 0.13
    times.add(machines.all()[0]?.first)
    times.add(machines.scanned()[0]?.at)
  }
  t.equal(times.size, 1)
  t.end()
})

t.test('it is dropped when it has not asked for the time of the ini', t => {
  const { asks, has, clock } = listOf()
  asks(macOf(1), '10.0.0.1')
  clock.ms += 7 * day - 10
  t.ok(has(macOf(1)))
  clock.ms += 20
  t.notOk(has(macOf(1)))
  t.end()
})

t.test('what a stranger sends is short, printable, and without quotes and escapes', t => {
  t.equal(tame('\u001b[2J\u0007a\r\nb\u202ec'), '?[2J?a??b?c')
  t.equal(tame('<img src=x onerror="alert(1)">&`$(rm)`;|'), '?img src=x onerror=?alert(1)?????(rm)???')
  t.equal(tame('  a   b '), 'a b')
  t.equal(tame('x'.repeat(100_000))?.length, 64)
  t.equal(tame(''), undefined)
  t.equal(tame('\u00e9\u{1f600}'), '???')
  const query = new URLSearchParams(
    `serial=A&serial=B&macs=${Array.from({ length: 5000 }, (_, i) => macOf(i)).join(',')}&maker=%00%ff`
  )
  const said = claimsOf(macOf(7), query)
  t.equal(said.serial, 'A', 'the first of several counts')
  t.equal(said.macs.length, 8)
  t.equal(said.macs[0], macOf(7))
  t.equal(said.maker, '??')
  t.end()
})

t.test('one address has 256 machines, and pushes out its own alone', t => {
  const { machines, asks, has } = listOf()
  asks(macOf(999_999), '10.0.0.1', 'serial=REAL')
  for (let i = 0; i < 20_000; i++) asks(macOf(i), '10.0.0.66', `serial=${i}`)
  t.equal(machines.all().length, MOST_OF_SOURCE + 1)
  t.ok(has(macOf(999_999)))
  t.ok(has(macOf(19_999)), 'the last of the stranger')
  t.end()
})

t.test('many addresses with many machines push out none that is alone at its address', t => {
  const { machines, asks, has } = listOf()
  const real = Array.from({ length: 50 }, (_, i) => macOf(1_000_000 + i))
  for (const [i, mac] of real.entries()) asks(mac, `10.0.1.${i + 1}`)
  for (let i = 0; i < 30_000; i++) asks(macOf(i), `10.0.${2 + (i % 8)}.${i % 251}`)
  t.equal(machines.all().length, MOST_MACHINES)
  t.strictSame(
    real.filter(mac => !has(mac)),
    []
  )
  t.end()
})

t.test('of sources with one machine each, the one that asked longest ago goes', t => {
  const { asks, has } = listOf()
  const ask = (n: number) => asks(macOf(n), `10.1.${n >> 8}.${n & 255}`)
  for (let n = 0; n < MOST_MACHINES; n++) ask(n)
  ask(0)
  ask(MOST_MACHINES)
  t.strictSame([0, 1, 2, MOST_MACHINES].map(macOf).map(has), [true, false, true, true])
  t.end()
})

t.test('a stranger who names the MAC of a machine cannot keep it out of the list', t => {
  const { asks, has } = listOf()
  const real = macOf(1_000_000)
  asks(real, '10.0.0.66', 'serial=LIE')
  for (let i = 0; i < 1000; i++) asks(macOf(i), '10.0.0.66')
  t.notOk(has(real), 'pushed out with those of the stranger')
  asks(real, '10.0.0.1')
  for (let i = 2000; i < 9000; i++) asks(macOf(i), '10.0.0.66')
  t.ok(has(real), 'and back with its own next request')
  t.end()
})

t.test('IPv6: the addresses of a /64 are one source', t => {
  const { machines, asks } = listOf()
  for (let i = 0; i < 2000; i++) asks(macOf(i), `fd00::${i.toString(16)}`)
  t.equal(machines.all().length, MOST_OF_SOURCE)
  t.end()
})

t.test('a full list costs little', t => {
  const { asks } = listOf()
  for (let i = 0; i < 4096; i++) asks(macOf(i), `10.${i >> 8}.${i & 255}.1`)
  const began = performance.now()
  for (let i = 0; i < 2000; i++) asks(macOf(10_000 + i), `11.${i >> 8}.${i & 255}.1`, 'serial=x')
  const each = (performance.now() - began) / 2000
  t.comment(`${each.toFixed(3)} ms for each new machine`)
  t.ok(each < 2, 'a request takes no time that others feel')
  t.end()
})

t.test('new machines are told at a bounded rate, on one line each', t => {
  const { asks, told, log, clock } = listOf()
  for (let i = 0; i < 1000; i++) asks(macOf(i), '10.0.0.1', 'maker=a%0d%0aFORGED%1b[2J&serial=S')
  t.equal(told.filter(one => one !== undefined).length, log.length)
  t.ok(log.length <= 66, `${log.length} lines`)
  t.equal(told.length, 1000, 'the others as "more"')
  t.match(log[0], /^unknown machine 02:00:00:00:00:00 \(a\?\?FORGED\?\[2J serial S\) asks from 10\.0\.0\.1/)
  clock.ms += 10_000
  asks(macOf(5000), '10.0.0.1')
  t.match(told.at(-1), { mac: macOf(5000) })
  t.end()
})

t.test('serial numbers and UUIDs that name no machine', t => {
  for (const junk of [
    ...['To be filled by O.E.M.', 'To Be Filled By O.E.M', 'None', 'N/A', 'Not Specified', 'Default string'],
    ...[
      'System Serial Number',
      '0000000000',
      '........',
      'xxxxxxx',
      '0123456789',
      '123456789',
      'Unknown',
      ' ',
      ''
    ],
    ...[
      'OEM',
      'Serial',
      'Chassis Serial Number',
      'Not Available',
      'INVALID',
      '12',
      'empty',
      'Default',
      '........!'
    ]
  ])
    t.equal(serialKey(junk), undefined, junk)
  for (const [serial, key] of [
    ['ABC123', 'abc123'],
    [' CZ 1234 ', 'cz1234'],
    ['/7X0/CN-1/', '/7x0/cn-1/'],
    ['S0123456', 's0123456'],
    ['none1', 'none1']
  ])
    t.equal(serialKey(serial), key)
  const uuid = '4c4c4544-0033-5610-8052-b4c04f4d3132'
  t.ok(uuidKey(uuid))
  t.equal(
    uuidKey(uuid.toUpperCase()),
    uuidKey('44454c4c-3300-1056-8052-b4c04f4d3132'),
    'either order of bytes'
  )
  for (const junk of [
    ...['00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff', 'x', ''],
    ...['03000200-0400-0500-0006-000700080009', '00020003-0004-0005-0006-000700080009']
  ])
    t.equal(uuidKey(junk), undefined, junk)
  t.end()
})
