// Objects in etcd: a start beside one from files, creations beside etcd's own puts, a standby's boot script
// beside the writer's.
import { setTimeout as sleep } from 'node:timers/promises'
import { addressOf, macOf, nodeOf } from '../cluster.mjs'
import { etcdWith, startControllers } from '../controllers.mjs'
import { startDaemon } from '../daemon.mjs'
import { creations, reportsOf, WARM_MS } from '../durable.mjs'
import { puts } from '../etcd.mjs'
import { figure } from '../figures.mjs'
import { inTurn, start, temporary } from '../harness.mjs'
import { loaded } from '../loaded.mjs'

/** Longer than the right to write outlives who was killed. */
const LEASE_MS = 4000

const starting = {
  name: 'etcd-start',
  title: 'start from etcd',
  sized: true,
  async run({ nodes, rounds }) {
    const { settings } = await etcdWith(nodes)
    const one = settings => async () => {
      const daemon = await startDaemon(temporary, { settings })
      await daemon.send('GET', '/version')
      await daemon.stop()
      if ('store.medium' in settings) await sleep(LEASE_MS)
      return daemon.startMs / 1000
    }
    const series = [one(settings), one({})]
    await inTurn(1, series)
    const [ours, theirs] = await inTurn(rounds, series)
    const beside = { what: 'from files', rounds: theirs }
    return [figure('', 's', ours, { less: true, beside, target: { atMost: 3, ratio: true } })]
  }
}

const creating = {
  name: 'etcd-create',
  title: 'create a node in etcd',
  sized: true,
  async run({ nodes, rounds, ms }) {
    const { members, settings } = await etcdWith(nodes)
    const daemon = await startDaemon(temporary, { settings })
    const client = start('load.mjs')
    const text = i => `${JSON.stringify(nodeOf(i), null, 2)}\n`
    let next = nodes
    const some = async ms => {
      const from = next
      next += 5 * ms
      return creations(daemon, from, next - from)
    }
    const figures = []
    for (const connections of [1, 64]) {
      const sources = Array.from({ length: connections }, (_, i) => addressOf(i))
      const work = ms => [
        async () => loaded(client, daemon, { requests: await some(ms), sources, ms }),
        () => puts(members[0].url, connections, ms, text)
      ]
      await inTurn(1, work(WARM_MS))
      const [ours, theirs] = await inTurn(rounds, work(ms))
      const rates = ours.map(({ perSecond }) => perSecond)
      const beside = { what: 'put by gRPC', rounds: theirs }
      const what = connections === 1 ? 'one by one' : `${connections} at once`
      figures.push(figure(what, '/s', rates, { beside, target: { atLeast: 0.5, ratio: true } }))
    }
    return figures
  }
}

const following = {
  name: 'etcd-script',
  title: 'boot script of a standby, 64 connections',
  sized: true,
  async run({ nodes, rounds, ms }) {
    const {
      controllers: [writer, standby]
    } = await startControllers(2, nodes)
    const client = start('load.mjs')
    const sources = Array.from({ length: 64 }, (_, i) => addressOf(i))
    const requests = Array.from(
      { length: 1000 },
      (_, i) => `GET /boot/search/mac/${macOf(i)} HTTP/1.1\r\nHost: bench\r\n\r\n`
    )
    const work = [standby, writer].map(daemon => () => loaded(client, daemon, { requests, sources, ms }))
    await inTurn(1, work)
    const [ours, theirs] = await inTurn(rounds, work)
    const of = key => [ours, theirs].map(list => list.map(result => result[key]))
    const [rates, rateBeside] = of('perSecond')
    const [cpu, cpuBeside] = of('cpu')
    const beside = values => ({ what: 'of the writer', rounds: values })
    return [
      figure('', '/s', rates, { beside: beside(rateBeside), target: { atLeast: 0.9, ratio: true } }),
      figure('CPU each', 'us', cpu, { beside: beside(cpuBeside), less: true })
    ]
  }
}

/**
 * Each node may report 60 times at once, and then once in 5 s (rules 11.17): a thousand nodes are enough for
 * some seconds.
 */
const reporting = {
  name: 'etcd-reports',
  title: 'status report in etcd of three members, 64 connections',
  sized: true,
  async run({ nodes, rounds, ms }) {
    const { members, settings } = await etcdWith(nodes, { members: 3 })
    const daemon = await startDaemon(temporary, { settings })
    const client = start('load.mjs')
    const requests = await reportsOf(daemon, Math.min(nodes, 1000))
    const sources = Array.from({ length: 64 }, (_, i) => addressOf(i))
    const text = i => `${JSON.stringify(nodeOf(i), null, 2)}\n`
    const work = [
      () => loaded(client, daemon, { requests, sources, ms }),
      () => puts(members[0].url, 64, ms, text)
    ]
    await inTurn(1, work)
    const [ours, theirs] = await inTurn(rounds, work)
    const rates = ours.map(({ perSecond }) => perSecond)
    const cpu = ours.map(({ cpu }) => cpu / 1000)
    return [
      figure('', '/s', rates, { beside: { what: 'put by gRPC', rounds: theirs }, target: { atLeast: 3000 } }),
      figure('CPU each', 'ms', cpu, { less: true })
    ]
  }
}

export default [starting, creating, following, reporting]
