// etcd is restored from an older snapshot, or emptied, under stores that write and follow: they notice, and
// read all of it anew. Rules 11.14.
import t, { type Test } from 'tap'
import { EtcdMedium } from '../../lib/store/etcd/medium.js'
import { Store } from '../../lib/store/store.js'
import { type EtcdServer, startEtcd } from '../support/etcd.js'
import { until } from '../support/until.js'
import { Way } from '../support/way.js'
import { kinds, MacIndex, type TestTypes } from './fixtures.js'

type TestStore = Store<TestTypes, MacIndex>

/** A store, its medium, and what it has logged. */
interface Opened {
  readonly store: TestStore
  readonly medium: EtcdMedium
  readonly said: string[]
}

// A right to write that a busy machine does not lose.
async function opened(t: Test, url: string, as: 'writes' | 'follows', ttlSeconds = 5): Promise<Opened> {
  const said: string[] = []
  const medium = new EtcdMedium({
    ...{ endpoints: [url], ttlSeconds, patienceMs: 500 },
    log: (_, text) => said.push(text)
  })
  const options = { medium, kinds, createIndex: () => new MacIndex() }
  const store = await (as === 'writes' ? Store.open(options) : Store.follow(options))
  t.teardown(() => store.close())
  return { store, medium, said }
}

const set = (store: TestStore, name: string, value: number) =>
  store.change(tx => tx.put('counter', name, { name, value }))
const has = (store: TestStore, name: string) => store.current.get('counter', name)?.value
const base64 = (text: string) => Buffer.from(text).toString('base64')

async function textOf(etcd: EtcdServer, key: string): Promise<string | undefined> {
  const { kvs = [] } = await etcd.ask('kv/range', { key: base64(key) })
  const [pair] = kvs as unknown as { value: string }[]
  return pair && Buffer.from(pair.value, 'base64').toString()
}

/**
 * Waits until one writes, the others follow, all are well and have what is stored; gives the one that writes.
 */
async function agreed(etcd: EtcdServer, all: readonly Opened[], stored: Record<string, number | undefined>) {
  const states = () =>
    all.map(({ store, medium }) => ({
      ...Object.fromEntries(Object.keys(stored).map(name => [name, has(store, name)])),
      ...medium.role.status,
      ...store.health
    }))
  await until(
    async () => {
      const last = Number((await textOf(etcd, '/svcd/head'))?.split(' ')[0])
      return (
        all.filter(({ medium }) => medium.role.status.role === 'primary').length === 1 &&
        all.every(
          ({ store, medium }) =>
            store.health.ok &&
            medium.role.status.revision === last &&
            Object.entries(stored).every(([name, value]) => has(store, name) === value)
        )
      )
    },
    () => ({ states: states(), said: all.map(({ said }) => said) })
  )
  const [writer] = all.filter(({ medium }) => medium.role.status.role === 'primary')
  return writer as Opened
}

const lost = /has \d+ as its last change, and this svcd knew of \d+: etcd was restored/

t.test(
  'etcd is restored from an older snapshot: all read it anew, and what is written then stays',
  async t => {
    const etcd = await startEtcd(t)
    const all = [await opened(t, etcd.url, 'writes'), await opened(t, etcd.url, 'follows')]
    const [first] = all as [Opened]
    await set(first.store, 'c', 1)
    const snapshot = await etcd.save()
    for (let value = 2; value < 20; value++) await set(first.store, 'c', value)
    await set(first.store, 'later', 1)
    await until(() => all.every(({ store }) => has(store, 'later') === 1))
    await etcd.restore(snapshot)
    const writer = await agreed(etcd, all, { c: 1, later: undefined })
    await set(writer.store, 'c', 100)
    await agreed(etcd, all, { c: 100, later: undefined })
    for (const { said } of all) t.match(said.join('\n'), lost)
    t.equal(JSON.parse((await textOf(etcd, '/svcd/objects/counter/c')) ?? '{}').value, 100)
  }
)

t.test('the same where only the very last change was lost, as with the last member alone', async t => {
  const etcd = await startEtcd(t)
  // A sign of life comes every 3 s.
  const all = [await opened(t, etcd.url, 'writes', 9), await opened(t, etcd.url, 'follows', 9)]
  const [first] = all as [Opened]
  await set(first.store, 'c', 1)
  const snapshot = await etcd.save()
  await set(first.store, 'c', 2)
  await until(() => all.every(({ store }) => has(store, 'c') === 2))
  await etcd.restore(snapshot)
  await agreed(etcd, all, { c: 1 })
})

t.test('the same where etcd has gone on past what was known before anybody asked it again', async t => {
  const etcd = await startEtcd(t)
  const way = await Way.to(t, etcd)
  const all = [await opened(t, way.url, 'writes'), await opened(t, way.url, 'follows')]
  const [first] = all as [Opened]
  await set(first.store, 'c', 1)
  const snapshot = await etcd.save()
  for (let value = 2; value < 10; value++) await set(first.store, 'c', value)
  await until(() => all.every(({ store }) => has(store, 'c') === 9))
  way.silence()
  await etcd.restore(snapshot)
  for (let i = 0; i < 200; i++) await etcd.ask('kv/put', { key: base64('/other'), value: base64(`${i}`) })
  way.release()
  way.cut()
  await agreed(etcd, all, { c: 1 })
})

t.test('who takes over after that does not do so by what it had in memory', async t => {
  for (const isPast of [false, true]) {
    const etcd = await startEtcd(t)
    const way = await Way.to(t, etcd)
    const writer = await opened(t, etcd.url, 'writes')
    const follower = await opened(t, way.url, 'follows')
    await set(writer.store, 'c', 1)
    const snapshot = await etcd.save()
    for (let value = 2; value < 10; value++) await set(writer.store, 'c', value)
    await until(() => has(follower.store, 'c') === 9)
    way.silence()
    await writer.store.close()
    await etcd.restore(snapshot)
    if (isPast)
      for (let i = 0; i < 50; i++) await etcd.ask('kv/put', { key: base64('/other'), value: base64(`${i}`) })
    way.release()
    way.cut()
    await agreed(etcd, [follower], { c: 1 })
    t.match(follower.said.join('\n'), lost)
  }
})

t.test('a prefix that is emptied: nobody writes, memory stays, and it is said what to do', async t => {
  const etcd = await startEtcd(t)
  const all = [await opened(t, etcd.url, 'writes'), await opened(t, etcd.url, 'follows')]
  const [first] = all as [Opened]
  await set(first.store, 'c', 1)
  await until(() => all.every(({ store }) => has(store, 'c') === 1))
  const snapshot = await etcd.save()
  await etcd.ask('kv/deleterange', { key: base64('/svcd/'), range_end: base64('/svcd0') })
  const told = /\/svcd\/ holds nothing any more: .* stop svcd on all controllers, and restore/
  await until(
    () => all.every(({ store }) => !store.health.ok && told.test(store.health.reason)),
    () => all.map(({ store, said }) => [store.health, said])
  )
  for (const { store, medium } of all) {
    t.equal(has(store, 'c'), 1, 'memory stays')
    t.not(medium.role.status.role, 'primary')
    await t.rejects(set(store, 'c', 2))
  }
  t.equal(await textOf(etcd, '/svcd/head'), undefined, 'nothing is written anew')
  await etcd.restore(snapshot)
  await agreed(etcd, all, { c: 1 })
})
