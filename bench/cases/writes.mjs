// Changes that are durable when they are answered, beside the least work that makes as much durable.
import { setTimeout as sleep } from 'node:timers/promises'
import { addressOf, writeCluster } from '../cluster.mjs'
import { startDaemon } from '../daemon.mjs'
import { appends, creations, newFiles, reportsOf, WARM_MS } from '../durable.mjs'
import { figure } from '../figures.mjs'
import { inTurn, start, temporary } from '../harness.mjs'
import { loaded } from '../loaded.mjs'

/** Until the files of the last creations are written. */
const SETTLE_MS = 1000

/** Status reports of all nodes, as their install scripts send them. */
const reports = (name, connections, targets) => ({
  name,
  title: `status report, durable, ${connections} connections`,
  sized: true,
  async run({ nodes, rounds, ms }) {
    writeCluster(temporary, nodes)
    const daemon = await startDaemon(temporary)
    const client = start('load.mjs')
    const requests = await reportsOf(daemon, Math.min(nodes, 1000))
    const sources = Array.from({ length: connections }, (_, i) => addressOf(i))
    const append = appends()
    const work = [() => loaded(client, daemon, { requests, sources, ms }), () => append(ms)]
    await inTurn(1, work)
    const [ours, theirs] = await inTurn(rounds, work)
    const rates = ours.map(({ perSecond }) => perSecond)
    const cpu = ours.map(result => result.cpu / 1000)
    const beside = { what: 'append+fdatasync', rounds: theirs }
    return [
      figure('', '/s', rates, { beside, target: targets.rate }),
      figure('CPU each', 'ms', cpu, { less: true, target: targets.cpu })
    ]
  }
})

/** Creations, by so many clients at once, beside the least work that makes one durable. */
const create = (name, title, connections, targets) => ({
  name,
  title,
  sized: true,
  async run({ nodes, rounds, ms }) {
    writeCluster(temporary, nodes)
    const daemon = await startDaemon(temporary)
    const client = start('load.mjs')
    const written = newFiles()
    let next = nodes
    const sources = Array.from({ length: connections }, (_, i) =>
      connections === 1 ? '127.0.0.1' : addressOf(i)
    )
    /** As many as a round can need; the names go on where the last round ended. */
    const some = async ms => {
      const from = next
      next += (connections === 1 ? 5 : 15) * ms
      return creations(daemon, from, next - from)
    }
    const ours = async ms => {
      const requests = await some(ms)
      const before = daemon.writtenBytes()
      const result = await loaded(client, daemon, { requests, sources, ms })
      // The files follow the log.
      await sleep(SETTLE_MS)
      return { ...result, bytes: ((daemon.writtenBytes() - before) * 1000) / (result.perSecond * ms) }
    }
    const work = ms => [() => ours(ms), () => written(ms)]
    await inTurn(1, work(WARM_MS))
    const [made, theirs] = await inTurn(rounds, work(ms))
    const each = key => made.map(result => result[key])
    const beside = { what: 'write+fsync+rename+fsync', rounds: theirs }
    return [
      figure('', '/s', each('perSecond'), { beside, target: targets.rate }),
      figure(
        'CPU each',
        'ms',
        each('cpu').map(us => us / 1000),
        { less: true }
      ),
      figure('bytes for the disk each', 'B', each('bytes'), { less: true })
    ]
  }
})

export default [
  reports('status-64', 64, { rate: { atLeast: 20_000 } }),
  reports('status-4', 4, { cpu: { atMost: 0.05 } }),
  create('create', 'create a node, durable, one by one', 1, { rate: { atLeast: 0.6, ratio: true } }),
  create('create-64', 'create a node, durable, 64 at once', 64, { rate: { atLeast: 10_000 } })
]
