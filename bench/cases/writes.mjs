// Changes that are durable when they are answered, beside the least work that makes as much durable.
import { addressOf, writeCluster } from '../cluster.mjs'
import { startDaemon } from '../daemon.mjs'
import { appends, creations, newFiles, reportsOf, WARM_MS } from '../durable.mjs'
import { figure } from '../figures.mjs'
import { inTurn, start, temporary } from '../harness.mjs'
import { loaded } from '../loaded.mjs'

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

const create = {
  name: 'create',
  title: 'create a node, durable, one by one',
  sized: true,
  async run({ nodes, rounds, ms }) {
    writeCluster(temporary, nodes)
    const daemon = await startDaemon(temporary)
    const client = start('load.mjs')
    const written = newFiles()
    let next = nodes
    /** As many as a round can need; the names go on where the last round ended. */
    const some = async ms => {
      const from = next
      next += 5 * ms
      return creations(daemon, from, next - from)
    }
    const work = ms => [
      async () => loaded(client, daemon, { requests: await some(ms), sources: ['127.0.0.1'], ms }),
      () => written(ms)
    ]
    await inTurn(1, work(WARM_MS))
    const [ours, theirs] = await inTurn(rounds, work(ms))
    const rates = ours.map(({ perSecond }) => perSecond)
    return [
      figure('', '/s', rates, {
        beside: { what: 'write+fsync+rename+fsync', rounds: theirs },
        target: { atLeast: 0.6, ratio: true }
      }),
      figure(
        'CPU each',
        'ms',
        ours.map(({ cpu }) => cpu / 1000),
        { less: true }
      )
    ]
  }
}

export default [
  reports('status-64', 64, { rate: { atLeast: 20_000 } }),
  reports('status-4', 4, { cpu: { atMost: 0.05 } }),
  create
]
