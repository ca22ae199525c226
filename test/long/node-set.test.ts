import { openSync, readSync } from 'node:fs'
import t from 'tap'
import { inParallel } from '../../lib/concurrency.js'
import { Controller } from '../support/controller.js'

const NODES = 10_000
const nic = { interface: 'BOOTIF', network: 'n' }

/** Milliseconds of the processor that the main thread has used: other programs do not count. */
function usage(): () => number {
  const file = openSync(`/proc/self/task/${process.pid}/schedstat`, 'r')
  const text = Buffer.alloc(100)
  return () => Number.parseInt(text.toString('latin1', 0, readSync(file, text, 0, 100, 0)), 10) / 1e6
}

/** The longest turn of the event loop while `work` goes on. */
async function longestTurn(work: () => Promise<unknown>): Promise<number> {
  const used = usage()
  let busy = true
  let before = used()
  let longest = 0
  const turn = () => {
    const now = used()
    longest = Math.max(longest, now - before)
    before = now
    if (busy) setImmediate(turn)
  }
  turn()
  await work()
  busy = false
  return longest
}

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
