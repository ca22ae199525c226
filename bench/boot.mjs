// Requests per second and CPU time per request of what booting nodes ask for, at 100 and at 10,000 nodes, next to a
// bare node:http server that sends the same bytes: alternating rounds, the median of each. Run by `make bench`.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { addressOf, macOf, nameOf, writeCluster } from './cluster.mjs'
import { answerOf, machine, median, row, start, startDaemon, temporary } from './daemon.mjs'

const SIZES = [100, 10_000]
const ROUNDS = 5
const ROUND_MS = 600
const CONNECTIONS = 16
const TICKS_PER_SECOND = 100

/** A daemon with that many nodes. */
async function daemonOf(count) {
  const directory = join(temporary, String(count))
  writeCluster(directory, count)
  return startDaemon(directory, [])
}

async function startBare(body) {
  const child = start('bare.mjs')
  child.send(body)
  const { port } = await answerOf(child)
  return { pid: child.pid, port }
}

/** CPU time of a process and all its threads so far, in microseconds. */
function cpuMicroseconds(pid) {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return ((Number(fields[11]) + Number(fields[12])) * 1e6) / TICKS_PER_SECOND
}

const client = start('client.mjs')

async function load(server, paths, from, ms) {
  const before = cpuMicroseconds(server.pid)
  const begun = performance.now()
  client.send({ port: server.port, paths, from, ms })
  const { answered, error } = await answerOf(client)
  if (error !== undefined) throw new Error(error)
  const seconds = (performance.now() - begun) / 1000
  return { perSecond: answered / seconds, cpu: (cpuMicroseconds(server.pid) - before) / answered }
}

/** Paths for `asking` different nodes, spread over `count`. */
const spread = (count, asking, path) =>
  Array.from({ length: asking }, (_, i) => path(Math.floor((i * count) / asking)))
const sources = Array.from({ length: CONNECTIONS }, (_, i) => addressOf(i))

const script = i => `/boot/search/mac/${macOf(i)}`
const installScripts = sources.map((_, i) => `/boot/install/${nameOf(i)}`)
/** What is asked for, and which nodes ask, of how many. */
const ROUTES = [
  [
    'boot script, /boot/search/mac/{mac}',
    [
      ['100 nodes', 100, spread(100, 100, script)],
      ['10,000 nodes, 100 ask', 10_000, spread(10_000, 100, script)],
      ['10,000 nodes, 1,000 ask', 10_000, spread(10_000, 1000, script)]
    ]
  ],
  [
    'boot menu, /boot (lists 250 nodes at most)',
    [
      ['100 nodes', 100, ['/boot']],
      ['10,000 nodes', 10_000, ['/boot']]
    ]
  ],
  [
    'install script, /boot/install/{node}',
    [
      ['100 nodes', 100, installScripts],
      ['10,000 nodes', 10_000, installScripts]
    ]
  ]
]

async function measure(daemons, name, cases) {
  const answers = await Promise.all(
    cases.map(([, size, paths]) => daemons.get(size).send('GET', paths[0], { localAddress: sources[0] }))
  )
  const bare = await startBare(answers.at(-1))
  const series = [
    { name: 'bare node:http', server: bare, paths: ['/'] },
    ...cases.map(([name, size, paths]) => ({ name: `svcd, ${name}`, server: daemons.get(size), paths }))
  ]
  for (const { server, paths } of series) await load(server, paths, sources, ROUND_MS)
  const results = series.map(() => [])
  for (let round = 0; round < ROUNDS; round++)
    for (const [i, { server, paths }] of series.entries())
      results[i].push(await load(server, paths, sources, ROUND_MS))
  const sizes = new Set(answers.map(text => Buffer.byteLength(text)))
  console.log(`\n${name}, ${[...sizes].join(' and ')} bytes`)
  row('', 'requests/s', 'CPU us each', 'over bare')
  const base = median(results[0].map(({ cpu }) => cpu))
  for (const [i, { name }] of series.entries()) {
    const cpu = median(results[i].map(result => result.cpu))
    const perSecond = median(results[i].map(result => result.perSecond))
    row(name, perSecond.toFixed(0), cpu.toFixed(1), (cpu / base).toFixed(2))
  }
}

const daemons = new Map()
for (const count of SIZES) daemons.set(count, await daemonOf(count))
console.log(
  `${machine()}; client and servers on one machine, ` +
    `${CONNECTIONS} connections;\nmedians of ${ROUNDS} rounds of ${ROUND_MS} ms, in turn`
)
for (const [name, cases] of ROUTES) await measure(daemons, name, cases)
process.exit(0)
