// Two controllers on one etcd: each knows the tokens of programs, and hears at once of a revocation.
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { twoControllers } from '../../support/controllers.js'
import type { Daemon } from '../../support/daemon.js'
import { output } from '../../support/programs.js'
import { scratch } from '../../support/scratch.js'
import { until } from '../../support/until.js'

const urlOf = (daemon: Daemon) => /listens on (http:\S+);/.exec(daemon.log())?.[1]

// rules 5.9, 11.16
t.test('a token is made and revoked through either controller, and counts on both', async t => {
  const [first, second, etcd] = await twoControllers(t)
  /** Statuses of /metrics, which each controller answers by itself, and of a list of the leader. */
  const statuses = (token: string) =>
    Promise.all(
      [first, second].flatMap(daemon =>
        ['/metrics', '/config/group'].map(async path => {
          const headers = { Authorization: `Bearer ${token}` }
          return (await fetch(`${urlOf(daemon)}${path}`, { headers })).status
        })
      )
    )
  for (const [maker, revoker] of [
    [first, second],
    [second, first]
  ] as const) {
    const { status, body } = await maker.request('POST', '/config/token/cron', { role: 'viewer' })
    t.equal(status, 201)
    const { token } = body as { token: string }
    await until(async () => (await statuses(token)).every(one => one === 200))
    t.equal((await revoker.request('GET', '/config/token/cron/_delete')).status, 204)
    const begun = performance.now()
    await until(async () => (await statuses(token)).every(one => one === 401))
    t.comment(`void on both ${Math.round(performance.now() - begun)} ms after the answer`)
  }
  const { body } = await first.request('POST', '/config/token/kept', { role: 'operator:compute' })
  const { token } = body as { token: string }
  await second.stop()
  await second.start()
  await until(async () => (await statuses(token)).join() === '403,200,403,200')
  t.match(await second.request('GET', '/config/token'), {
    body: { config: { token: { kept: { role: 'operator:compute', used: /^20/ } } } }
  })

  const hash = createHash('sha256').update(token).digest('hex')
  const path = `tokens/${hash.slice(0, 32)}.json`
  const set = ['store.medium=etcd', `store.endpoints=${etcd.url}`, `paths.state=${first.path('state')}`]
  const svcd = (...words: string[]) =>
    output(join(first.tree, 'bin', 'svcd'), [...words, ...set.flatMap(key => ['--set', key])])
  const archive = join(scratch(t), 'archive.tar')
  await svcd('backup', archive)
  t.match(await output('tar', ['-xOf', archive, `state/${path}`]), hash, 'a backup has it')
  await Promise.all([first.stop(), second.stop()])
  await svcd('store', 'copy', 'etcd', 'files')
  t.match(readFileSync(first.path('state', path), 'utf8'), hash, 'and so has a copy to files')
})
