// Machines that are all switched on within one second (bench/storm.mjs), against one daemon and one bare node:http in turn.
import { figure } from '../figures.mjs'
import { inTurn } from '../harness.mjs'
import { servers } from '../storm/servers.mjs'
import { storm } from '../storm/storm.mjs'

const BYTES = 16_384
const NONE = { atMost: 0 }

/** `most`: rounds at most, because the large ones take minutes. */
const storms = (name, machines, { one, most = Infinity, targets = {} }) => ({
  name,
  title: `${machines.toLocaleString('en')} machines within 1 s, ${one ? 'one connection each' : 'one for each curl'}`,
  async run({ rounds }) {
    const { daemon, bare } = await servers(machines, BYTES)
    const options = { machines, within: 1, one, limit: 600 }
    const [ours, theirs] = await inTurn(
      Math.min(rounds, most),
      [daemon, bare].map(server => () => storm(server, options))
    )
    const row = (what, unit, value, target, compared = true) =>
      figure(what, unit, ours.map(value), {
        less: true,
        target,
        ...(compared && { beside: { what: 'bare node:http', rounds: theirs.map(value) } })
      })
    return [
      row('until all are up', 's', ({ seconds }) => seconds, targets.seconds),
      row('machines lost', '', ({ lost }) => lost, NONE, false),
      row('reports lost', '', ({ reportsLost }) => reportsLost, NONE, false),
      row('first answer, p50', 's', ({ first }) => first.quantile(0.5) / 1000),
      row('first answer, p99', 's', ({ first }) => first.quantile(0.99) / 1000, targets.first),
      row('CPU a machine', 'ms', ({ cpu }) => cpu, targets.cpu),
      row('memory at most', 'MiB', ({ memory }) => memory)
    ]
  }
})

export default [
  storms('storm-10000', 10_000, {
    one: true,
    targets: { seconds: { atMost: 12 }, first: { atMost: 3 }, cpu: { atMost: 1.2 } }
  }),
  storms('storm-curl-10000', 10_000, { one: false, most: 2 }),
  storms('storm-30000', 30_000, { one: true, most: 1, targets: { seconds: { atMost: 36 } } })
]
