import { join } from 'node:path'
import type { Test } from 'tap'
import { type Child, startChild } from './child.js'
import { freePort } from './free-port.js'
import { requirePrograms } from './programs.js'
import { scratch } from './scratch.js'

/** A real etcd of one member, for one test. */
export interface EtcdServer {
  readonly url: string
  readonly child: Child
  /** What it answers to a question of its JSON gateway. */
  ask(path: string, question: object): Promise<Record<string, never>>
}

/** Starts etcd. Its heartbeat is short, so that a lease may last but a second; `more`: further arguments. */
export async function startEtcd(t: Test, ...more: string[]): Promise<EtcdServer> {
  requirePrograms('etcd')
  const directory = scratch(t)
  const [url, peer] = [`http://127.0.0.1:${await freePort()}`, `http://127.0.0.1:${await freePort()}`]
  const ask = async (path: string, question: object) => {
    const answer = await fetch(`${url}/v3/${path}`, { method: 'POST', body: JSON.stringify(question) })
    return (await answer.json()) as Record<string, never>
  }
  const child = await startChild(
    [
      'etcd',
      ...['--data-dir', join(directory, 'data'), '--logger', 'zap', '--log-level', 'error'],
      ...['--listen-client-urls', url, '--advertise-client-urls', url],
      ...['--listen-peer-urls', peer, '--initial-advertise-peer-urls', peer],
      ...['--initial-cluster', `default=${peer}`, '--heartbeat-interval', '20', '--election-timeout', '200'],
      ...more
    ],
    () =>
      fetch(`${url}/health`)
        .then(async answer => (await answer.text()).includes('true'))
        .catch(() => false)
  )
  t.teardown(() => child.kill())
  return { url, child, ask }
}
