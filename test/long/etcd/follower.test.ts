// What others commit reaches a follower whole, in order and once, whatever happens to its connection.
import { setTimeout as sleep } from 'node:timers/promises'
import { isDeepStrictEqual } from 'node:util'
import t, { type Test } from 'tap'
import { Client } from '../../../lib/store/etcd/client.js'
import { Follower } from '../../../lib/store/etcd/follower.js'
import { keysBelow } from '../../../lib/store/etcd/keys.js'
import { EtcdMedium } from '../../../lib/store/etcd/medium.js'
import { StoredKeys } from '../../../lib/store/etcd/stored.js'
import type { ReplicationListener } from '../../../lib/store/medium.js'
import { Store } from '../../../lib/store/store.js'
import { kinds, MacIndex, type TestTypes } from '../../store/fixtures.js'
import { type EtcdServer, startEtcd } from '../../support/etcd.js'
import { until } from '../../support/until.js'
import { Way } from '../../support/way.js'

const open = (etcd: EtcdServer) =>
  Store.open<TestTypes, MacIndex>({
    medium: new EtcdMedium({ endpoints: [etcd.url], ttlSeconds: 3 }),
    kinds,
    createIndex: () => new MacIndex()
  })
type TestStore = Awaited<ReturnType<typeof open>>

/** Gives all of these counters the value, in one change. */
const setAll = (store: TestStore, names: readonly string[], value: number) =>
  store.change(tx => {
    for (const name of names) tx.put('counter', name, { name, value })
  })
const names = (count: number) => Array.from({ length: count }, (_, i) => `c${i}`)

/** What a follower was told, put together. */
class Copy implements ReplicationListener {
  readonly objects = new Map<string, string>()
  reloads = 0
  commits = 0

  constructor(stored: StoredKeys) {
    this.#fill(stored)
  }

  async applyRemote(writes: Parameters<ReplicationListener['applyRemote']>[0]): Promise<void> {
    this.commits++
    for (const { type, name, text } of writes)
      if (text === undefined) this.objects.delete(`${type}/${name}`)
      else this.objects.set(`${type}/${name}`, text)
    this.seen?.()
  }

  async reload(stored: StoredKeys): Promise<void> {
    this.reloads++
    this.#fill(stored)
    this.seen?.()
  }

  /** Called when something was told. */
  seen: (() => void) | undefined

  #fill(stored: StoredKeys): void {
    this.objects.clear()
    for (const name of stored.names('counter'))
      this.objects.set(`counter/${name}`, stored.text('counter', name) ?? '')
  }
}

async function revisionOf(etcd: EtcdServer): Promise<string> {
  const { header } = await etcd.ask('kv/range', { key: 'AA==' })
  return (header as unknown as { revision: string }).revision
}

/** The revision of the last commit. */
async function headOf(etcd: EtcdServer): Promise<string> {
  const { kvs } = await etcd.ask('kv/range', { key: Buffer.from('/svcd/head').toString('base64') })
  return (kvs as unknown as [{ mod_revision: string }])[0].mod_revision
}

const all = ({ current }: TestStore) =>
  Object.fromEntries(
    current.names('counter').map(name => [`counter/${name}`, current.get('counter', name)?.value])
  )
const copied = ({ objects }: Copy) =>
  Object.fromEntries([...objects].map(([key, text]) => [key, JSON.parse(text).value]))

/** Nobody opens them here. */
const records = { *loading() {}, applyRemote: () => undefined }

async function follow(t: Test, url: string) {
  const client = new Client({ endpoints: [url] })
  const keys = keysBelow('/svcd/')
  const stored = await StoredKeys.read(client, keys)
  const copy = new Copy(stored)
  const said: string[] = []
  const follower = new Follower({
    ...{ client, keys, records, listener: copy },
    log: (_, message) => said.push(message)
  })
  follower.start(stored)
  t.teardown(async () => {
    await follower.close()
    client.close()
  })
  return { follower, copy, said }
}

const isSame = (store: TestStore, copy: Copy) => isDeepStrictEqual(all(store), copied(copy))
const same = (store: TestStore, copy: Copy) =>
  until(
    () => isSame(store, copy),
    () => [all(store), copied(copy)]
  )

