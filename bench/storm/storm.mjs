// A storm: all machines, as many processes for them as open files ask for, and what they found.
import { answerOf, cpuOf, memoryOf, start } from '../harness.mjs'
import { Times } from './times.mjs'

/** Machines of one process; each has a connection, and processes may often have 20,000 files open. */
const MOST = 15_000

/**
 * `machines` boot from `servers` (each `{ pid, port }`), an equal part from each, all begun within so many
 * seconds. With `one` a machine asks all over one connection, else iPXE has one and each curl has its own.
 * Work that is not done after `limit` seconds is lost. With `untilLoaded` a machine ends once it has its
 * initramfs.
 * `members`: of an etcd that the servers use.
 */
export async function storm(servers, { machines, within, one, limit, untilLoaded, members = [] }) {
  const step = Math.ceil(machines / MOST)
  const clients = Array.from({ length: step }, () => start('storm/machines.mjs'))
  const cpus = () => [servers, members].map(list => list.reduce((total, { pid }) => total + cpuOf(pid), 0))
  const ports = servers.map(({ port }) => port)
  const before = cpus()
  const begun = performance.now()
  for (const [from, client] of clients.entries())
    client.send({ ports, machines, from, step, within: within * 1000, one, untilLoaded, limit: limit * 1000 })
  const parts = await Promise.all(clients.map(answerOf))
  const seconds = (performance.now() - begun) / 1000
  for (const client of clients) client.kill('SIGKILL')
  const [cpu, etcdCpu] = cpus().map((now, i) => (now - before[i]) / machines)
  const sum = key => parts.reduce((total, part) => total + part[key], 0)
  const first = new Times()
  const times = {}
  const failures = {}
  for (const part of parts) {
    first.add(part.first)
    for (const [kind, found] of Object.entries(part.times)) {
      times[kind] ??= new Times()
      times[kind].add(found)
    }
    for (const [reason, count] of Object.entries(part.failures))
      failures[reason] = (failures[reason] ?? 0) + count
  }
  return {
    seconds,
    booted: sum('booted'),
    lost: sum('lost') + sum('unfinished'),
    reportsLost: sum('reportsLost'),
    connections: sum('connections'),
    failures,
    first,
    times,
    cpu,
    etcdCpu,
    clientCpu: sum('clientCpu') / machines,
    memory: Math.max(...servers.map(({ pid }) => memoryOf(pid, 'VmHWM')))
  }
}
