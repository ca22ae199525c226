// node bench/storm.mjs [--machines 10000] [--within 1] [--one] [--bytes 16384] [--limit 900] [--controllers
// 1] [--no-bare] [--out FILE] So many machines are switched on within so many seconds, each with an address
// of its own, and boot from svcd; then the same from a bare node:http that sends the same bytes. With several
// controllers they have as many members of a real etcd. storm/machines.mjs says what a machine asks, and when
// it tries again.
import { execFileSync, spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { cpus, loadavg } from 'node:os'
import { parseArgs } from 'node:util'
import { ownNetwork } from './own-network.mjs'
import { servers } from './storm/servers.mjs'
import { storm } from './storm/storm.mjs'
import { columns } from './table.mjs'

const { values: flags } = parseArgs({
  allowNegative: true,
  options: {
    machines: { type: 'string', default: '10000' },
    within: { type: 'string', default: '1' },
    one: { type: 'boolean', default: false },
    bytes: { type: 'string', default: '16384' },
    limit: { type: 'string', default: '900' },
    controllers: { type: 'string', default: '1' },
    bare: { type: 'boolean', default: true },
    out: { type: 'string' }
  }
})
const [machines, within, bytes, limit, controllers] = [
  'machines',
  'within',
  'bytes',
  'limit',
  'controllers'
].map(key => Number(flags[key]))
const areNumbers = within >= 0 && bytes >= 0 && limit > 0
if (!(machines >= 1 && machines <= 200_000 && controllers >= 1 && controllers <= 5 && areNumbers)) {
  console.error('--machines is 1 to 200000, --controllers 1 to 5; --within, --bytes and --limit are numbers')
  process.exit(2)
}

// Anew, in a network of its own.
if (!process.env.BENCH_OWN_NETWORK) {
  const [command, ...words] = ownNetwork.command
  const { status, signal } = spawnSync(command, [...words, process.execPath, ...process.argv.slice(1)], {
    stdio: 'inherit',
    env: { ...process.env, ...ownNetwork.env }
  })
  process.exit(signal ? 1 : status)
}

const { daemons, members, bare } = await servers(machines, bytes, controllers)
const results = {}
for (const [name, asked] of [['svcd', daemons], ...(flags.bare ? [['bare node:http', [bare]]] : [])]) {
  results[name] = await storm(asked, { machines, within, one: flags.one, limit, members })
  for (const server of asked) server.stop()
}
const whole = value => Math.round(value).toLocaleString('en')
const ms = value => (value >= 100 ? whole(value) : value.toFixed(1))
const three = times => [0.5, 0.99, 1].map(q => ms(times.quantile(q))).join(' / ')
const of = show => Object.values(results).map(show)
const kinds = Object.keys(Object.values(results)[0].times)
const rows = [
  ['', ...Object.keys(results)],
  ['booted', ...of(({ booted }) => whole(booted))],
  ['lost', ...of(({ lost }) => whole(lost))],
  ['reports lost', ...of(({ reportsLost }) => whole(reportsLost))],
  ['time, s', ...of(({ seconds }) => seconds.toFixed(1))],
  ['first answer, ms: p50 / p99 / longest', ...of(({ first }) => three(first))],
  ...kinds.map(kind => [`  ${kind}`, ...of(({ times }) => (times[kind] ? three(times[kind]) : '-'))]),
  ['connections', ...of(({ connections }) => whole(connections))],
  [
    'failed tries',
    ...of(
      ({ failures }) =>
        Object.entries(failures)
          .map(([reason, count]) => `${reason}: ${whole(count)}`)
          .join(', ') || 'none'
    )
  ],
  ['server: CPU ms a machine', ...of(({ cpu }) => cpu.toFixed(2))],
  ...(members.length > 0 ? [['etcd: CPU ms a machine', ...of(({ etcdCpu }) => etcdCpu.toFixed(2))]] : []),
  ['load: CPU ms a machine', ...of(({ clientCpu }) => clientCpu.toFixed(2))],
  ['server: memory at most, MiB', ...of(({ memory }) => whole(memory))]
]
const files = execFileSync('sh', ['-c', 'ulimit -n'], { encoding: 'utf8' }).trim()
console.log(
  `${whole(machines)} machines within ${within} s, ${flags.one ? 'one connection each' : "iPXE's connection and one for each curl"}; kernel and initramfs ${whole(bytes)} bytes each\n` +
    `node ${process.version}, ${cpus().length} CPUs (${cpus()[0]?.model}), load ${loadavg()[0].toFixed(1)}; ${files} open files for a process; all on one machine\n`
)
console.log(columns(rows))
if (flags.out) writeFileSync(flags.out, `${JSON.stringify({ machines, within, bytes, results }, null, 1)}\n`)
process.exit(0)
