// Requests per second and CPU time per request of what booting nodes ask for, at 100 and at 10,000 nodes, next to a
// bare node:http server that sends the same bytes: alternating rounds, the median of each. Run by `make bench`.
import { fork, spawn } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { request } from 'node:http'
import { cpus, tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { addressOf, macOf, nameOf, writeCluster } from './cluster.mjs'

const SIZES = [100, 10_000]
const ROUNDS = 5
const ROUND_MS = 600
const CONNECTIONS = 16
const TICKS_PER_SECOND = 100

const here = name => fileURLToPath(new URL(name, import.meta.url))
const children = []
const temporary = mkdtempSync(join(tmpdir(), 'svcd-bench-'))
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(1))
process.on('exit', () => {
  for (const child of children) child.kill('SIGKILL')
  rmSync(temporary, { recursive: true, force: true, maxRetries: 3 })
})

/** A daemon with that many nodes; resolves once it listens. */
async function startDaemon(count) {
  const directory = join(temporary, String(count))
  writeCluster(directory, count)
  const settings = {
    'paths.state': join(directory, 'state'),
    'paths.files': join(directory, 'files'),
    'http.listen': '127.0.0.1:0',
    'http.url': 'http://127.0.0.1:7050'
  }
  const sets = Object.entries(settings).flatMap(([key, value]) => ['--set', `${key}=${value}`])
  const args = [here('../bin/svcd'), 'serve', '--config', here('../etc/svcd.ini'), ...sets]
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] })
  children.push(child)
  let said = ''
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', text => {
      if (said.length < 10_000) said += text
    })
  for (;;) {
    const port = /listens on http:\/\/127\.0\.0\.1:(\d+)/.exec(said)?.[1]
    if (port) return { pid: child.pid, port: Number(port) }
    if (child.exitCode !== null) throw new Error(`svcd did not start: ${said}`)
    await new Promise(resolve => setTimeout(resolve, 20))
  }
}

async function startBare(body) {
  const child = fork(here('bare.mjs'))
  children.push(child)
  child.send(body)
  const { port } = await new Promise(resolve => child.once('message', resolve))
  return { pid: child.pid, port }
}

/** CPU time of a process and all its threads so far, in microseconds. */
function cpuMicroseconds(pid) {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return ((Number(fields[11]) + Number(fields[12])) * 1e6) / TICKS_PER_SECOND
}

const client = fork(here('client.mjs'))
children.push(client)

async function load(server, paths, from, ms) {
  const before = cpuMicroseconds(server.pid)
  const start = performance.now()
  client.send({ port: server.port, paths, from, ms })
  const { answered, error } = await new Promise(resolve => client.once('message', resolve))
  if (error !== undefined) throw new Error(error)
  const seconds = (performance.now() - start) / 1000
  return { perSecond: answered / seconds, cpu: (cpuMicroseconds(server.pid) - before) / answered }
}

const median = values => values.toSorted((a, b) => a - b)[values.length >> 1]
const row = (...columns) => columns.map((text, i) => (i === 0 ? text.padEnd(30) : text.padStart(17))).join('')

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
  const answers = await Promise.all(cases.map(([, size, paths]) => ask(daemons.get(size).port, paths[0])))
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
  console.log(row('', 'requests/s', 'CPU us/request', 'CPU over bare'))
  const base = median(results[0].map(({ cpu }) => cpu))
  for (const [i, { name }] of series.entries()) {
    const cpu = median(results[i].map(result => result.cpu))
    const perSecond = median(results[i].map(result => result.perSecond))
    console.log(row(name, perSecond.toFixed(0), cpu.toFixed(1), (cpu / base).toFixed(2)))
  }
}

/** One answer, as the first node. */
function ask(port, path) {
  return new Promise((resolve, reject) => {
    request({ host: '127.0.0.1', port, path, localAddress: sources[0] }, answer => {
      let text = ''
      answer.setEncoding('utf8').on('data', piece => {
        text += piece
      })
      answer.on('end', () =>
        answer.statusCode === 200 ? resolve(text) : reject(new Error(`${path}: ${text}`))
      )
    })
      .on('error', reject)
      .end()
  })
}

const daemons = new Map()
for (const count of SIZES) daemons.set(count, await startDaemon(count))
const [cpu] = cpus()
console.log(
  `node ${process.version}, ${cpus().length} CPUs (${cpu?.model}); client and servers on one machine, ` +
    `${CONNECTIONS} connections;\nmedians of ${ROUNDS} rounds of ${ROUND_MS} ms, in turn`
)
for (const [name, cases] of ROUTES) await measure(daemons, name, cases)
process.exit(0)
