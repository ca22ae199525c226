// Objects in etcd: a start beside one from files, creations beside etcd's own puts, a standby's boot script beside the writer's.
import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { addressOf, macOf, nodeOf, writeCluster } from '../cluster.mjs'
import { checkout, startDaemon } from '../daemon.mjs'
import { creations, reportsOf } from '../durable.mjs'
import { puts, startEtcd } from '../etcd.mjs'
import { figure } from '../figures.mjs'
import { inTurn, start, temporary } from '../harness.mjs'
import { loaded } from '../loaded.mjs'

/** Longer than the right to write outlives who was killed. */
const LEASE_MS = 4000

/** An etcd that holds the objects of `nodes` nodes, which are in the files of the directory of this process as well. */
async function etcdWith(nodes, members = 1) {
  const urls = await startEtcd(members)
  writeCluster(temporary, nodes)
  // A start makes the keys, and writes what a copy needs.
  await (await startDaemon(temporary)).stop()
  const settings = { 'store.medium': 'etcd', 'store.endpoints': urls.join(', ') }
  const all = {
    'paths.state': join(temporary, 'state'),
    'paths.files': join(temporary, 'files'),
    ...settings
  }
  execFileSync(join(checkout, 'bin/svcd'), [
    ...['store', 'copy', 'files', 'etcd', '--config', join(checkout, 'etc/svcd.ini')],
    ...Object.entries(all).flatMap(([key, value]) => ['--set', `${key}=${value}`])
  ])
  return { url: urls[0], settings }
}

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
    const { url, settings } = await etcdWith(nodes)
    const daemon = await startDaemon(temporary, { settings })
    const client = start('load.mjs')
    const text = i => `${JSON.stringify(nodeOf(i), null, 2)}\n`
    let next = nodes
    const some = async () => {
      const from = next
      next += 5 * ms
      return creations(daemon, from, next - from)
    }
    const figures = []
    for (const connections of [1, 64]) {
      const sources = Array.from({ length: connections }, (_, i) => addressOf(i))
      const work = [
        async () => loaded(client, daemon, { requests: await some(), sources, ms }),
        () => puts(url, connections, ms, text)
      ]
      await inTurn(1, work)
      const [ours, theirs] = await inTurn(rounds, work)
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
    const { settings } = await etcdWith(nodes)
    const writer = await startDaemon(temporary, { settings: { ...settings, 'controller.name': 'first' } })
    const directory = join(temporary, 'second')
    mkdirSync(join(directory, 'state'), { recursive: true, mode: 0o700 })
    for (const name of ['secret.key', 'token.key', 'admin-password'])
      cpSync(join(temporary, 'state', name), join(directory, 'state', name))
    cpSync(join(temporary, 'files'), join(directory, 'files'), { recursive: true })
    const standby = await startDaemon(directory, { settings: { ...settings, 'controller.name': 'second' } })
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

/** Each node may report 60 times at once, and then once in 5 s (rules 11.17): a thousand nodes are enough for some seconds. */
const reporting = {
  name: 'etcd-reports',
  title: 'status report in etcd of three members, 64 connections',
  sized: true,
  async run({ nodes, rounds, ms }) {
    const { url, settings } = await etcdWith(nodes, 3)
    const daemon = await startDaemon(temporary, { settings })
    const client = start('load.mjs')
    const requests = await reportsOf(daemon, Math.min(nodes, 1000))
    const sources = Array.from({ length: 64 }, (_, i) => addressOf(i))
    const text = i => `${JSON.stringify(nodeOf(i), null, 2)}\n`
    const work = [() => loaded(client, daemon, { requests, sources, ms }), () => puts(url, 64, ms, text)]
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
