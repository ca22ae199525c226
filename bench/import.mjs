// Import of 10,000 nodes over http into an empty daemon, next to writing the same bytes as one file per node without
// fsync, which is done first in each round, on a disk that has nothing else to write. Medians. Also what comes behind the
// answer: how long a change waits that is asked for at once, and when the files of all nodes are written.
import { spawnSync } from 'node:child_process'
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { addressOf, macOf, nameOf } from './cluster.mjs'
import { machine, quantile, row, startDaemon, temporary } from './daemon.mjs'

const NODES = 10_000
const ROUNDS = 3

const nic = { interface: 'BOOTIF', network: 'cluster' }
const nodes = Array.from({ length: NODES }, (_, i) => {
  const interfaces = [{ ...nic, ipaddress: addressOf(i), macaddress: macOf(i) }]
  return { name: nameOf(i), group: 'compute', comment: `rack ${i % 100}`, interfaces }
})
const document = JSON.stringify({
  config: {
    network: { cluster: { name: 'cluster', network: '127.0.0.0/8' } },
    group: { compute: { name: 'compute', domain: 'cluster.local', interfaces: [nic] } },
    node: Object.fromEntries(nodes.map(node => [node.name, node]))
  }
})
/** As the daemon writes them. */
const files = nodes.map(node => [`${node.name}.json`, `${JSON.stringify(node, null, 2)}\n`])

const timed = async work => {
  const from = performance.now()
  await work()
  return performance.now() - from
}

function writeFiles(directory) {
  mkdirSync(directory)
  for (const [name, text] of files) writeFileSync(join(directory, name), text, { mode: 0o600 })
}

async function importInto(directory, untilWritten) {
  const daemon = await startDaemon(directory)
  await daemon.ask('GET', '/config/node')
  await daemon.spent()
  const imported = await timed(() => daemon.ask('POST', '/config/cluster/import', document))
  const { cpu, stall } = await daemon.spent()
  const from = performance.now()
  const next = await timed(() => daemon.ask('POST', `/config/node/${nameOf(0)}`, '{"comment":"changed"}'))
  const intents = join(directory, 'state', 'intents')
  while (untilWritten && readdirSync(intents).length > 0) await sleep(5)
  const written = performance.now() - from
  await daemon.stop()
  return { imported, cpu, stall, next, written }
}

const results = []
for (let round = 0; round < ROUNDS; round++) {
  spawnSync('sync')
  const plain = await timed(() => writeFiles(join(temporary, `files-${round}`)))
  spawnSync('sync')
  const last = round === ROUNDS - 1
  results.push({ plain, ...(await importInto(join(temporary, `svcd-${round}`), last)) })
}

const bytes = files.reduce((sum, [, text]) => sum + text.length, 0)
console.log(
  `${machine()}; ${NODES.toLocaleString('en')} nodes, document ${document.length} bytes, ` +
    `files ${bytes} bytes; ${ROUNDS} rounds in turn\n`
)
row('', 'median ms', 'fastest ms', 'longest ms')
for (const [what, key] of [
  ['one file per node, sync, without fsync', 'plain'],
  ['import, to the answer (durable by then)', 'imported'],
  ['  CPU', 'cpu'],
  ['  longest stall', 'stall'],
  ['a change asked for at once', 'next']
]) {
  const found = results.map(result => result[key])
  row(what, ...[0.5, 0, 1].map(q => quantile(found, q).toFixed(0)))
}
row('all files written and durable (once)', results.at(-1).written.toFixed(0))
const ratio = q =>
  ['imported', 'plain'].map(key =>
    quantile(
      results.map(result => result[key]),
      q
    )
  )
row('import to files', ...[0.5, 0].map(q => `× ${(ratio(q)[0] / ratio(q)[1]).toFixed(2)}`))
process.exit()
