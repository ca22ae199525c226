import t from 'tap'
import { inParallel } from '../../lib/base/concurrency.js'
import { turnsOf } from '../fuzz/node-sets.js'
import { fuzzSeed, Random } from '../fuzz/random.js'
import { Controller } from '../support/controller.js'
import { longestTurn } from '../support/turns.js'

const NODES = 10_000
const SETS = 1_000_000
const nic = { interface: 'BOOTIF', network: 'n' }

// rules 12.3
t.test(
  'a change and a deletion of 10,000 nodes do not hold the event loop',
  { timeout: 600_000 },
  async t => {
    const c = await Controller.start(t)
    const node = Object.fromEntries(
      Array.from({ length: NODES }, (_, i) => {
        const ipaddress = `10.1.${i >> 8}.${i & 255}`
        return [`n${i}`, { group: 'compute', interfaces: [{ ...nic, ipaddress }] }]
      })
    )
    const config = {
      network: { n: { network: '10.0.0.0/8' } },
      group: { compute: { interfaces: [nic] } },
      node
    }
    t.equal((await c.post('/config/cluster/import', { config })).status, 201)
    // Each has states, which go with it.
    const report = (name: string) =>
      c.post(`/monitor/node/${name}`, { state: 'installer.completed' }).then(() => {})
    await inParallel(Object.keys(node), 50, report)
    const changes: [what: string, change: () => ReturnType<typeof c.get>][] = [
      ['an interface more', () => c.post('/config/node/@all', { interfaces: [{ interface: 'ib0' }] })],
      [
        'an interface more of their group',
        () => c.post('/config/group/compute/interfaces', { interfaces: [{ interface: 'ib1', network: 'n' }] })
      ],
      ['their group renamed', () => c.post('/config/group/compute', { newgroupname: 'other' })],
      ['all deleted', () => c.get('/config/node/@all/_delete')]
    ]
    for (const [what, change] of changes) {
      let status = 0
      const longest = await longestTurn(async () => {
        ;({ status } = await change())
      })
      t.ok([200, 201, 204].includes(status), `${what}: ${status}`)
      t.ok(longest <= 50, `${what}: ${longest.toFixed(0)} ms in one turn`)
    }
  }
)

// rules 12.10
t.test(
  `no one of ${SETS} generated node sets holds the event loop, with ${NODES} nodes`,
  { timeout: 7_000_000 },
  async t => {
    const c = await Controller.start(t)
    const node = Object.fromEntries(Array.from({ length: NODES }, (_, i) => [`n${i}`, { group: 'compute' }]))
    const config = { group: { compute: {}, empty: {} }, node }
    t.equal((await c.post('/config/cluster/import', { config })).status, 201)
    const seed = fuzzSeed()
    const turns = await turnsOf(c, new Random(seed), SETS, so => console.error(JSON.stringify(so)))
    t.comment(`seed ${seed}: ${JSON.stringify(turns)}`)
    t.ok(turns.longestTurn <= 50, `seed ${seed}: ${turns.longestTurn} ms in one turn: ${turns.of}`)
  }
)
