// A store that follows, with real etcd: what it sees, when it takes the right to write, and when it gives it
// back.
import { join } from 'node:path'
import { setTimeout as sleep, setImmediate as turn } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { NotLeaderError, StoreError } from '../../lib/store/errors.js'
import { Client } from '../../lib/store/etcd/client.js'
import { Leadership } from '../../lib/store/etcd/leadership.js'
import { EtcdMedium } from '../../lib/store/etcd/medium.js'
import type { StoreOptions } from '../../lib/store/start.js'
import { Store } from '../../lib/store/store.js'
import { start } from '../support/child.js'
import { type EtcdServer, startEtcd } from '../support/etcd.js'
import { until } from '../support/until.js'
import { EtcdRefusal, watched } from '../support/watched-etcd.js'
import { Way } from '../support/way.js'
import { kinds, MacIndex, node, type TestTypes } from './fixtures.js'
import { layoutOf } from './layout.js'

type TestStore = Store<TestTypes, MacIndex>
type Options = Partial<Omit<StoreOptions<TestTypes, MacIndex>, 'medium'>>

/** A right to write that is not lost by a busy machine; who closes gives it back at once. */
const optionsAt = (
  url: string,
  { ttlSeconds = 10, medium, ...more }: Options & { ttlSeconds?: number; medium?: EtcdMedium } = {}
) => ({
  medium: medium ?? new EtcdMedium({ endpoints: [url], ttlSeconds, patienceMs: 500 }),
  kinds,
  createIndex: () => new MacIndex(),
  ...more
})
async function closing(t: Test, opening: Promise<TestStore>): Promise<TestStore> {
  const store = await opening
  t.teardown(() => store.close())
  return store
}
const open = (t: Test, ...at: Parameters<typeof optionsAt>) => closing(t, Store.open(optionsAt(...at)))
const follow = (t: Test, ...at: Parameters<typeof optionsAt>) => closing(t, Store.follow(optionsAt(...at)))

const names = (count: number) => Array.from({ length: count }, (_, i) => `c${i}`)
/** Gives all of these counters the value, in one change. */
const setAll = (store: TestStore, names: readonly string[], value: number) =>
  store.change(tx => {
    for (const name of names) tx.put('counter', name, { name, value })
  })
const has = (store: TestStore, name = 'c') => store.current.get('counter', name)?.value
const allOf = ({ current }: TestStore) =>
  Object.fromEntries(
    (['node', 'counter'] as const).flatMap(type =>
      current.names(type).map(name => [`${type}/${name}`, current.get(type, name)])
    )
  )
const same = (one: TestStore, other: TestStore) =>
  until(
    () => JSON.stringify(allOf(one)) === JSON.stringify(allOf(other)),
    () => [allOf(one), allOf(other)]
  )

const base64 = (text: string) => Buffer.from(text).toString('base64')
const put = (etcd: EtcdServer, key: string, text: string) =>
  etcd.ask('kv/put', { key: base64(key), value: base64(text) })
async function textOf(etcd: EtcdServer, key: string): Promise<string | undefined> {
  const { kvs = [] } = await etcd.ask('kv/range', { key: base64(key) })
  const [pair] = kvs as unknown as { value: string }[]
  return pair && Buffer.from(pair.value, 'base64').toString()
}

/** The lease of who writes ends at once. */
async function revoke(etcd: EtcdServer): Promise<void> {
  const { kvs } = await etcd.ask('kv/range', { key: base64('/svcd/writer') })
  const [pair] = kvs as unknown as [{ lease: string }]
  await etcd.ask('lease/revoke', { ID: pair.lease })
}

/** Something that is waited for, and by. */
function gate() {
  let open!: () => void
  const opened = new Promise<void>(resolve => {
    open = resolve
  })
  return { open, opened }
}

