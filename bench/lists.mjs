// The list of all nodes and the members of a group at 1,000 and at 10,000 nodes, what they cost, how long they stall the
// daemon, and what boot scripts asked for meanwhile wait.
import { join } from 'node:path'
import { macOf, writeCluster } from './cluster.mjs'
import { answerOf, machine, median, quantile, row, start, startDaemon, temporary } from './daemon.mjs'

const SIZES = [1000, 10_000]
const ROUNDS = 9
const LATENCY_MS = 2500
/** What is asked for, and what a change before it makes the daemon do anew. */
const LISTS = [
  ['all nodes, /config/node', '/config/node'],
  ['all nodes, their group having changed', '/config/node', '/config/group/compute'],
  ['members of a group of all, /config/group/…/_list', '/config/group/compute/_list'],
  ['members of its image, /config/osimage/…/_list', '/config/osimage/compute/_list']
]
const REPEATED = LISTS.filter(([, , changed]) => changed === undefined)
const ms = value => value.toFixed(value < 10 ? 2 : 1)

/** The histogram counts whole milliseconds. */
const stall = value => (value < 1 ? '< 1' : value.toFixed(0))

const daemons = []
for (const size of SIZES) {
  const directory = join(temporary, String(size))
  writeCluster(directory, size)
  daemons.push(await startDaemon(directory))
}
console.log(`${machine()}; client and servers on one machine; medians of ${ROUNDS} rounds in turn`)

let changes = 0
for (const [what, path, changed] of LISTS) {
  const results = daemons.map(() => [])
  const bytes = []
  // What a daemon does for the first time is not what it does all day.
  for (const daemon of daemons) for (let i = 0; i < 3; i++) await daemon.ask('GET', path)
  for (let round = 0; round < ROUNDS; round++)
    for (const [i, daemon] of daemons.entries()) {
      if (changed) await daemon.ask('POST', changed, JSON.stringify({ comment: `change ${changes++}` }))
      await daemon.spent()
      const from = performance.now()
      bytes[i] = (await daemon.ask('GET', path)).length
      const time = performance.now() - from
      results[i].push({ time, ...(await daemon.spent()) })
    }
  console.log(`\n${what}`)
  row('', 'bytes', 'time ms', 'CPU ms', 'stall ms', 'worst stall')
  const medians = results.map(found => ['time', 'cpu'].map(key => median(found.map(one => one[key]))))
  for (const [i, size] of SIZES.entries()) {
    const stalls = [0.5, 1].map(q =>
      quantile(
        results[i].map(found => found.stall),
        q
      )
    )
    row(`${size.toLocaleString('en')} nodes`, String(bytes[i]), ...medians[i].map(ms), ...stalls.map(stall))
  }
  const [small, large] = medians
  const growth = large.map((value, i) => `× ${(value / small[i]).toFixed(1)}`)
  row(`× ${SIZES[1] / SIZES[0]} nodes`, `× ${(bytes[1] / bytes[0]).toFixed(1)}`, ...growth)
}

const client = start('latency.mjs')
const daemon = daemons[1]
const paths = Array.from({ length: 1000 }, (_, i) => `/boot/search/mac/${macOf(i * 10)}`)

/** Latencies of boot scripts, one after the other, while `meanwhile` is asked for without a pause. */
async function latencies(meanwhile) {
  client.send({ port: daemon.port, paths, ms: LATENCY_MS })
  let going = true
  let lists = 0
  const measured = answerOf(client).then(found => {
    going = false
    return found
  })
  await daemon.spent()
  while (going && meanwhile) {
    await daemon.ask('GET', meanwhile)
    lists++
  }
  const found = await measured
  return { found, lists, longest: (await daemon.spent()).stall }
}

console.log(`\nboot scripts of 10,000 nodes, one at a time, every 2 ms`)
row('', 'median ms', 'p99 ms', 'longest ms', 'stall ms', 'lists')
await latencies()
const figures = {}
for (const [what, path] of [['quiet'], ...REPEATED, ['quiet again']]) {
  const { found, lists, longest } = await latencies(path)
  figures[what] = found
  const shown = [median(found), quantile(found, 0.99), quantile(found, 1)].map(value => value.toFixed(2))
  row(path ? `meanwhile ${path}` : what, ...shown, stall(longest), String(lists))
}
const quiet = [...figures.quiet, ...figures['quiet again']]
for (const [what] of REPEATED) {
  const times = [0.5, 0.99].map(q => `× ${(quantile(figures[what], q) / quantile(quiet, q)).toFixed(1)}`)
  row(`${what.split(',')[0]}, to quiet`, ...times)
}
process.exit()
