// Changes and documents of very many nodes: how long they take, and how long another connection waits
// meanwhile.
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { clusterDocument, macOf, nodeOf, writeCluster, writeFiles } from '../cluster.mjs'
import { startDaemon } from '../daemon.mjs'
import { figure } from '../figures.mjs'
import { answerOf, inTurn, start, temporary, timed } from '../harness.mjs'

const STALL = { atMost: 50, always: true }

/**
 * The milliseconds of `work`, and the longest answer and stall that a machine saw meanwhile which asks every
 * 2 ms.
 */
async function watched(daemon, client, nodes, work) {
  const requests = Array.from(
    { length: 100 },
    (_, i) => `GET /boot/search/mac/${macOf(Math.floor((i * nodes) / 100))} HTTP/1.1\r\nHost: bench\r\n\r\n`
  )
  await daemon.stalls()
  client.send({ port: daemon.port, requests, sources: ['127.0.0.1'], pause: 2 })
  const seen = answerOf(client)
  const ms = await timed(work)
  client.send('stop')
  const { longest } = await seen
  return { ms, longest, ...(await daemon.stalls()) }
}

const rows = (what, results, { beside, ms } = {}) => [
  figure(
    what,
    'ms',
    results.map(result => result.ms),
    { less: true, beside, target: ms }
  ),
  figure(
    `${what}: longest answer to another`,
    'ms',
    results.map(({ longest }) => longest),
    { less: true, target: STALL }
  ),
  figure(
    `${what}: longest stall of the loop`,
    'ms',
    results.map(({ stall }) => stall),
    { less: true }
  ),
  figure(
    `${what}: longest stall without the collector`,
    'ms',
    results.map(({ own }) => own),
    { less: true, target: STALL }
  ),
  figure(
    `${what}: longest pause of the collector`,
    'ms',
    results.map(({ pause }) => pause),
    { less: true }
  )
]

const groupInterface = nodes => ({
  name: `interface-${nodes}`,
  title: `an interface added to a group of ${nodes.toLocaleString('en')}`,
  async run({ rounds }) {
    writeCluster(temporary, nodes)
    const daemon = await startDaemon(temporary, { watched: true })
    const client = start('load.mjs')
    const path = '/config/group/compute/interfaces'
    const body = JSON.stringify({ interfaces: [{ interface: 'ib0', network: 'fabric' }] })
    const [added, removed] = await inTurn(rounds, [
      () => watched(daemon, client, nodes, () => daemon.ask('POST', path, body)),
      () => watched(daemon, client, nodes, () => daemon.ask('GET', `${path}/ib0/_delete`))
    ])
    const perNode = results => results.map(({ ms }) => (ms * 1000) / nodes)
    return [
      ...rows('added', added),
      figure('added, per node', 'us', perNode(added), { less: true }),
      ...rows('removed', removed)
    ]
  }
})

const imports = nodes => ({
  name: `import-${nodes}`,
  title: `import of ${nodes.toLocaleString('en')} nodes`,
  async run({ rounds }) {
    const document = clusterDocument(nodes)
    const texts = Array.from({ length: nodes }, (_, i) => `${JSON.stringify(nodeOf(i), null, 2)}\n`)
    const client = start('load.mjs')
    const [results, plain] = await inTurn(rounds, [
      async round => {
        const directory = join(temporary, `svcd-${round}`)
        writeFiles(directory)
        const daemon = await startDaemon(directory, { watched: true })
        await daemon.token()
        const result = await watched(daemon, client, nodes, () =>
          daemon.ask('POST', '/config/cluster/import', document)
        )
        await daemon.stop()
        return result
      },
      round => {
        const directory = join(temporary, `files-${round}`)
        mkdirSync(directory)
        return timed(() => {
          for (const [i, text] of texts.entries()) writeFileSync(join(directory, `${i}.json`), text)
        })
      }
    ])
    return rows('import', results, { beside: { what: 'a file each, no fsync', rounds: plain } })
  }
})

const exports = nodes => ({
  name: `export-${nodes}`,
  title: `export of ${nodes.toLocaleString('en')} nodes`,
  async run({ rounds }) {
    writeCluster(temporary, nodes)
    const daemon = await startDaemon(temporary, { watched: true })
    const client = start('load.mjs')
    const get = () => watched(daemon, client, nodes, () => daemon.ask('GET', '/config/cluster/export'))
    const [results] = await inTurn(rounds, [get])
    return rows('export', results)
  }
})

export default [
  ...[10_000, 60_000, 158_976].map(groupInterface),
  ...[10_000, 158_976].map(imports),
  exports(158_976)
]
