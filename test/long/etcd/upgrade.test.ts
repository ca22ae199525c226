// Controllers of two releases on one real etcd.
import { readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { replaceModule } from '../../support/built-tree.js'
import { controllerOn, isPrimary } from '../../support/controllers.js'
import type { Daemon } from '../../support/daemon.js'
import { startEtcd } from '../../support/etcd.js'
import { giveKeys } from '../../support/keys.js'
import { until } from '../../support/until.js'

/** Makes of a controller one of the next release, before its start. */
function laterRelease({ tree }: Daemon): void {
  const file = join(tree, 'package.json')
  writeFileSync(file, JSON.stringify({ ...JSON.parse(readFileSync(file, 'utf8')), version: '99.0.0' }))
}

/** The same, of one that stores objects in another way. */
function laterLayout(daemon: Daemon): void {
  laterRelease(daemon)
  const at = (name: string) => join(daemon.tree, 'dist', 'model', name)
  renameSync(at('migrations.js'), at('earlier.js'))
  replaceModule(
    daemon.tree,
    'model/migrations.js',
    `export * from './earlier.js'
     import { migrations as earlier } from './earlier.js'
     export const migrations = directory => [...earlier(directory), () => {}]`
  )
}

const releaseOf = async (daemon: Daemon) =>
  ((await daemon.request('GET', '/version')).body as { version: { service: string } }).version.service

// rules 11.15
t.test('two releases that store objects alike share them, whichever writes', async t => {
  const etcd = await startEtcd(t)
  const [old, later] = [await controllerOn(t, etcd), await controllerOn(t, etcd)]
  laterRelease(later)
  await old.start()
  giveKeys(old, later)
  await later.start()
  t.equal(await releaseOf(later), '99.0.0')
  t.not(await releaseOf(old), '99.0.0')
  await later.create('network', 'cluster', { network: '10.141.0.0/16' })
  await old.stop()
  await until(() => isPrimary(later))
  await later.create('otherdev', 'a', { network: 'cluster', ipaddress: '10.141.0.1' })
  await old.start()
  await until(async () => (await old.request('GET', '/config/otherdev/a')).status === 200)
  t.notOk(await isPrimary(old))
  await old.create('otherdev', 'b', { network: 'cluster', ipaddress: '10.141.0.2' })
  t.equal((await later.request('GET', '/config/otherdev/b')).status, 200)
  await later.stop()
  await until(() => isPrimary(old))
  t.equal((await old.request('GET', '/config/otherdev/b')).status, 200)
  await old.stop()
})

// rules 11.15
t.test('a release that stores them in another way waits for the other one, and then it refuses', async t => {
  const etcd = await startEtcd(t)
  const [old, oldToo, later] = await Promise.all([0, 1, 2].map(() => controllerOn(t, etcd)))
  if (!old || !oldToo || !later) throw new Error('three were made')
  laterLayout(later)
  await old.start()
  giveKeys(old, oldToo)
  giveKeys(old, later)
  await oldToo.start()
  await old.create('network', 'cluster', { network: '10.141.0.0/16' })

  const refused = await later.launch().ended
  t.not(refused.code, 0)
  t.match(refused.stderr + refused.stdout, /layout .* give all the same release/)
  t.equal((await old.request('GET', '/config/network/cluster')).status, 200)

  // The later one takes over while an old one looks away.
  oldToo.child?.process.kill('SIGSTOP')
  await old.kill()
  await until(() =>
    later.start().then(
      () => true,
      () => false
    )
  )
  await until(() => isPrimary(later))
  oldToo.child?.process.kill('SIGCONT')
  await until(
    async () => {
      const { status, body } = await oldToo.request('GET', '/monitor/service/svcd')
      return status === 503 && /install the release of the svcd that writes/.test(JSON.stringify(body))
    },
    () => oldToo.log()
  )
  await later.create('otherdev', 'a', { network: 'cluster', ipaddress: '10.141.0.1' })
  const again = await old.launch().ended
  t.not(again.code, 0)
  t.match(again.stderr + again.stdout, /layout version .* install svcd 99\.0\.0 or a later one/)
  await later.stop()
  // Nobody takes over who cannot read what is stored.
  t.notOk(await isPrimary(oldToo))
  t.equal((await oldToo.request('GET', '/monitor/service/svcd')).status, 503)
  await oldToo.kill()
})
