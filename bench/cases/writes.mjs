// What is on disk when it is answered, beside the least that makes as much durable.
import { closeSync, fdatasyncSync, fsyncSync, mkdirSync, openSync, renameSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { addressOf, nameOf, nodeOf, writeCluster } from '../cluster.mjs'
import { startDaemon } from '../daemon.mjs'
import { figure } from '../figures.mjs'
import { inTurn, start, temporary } from '../harness.mjs'
import { loaded } from './requests.mjs'

/** Times per second that `work` (given a running number) can be done in `ms`. */
function loop(ms, work) {
  const from = performance.now()
  let done = 0
  while (performance.now() - from < ms) work(done++)
  return (done * 1000) / (performance.now() - from)
}

/** One append and one fdatasync for each line, to a file of its own. */
function appends() {
  const file = openSync(join(temporary, 'appended'), 'a')
  const line = `${'x'.repeat(119)}\n`
  return ms =>
    loop(ms, () => {
      writeSync(file, line)
      fdatasyncSync(file)
    })
}

/** A new file for each: write, fsync, rename, fsync of the directory. */
function newFiles() {
  const directory = join(temporary, 'written')
  mkdirSync(directory)
  const handle = openSync(directory, 'r')
  let count = 0
  return ms =>
    loop(ms, () => {
      const path = join(directory, `${count}.json`)
      const file = openSync(`${path}.part`, 'w')
      writeSync(file, `${JSON.stringify(nodeOf(count++), null, 2)}\n`)
      fsyncSync(file)
      closeSync(file)
      renameSync(`${path}.part`, path)
      fsyncSync(handle)
    })
}

const STEPS = ['started', 'partscript', 'download', 'unpack', 'network', 'completed']

/** Status reports of all nodes, as their install scripts send them. */
const reports = (name, connections, targets) => ({
  name,
  title: `status report, durable, ${connections} connections`,
  sized: true,
  async run({ nodes, rounds, ms }) {
    writeCluster(temporary, nodes)
    const daemon = await startDaemon(temporary)
    const client = start('load.mjs')
    const count = Math.min(nodes, 1000)
    const requests = []
    for (const step of STEPS)
      for (let i = 0; i < count; i++) {
        const state = { [nameOf(i)]: { state: `installer.${step}` } }
        const body = JSON.stringify({ monitor: { status: state } })
        requests.push(await daemon.raw('POST', `/monitor/node/${nameOf(i)}`, body))
      }
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
    const some = async () => {
      const from = next
      next += 5 * ms
      const bodies = Array.from({ length: next - from }, (_, i) => nodeOf(from + i))
      return Promise.all(
        bodies.map(body => daemon.raw('POST', `/config/node/${body.name}`, JSON.stringify(body)))
      )
    }
    const work = [
      async () => loaded(client, daemon, { requests: await some(), sources: ['127.0.0.1'], ms }),
      () => written(ms)
    ]
    await inTurn(1, work)
    const [ours, theirs] = await inTurn(rounds, work)
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