/** Runs the suite, with so many rounds of kill -9. */
export function testStandby({ kills }: { readonly kills: number }): void {
  t.test('each change is seen and told as a whole, however large, and none can be made', async t => {
    const etcd = await startEtcd(t)
    const writer = await open(t, etcd.url)
    const many = names(300)
    await setAll(writer, many, 0)
    let decoded = 0
    const slow: Options['kinds'] = {
      ...kinds,
      counter: {
        ...kinds.counter,
        decode(name, json) {
          decoded++
          for (const end = performance.now() + 0.5; performance.now() < end; );
          return kinds.counter.decode(name, json)
        }
      }
    }
    const follower = await follow(t, etcd.url, { kinds: slow })
    t.strictSame(allOf(follower), allOf(writer), 'all that was there is read')
    const told: string[] = []
    const broken: unknown[] = []
    const look = () => {
      const values = new Set(many.map(name => has(follower, name)))
      if (values.size > 1) broken.push([...values])
    }
    follower.subscribe((changes, more) => {
      told.push(`${changes.length}${more ? ' and more' : ''}`)
      look()
    })
    const halves = new Set<number>()
    let ended = false
    const watched = (async () => {
      for (; !ended; await turn()) {
        look()
        if (decoded % 300 !== 0) halves.add(decoded)
      }
    })()
    for (let value = 1; value <= 3; value++) await setAll(writer, many, value)
    await same(writer, follower)
    ended = true
    await watched
    t.strictSame(broken, [], 'half of a change was never seen')
    t.ok(halves.size > 9, `the event loop went on meanwhile, ${halves.size} times`)
    t.strictSame(told, ['300', '300', '300'])

    await writer.change(tx => {
      tx.put('node', 'n1', node('n1', 'aa'))
      for (const name of many.slice(5)) tx.remove('counter', name)
    })
    await writer.change(tx => {
      tx.remove('node', 'n1')
      tx.put('node', 'n2', node('n2', 'aa'))
    })
    await same(writer, follower)
    t.equal(follower.current.index.owner.get('aa'), 'n2')
    t.strictSame(told.slice(3), ['296', '2'])

    t.match(follower.role.following, /^etcd at \S+: what is below \/svcd\/ is written by process \d+ on \S+$/)
    t.equal(writer.role.following, '')
    const refusal = new NotLeaderError()
    t.equal(refusal.status, 503)
    await t.rejects(setAll(follower, ['c'], 9), refusal)
    await t.rejects(
      follower.changeInSteps(function* () {}),
      refusal
    )
    t.strictSame(follower.health, { ok: true, reason: '' })
  })

  t.test('who was cut off is not known to write, and knows what is stored once it follows', async t => {
    const etcd = await startEtcd(t)
    const way = await Way.to(t, etcd)
    const first = await open(t, way.url, { ttlSeconds: 1 })
    await setAll(first, ['c'], 1)
    const second = await follow(t, etcd.url, { ttlSeconds: 1 })
    const head = await textOf(etcd, '/svcd/head')
    await first.readBarrier()
    t.not(await textOf(etcd, '/svcd/head'), head, 'etcd was asked')
    await same(first, second)
    await second.readBarrier()
    way.silence()
    await t.rejects(first.readBarrier(), StoreError)
    await until(() => second.role.following === '')
    await setAll(second, ['c'], 2)
    await t.rejects(first.readBarrier(), StoreError)
    t.equal(has(first), 1)
    way.release()
    way.cut()
    await until(() =>
      first.readBarrier().then(
        () => true,
        () => false
      )
    )
    t.not(first.role.following, '')
    t.equal(has(first), 2, 'what is known is what is stored')
  })

  t.test('what etcd has forgotten comes as one change, of what differs alone', async t => {
    const etcd = await startEtcd(t)
    const way = await Way.to(t, etcd)
    const writer = await open(t, etcd.url)
    await setAll(writer, ['c', 'd', 'same'], 0)
    const follower = await follow(t, way.url)
    const told: (readonly [string, boolean, boolean])[][] = []
    follower.subscribe(changes =>
      told.push(
        changes.map(({ name, before, after }) => [name, before !== undefined, after !== undefined] as const)
      )
    )
    way.silence()
    way.cut()
    for (let value = 1; value <= 3; value++) await setAll(writer, ['c', `e${value}`], value)
    await writer.change(tx => tx.remove('counter', 'd'))
    const { header } = await etcd.ask('kv/range', { key: base64('/svcd/head') })
    await etcd.ask('kv/compaction', { revision: (header as unknown as { revision: string }).revision })
    way.release()
    way.cut()
    await same(writer, follower)
    const differs = [
      ['c', true, true],
      ['d', true, false],
      ['e1', false, true],
      ['e2', false, true],
      ['e3', false, true]
    ]
    t.strictSame(
      told.map(changes => [...changes].sort(([a], [b]) => (a < b ? -1 : 1))),
      [differs]
    )
    await setAll(writer, ['c'], 9)
    await same(writer, follower)
  })

  t.test('what cannot be read is not taken for less; it is read once it can be', async t => {
    const etcd = await startEtcd(t)
    const layout = layoutOf('0.2.0')
    await t.rejects(follow(t, etcd.url, { layout }), /nothing is stored yet/)
    const writer = await open(t, etcd.url, { layout })
    await setAll(writer, ['c'], 1)
    const follower = await follow(t, etcd.url, { layout })
    await put(etcd, '/svcd/objects/strange/x', '{}\n')
    await until(() => /strange x: this svcd knows no such type/.test(follower.health.reason))
    await setAll(writer, ['c'], 2)
    await etcd.ask('kv/deleterange', { key: base64('/svcd/objects/strange/x') })
    await same(writer, follower)
    await until(() => follower.health.ok)
    const version = (await textOf(etcd, '/svcd/objects/layout/version')) ?? ''
    await put(etcd, '/svcd/objects/layout/version', version.replace('2', '3'))
    await setAll(writer, ['c'], 3)
    await until(() => /layout version 3 by now, and svcd 0.2.0 knows version 2/.test(follower.health.reason))
    t.equal(has(follower), 2)
    await etcd.ask('kv/deleterange', { key: base64('/svcd/objects/layout/version') })
    await until(() => /layout\/version: it is gone, and objects are there/.test(follower.health.reason))
  })

  t.test('what it cannot read it does not take over, however often it has read it', async t => {
    const etcd = await startEtcd(t)
    const writer = await open(t, etcd.url)
    await setAll(writer, ['c'], 1)
    const follower = await follow(t, etcd.url)
    await put(etcd, '/svcd/objects/strange/x', '{}\n')
    await until(() => /strange x: this svcd knows no such type/.test(follower.health.reason))
    await until(() => /objects\/strange\/: this svcd knows no such type/.test(follower.health.reason))
    await writer.close()
    const until3s = performance.now() + 3000
    const roles = new Set<boolean>()
    for (; performance.now() < until3s; await sleep(5)) roles.add(follower.role.following === '')
    t.strictSame([...roles], [false], 'it does not write')
    t.equal(await textOf(etcd, '/svcd/writer'), undefined, 'nobody does')
    t.match(follower.health, { ok: false, reason: /objects\/strange\/: this svcd knows no such type/ })
    await t.rejects(
      open(t, etcd.url),
      /objects\/strange\/: this svcd knows no such type/,
      'nor is it started'
    )
    await etcd.ask('kv/deleterange', { key: base64('/svcd/objects/strange/x') })
    await until(() => follower.role.following === '')
    await setAll(follower, ['c'], 2)
  })

  t.test('who takes over finishes what is committed and not carried out', async t => {
    const etcd = await startEtcd(t)
    const writer = await open(t, etcd.url)
    await setAll(writer, ['c'], 1)
    const follower = await follow(t, etcd.url)
    await put(etcd, '/svcd/staged/9-1/counter/d', '{"name":"d","value":4}\n')
    await put(etcd, '/svcd/intent', '{"id":"9-1","writes":1}')
    await put(etcd, '/svcd/staged/9-2/counter/e', '{"name":"e","value":5}\n')
    await until(() => has(follower, 'd') === 4)
    t.equal(await textOf(etcd, '/svcd/objects/counter/d'), undefined)
    await writer.close()
    await until(() => follower.role.following === '')
    await setAll(follower, ['c'], 2)
    t.equal(await textOf(etcd, '/svcd/objects/counter/d'), '{"name":"d","value":4}\n')
    for (const key of ['intent', 'staged/9-1/counter/d', 'staged/9-2/counter/e'])
      t.equal(await textOf(etcd, `/svcd/${key}`), undefined, `${key} is gone`)
    t.strictSame(follower.health, { ok: true, reason: '' })
    await follower.close()
    const again = await open(t, etcd.url)
    t.strictSame([has(again), has(again, 'd'), has(again, 'e')], [2, 4, undefined])
  })

  t.test('nobody writes before it has heard all that was written before it had the right', async t => {
    const etcd = await startEtcd(t)
    let isFirst = true
    let asked!: () => void
    const asksForLease = new Promise<void>(resolve => {
      asked = resolve
    })
    let goOn!: () => void
    const lease = new Promise<void>(resolve => {
      goOn = resolve
    })
    let hears = Promise.resolve()
    // The first lease, and what a watch tells, wait.
    const url = await watched(t, etcd, {
      before: async ({ path }) => {
        if (path !== '/v3/lease/grant' || !isFirst) return
        isFirst = false
        asked()
        await lease
      },
      part: ({ path }) => path === '/v3/watch' && hears
    })
    const first = await open(t, etcd.url)
    await setAll(first, ['c'], 1)
    const follower = await follow(t, url)
    await first.close()
    await asksForLease
    let hear!: () => void
    hears = new Promise(resolve => {
      hear = resolve
    })
    const second = await open(t, etcd.url)
    await setAll(second, ['c'], 2)
    await second.close()
    goOn()
    const seen: unknown[] = []
    const early = setInterval(() => follower.role.following === '' && seen.push(has(follower)), 1)
    await sleep(1500)
    t.strictSame(seen, [], 'what it does not know of is not built upon')
    hear()
    await until(() => follower.role.following === '')
    clearInterval(early)
    t.equal(has(follower), 2)
    await setAll(follower, ['c'], 3)
  })

  t.test('a takeover that fails is told, and tried again later and later', async t => {
    const etcd = await startEtcd(t)
    let fails = true
    let lists = 0
    const url = await watched(t, etcd, {
      before({ path, writes }) {
        if (path === '/v3/kv/range') lists++
        if (fails && writes['/svcd/head'] !== undefined) throw new Error('lost')
      }
    })
    const writer = await open(t, etcd.url)
    await setAll(writer, ['c'], 1)
    const follower = await follow(t, url)
    const before = lists
    await writer.close()
    await until(() => /nobody writes, and this svcd cannot either so far: /.test(follower.health.reason))
    await sleep(8000)
    t.ok(lists - before < 16, `what is stored was asked for ${lists - before} times`)
    fails = false
    await until(() => follower.role.following === '')
    await setAll(follower, ['c'], 2)
    t.strictSame(follower.health, { ok: true, reason: '' })
  })

  t.test('who loses the right while it takes over, or commits, follows', async t => {
    for (const moment of ['takes over', 'commits']) {
      const etcd = await startEtcd(t)
      const [answer, held, keeping] = [gate(), gate(), gate()]
      let isHolding = false
      const url = await watched(t, etcd, {
        async before({ path }) {
          if (isHolding && path === '/v3/lease/keepalive') await keeping.opened
        },
        async after({ writes }) {
          const isIt = moment === 'commits' ? '/svcd/intent' in writes : '/svcd/head' in writes
          if (!isHolding || !isIt) return
          held.open()
          await answer.opened
        }
      })
      const said: string[] = []
      const medium = new EtcdMedium({
        endpoints: [url],
        ttlSeconds: 1,
        patienceMs: 5000,
        log: (_, text) => said.push(text)
      })
      const [first, second] = await (async () => {
        if (moment === 'commits') return [await open(t, url, { medium }), undefined] as const
        const before = await open(t, etcd.url)
        await setAll(before, ['c'], 1)
        return [await follow(t, url, { medium }), before] as const
      })()
      isHolding = true
      const change = moment === 'commits' ? setAll(first, names(150), 2) : undefined
      await second?.close()
      await held.opened
      await revoke(etcd)
      const other = await open(t, etcd.url)
      keeping.open()
      await until(() => said.some(text => /does not write/.test(text)) || first.role.following !== '')
      await sleep(800)
      isHolding = false
      answer.open()
      await change
      await sleep(300)
      t.match(first.role.following, /is written by process/, moment)
      await setAll(other, ['c'], 7)
      await same(other, first)
      t.notMatch(said.join(), /not yet carried out/, moment)
      await other.close()
      await until(() => first.role.following === '')
      await setAll(first, ['c'], 8)
      await first.close()
    }
  })

  t.test(
    'a change that was carried out, and whose answer was lost, stays if another one takes over',
    async t => {
      const etcd = await startEtcd(t)
      let isCut = false
      let isLost = false
      const url = await watched(t, etcd, {
        before() {
          if (isCut) throw new Error('lost')
        },
        after({ writes }) {
          if (isLost && '/svcd/objects/counter/e' in writes) isCut = true
          if (isCut) throw new Error('lost')
        }
      })
      const first = await open(t, url)
      const second = await follow(t, etcd.url)
      await setAll(first, ['c'], 1)
      isLost = true
      await t.rejects(setAll(first, ['e'], 2), StoreError)
      t.equal(has(first, 'e'), undefined, 'it was refused')
      await revoke(etcd)
      await until(() => second.role.following === '')
      await setAll(second, ['c'], 3)
      isCut = false
      isLost = false
      await same(second, first)
      t.strictSame([has(first, 'e'), has(second, 'e')], [2, 2], 'it is there, for both')
    }
  )

  t.test('a writer that is cut off follows who took over, and takes over from that one', async t => {
    const etcd = await startEtcd(t)
    const way = await Way.to(t, etcd)
    const roles: string[] = []
    const first = await open(t, way.url, { ttlSeconds: 2 })
    first.role.subscribe({
      becameLeader: () => roles.push(`writes ${first.role.following === ''}`),
      steppedDown: () => roles.push(`follows ${first.role.following !== ''}`)
    })
    const second = await follow(t, etcd.url)
    await setAll(first, ['c', 'd'], 1)
    const told: unknown[] = []
    first.subscribe(changes => told.push(...changes.map(({ name }) => name)))
    way.silence()
    const lost = setAll(first, ['c', 'e'], 2)
    lost.catch(() => {})
    await until(() => second.role.following === '')
    await setAll(second, names(150), 3)
    await setAll(second, ['c'], 4)
    await t.rejects(lost, StoreError)
    t.equal(has(first), 1, 'until it hears of it')
    way.release()
    way.cut()
    await same(second, first)
    t.equal(told.length, 151, 'it was told what differs')
    t.equal(has(first, 'e'), undefined, 'what was answered as failed is not there')
    await t.rejects(setAll(first, ['c'], 5), NotLeaderError)
    await until(() => first.health.ok)
    await setAll(second, ['c'], 6)
    await same(second, first)
    await second.close()
    t.strictSame(roles, ['follows true'])
    await until(() => first.role.following === '')
    await setAll(first, names(150), 7)
    t.strictSame(roles, ['follows true', 'writes true'])
    await first.close()
    const again = await open(t, etcd.url)
    t.strictSame([has(again), has(again, 'c149'), has(again, 'e')], [6, 7, undefined])
  })

  t.test(
    'an etcd without room takes no signs of life: who writes keeps the right, as nobody else can get it',
    async t => {
      const etcd = await startEtcd(t)
      let isFull = false
      let signs = 0
      const url = await watched(t, etcd, {
        before({ path, writes }) {
          if (!isFull) return
          if ('/svcd/writer' in writes && writes['/svcd/writer'] !== undefined) signs++
          const takesRoom = Object.values(writes).some(text => text !== undefined)
          if (takesRoom || path === '/v3/lease/grant')
            return new EtcdRefusal({ error: 'etcdserver: mvcc: database space exceeded', code: 8 })
        }
      })
      const writer = await open(t, url, { ttlSeconds: 2 })
      const follower = await follow(t, url, { ttlSeconds: 2 })
      const right = async () => {
        const { kvs } = await etcd.ask('kv/range', { key: base64('/svcd/writer') })
        return (kvs as unknown as [{ create_revision: string }] | undefined)?.[0].create_revision
      }
      const before = await right()
      isFull = true
      await until(() => signs > 8)
      t.equal(await right(), before)
      t.not(follower.role.following, '')
      await t.rejects(setAll(writer, ['c'], 1), StoreError)
      isFull = false
      await sleep(3000)
      await setAll(writer, ['c'], 2)
      t.equal(await right(), before, 'also when there is room again')
    }
  )

  t.test('who gives the right up while a sign of life is on its way does not get it again', async t => {
    const etcd = await startEtcd(t)
    const [begun, answer] = [gate(), gate()]
    let isHeld = false
    const url = await watched(t, etcd, {
      async before({ writes }) {
        if (!isHeld || writes['/svcd/writer'] === undefined) return
        begun.open()
        await answer.opened
      }
    })
    const client = new Client({ endpoints: [url] })
    t.teardown(() => client.close())
    const writer = new Leadership({
      ...{ client, key: '/svcd/writer', ttlSeconds: 3, url: '', log: () => {} },
      reacquired: async () => {},
      steppedDown: async reason => {
        throw new Error(reason)
      }
    })
    t.teardown(() => writer.close())
    await writer.campaign(async () => {
      isHeld = true
    })
    await begun.opened
    await writer.resign('it cannot write')
    answer.open()
    await sleep(3000)
    t.equal(await textOf(etcd, '/svcd/writer'), undefined)
    t.throws(() => writer.fencingToken, /it cannot write/)
  })

  t.test('who follows takes over, though the member that it hears is gone without a word', async t => {
    const etcd = await startEtcd(t)
    const way = await Way.to(t, etcd)
    const writer = await open(t, etcd.url)
    const medium = new EtcdMedium({ endpoints: [way.url, etcd.url], ttlSeconds: 3, patienceMs: 500 })
    const follower = await follow(t, way.url, { medium })
    await setAll(writer, ['c'], 1)
    await until(() => has(follower) === 1)
    way.silence()
    await writer.close()
    await until(() => follower.role.following === '')
    await setAll(follower, ['c'], 2)
    t.equal(has(follower), 2)
  })

  // A member of etcd that becomes leader gives all leases their whole time again.
  t.test('who gives no sign of life loses the right after its time, though its lease goes on', async t => {
    const etcd = await startEtcd(t)
    const way = await Way.to(t, etcd)
    const first = await open(t, way.url, { ttlSeconds: 2 })
    const second = await follow(t, etcd.url, { ttlSeconds: 2 })
    await setAll(first, ['c'], 1)
    const right = async () => {
      const { kvs } = await etcd.ask('kv/range', { key: base64('/svcd/writer') })
      return (kvs as unknown as [{ lease: string; create_revision: string }])[0]
    }
    const before = await right()
    await sleep(5000)
    const { lease: ID, create_revision: now } = await right()
    t.equal(now, before.create_revision, 'one that does nothing and is there keeps it')
    way.silence()
    const keeping = setInterval(() => void etcd.ask('lease/keepalive', { ID }), 300)
    t.teardown(() => clearInterval(keeping))
    await until(() => second.role.following === '')
    t.ok(Number((await etcd.ask('lease/timetolive', { ID })).TTL) > 0, 'the lease is there')
    await setAll(second, ['c'], 2)
    way.release()
    way.cut()
    await until(() => has(first) === 2)
    t.not(first.role.following, '')
    await t.rejects(setAll(first, ['c'], 3), NotLeaderError)
  })

  t.test(
    `kill -9 of the writer, ${kills} times: who follows has all that was acknowledged`,
    { timeout: 60_000 + kills * 20_000 },
    async t => {
      const etcd = await startEtcd(t)
      const words = ['etcd', etcd.url, '/svcd/', '3']
      const tookMs: number[] = []
      const counts = new Map<string, number>()
      for (let round = 1; round <= kills; round++) {
        const program = start(process.execPath, [join(import.meta.dirname, 'medium-writer.js'), ...words])
        t.teardown(() => program.kill())
        await program.says(/^open$/m)
        const follower = await follow(t, etcd.url)
        await program.says(/^many \d+$/m)
        await sleep(Math.random() * 500)
        await program.kill()
        const killed = performance.now()
        await until(() => follower.role.following === '')
        tookMs.push(Math.round(performance.now() - killed))
        const acknowledged = new Map<string, number>()
        for (const line of (await program.ended).stdout.split('\n').slice(0, -1)) {
          const [name = '', value] = line.split(' ')
          if (value !== undefined) acknowledged.set(name, Number(value))
        }
        for (const [name, value] of acknowledged) {
          const found = has(follower, name) ?? 0
          t.ok(
            found >= value && found <= value + 1,
            `round ${round}: ${name} ${value} was acknowledged, ${found} is there`
          )
          counts.set(name, (counts.get(name) ?? 0) + 1)
        }
        const odd = ['a', 'b', 'c'].filter(
          one => has(follower, `several-${one}`) !== has(follower, 'several')
        )
        t.strictSame(odd, [], `round ${round}: no half change`)
        const values = new Set(Array.from({ length: 200 }, (_, i) => has(follower, `many-${i}`)))
        t.strictSame([...values], [has(follower, 'many')], `round ${round}: no half change of many`)
        await setAll(follower, ['mine'], round)
        const all = allOf(follower)
        await follower.close()
        const again = await open(t, etcd.url)
        t.strictSame(allOf(again), all, `round ${round}: memory is what is stored`)
        await again.close()
      }
      t.comment(`from kill to the leadership, in ms: ${tookMs.join(' ')}`)
      t.equal(counts.get('many'), kills)
    }
  )
}
