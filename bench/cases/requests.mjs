// Answers per second, each beside a bare node:http that sends the same bytes, and CPU time of each answer.
import { addressOf, macOf, nameOf, writeCluster } from '../cluster.mjs'
import { startDaemon } from '../daemon.mjs'
import { figure } from '../figures.mjs'
import { ask, inTurn, start, temporary } from '../harness.mjs'
import { loaded } from '../loaded.mjs'

const get = path => `GET ${path} HTTP/1.1\r\nHost: bench\r\n\r\n`

/** A case: `paths` gives what is asked for of so many nodes; `more` the rows beside rate and CPU. */
const requests = (
  name,
  title,
  connections,
  target,
  paths,
  { admin = false, own = false, more = () => [] } = {}
) => ({
  name,
  title,
  sized: true,
  async run({ nodes, rounds, ms }) {
    writeCluster(temporary, nodes)
    const daemon = await startDaemon(temporary)
    const sources = Array.from({ length: connections }, (_, i) => addressOf(own ? i % nodes : i))
    const asked = paths(nodes)
    const text = await (admin
      ? daemon.ask('GET', asked[0])
      : daemon.send('GET', asked[0], { localAddress: sources[0], agent: false }))
    const bare = start('bare.mjs')
    const { port } = await ask(bare, [['/', text]])
    const client = start('load.mjs')
    const whole = await Promise.all(asked.map(path => (admin ? daemon.raw('GET', path) : get(path))))
    const work = [
      () => loaded(client, daemon, { requests: whole, sources, own, ms }),
      () => loaded(client, { pid: bare.pid, port }, { requests: whole, sources, own, ms })
    ]
    await inTurn(1, work)
    const [ours, theirs] = await inTurn(rounds, work)
    const of = key => [ours, theirs].map(list => list.map(result => result[key]))
    const beside = values => ({ what: 'bare node:http', rounds: values })
    const [rate, bareRate] = of('perSecond')
    const [cpu, bareCpu] = of('cpu')
    return [
      figure(`${Buffer.byteLength(text)} bytes`, '/s', rate, { beside: beside(bareRate), target }),
      figure('CPU each', 'us', cpu, { beside: beside(bareCpu), less: true }),
      ...more({ text, cpu, nodes })
    ]
  }
})

/** Up to 1,000 of the nodes, spread over all. */
const spread = (nodes, path) =>
  Array.from({ length: Math.min(nodes, 1000) }, (_, i) =>
    path(Math.floor((i * nodes) / Math.min(nodes, 1000)))
  )
const size = target => ({
  more: ({ text }) => [figure('size', 'bytes', [Buffer.byteLength(text)], { less: true, target })]
})
const cpuPerNode = ({ cpu, nodes }) => [
  figure(
    'CPU per node',
    'us',
    cpu.map(us => us / nodes),
    { less: true, target: { atMost: 5 } }
  )
]

export default [
  requests('script', 'boot script by MAC, 64 connections', 64, { atLeast: 0.6, ratio: true }, nodes =>
    spread(nodes, i => `/boot/search/mac/${macOf(i)}`)
  ),
  requests(
    'install',
    'install script, 64 connections',
    64,
    { atLeast: 0.5, ratio: true },
    nodes => Array.from({ length: 64 }, (_, i) => `/boot/install/${nameOf(i % nodes)}`),
    { own: true, ...size({ atMost: 30_720 }) }
  ),
  requests('menu', 'menu, 64 connections', 64, { atLeast: 0.6, ratio: true }, () => ['/boot']),
  requests(
    'node',
    'one node by name, 64 connections',
    64,
    { atLeast: 0.6, ratio: true },
    nodes => spread(nodes, i => `/config/node/${nameOf(i)}`),
    { admin: true }
  ),
  requests('list', 'list of all nodes, one at a time', 1, undefined, () => ['/config/node'], {
    admin: true,
    more: cpuPerNode
  })
]