t.test(
  'each commit is told whole: small ones, ones with more keys than a transaction takes, removals',
  async t => {
    const etcd = await startEtcd(t)
    const store = await open(etcd)
    t.teardown(() => store.close())
    const many = names(120)
    await setAll(store, many, 0)
    const { follower, copy } = await follow(t, etcd.url)
    t.strictSame(copied(copy), all(store))
    const broken: unknown[] = []
    copy.seen = () => {
      const values = new Set(Object.values(copied(copy)))
      if (values.size > 1) broken.push([...values])
    }
    for (let value = 1; value <= 6; value++) await setAll(store, many, value)
    await same(store, copy)
    t.strictSame(broken, [], 'half of a change was never seen')
    copy.seen = undefined
    await store.change(tx => {
      for (const name of many.slice(10)) tx.remove('counter', name)
    })
    await setAll(store, ['c1', 'c2'], 77)
    await same(store, copy)
    t.equal(copy.objects.size, 10)
    t.equal(copy.reloads, 0)
    t.equal(follower.problem, '')
    await until(() => follower.lagMs < 1500)
  }
)

t.test('a connection that is cut, or silent, loses nothing', async t => {
  const etcd = await startEtcd(t)
  const way = await Way.to(t, etcd)
  const store = await open(etcd)
  t.teardown(() => store.close())
  await setAll(store, ['c'], 0)
  const { follower, copy, said } = await follow(t, way.url)
  const told: number[] = []
  copy.seen = () => told.push(Number(copied(copy)['counter/c']))
  const values = Array.from({ length: 60 }, (_, i) => i + 1)
  for (const value of values) {
    await setAll(store, ['c'], value)
    if (value % 10 === 5) way.cut()
  }
  await same(store, copy)
  t.strictSame(told, values, 'each once, in order')
  await until(() => follower.problem === '')
  t.match(said[0], /not heard, and is asked for again: etcd at /)
  t.match(said.at(-1), /is heard again/)

  way.silence()
  await setAll(store, ['c'], 100)
  await sleep(1000)
  t.ok(follower.lagMs > 900, `it knows that it may be behind, by ${follower.lagMs} ms`)
  way.release()
  await setAll(store, ['c'], 101)
  await same(store, copy)
  t.strictSame(told.slice(60), [100, 101], 'what was lost on the way is told too')
  t.equal(copy.reloads, 0)
})

t.test('what takes long to be told is no silence', async t => {
  const etcd = await startEtcd(t)
  const store = await open(etcd)
  t.teardown(() => store.close())
  await setAll(store, ['c'], 0)
  const { follower, copy, said } = await follow(t, etcd.url)
  const { applyRemote } = copy
  copy.applyRemote = async writes => {
    await sleep(5000)
    await applyRemote.call(copy, writes)
  }
  await setAll(store, ['c'], 1)
  await same(store, copy)
  await until(() => follower.lagMs < 1500)
  t.strictSame(said, [])
  t.equal(copy.commits, 1)
})

t.test('a stop does not wait for an etcd that does not answer', async t => {
  const etcd = await startEtcd(t)
  const way = await Way.to(t, etcd)
  way.silence()
  const client = new Client({ endpoints: [way.url, way.url] })
  const reload = async () => {
    t.fail('nothing can be read')
  }
  const follower = new Follower({
    client,
    keys: keysBelow('/svcd/'),
    records,
    listener: { applyRemote: reload, reload },
    log: () => {}
  })
  follower.start()
  await sleep(200)
  const began = performance.now()
  await follower.close()
  client.close()
  t.ok(performance.now() - began < 4000, `it took ${performance.now() - began} ms`)
})

t.test('what etcd has forgotten is read as a whole', async t => {
  const etcd = await startEtcd(t)
  const way = await Way.to(t, etcd)
  const store = await open(etcd)
  t.teardown(() => store.close())
  await setAll(store, ['c', 'd'], 0)
  const { follower, copy } = await follow(t, way.url)
  way.silence()
  way.cut()
  for (let value = 1; value <= 5; value++) await setAll(store, ['c', `e${value}`], value)
  await store.change(tx => tx.remove('counter', 'd'))
  await etcd.ask('kv/compaction', { revision: await revisionOf(etcd) })
  way.release()
  way.cut()
  await same(store, copy)
  t.equal(copy.reloads, 1)
  await setAll(store, ['c'], 9)
  await same(store, copy)
  await follower.waitForRevision(await headOf(etcd))
  await until(() => follower.problem === '')
})
