import type { Test } from 'tap'
import { Daemon } from './daemon.js'
import { type EtcdServer, startEtcd } from './etcd.js'
import { freePort } from './free-port.js'
import { giveKeys } from './keys.js'
import { scratch } from './scratch.js'
import { until } from './until.js'

/** A controller on this etcd, which others can reach; it is not started. */
export async function controllerOn(t: Test, etcd: EtcdServer, ...more: string[]): Promise<Daemon> {
  const listen = `127.0.0.1:${await freePort()}`
  const set = [
    'store.medium=etcd',
    `store.endpoints=${etcd.url}`,
    'store.ttl=2s',
    `http.url=http://${listen}`,
    ...more
  ]
  const daemon = new Daemon({ directory: scratch(t), listen, set })
  t.teardown(() => daemon.kill())
  return daemon
}

/** Whether this controller is the one that writes. */
export const isPrimary = async (daemon: Daemon): Promise<boolean> =>
  JSON.stringify((await daemon.request('GET', '/monitor/service/svcd')).body).includes('primary')

/** The one that writes, and one that follows it. */
export async function twoControllers(t: Test, ...more: string[]): Promise<[Daemon, Daemon, EtcdServer]> {
  const etcd = await startEtcd(t)
  const [first, second] = [await controllerOn(t, etcd, ...more), await controllerOn(t, etcd, ...more)]
  await first.start()
  await until(() => isPrimary(first))
  giveKeys(first, second)
  await second.start()
  // Who writes is known to it a moment after its start.
  await until(async () => (await second.request('GET', '/config/node')).status === 200)
  return [first, second, etcd]
}
