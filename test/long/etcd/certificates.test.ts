// docs/controllers.md, "Certificates that have expired": three members that let one another in by
// certificates.
import { copyFileSync, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { makeCertificate, makeIssued } from '../../support/certificate.js'
import { start } from '../../support/child.js'
import { freePort } from '../../support/free-port.js'
import { output, requirePrograms } from '../../support/programs.js'
import { scratch } from '../../support/scratch.js'
import { until } from '../../support/until.js'

requirePrograms('etcd', 'etcdctl', 'openssl')

const names = ['c1', 'c2', 'c3']

t.test('new files on all members first, then a restart of each that waits for nobody', async t => {
  const directory = scratch(t)
  const authority = await makeCertificate(directory, 'etcd-ca', 90, '/CN=etcd of the cluster')
  const ports = new Map<string, { client: number; peer: number }>()
  for (const name of names) ports.set(name, { client: await freePort(), peer: await freePort() })
  const url = (port = 0) => `https://127.0.0.1:${port}`
  const endpoints = [...ports.values()].map(({ client }) => url(client)).join()
  const at = (name: string, file: string) => join(directory, name, file)
  /** Puts a certificate in place that ends after so many days. */
  const certify = async (name: string, days: number) => {
    mkdirSync(at(name, 'issued'), { recursive: true })
    const { certificate, key } = await makeIssued(at(name, 'issued'), name, authority, days)
    copyFileSync(key, at(name, 'etcd.key'))
    copyFileSync(certificate, at(name, 'etcd.pem'))
  }
  const running = new Map<string, ReturnType<typeof start>>()
  t.teardown(() => {
    for (const child of running.values()) child.process.kill('SIGKILL')
  })
  /** What `systemctl restart --no-block etcd` does: it does not wait until the member is ready. */
  const restart = async (name: string) => {
    running.get(name)?.process.kill('SIGKILL')
    await running.get(name)?.ended
    const { client, peer } = ports.get(name) as { client: number; peer: number }
    const files = (words: string) => [
      ...[`--${words}cert-file`, at(name, 'etcd.pem'), `--${words}key-file`, at(name, 'etcd.key')]
    ]
    const child = start('etcd', [
      ...['--name', name, '--data-dir', at(name, 'data'), '--logger', 'zap', '--log-level', 'error'],
      ...['--initial-cluster', names.map(one => `${one}=${url(ports.get(one)?.peer)}`).join()],
      ...['--initial-advertise-peer-urls', url(peer), '--listen-peer-urls', url(peer)],
      ...['--advertise-client-urls', url(client), '--listen-client-urls', url(client)],
      ...[...files(''), ...files('peer-'), '--peer-client-cert-auth'],
      ...['--peer-trusted-ca-file', authority.certificate],
      ...['--heartbeat-interval', '50', '--election-timeout', '500']
    ])
    running.set(name, child)
  }
  const isWell = (of = endpoints) =>
    output('etcdctl', ['--cacert', authority.certificate, '--endpoints', of, 'endpoint', 'health']).then(
      () => true,
      () => false
    )
  for (const name of names) await certify(name, 90)
  for (const name of names) await restart(name)
  await until(() => isWell(), 'three members')

  for (const name of names) await certify(name, -1)
  for (const name of names) await restart(name)
  await sleep(3000)
  t.notOk(await isWell(), 'with certificates that have expired nobody is reached')

  // One after the other, as for certificates that are still good: the first one would wait for a second one.
  await certify('c1', 90)
  await restart('c1')
  await sleep(5000)
  t.notOk(
    await isWell(url(ports.get('c1')?.client)),
    'a member alone is not ready: a restart that waits would hang'
  )

  for (const name of names) await certify(name, 90)
  for (const name of names) await restart(name)
  await until(() => isWell(), 'three members again')
  t.pass('the recipe')
})
