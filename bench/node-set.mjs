// One request that changes or deletes 10,000 nodes, over http: time to the answer, CPU, the longest stall of the event loop, and how long
// boot scripts wait meanwhile. The yardstick is the import of the same nodes in the same round. Medians.

import { Agent } from 'node:http'
import { join } from 'node:path'
import { addressOf, macOf, nameOf } from './cluster.mjs'
import { machine, quantile, row, startDaemon, temporary } from './daemon.mjs'

const NODES = 10_000
const ROUNDS = 3
const nic = { interface: 'BOOTIF', network: 'cluster' }
const document = JSON.stringify({
  config: {
    network: { cluster: { name: 'cluster', network: '127.0.0.0/8' } },
    group: {
      compute: { name: 'compute', domain: 'cluster.local', interfaces: [nic] },
      other: { name: 'other' }
    },
    node: Object.fromEntries(
      Array.from({ length: NODES }, (_, i) => {
        const interfaces = [{ ...nic, ipaddress: addressOf(i), macaddress: macOf(i) }]
        return [nameOf(i), { name: nameOf(i), group: 'compute', interfaces }]
      })
    )
  }
})
const changes = [
  ['a text of 10,000 nodes', 'POST', '/config/node/@all', { comment: 'changed' }],
  [
    'an interface more',
    'POST',
    '/config/node/@all',
    { interfaces: [{ interface: 'ib0', network: 'cluster' }] }
  ],
  ['another group', 'POST', '/config/node/@all', { group: 'other' }],
  ['all deleted', 'GET', '/config/node/@all/_delete']
]

/** Boot scripts have a connection of their own. */
const agent = new Agent({ keepAlive: true, maxSockets: 1 })

const timed = async work => {
  const from = performance.now()
  await work()
  return performance.now() - from
}

const results = new Map([['import', []], ...changes.map(([what]) => [what, []])])
for (let round = 0; round < ROUNDS; round++) {
  const daemon = await startDaemon(join(temporary, `set-${round}`))
  await daemon.spent()
  results.get('import').push({
    ms: await timed(() => daemon.ask('POST', '/config/cluster/import', document)),
    ...(await daemon.spent())
  })
  for (const [what, method, path, body] of changes) {
    await daemon.spent()
    let busy = true
    let longest = 0
    const boots = (async () => {
      for (let i = 0; busy; i = (i + 1) % NODES)
        longest = Math.max(
          longest,
          await timed(() => daemon.send('GET', `/boot/search/mac/${macOf(i)}`, { agent }))
        )
    })()
    const ms = await timed(() => daemon.ask(method, path, body && JSON.stringify(body)))
    busy = false
    await boots
    results.get(what).push({ ms, ...(await daemon.spent()), longest })
  }
  await daemon.stop()
}

agent.destroy()
console.log(`${machine()}; ${NODES.toLocaleString('en')} nodes; ${ROUNDS} rounds; medians\n`)
row('', 'ms', 'longest stall', 'slowest boot script', '× import')
const median = (list, key) =>
  quantile(
    list.map(one => one[key] ?? 0),
    0.5
  )
for (const [what, list] of results)
  row(
    what,
    ...['ms', 'stall', 'longest'].map(key => median(list, key).toFixed(0)),
    (median(list, 'ms') / median(results.get('import'), 'ms')).toFixed(2)
  )
