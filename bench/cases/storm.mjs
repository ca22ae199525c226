// Machines that are all switched on within one second (bench/storm.mjs), against one daemon, or several
// controllers, and one bare node:http in turn.
import { figure } from '../figures.mjs'
import { inTurn } from '../harness.mjs'
import { servers } from '../storm/servers.mjs'
import { storm } from '../storm/storm.mjs'

const BYTES = 16_384
const NONE = { atMost: 0, always: true }
/** The requests of a machine, in order. */
const KINDS = ['menu', 'boot script', 'kernel', 'initramfs', 'install script', 'library', 'report']

/** How often a try failed for another reason than a refusal. */
const others = failures =>
  Object.entries(failures).reduce((sum, [reason, count]) => (reason === '503' ? sum : sum + count), 0)

/** `most`: rounds at most, because the large ones take minutes. */
const storms = (name, machines, { one, most = Infinity, targets = {}, controllers = 1 }) => ({
  name,
  apart: true,
  title: `${machines.toLocaleString('en')} machines within 1 s, ${one ? 'one connection each' : 'one for each curl'}${controllers > 1 ? `, ${controllers} controllers on etcd` : ''}`,
  async run({ rounds }) {
    const { daemons, members, bare } = await servers(machines, BYTES, controllers)
    const options = { machines, within: 1, one, limit: 600, members }
    const [ours, theirs] = await inTurn(
      Math.min(rounds, most),
      [daemons, [bare]].map(asked => () => storm(asked, options))
    )
    /** `apart`: it is not divided by the bare server's, which may be 0. */
    const row = (what, unit, value, { target, apart = false, more } = {}) =>
      figure(what, unit, ours.map(value), {
        less: true,
        target,
        beside: { what: 'bare node:http', rounds: theirs.map(value), ...(apart && { apart }) },
        more
      })
    const count = (what, value, target) => row(what, '', value, { target, apart: true })
    /** Seconds that a share `q` of all answers of a kind took at most. */
    const took = (kind, q) => result => (result.times[kind]?.quantile(q) ?? Number.NaN) / 1000
    const kinds = KINDS.filter(kind => ours.some(({ times }) => times[kind]))
    return [
      row('until all are up', 's', ({ seconds }) => seconds, { target: targets.seconds }),
      count('machines lost', ({ lost }) => lost, NONE),
      count('reports lost', ({ reportsLost }) => reportsLost, NONE),
      count('refusals (503)', ({ failures }) => failures[503] ?? 0),
      row('other tries that failed', '', ({ failures }) => others(failures), {
        apart: true,
        more: { reasons: [ours, theirs].map(results => results.map(({ failures }) => failures)) }
      }),
      row('first answer, p50', 's', ({ first }) => first.quantile(0.5) / 1000),
      row('first answer, p99', 's', ({ first }) => first.quantile(0.99) / 1000, { target: targets.first }),
      ...kinds.map(kind =>
        row(`${kind}, p99`, 's', took(kind, 0.99), {
          more: Object.fromEntries(
            [
              ['p50', 0.5],
              ['p99', 0.99],
              ['longest', 1]
            ].map(([name, q]) => [name, [ours, theirs].map(results => results.map(took(kind, q)))])
          )
        })
      ),
      row('CPU a machine', 'ms', ({ cpu }) => cpu, { target: targets.cpu }),
      ...(members.length > 0
        ? [row("etcd's CPU a machine", 'ms', ({ etcdCpu }) => etcdCpu, { apart: true })]
        : []),
      row("the load's CPU a machine", 'ms', ({ clientCpu }) => clientCpu),
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
  storms('storm-30000', 30_000, { one: true, most: 1, targets: { seconds: { atMost: 36 } } }),
  storms('storm-three-10000', 10_000, { one: true, most: 3, controllers: 3 })
]
