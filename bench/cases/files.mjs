// Files of boots beside nginx with sendfile and one worker: a kernel of 12 MB to 16 connections, and machines that
// are switched on together and load kernel and initramfs.
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { addressOf, macOf, writeCluster } from '../cluster.mjs'
import { startDaemon } from '../daemon.mjs'
import { figure, quantile } from '../figures.mjs'
import { ask, cpuOf, inTurn, start, temporary } from '../harness.mjs'
import { isThere, startNginx } from '../nginx.mjs'
import { Connection } from '../storm/connection.mjs'
import { storm } from '../storm/storm.mjs'

const BYTES = 12_000_000

const kernel = {
  name: 'kernel',
  title: 'a kernel of 12 MB, 16 connections',
  async run({ rounds, ms }) {
    writeCluster(temporary, 100, BYTES)
    const servers = [await startDaemon(temporary), await startNginx(join(temporary, 'files'))]
    const client = start('load.mjs')
    const sources = Array.from({ length: 16 }, (_, i) => addressOf(i))
    const requests = ['GET /boot/vmlinuz HTTP/1.1\r\nHost: bench\r\n\r\n']
    const work = servers.map(server => async () => {
      const before = cpuOf(server.pid)
      const { answered, ms: took } = await ask(client, { port: server.port, requests, sources, ms })
      const bytes = answered * BYTES
      return { rate: bytes / 1e6 / (took / 1000), cpu: (cpuOf(server.pid) - before) / (bytes / 1e8) }
    })
    await inTurn(1, work)
    const [ours, theirs] = await inTurn(rounds, work)
    const row = (what, unit, key, less) =>
      figure(
        what,
        unit,
        ours.map(result => result[key]),
        {
          less,
          beside: { what: 'nginx', rounds: theirs.map(result => result[key]) }
        }
      )
    return [row('', 'MB/s', 'rate', false), row('CPU of 100 MB', 'ms', 'cpu', true)]
  }
}

const MACHINES = 300
const SIZES = { vmlinuz: 14_000_000, 'initrd.img': 40_000_000 }
const TOTAL = MACHINES * (SIZES.vmlinuz + SIZES['initrd.img'])
const PROBE_MS = 20
const NONE = { atMost: 0, always: true }

/** Asks for a boot script over new connections until `stop`, which gives the times of all in ms. */
function probe(port) {
  let stopped = false
  const request = `GET /boot/search/mac/${macOf(MACHINES)} HTTP/1.1\r\nHost: bench\r\n\r\n`
  const found = (async () => {
    const times = []
    while (!stopped) {
      const from = performance.now()
      const connection = new Connection(port, addressOf(MACHINES))
      // A refusal or a cut connection counts as a time without end.
      const answer = await connection.ask(request, 10_000, false).catch(() => undefined)
      connection.close()
      times.push(answer?.status === 200 ? performance.now() - from : Number.POSITIVE_INFINITY)
      await sleep(PROBE_MS)
    }
    return times
  })()
  return () => {
    stopped = true
    return found
  }
}

const stormOfFiles = {
  name: 'storm-files',
  apart: true,
  title: `${MACHINES} machines within 1 s load a kernel of 14 MB and an initramfs of 40 MB`,
  async run({ rounds }) {
    if (!isThere())
      throw new Error('skipped: there is no nginx to compare with; type: apt-get install nginx-light')
    const directory = join(temporary, 'storm')
    mkdirSync(directory)
    writeCluster(directory, MACHINES + 1, SIZES)
    const daemon = await startDaemon(directory, { watched: true })
    const get = path => daemon.send('GET', path, { localAddress: addressOf(0), agent: false })
    const nginx = await startNginx(join(directory, 'files'), {
      '= /boot': await get('/boot'),
      '/boot/search/': await get(`/boot/search/mac/${macOf(0)}`)
    })
    const work = [daemon, nginx].map(server => async () => {
      const stop = probe(server.port)
      await (server === daemon && daemon.stalls())
      const options = { machines: MACHINES, within: 1, one: true, limit: 300, untilLoaded: true }
      const found = await storm([server], options)
      const scripts = await stop()
      return { ...found, scripts, ...(server === daemon && (await daemon.stalls())) }
    })
    const [ours, theirs] = await inTurn(rounds, work)
    const row = (what, unit, value, { target, less = true, apart = false } = {}) => {
      const beside = { what: 'nginx', rounds: theirs.map(value), ...(apart && { apart }) }
      return figure(what, unit, ours.map(value), { less, beside, target })
    }
    const took = (kind, q) => result => result.times[kind].quantile(q) / 1000
    return [
      row('GB a second of CPU', '', ({ cpu }) => TOTAL / 1e9 / ((cpu * MACHINES) / 1000), {
        less: false,
        target: { atLeast: 0.6, ratio: true }
      }),
      row('until all are loaded', 's', ({ seconds }) => seconds),
      row('machines lost', '', ({ lost }) => lost, { target: NONE, apart: true }),
      row('refusals (503)', '', ({ failures }) => failures[503] ?? 0, { apart: true }),
      ...['kernel', 'initramfs'].flatMap(kind =>
        [0.5, 0.99].map(q => row(`${kind}, p${q * 100}`, 's', took(kind, q)))
      ),
      row('a boot script meanwhile, p99', 'ms', ({ scripts }) => quantile(scripts, 0.99), {
        target: { atMost: 50 }
      }),
      row('a boot script meanwhile, longest', 'ms', ({ scripts }) => Math.max(...scripts)),
      figure(
        'longest stall of the loop',
        'ms',
        ours.map(({ stall }) => stall),
        { less: true, target: { atMost: 50 } }
      ),
      row('memory at most', 'MiB', ({ memory }) => memory)
    ]
  }
}

export default [kernel, stormOfFiles]
