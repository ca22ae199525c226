// From the start of the process to its first answer, and what memory it has then; and memory after work.
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { addressOf, clusterDocument, macOf, nameOf, writeCluster } from '../cluster.mjs'
import { startDaemon } from '../daemon.mjs'
import { figure } from '../figures.mjs'
import { ask, inTurn, memoryOf, start, temporary, timed } from '../harness.mjs'

/** Reads and parses each file: the least that a start has to do. */
function readAll(directory) {
  const read = []
  for (const name of readdirSync(directory))
    read.push(JSON.parse(readFileSync(join(directory, name), 'utf8')))
  return read.length
}

const starts = (nodes, targets) => ({
  name: `start-${nodes}`,
  title: `start with ${nodes.toLocaleString('en')} nodes`,
  async run({ rounds }) {
    writeCluster(temporary, nodes)
    const one = async () => {
      const daemon = await startDaemon(temporary)
      await daemon.send('GET', '/version')
      const result = { ms: daemon.startMs, memory: memoryOf(daemon.pid) }
      await daemon.stop()
      return result
    }
    const read = () => timed(() => readAll(join(temporary, 'state', 'node')))
    await inTurn(1, [one, read])
    const [ours, theirs] = await inTurn(rounds, [one, read])
    const beside = { what: 'read+JSON.parse', rounds: theirs }
    return [
      figure(
        '',
        's',
        ours.map(({ ms }) => ms / 1000),
        {
          less: true,
          beside: { ...beside, rounds: theirs.map(ms => ms / 1000) },
          target: targets.seconds
        }
      ),
      figure(
        'memory',
        'MiB',
        ours.map(result => result.memory),
        { less: true, target: targets.memory }
      )
    ]
  }
})

const QUIET_MS = 15_000

/** A round of work: boots, reports, lists, changes and an import; then quiet. */
const memory = {
  name: 'memory',
  title: 'memory with 10,000 nodes after work',
  async run({ rounds }) {
    const nodes = 10_000
    writeCluster(temporary, nodes)
    const daemon = await startDaemon(temporary, { asUnit: true })
    const client = start('load.mjs')
    const document = clusterDocument(nodes)
    const sources = Array.from({ length: 64 }, (_, i) => addressOf(i))
    const get = path => `GET ${path} HTTP/1.1\r\nHost: bench\r\n\r\n`
    const all = Array.from({ length: nodes }, (_, i) => i)
    const scripts = all.map(i => get(`/boot/search/mac/${macOf(i)}`))
    const installs = sources.map((_, i) => get(`/boot/install/${nameOf(i)}`))
    const reports = await Promise.all(
      all.map(i => {
        const body = JSON.stringify({ monitor: { status: { [nameOf(i)]: { state: 'installer.download' } } } })
        return daemon.raw('POST', `/monitor/node/${nameOf(i)}`, body)
      })
    )
    const load = task => ask(client, { port: daemon.port, sources, ...task })
    const work = async () => {
      await load({ requests: scripts, count: 2 * nodes })
      await load({ requests: installs, own: true, count: nodes })
      await load({ requests: reports, count: 12 * nodes })
      for (let i = 0; i < 20; i++) await daemon.ask('GET', '/config/node')
      const path = '/config/group/compute/interfaces'
      await daemon.ask(
        'POST',
        path,
        JSON.stringify({ interfaces: [{ interface: 'ib0', network: 'fabric' }] })
      )
      await daemon.ask('GET', `${path}/ib0/_delete`)
      await daemon.ask('GET', '/config/cluster/export')
      await daemon.ask('POST', '/config/cluster/import', document)
      const most = memoryOf(daemon.pid)
      await sleep(QUIET_MS)
      return { most, after: memoryOf(daemon.pid) }
    }
    const before = memoryOf(daemon.pid)
    const [found] = await inTurn(rounds, [work])
    return [
      figure(
        `after each round of work and ${QUIET_MS / 1000} s of quiet`,
        'MiB',
        found.map(({ after }) => after),
        {
          less: true,
          target: { atMost: 180 }
        }
      ),
      figure(
        'at the end of the work',
        'MiB',
        found.map(({ most }) => most),
        { less: true }
      ),
      figure('before', 'MiB', [before], { less: true })
    ]
  }
}

export default [
  starts(10_000, { seconds: { atMost: 1 } }),
  starts(158_976, { seconds: { atMost: 8 }, memory: { atMost: 600 } }),
  memory
]
