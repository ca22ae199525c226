// An etcd that has users is restored from an older snapshot under stores that write and follow. Rules 11.14.
import t from 'tap'
import { EtcdMedium } from '../../lib/store/etcd/medium.js'
import { Store } from '../../lib/store/store.js'
import { startEtcd } from '../support/etcd.js'
import { until } from '../support/until.js'
import { watched } from '../support/watched-etcd.js'
import { kinds, MacIndex, type TestTypes } from './fixtures.js'

const base64 = (text: string) => Buffer.from(text).toString('base64')

t.test(
  'etcd does not answer to a token of a raft index that is still to come: a new one is asked for',
  async t => {
    const etcd = await startEtcd(t)
    const root = { name: 'root', password: 'r' }
    await etcd.ask('auth/user/add', root)
    await etcd.ask('auth/user/grant', { user: 'root', role: 'root' })
    await etcd.ask('auth/enable', {})
    const said: string[] = []
    const opened = async (isWriter: boolean) => {
      const medium = new EtcdMedium({
        ...{ endpoints: [etcd.url], ttlSeconds: 3, patienceMs: 500, login: { user: 'root', password: 'r' } },
        log: (_, text) => said.push(text)
      })
      const options = { medium, kinds, createIndex: () => new MacIndex() }
      const store: Store<TestTypes, MacIndex> = await (isWriter ? Store.open(options) : Store.follow(options))
      t.teardown(() => store.close())
      const set = (value: number) => store.change(tx => tx.put('counter', 'c', { name: 'c', value }))
      return { store, medium, set, value: () => store.current.get('counter', 'c')?.value }
    }
    const before = await opened(true)
    await before.set(1)
    const snapshot = await etcd.save('root:r')
    await before.store.close()
    const { token } = await etcd.ask('auth/authenticate', root)
    for (let i = 0; i < 500; i++)
      await etcd.ask('kv/put', { key: base64('/other'), value: base64(`${i}`) }, token)
    const all = [await opened(true), await opened(false)] as const
    await all[0].set(2)
    await until(() => all.every(({ value }) => value() === 2))
    await etcd.restore(snapshot)
    const primary = () => all.find(({ medium }) => medium.role.status.role === 'primary')
    const states = () => [
      all.map(({ store, medium, value }) => [store.health, medium.role.status, value()]),
      said
    ]
    await until(
      () => !!primary() && all.every(({ store, value }) => store.health.ok && value() === 1),
      states
    )
    await primary()?.set(3)
    await until(() => all.every(({ value }) => value() === 3), states)
    t.equal(all[0].value(), 3)
  }
)

t.test('a right to write that is in doubt for longer than its lease is told as a fault', async t => {
  const etcd = await startEtcd(t)
  let isMute = false
  // Leases are kept all the same: their questions ask for no user.
  const url = await watched(t, etcd, {
    before: ({ path }) => (isMute && path === '/v3/kv/txn' ? new Promise(() => {}) : undefined)
  })
  const medium = new EtcdMedium({ endpoints: [url], ttlSeconds: 1, patienceMs: 500 })
  const store = await Store.open<TestTypes, MacIndex>({ medium, kinds, createIndex: () => new MacIndex() })
  t.teardown(() => store.close())
  isMute = true
  await until(() => medium.role.status.role === 'unknown' && !store.health.ok)
  t.match(store.health.reason, /no answer within/)
  isMute = false
  await until(() => medium.role.status.role === 'primary' && store.health.ok)
})
