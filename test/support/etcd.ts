import { join } from 'node:path'
import type { Test } from 'tap'
import { type Child, startChild } from './child.js'
import { freePort } from './free-port.js'
import { output, requirePrograms } from './programs.js'
import { scratch } from './scratch.js'

/** A real etcd of one member, for one test. */
export interface EtcdServer {
  readonly url: string
  /** The same with TLS; '' without certificate. */
  readonly tlsUrl: string
  readonly child: Child
  /** What it answers to a question of its JSON gateway, and to a token of one of its users. */
  ask(path: string, question: object, token?: string): Promise<Record<string, never>>
  /** Saves a snapshot, as this user (name:password) where it has users; gives its file. */
  save(user?: string): Promise<string>
  /** It is killed, and started from that snapshot, once `meanwhile` has come to its end. */
  restore(file: string, meanwhile?: () => Promise<unknown>): Promise<void>
}

/**
 * Starts etcd. Its heartbeat is short, so that a lease may last but a second. `tls`: it listens with TLS too,
 * with this certificate, and lets in whose certificate `trusted` holds. `enter`: put before its command, a
 * network namespace say; `ask` does not reach it there. `peer`: the address of its port for members, 2380,
 * which then speaks TLS as the one for clients does.
 */
export async function startEtcd(
  t: Test,
  tls?: { readonly certificate: string; readonly key: string; readonly trusted: string },
  enter: readonly string[] = [],
  peer?: string
): Promise<EtcdServer> {
  requirePrograms('etcd', 'curl')
  const directory = scratch(t)
  const url = `http://127.0.0.1:${await freePort()}`
  const peerUrl = peer === undefined ? `http://127.0.0.1:${await freePort()}` : `https://${peer}:2380`
  const tlsUrl = tls ? `https://127.0.0.1:${await freePort()}` : ''
  const ask = async (path: string, question: object, token?: string) => {
    const answer = await fetch(`${url}/v3/${path}`, {
      method: 'POST',
      body: JSON.stringify(question),
      headers: token === undefined ? {} : { authorization: token }
    })
    return (await answer.json()) as Record<string, never>
  }
  const [program = '', ...words] = [...enter, 'curl', '--silent', '--max-time', '2']
  const command = (data: string) => [
    ...enter,
    'etcd',
    ...['--data-dir', data, '--logger', 'zap', '--log-level', 'error'],
    ...['--listen-client-urls', tls ? `${url},${tlsUrl}` : url, '--advertise-client-urls', url],
    ...['--listen-peer-urls', peerUrl, '--initial-advertise-peer-urls', peerUrl],
    ...['--initial-cluster', `default=${peerUrl}`, '--heartbeat-interval', '20', '--election-timeout', '200'],
    ...(tls
      ? [
          '--cert-file',
          tls.certificate,
          '--key-file',
          tls.key,
          '--client-cert-auth',
          '--trusted-ca-file',
          tls.trusted
        ]
      : []),
    ...(tls && peer !== undefined
      ? [
          ...['--peer-cert-file', tls.certificate, '--peer-key-file', tls.key],
          ...['--peer-client-cert-auth', '--peer-trusted-ca-file', tls.trusted]
        ]
      : [])
  ]
  const startOn = (data: string) =>
    startChild(command(data), () =>
      output(program, [...words, `${url}/health`]).then(
        text => text.includes('true'),
        () => false
      )
    )
  let child = await startOn(join(directory, 'data'))
  t.teardown(() => child.kill())
  let snapshots = 0
  return {
    ...{ url, tlsUrl, ask },
    get child() {
      return child
    },
    async save(user) {
      const file = join(directory, `snapshot${++snapshots}`)
      await output('etcdctl', [
        ...[`--endpoints=${url}`, ...(user === undefined ? [] : [`--user=${user}`])],
        ...['snapshot', 'save', file]
      ])
      return file
    },
    async restore(file, meanwhile) {
      await child.kill()
      const data = join(directory, `restored${++snapshots}`)
      const members = ['--initial-cluster', `default=${peerUrl}`, '--initial-advertise-peer-urls', peerUrl]
      await output('etcdctl', ['snapshot', 'restore', file, '--data-dir', data, ...members])
      await meanwhile?.()
      child = await startOn(data)
    }
  }
}
