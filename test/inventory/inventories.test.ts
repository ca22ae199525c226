import t from 'tap'
import { readInventory } from '../../lib/inventory/facts.js'
import { Inventories } from '../../lib/inventory/inventories.js'
import { MemoryRecords } from '../support/memory-records.js'
import { dimms, machine } from './machines.js'

const kind = 'node-inventory'
const revoked = (name: string, renamed?: string) => ({
  ...{ type: 'revoked', name, before: undefined },
  after: { name, generation: 1, time: 0, ...(renamed === undefined ? {} : { renamed }) }
})

function held() {
  let resolve = () => {}
  const promise = new Promise<void>(done => {
    resolve = done
  })
  return { promise, resolve }
}

async function opened() {
  const records = new MemoryRecords()
  const open = () => Inventories.open(records.opener(kind), () => Date.parse('2026-11-26T20:00:00Z'))
  return { records, open, all: await open() }
}

// rules 6.16
t.test('a report is stored before it is answered, an equal one is not written', async t => {
  const { records, open, all } = await opened()
  t.strictSame(await all.report('n1', machine()), [])
  t.equal(records.writes.length, 1)
  t.match(JSON.parse(records.texts(kind).get('n1') ?? ''), { node: 'n1', since: '2026-11-26T20:00:00.000Z' })
  await all.report('n1', machine())
  t.equal(records.writes.length, 1)
  t.strictSame(await all.report('n1', machine({ memory: { slots: dimms(7) } })), [
    'n1: 7 of 8 DIMMs, 8 at the last boot: A8 is empty'
  ])
  const again = await open()
  t.strictSame(again.snapshot('n1')?.(), all.snapshot('n1')?.())
  t.equal(again.disksOf('n1')?.[0]?.serial, 'D1')
  t.equal(again.disksOf('n2'), undefined)
  t.equal(again.factsOf('n1')?.gpus, '4 x 10de:20b5')
})

t.test('an inventory follows a rename and goes with a delete, also during a write', async t => {
  const { records, open, all } = await opened()
  await all.report('n1', machine())
  all.follow([revoked('n1', 'n2')])
  t.equal(all.snapshot('n1'), undefined)
  t.strictSame(all.snapshot('n2')?.().inventory, machine())
  const { promise, resolve } = held()
  records.before = () => promise
  const late = all.report('n2', machine({ kernel: '6.2.0' }))
  await new Promise(setImmediate)
  all.follow([revoked('n2')])
  const refused = t.rejects(late, /there is no node n2/)
  resolve()
  await refused
  await all.close()
  t.strictSame([...records.texts(kind).keys()], [])
  t.equal((await open()).snapshot('n2'), undefined)
})

t.test('a failed write is refused, and is made good later', async t => {
  const { records, open, all } = await opened()
  await all.report('n1', machine())
  records.before = () => {
    throw new Error('EIO')
  }
  await t.rejects(all.report('n1', machine({ kernel: '7' })), /EIO/)
  await t.rejects(all.report('n3', machine()), /EIO/)
  t.equal(all.snapshot('n1')?.().inventory.kernel, '6.1.0')
  t.equal(all.snapshot('n3'), undefined)
  records.before = () => {}
  await all.close()
  const again = await open()
  t.equal(again.snapshot('n1')?.().inventory.kernel, '6.1.0')
  t.equal(again.snapshot('n3'), undefined)
})

t.test('a refused report leaves nothing behind, also where its node is renamed meanwhile', async t => {
  const { records, open, all } = await opened()
  const two = machine({ memory: { slots: dimms(7) } })
  await all.report('a', machine())
  const { promise, resolve } = held()
  records.before = async () => {
    await promise
    throw new Error('EIO')
  }
  const refused = t.rejects(all.report('a', two), /EIO/)
  await new Promise(setImmediate)
  all.follow([revoked('a', 'b')])
  const repeated = t.rejects(all.report('b', two), /EIO/, 'an equal one waits for the store as well')
  resolve()
  await refused
  await repeated
  t.strictSame(all.snapshot('b')?.().inventory, machine())
  t.match(all.health, { ok: false, reason: /EIO/ })
  records.before = () => {}
  const sentence = 'b: 7 of 8 DIMMs, 8 at the last boot: A8 is empty'
  t.strictSame(await all.report('b', two), [sentence])
  await all.close()
  t.strictSame([...records.texts(kind).keys()], ['b'])
  t.strictSame((await open()).snapshot('b')?.().inventory, two)
})

t.test('a rename is one change', async t => {
  const { records, all } = await opened()
  await all.report('n1', machine())
  records.writes.length = 0
  all.follow([revoked('n1', 'n2')])
  await all.close()
  t.strictSame(
    records.writes.map(changes => changes.map(({ name, text }) => [name, text === ''])),
    [
      [
        ['n1', true],
        ['n2', false]
      ]
    ]
  )
})

t.test('a node whose hardware changes all the time is held back', async t => {
  const { all } = await opened()
  const report = async (i: number) => all.report('n1', machine({ kernel: String(i) }))
  for (let i = 0; i < 60; i++) await report(i)
  await t.rejects(report(60), { status: 503, message: /node n1 reports too often/ })
  await all.report('n1', machine({ kernel: '59' }))
})

t.test('a wrong type and an unknown part are refused, unknown fields of a part are left out', async t => {
  const wrong: readonly (readonly [unknown, string])[] = [
    [[], 'the report must be an object'],
    [{ cpu: 'x' }, 'cpu must be an object'],
    [{ kernel: 6 }, 'kernel must be a text of at most 256 characters'],
    [{ kernel: 'x'.repeat(257) }, 'kernel must be a text of at most 256 characters'],
    [
      { memory: { slots: [{}, { size: -1 }] } },
      'memory.slots[1].size must be a whole number that is not negative'
    ],
    [{ memory: { total: 1.5 } }, 'memory.total must be a whole number that is not negative'],
    [{ disks: [{ by_id: 'x' }] }, 'disks[0].by_id must be a list of at most 512 entries'],
    [{ disks: Array(513).fill({}) }, 'disks must be a list of at most 512 entries'],
    [{ disks: [{ rotational: 'yes' }] }, 'disks[0].rotational must be true or false']
  ]
  for (const [report, message] of wrong)
    t.throws(() => readInventory('n1', report as never), {
      status: 400,
      message: `inventory of node n1: ${message}`
    })
  for (const empty of [{}, { source: 'boot' }])
    t.throws(() => readInventory('n1', empty), { status: 400, message: /the report is empty/ })
  t.throws(() => readInventory('n1', { cpu: { cores: 2 }, later: { x: 1 } }), {
    status: 400,
    message: /^inventory of node n1: there is no field "later": its fields are source, system, /
  })
  const report = {
    cpu: { model: null, hidden: 1, cores: 2 },
    disks: [{ name: 'sda', wear: 3 }]
  }
  t.strictSame(readInventory('n1', report), { cpu: { cores: 2 }, disks: [{ name: 'sda' }] })
})
