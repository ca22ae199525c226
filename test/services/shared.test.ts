// DHCP and DNS of controllers that share the objects: one lends the ranges, and zones have one serial.
import { cpSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { runSliced } from '../../lib/base/concurrency.js'
import { createLog } from '../../lib/base/log.js'
import { loadConfig } from '../../lib/config/load.js'
import { SharedServiceState, ZoneAgreement } from '../../lib/peers/service-state.js'
import { capture } from '../../lib/services/capture.js'
import { dnsData } from '../../lib/services/dns/data.js'
import { digestOf, serials, type ZoneSerial } from '../../lib/services/dns/serials.js'
import type { DnsData } from '../../lib/services/dns/variables.js'
import type { ServiceOptions } from '../../lib/services/service.js'
import { Services } from '../../lib/services/services.js'
import { StoreError } from '../../lib/store/errors.js'
import type { OpenRecords, RecordedState } from '../../lib/store/records.js'
import { Controller } from '../support/controller.js'
import { checkout, requirePrograms } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { until } from '../support/until.js'
import { everything, many, type Objects, settings, view } from './cluster.js'
import { Fake } from './fake.js'
import { complaints, rendered, templates as shipped } from './rendered.js'

requirePrograms('dhcpd', 'kea-dhcp4', 'dnsmasq', 'named-checkconf', 'named-checkzone')

const DAY_MS = 86_400_000
/** Where a controller answers, and its ini. */
const own = { port: 7050, ini: '/etc/svcd/svcd.ini' }

const notes: ServiceOptions['notes'] = { get: () => undefined, set: async () => {} }

/** What etcd is for records: all have what is stored, and one stores it. */
class Hub {
  writer = 'one'
  /** Whether what is stored is told as failed, and whether it is stored all the same. */
  answer: 'stored' | 'failed' | 'lost' = 'stored'
  readonly stored = new Map<string, readonly never[]>()
  readonly #memories = new Map<string, RecordedState<never>>()

  opener(who: string): OpenRecords {
    const hub = this
    return async memory => {
      const own = memory as RecordedState<never>
      hub.#memories.set(who, own)
      for (const [key, records] of hub.stored) own.replaceRecords(key, records)
      return {
        isShared: true,
        get isReadOnly() {
          return hub.writer !== who
        },
        append: async record => {
          if (hub.writer !== who) throw new StoreError('another controller writes')
          const [key = ''] = own.namesIn(record as never)
          if (hub.answer !== 'failed') hub.#store(who, key, structuredClone([...own.recordsOf(key)]))
          if (hub.answer !== 'stored') throw new StoreError('no answer')
        },
        rewrite: async () => {},
        soon: () => {},
        health: { ok: true, reason: '' },
        read: async () => [],
        close: async () => {}
      }
    }
  }

  /** The one that writes has died, and with it what it had not stored. */
  takesOver(who: string): void {
    this.writer = who
    for (const memory of this.#memories.values()) {
      memory.reset()
      for (const [key, records] of this.stored) memory.replaceRecords(key, records)
    }
  }

  #store(who: string, key: string, records: readonly never[]): void {
    if (records.length > 0) this.stored.set(key, records)
    else this.stored.delete(key)
    for (const [other, memory] of this.#memories) if (other !== who) memory.replaceRecords(key, records)
  }
}

const log = (lines: string[] = []) => createLog('info', line => lines.push(line))

/** A controller with a name server that is scripts. */
async function controller(t: Test, hub: Hub, name: string, objects: Objects) {
  const shared = await SharedServiceState.open(hub.opener(name), {
    self: { name, address: '10.141.255.254', ...own },
    others: () => [],
    log: log(),
    now: () => Date.UTC(2026, 10, 20)
  })
  t.teardown(() => shared.close())
  const lines: string[] = []
  const waits = { gatherMs: 0, patienceMs: 1500, log: log(lines) }
  const zones = new ZoneAgreement(shared, waits)
  const fake: Fake = new Fake(t, 'dns', 'bind', objects, { zones })
  shared.onChange = () => fake.service.serialsChanged()
  const zone = (of: string) => fake.read(join(fake.directory, 'files', `${of}.zone`)) ?? ''
  const serial = (of = 'cluster') => Number(/(\d+) ; serial/.exec(zone(of))?.[1])
  return { shared, zones, waits, fake, zone, serial, lines }
}

// rules 11.18
t.test('a controller that is stopped gives its range up where another one goes on', async t => {
  const c = await Controller.start(t)
  await c.cluster()
  const network = {
    network: '10.9.0.0/16',
    dhcp: true,
    dhcp_range_begin: '10.9.0.100',
    dhcp_range_end: '10.9.0.200'
  }
  t.equal((await c.post('/config/network/lent', network)).status, 201)
  const directory = scratch(t)
  const file = join(directory, 'dhcpd.conf')
  const control = join(directory, 'control')
  writeFileSync(control, `#!/bin/sh\necho "$1" >>${directory}/asked\ntest "$1" = status || sleep 0.2\n`, {
    mode: 0o755
  })
  const config = loadConfig(join(checkout, 'etc/svcd.ini'), [
    ...c.overrides,
    ...[
      'dhcp.server=isc',
      `dhcp.config=${file}`,
      `dhcp.control=${control}`,
      'dhcp.check=true',
      'dhcp.gather=0s'
    ]
  ])
  const one = { name: 'one', address: '10.141.255.254', port: 7050, ini: '/etc/svcd/svcd.ini' }
  const other = { ...one, name: 'two', address: '10.141.255.253' }
  const lends = () => /^ *range 10\.9\.0\.100/m.test(readFileSync(file, 'utf8'))
  const run = async (writer: string, others: readonly (typeof other)[]) => {
    const hub = new Hub()
    hub.writer = writer
    const shared = await SharedServiceState.open(hub.opener('one'), {
      self: one,
      others: () => others,
      log: log(),
      now: Date.now
    })
    const services = new Services({ config, model: c.daemon.model, log: log(), now: Date.now, notes, shared })
    await services.of('dhcp')?.applied()
    const before = lends()
    await services.close()
    await shared.close()
    return [before, lends()]
  }
  t.strictSame(await run('one', []), [true, true], 'nobody else is there: the range stays')
  t.strictSame(await run('one', [other]), [true, false], 'another one is there')
  t.match(readFileSync(file, 'utf8'), /# No range: another controller writes/)
  t.strictSame(await run('two', [other]), [false, false])
  t.strictSame(await run('one', [other]), [true, false], 'and again')
  rmSync(control)
  writeFileSync(control, '#!/bin/sh\ntest "$1" = status || exec sleep 60\n', { mode: 0o755 })
  const begun = performance.now()
  const hub = new Hub()
  const shared = await SharedServiceState.open(hub.opener('one'), {
    ...{ self: one, others: () => [other], log: log(), now: Date.now }
  })
  const services = new Services({ config, model: c.daemon.model, log: log(), now: Date.now, notes, shared })
  await services.close()
  await shared.close()
  t.ok(
    performance.now() - begun < 30_000,
    'a server that hangs does not hold the stop for as long as it hangs'
  )
})

/** Objects with so many nodes, and a zone that they are not in. */
const objects = (count: number): Objects => ({
  ...many(count),
  network: { ...many(count).network, other: { network: '11.0.0.0/8' } }
})

// rules 11.18
t.test('equal zones have one serial, which grows with each change and over a takeover', async t => {
  const hub = new Hub()
  const one = await controller(t, hub, 'one', objects(1))
  const two = await controller(t, hub, 'two', objects(1))
  // It is a day behind, and began earlier.
  two.fake.nowMs -= DAY_MS
  await Promise.all([one.fake.start(), two.fake.start()])
  const seen: number[] = []
  const both = (what: string) => {
    for (const name of ['cluster', 'other', '10.in-addr.arpa', '11.in-addr.arpa']) {
      t.ok(one.zone(name).includes('SOA'), name)
      t.equal(two.zone(name), one.zone(name), `${what}: zone ${name} is the same`)
    }
    t.ok(one.serial() > (seen.at(-1) ?? 0), `${what}: it grows`)
    seen.push(one.serial())
  }
  both('at the start')
  const other = [one, two].map(({ fake }) => statSync(join(fake.directory, 'files', 'other.zone')).ino)
  for (let i = 2; i <= 4; i++) {
    two.fake.asked()
    // The one that follows is the first to know of the change.
    const follows = two.fake.change(objects(i))
    await new Promise(resolve => setTimeout(resolve, 100))
    t.notOk(two.zone('cluster').includes(`node0000${i}`), 'it waits for the one that writes')
    t.same(two.fake.asked(), [])
    await one.fake.change(objects(i))
    await follows
    both(`change ${i}`)
  }
  one.fake.asked()
  two.fake.asked()
  for (const { fake } of [one, two]) await fake.change(objects(4))
  t.same([one.fake.asked(), two.fake.asked()], [[], []], 'what is the same is not reloaded')

  hub.takesOver('two')
  two.fake.service.roleChanged()
  await two.fake.service.settled()
  t.same(two.fake.asked(), [], 'nor when the other one writes')
  t.equal(two.serial(), seen.at(-1))
  two.fake.nowMs = one.fake.nowMs - 2 * DAY_MS
  await two.fake.change(objects(5))
  await one.fake.change(objects(5))
  both('the other one writes, whose clock is behind')
  const others = [one, two].map(({ fake }) => statSync(join(fake.directory, 'files', 'other.zone')).ino)
  t.same(others, other, 'a zone that nothing changed was never written again')
  for (const { zones } of [one, two]) t.same(zones.condition, { ok: true, reason: '' })
})

// rules 11.18
t.test('a controller that was away comes back to the serials that were given meanwhile', async t => {
  const hub = new Hub()
  const one = await controller(t, hub, 'one', objects(1))
  await one.fake.start()
  const first = one.serial()
  hub.takesOver('two')
  const two = await controller(t, hub, 'two', objects(2))
  two.fake.nowMs = one.fake.nowMs - DAY_MS
  await two.fake.start()
  t.ok(two.serial() > first, 'after what it never had itself')
  await two.fake.change(objects(3))
  await one.fake.change(objects(3))
  t.equal(one.zone('cluster'), two.zone('cluster'))
})

// rules 11.18
t.test('no serial is put in force that the others may not know', async t => {
  const hub = new Hub()
  const one = await controller(t, hub, 'one', objects(1))
  const two = await controller(t, hub, 'two', objects(1))
  await Promise.all([one.fake.start(), two.fake.start()])
  const first = one.zone('cluster')
  hub.answer = 'failed'
  await one.fake.change(objects(2))
  t.equal(one.zone('cluster'), first)
  t.match(one.fake.service.condition, { ok: false, reason: /serials of zones cannot be stored: .*no answer/ })
  // Stored, and the answer is lost: the other one has it, and so it counts.
  hub.answer = 'lost'
  await one.fake.change(objects(3))
  await two.fake.change(objects(3))
  t.equal(one.zone('cluster'), first)
  const given = two.serial()
  t.ok(given > one.serial())
  hub.answer = 'stored'
  await one.fake.change(objects(3))
  t.equal(one.zone('cluster'), two.zone('cluster'))
  t.equal(one.serial(), given, 'it is given once')
  hub.answer = 'lost'
  await one.fake.change(objects(4))
  await two.fake.change(objects(4))
  const lost = two.serial()
  hub.answer = 'stored'
  await one.fake.change(objects(5))
  await two.fake.change(objects(5))
  t.equal(one.zone('cluster'), two.zone('cluster'))
  t.ok(lost > given && two.serial() > lost, 'and never to another text')
  // Stored, and the one that decided it dies before it has written its file.
  hub.answer = 'lost'
  await one.fake.change(objects(6))
  hub.answer = 'stored'
  hub.takesOver('two')
  await two.fake.change(objects(6))
  await one.fake.change(objects(6))
  t.equal(one.zone('cluster'), two.zone('cluster'))
  t.ok(two.serial() > lost)
})

// rules 11.18
t.test(
  'a serial that was decided and not stored is in force nowhere once another controller writes',
  async t => {
    const hub = new Hub()
    const one = await controller(t, hub, 'one', objects(1))
    await one.fake.start()
    const first = one.zone('cluster')
    hub.answer = 'failed'
    await one.fake.change(objects(2))
    // It has lost the right, and has not read so far what is stored.
    hub.writer = 'two'
    one.waits.patienceMs = 60_000
    one.fake.service.roleChanged()
    await new Promise(resolve => setTimeout(resolve, 500))
    t.equal(one.zone('cluster'), first)
    hub.takesOver('two')
    t.equal(one.shared.zones.cluster?.serial, one.serial(), 'what is stored counts')
  }
)

// rules 11.18
t.test('a rendering that takes longer than the one before does not make a zone wait again', async t => {
  let nowMs = 0
  const lines: string[] = []
  const following = { isReadOnly: true, zones: {}, storeSerials: async () => {} }
  const zones = new ZoneAgreement(following, {
    gatherMs: 0,
    patienceMs: 1000,
    log: log(lines),
    ticks: () => nowMs
  })
  const found = { decides: false, decided: {}, unlike: { cluster: true }, ahead: [] }
  t.equal(await zones.agree(found, 10), 1030)
  nowMs = 1030
  zones.job()
  t.equal(await zones.agree(found, 5000), undefined)
  t.match(zones.condition, { ok: false, reason: /^zone cluster is not that of the primary/ })
  t.match(lines, [/warn DNS: zone cluster is not that of/])
  zones.job()
  t.equal(await zones.agree(found, 5000), undefined, 'nor does the next one')
  t.equal(lines.length, 1, 'it warns once')
  await zones.agree({ ...found, unlike: {} }, 5000)
  t.match(zones.condition, { ok: true })
  zones.job()
  t.equal(await zones.agree(found, 10), 1030, 'unlike once more, it waits')
})

// rules 11.18
t.test('a zone that stays another one says so, and has a serial of its own that is not behind', async t => {
  const hub = new Hub()
  const one = await controller(t, hub, 'one', objects(1))
  const two = await controller(t, hub, 'two', objects(1))
  await Promise.all([one.fake.start(), two.fake.start()])
  const templates = join(two.fake.directory, 'templates')
  cpSync(shipped, templates, { recursive: true })
  const file = join(templates, 'dns', 'templ_bind_zone.cfg')
  writeFileSync(file, `${readFileSync(file, 'utf8')}; another site\n`)
  const before = two.serial()
  const restarted = two.fake.restart({ zones: two.zones, templates })
  await until(() => !two.zones.condition.ok, 'it to be told')
  await restarted
  t.match(two.zones.condition, {
    ok: false,
    reason: /^zone cluster \(and 3 more\) is not that of the primary, and has a serial of its own/
  })
  t.match(two.fake.service.condition, { ok: false, reason: /is not that of the primary/ })
  t.match(two.lines.join(''), /warn DNS: zone cluster is not that of the primary/)
  t.equal(two.lines.length, 4, 'once for each')
  t.match(two.zone('cluster'), /another site/, 'and it is in force')
  t.ok(two.serial() > before)
  one.fake.nowMs += 60_000
  await one.fake.change(objects(2))
  // The next change does not wait again: it would be in force in an hour.
  two.waits.patienceMs = 3_600_000
  await two.fake.change(objects(2))
  t.match(two.zone('cluster'), /node00002/)
  t.ok(two.serial() > one.serial(), 'not behind')

  await two.fake.restart({ zones: two.zones })
  t.match(two.fake.service.condition, { ok: true, reason: /has a later serial here/ })
  const later = two.serial()
  one.fake.nowMs += 60_000
  await one.fake.change(objects(3))
  await two.fake.change(objects(3))
  t.equal(two.zone('cluster'), one.zone('cluster'), 'the next change makes them equal')
  t.ok(two.serial() > later)
})

t.test('the later serial of a controller that takes over is told to the others', async t => {
  const body = (text: string) => (serial: number) => `@ SOA a. b. (\n  ${serial} ; serial\n)\n${text}\n`
  const told5 = { serial: 5, mark: digestOf(body('x')(5)) }
  const ask = (decides: boolean, text: string, inForce: string | undefined, its?: ZoneSerial) => {
    const job = { decides, stored: its ? { z: its } : ({} as Record<string, ZoneSerial>) }
    const { of, given, found } = serials({}, 1000_000, () => inForce, job)
    const { decides: _, ...rest } = found
    return [/(\d+) ;/.exec(of('z', '/z', body(text)))?.[1], rest, given] as const
  }
  const nothing = { decided: {}, unlike: {}, ahead: [] }
  t.strictSame(ask(true, 'x', body('x')(5), told5), ['5', nothing, {}])
  t.strictSame(ask(true, 'x', body('old')(4), told5), ['5', nothing, { z: 5 }], 'what is told is taken')
  const mark9 = digestOf(body('x')(9))
  t.strictSame(
    ask(true, 'x', body('x')(9), told5),
    ['9', { ...nothing, decided: { z: { serial: 9, mark: mark9 } } }, {}],
    'a later one of its own is told'
  )
  t.match(ask(true, 'y', body('x')(5), told5)[0], '1000', 'a change goes by the clock')
  t.match(ask(true, 'x', body('y')(5), told5)[0], '1000', 'one serial never has two texts')
  t.strictSame(ask(false, 'x', body('x')(5), told5), ['5', nothing, {}])
  t.strictSame(ask(false, 'x', undefined, told5), ['5', nothing, { z: 5 }])
  t.strictSame(
    ask(false, 'x', body('x')(9), told5),
    ['9', { ...nothing, ahead: ['z'] }, {}],
    'no serial goes back'
  )
  t.strictSame(ask(false, 'x', body('y')(5), told5), ['6', { ...nothing, ahead: ['z'] }, { z: 6 }])
  const [unlike, inForce] = [
    { ...nothing, unlike: { z: true } },
    { ...nothing, unlike: { z: false } }
  ]
  t.strictSame(ask(false, 'y', body('x')(5), told5), ['6', unlike, { z: 6 }])
  t.strictSame(ask(false, 'y', body('y')(5), told5), ['5', inForce, {}], 'it is in force')
  t.strictSame(ask(false, 'y', body('y')(4), told5), ['4', inForce, {}], 'so it is with an earlier serial')
  t.strictSame(ask(false, 'y', body('x')(4), told5), ['6', unlike, { z: 6 }], 'not behind')
  t.strictSame(ask(false, 'y', undefined), ['1000', unlike, { z: 1000 }], 'nothing is told')
})

// rules 11.18
t.test('zones name every controller, whichever renders them', async t => {
  const network = {
    cluster: { network: '10.141.0.0/16' },
    ipmi: { network: '10.149.0.0/24', ns_hostname: 'ns', ns_ip: '10.149.0.9' }
  }
  const controllers = [
    { name: 'c1', address: '10.141.0.1' },
    { name: 'c2', address: '10.141.0.2' }
  ]
  const zonesOf = async (self: number) => {
    const own = { ...settings, controller: controllers[self] as (typeof controllers)[0] }
    const { zones } = await runSliced<DnsData>(dnsData(capture(view({ network }), own, controllers)))
    return zones
  }
  const zones = await zonesOf(0)
  t.strictSame(await zonesOf(1), zones)
  const servers = zones.map(({ name, name_server, other_name_servers }) => [
    name,
    name_server,
    ...other_name_servers
  ])
  t.strictSame(servers, [
    ['cluster', 'c1.cluster.', 'c2.cluster.'],
    ['ipmi', 'ns.ipmi.'],
    ['0.149.10.in-addr.arpa', 'ns.ipmi.'],
    ['141.10.in-addr.arpa', 'c1.cluster.', 'c2.cluster.']
  ])
  const records = zones.flatMap(({ records }) => records.map(({ name, data }) => `${name} ${data}`))
  for (const record of ['c1 10.141.0.1', 'c2 10.141.0.2', '1.0 c1.cluster.', '2.0 c2.cluster.'])
    t.ok(records.includes(record), record)
})

// rules 11.18
t.test(
  'who is there is noted by the one that writes, and forgotten a week after it was last there',
  async t => {
    const hub = new Hub()
    let nowMs = Date.UTC(2026, 10, 20)
    let others = [{ name: 'c10', address: '10.141.0.10', ...own }]
    const heard: string[] = []
    const open = async (who: string, name: string) => {
      const shared = await SharedServiceState.open(hub.opener(who), {
        self: { name, address: `10.141.0.${name.slice(1)}`, ...own },
        others: () => others,
        log: log(),
        now: () => nowMs
      })
      shared.onChange = what => heard.push(`${who} ${what}`)
      t.teardown(() => shared.close())
      return shared
    }
    const one = await open('one', 'c9')
    const two = await open('two', 'c10')
    const names = ({ controllers }: SharedServiceState) => controllers.map(({ name }) => name)
    t.strictSame(
      [names(one), names(two)],
      [
        ['c9', 'c10'],
        ['c9', 'c10']
      ]
    )
    const look = async () => {
      one.becameLeader()
      await new Promise(resolve => setTimeout(resolve, 20))
    }
    const before = [one.controllers, two.controllers]
    await one.storeSerials({ 'cluster.': { serial: 1, mark: 'a' } })
    t.ok(
      one.controllers === before[0] && two.controllers === before[1],
      'a zone changes no array of controllers'
    )
    others = []
    for (let day = 1; day < 7; day++) {
      nowMs += DAY_MS
      await look()
      t.strictSame(names(two), ['c9', 'c10'], `day ${day}`)
    }
    t.notOk(heard.includes('one a controller'), 'nothing has changed for zones')
    nowMs += DAY_MS
    await look()
    t.strictSame([names(one), names(two)], [['c9'], ['c9']])
    t.ok(heard.includes('one a controller') && heard.includes('two a controller'))
    others = [{ name: 'c10', address: '10.141.0.11', ...own }]
    await look()
    t.strictSame(two.controllers, [
      { name: 'c9', address: '10.141.0.9' },
      { name: 'c10', address: '10.141.0.11' }
    ])
    hub.takesOver('two')
    nowMs += 30 * DAY_MS
    await look()
    t.strictSame(names(one), ['c9', 'c10'], 'who follows forgets nobody')
  }
)

// rules 11.15
t.test('who is gone is kept, with since when, until it is removed or comes back', async t => {
  const hub = new Hub()
  let nowMs = Date.UTC(2026, 10, 20)
  const of = (i: number) => ({ name: `c${i}`, address: '10.141.0.9', ...own })
  let others: ReturnType<typeof of>[] | undefined
  const open = async (who: string) => {
    const shared = await SharedServiceState.open(hub.opener(who), {
      self: of(1),
      others: () => others,
      log: log(),
      now: () => nowMs
    })
    t.teardown(() => shared.close())
    return shared
  }
  const one = await open('one')
  const two = await open('two')
  const look = async () => {
    one.becameLeader()
    await new Promise(resolve => setTimeout(resolve, 20))
  }
  others = [of(2), of(3)]
  await look()
  t.strictSame([one.gone, two.gone], [[], []])
  others = [of(3)]
  await look()
  const since = new Date(nowMs).toISOString()
  t.strictSame([one.gone, two.gone], Array(2).fill([{ ...of(2), since }]))
  nowMs += DAY_MS
  await look()
  others = []
  await look()
  t.strictSame(
    two.gone.map(({ name }) => name),
    ['c3', 'c2'],
    'the last one first'
  )
  nowMs += 10 * DAY_MS
  await look()
  t.strictSame(one.gone[1], { ...of(2), since }, 'zones forget it, and nobody else does')
  t.strictSame(
    two.controllers.map(({ name }) => name),
    ['c1']
  )

  // Whoever takes over does not know at first who is there.
  others = undefined
  const three = await open('three')
  hub.takesOver('three')
  three.becameLeader()
  await new Promise(resolve => setTimeout(resolve, 20))
  t.strictSame(
    three.gone.map(({ name }) => name),
    ['c3', 'c2']
  )
  hub.takesOver('one')
  others = [of(3)]
  await look()
  t.strictSame(two.gone, [{ ...of(2), since }], 'it is back')
  t.equal(await one.remove('c3'), false, 'it is there')
  t.equal(await one.remove('c9'), false, 'there is none')
  t.equal(await one.remove('c2'), true)
  t.strictSame([one.gone, two.gone], [[], []])
  await look()
  t.strictSame(two.gone, [], 'it stays so')

  // What names grow has a bound.
  for (let i = 0; i < 3; i++) {
    others = Array.from({ length: 60 }, (_, j) => of(100 + i * 60 + j))
    await look()
    nowMs += 60_000
  }
  others = []
  await look()
  t.equal(two.gone.length, 100)
  t.equal(two.gone[0]?.since, new Date(nowMs).toISOString(), 'those that are gone for longest are forgotten')
})

// rules 11.18
for (const server of ['isc', 'kea', 'dnsmasq'] as const)
  t.test(`${server}: a standby lends no address of a range, and knows every machine`, async t => {
    const lends = await rendered('dhcp', server, everything)
    const standby = await rendered('dhcp', server, everything, { standby: true })
    t.strictSame(complaints('dhcp', server, standby), [])
    const text = (files: typeof lends) => files.map(({ text }) => text).join('')
    const range = {
      isc: /^ *range /m,
      kea: /"pool":/,
      dnsmasq: /^dhcp-range=(?!.*,static,)/m
    }[server]
    t.match(text(lends), range)
    t.notMatch(text(standby), range)
    t.match(text(standby), /(#|\/\/) No range: another controller writes, and its server alone lends/)
    t.notMatch(text(lends), /another controller/)
    const authoritative = /^ *(authoritative;|"authoritative": true|dhcp-authoritative$)/m
    t.match(text(lends), authoritative)
    t.notMatch(text(standby), authoritative, 'it refuses nobody an address of the other one')
    const machines = (files: typeof lends) => text(files).match(/52:54:00:[0-9a-f:]{8}/g)
    t.strictSame(machines(standby), machines(lends))
  })
