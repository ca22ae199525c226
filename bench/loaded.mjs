import { ask, cpuOf } from './harness.mjs'

/**
 * Loads a server with a task for load.mjs: answers per second, and microseconds of the server's CPU for each.
 */
export async function loaded(client, server, task) {
  const before = cpuOf(server.pid)
  const { answered, ms } = await ask(client, { port: server.port, ...task })
  return { perSecond: (answered * 1000) / ms, cpu: ((cpuOf(server.pid) - before) * 1000) / answered }
}
