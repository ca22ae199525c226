// The ratios of the everyday cases, measured in seconds, for a test: one daemon with 100 nodes, one bare
// node:http. Prints a JSON object: for each case `cpu`, the least CPU time of an answer in microseconds, and
// `bare`, the bare server's; and `rate`, the most per second; for durable writes `loop`, the most per second
// of the write loop. The best of several rounds: what else runs makes them worse.
import { addressOf, macOf, nameOf, writeCluster } from './cluster.mjs'
import { startDaemon } from './daemon.mjs'
import { appends, creations, newFiles, reportsOf } from './durable.mjs'
import { ask, inTurn, start, temporary } from './harness.mjs'
import { loaded } from './loaded.mjs'

const NODES = 100
const ROUNDS = 6
const WARM = 1500
const COUNT = 200
const LOOP_MS = 60
/** Nodes created in a round. */
const NEW = 40

writeCluster(temporary, NODES)
const daemon = await startDaemon(temporary)
const client = start('load.mjs')
const sources = Array.from({ length: 16 }, (_, i) => addressOf(i))
const found = {}

const bare = start('bare.mjs')
const least = list => Math.min(...list.map(({ cpu }) => cpu))
const most = list => Math.max(...list.map(({ perSecond }) => perSecond))

/**
 * `ours(round)` loads the daemon, from round 0, which warms up; `theirs` is the task that loads the bare
 * server with the same requests, whose answer is `text`; `loop` writes.
 */
async function measure(name, ours, theirs, text, loop = () => 0) {
  const { port } = await ask(bare, [['/', text]])
  const load = count => loaded(client, { pid: bare.pid, port }, { sources, count, ...theirs })
  await ours(0)
  await load(WARM)
  const work = [round => ours(round + 1), () => load(COUNT), () => loop(LOOP_MS)]
  const [svcd, plain, written] = await inTurn(ROUNDS, work)
  found[name] = { cpu: least(svcd), bare: least(plain), rate: most(svcd), loop: Math.max(...written) }
}

const counted = task => round =>
  loaded(client, daemon, { sources, count: round === 0 ? WARM : COUNT, ...task })

/** `path` of each connection's node, whose address it has. */
async function answers(name, path) {
  const requests = await Promise.all(sources.map((_, i) => daemon.raw('GET', path(i))))
  const headers = { 'x-access-tokens': await daemon.token() }
  const text = await daemon.send('GET', path(0), { headers, localAddress: sources[0], agent: false })
  await measure(name, counted({ requests, own: true }), { requests, own: true }, text)
}

await answers('boot script', i => `/boot/search/mac/${macOf(i)}`)
await answers('menu', () => '/boot')
await answers('install script', i => `/boot/install/${nameOf(i)}`)
await answers('node by name', i => `/config/node/${nameOf(i)}`)
const reports = await reportsOf(daemon, NODES)
await measure('status report', counted({ requests: reports }), { requests: reports }, '', appends())
const created = round => creations(daemon, 1000 + NEW * round, NEW)
await measure(
  'create a node',
  async round =>
    loaded(client, daemon, { requests: await created(round), sources: ['127.0.0.1'], count: NEW }),
  { requests: await created(0) },
  '',
  newFiles()
)
console.log(JSON.stringify(found))
process.exit(0)
