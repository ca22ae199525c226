import t, { type Test } from 'tap'
import { checkParam } from '../../lib/api/params.js'
import type { Caller } from '../../lib/auth/access.js'
import { runSync } from '../../lib/base/concurrency.js'
import { createLog } from '../../lib/base/log.js'
import { HttpServer } from '../../lib/http/server.js'
import { ControllerAuth } from '../../lib/peers/proofs.js'
import { lineRoutes, linesOfOthers, UNKNOWN_LINES } from '../../lib/peers/routes.js'
import { seenMachines, unknownIn } from '../../lib/unknown/list.js'
import { MOST_MACHINES, type SeenMachine } from '../../lib/unknown/machines.js'
import { MemoryCluster } from '../support/memory-cluster.js'

// rules 4.37: several controllers, each with the machines that asked it.

const key = Buffer.alloc(32, 7)
const mac = (n: number) =>
  `02:00:00:00:${(n >> 8).toString(16).padStart(2, '0')}:${(n & 255).toString(16).padStart(2, '0')}`
const machine = (n: number, first: number, last: number, more: Partial<SeenMachine> = {}): SeenMachine => ({
  ...{ mac: mac(n), macs: [mac(n)], address: '10.141.0.9', first, last, count: 2, ...more }
})

async function controllerWith(t: Test, name: string, machines: readonly SeenMachine[]) {
  const server = new HttpServer<Caller>({
    routes: lineRoutes({ [UNKNOWN_LINES]: async () => machines }, new ControllerAuth(key, Date.now)),
    authorize: () => ({ kind: 'anonymous' }),
    param: checkParam,
    maxBody: 1024,
    trustedProxies: [],
    log: createLog('error', () => undefined)
  })
  const { port } = await server.listen('127.0.0.1', 0)
  t.teardown(() => server.close(0))
  return { name, url: `http://127.0.0.1:${port}` }
}

const listOf = (own: readonly SeenMachine[], others: readonly { name: string; url?: string }[]) =>
  seenMachines({
    own: { all: () => [...own], scanned: () => [] },
    others: async () => {
      const questions = {
        ...{ own: 'c1', others: () => others, controllerNames: () => ['c1', 'c9'] },
        ...{ trust: { rejectUnauthorized: true }, proofs: new ControllerAuth(key, Date.now) }
      }
      const { answers, missing } = await linesOfOthers(questions, UNKNOWN_LINES)
      return { lists: answers.map(({ lines }) => lines as SeenMachine[]), missing }
    }
  })

t.test('the list joins what each controller saw, and names those that it could not ask', async t => {
  const others = [
    await controllerWith(t, 'c2', [machine(1, 500, 9000, { serial: 'NEW' }), machine(2, 1, 2)]),
    { name: 'c3', url: 'http://127.0.0.1:1' }
  ]
  const { machines, missing } = await listOf([machine(1, 1000, 2000, { serial: 'OLD' })], others)
  t.match(machines, [
    { mac: mac(1), serial: 'NEW', first: 500, last: 9000, count: 4 },
    { mac: mac(2), count: 2 }
  ])
  t.match(missing, [
    { controller: 'c9', reason: /not there/ },
    { controller: 'c3', reason: /cannot be asked/ }
  ])
})

t.test('a full list of another controller fits, and is listed without a long pause', async t => {
  const long = '"'.repeat(64)
  const all = Array.from({ length: MOST_MACHINES }, (_, n) =>
    machine(n, 1e12, 1e12, {
      ...{ macs: Array.from({ length: 8 }, (_, i) => mac(n + i)), serial: `${n}`, uuid: 'x'.repeat(64) },
      ...{ maker: long.replaceAll('"', '~'), product: 'p'.repeat(64), asset: 'a'.repeat(64) }
    })
  )
  const { machines, missing } = await listOf([], [await controllerWith(t, 'c2', all)])
  t.equal(machines.length, MOST_MACHINES)
  t.strictSame(
    missing.map(({ controller }) => controller),
    ['c9']
  )
  const own = [machine(1, 1, 2)]
  const full = Array.from({ length: 3 }, () => all)
  const sources = {
    own: { all: () => own, scanned: () => [] },
    others: async () => ({ lists: full, missing: [] })
  }
  const { turns } = await countingTurns(() => seenMachines(sources))
  t.ok(turns > 1, `${turns} turns of the event loop while three full lists are joined`)
  const { model } = new MemoryCluster({})
  const began = performance.now()
  t.equal(runSync(unknownIn(model.view, machines, new Map())).length, MOST_MACHINES)
  t.comment(`${Math.round(performance.now() - began)} ms`)
})

/** Counts the turns of the event loop during some work. */
async function countingTurns(work: () => Promise<unknown>) {
  let [turns, isOver] = [0, false]
  const count = () => {
    turns++
    if (!isOver) setImmediate(count)
  }
  setImmediate(count)
  await work()
  isOver = true
  return { turns }
}

// rules 3.6
t.test('of two networks with its address, a machine is in the one with the longest prefix', t => {
  const { model } = new MemoryCluster({
    'network/all': { network: '10.0.0.0/8' },
    'network/boot': { network: '10.141.0.0/16' }
  })
  const [found] = runSync(unknownIn(model.view, [machine(1, 1, 2)], new Map()))
  t.equal(found?.network, 'boot')
  t.end()
})
