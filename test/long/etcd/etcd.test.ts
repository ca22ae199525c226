// What a store in etcd promises beside what every medium does: who lost the right to write commits nothing,
// ever.
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { hostname } from 'node:os'
import { Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { pipeline } from 'node:stream/promises'
import type { ReadableStream } from 'node:stream/web'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { NotLeaderError, StoreError } from '../../../lib/store/errors.js'
import { Client, TooLargeError } from '../../../lib/store/etcd/client.js'
import { put, transact } from '../../../lib/store/etcd/kv.js'
import { EtcdMedium } from '../../../lib/store/etcd/medium.js'
import { Store } from '../../../lib/store/store.js'
import { kinds, MacIndex, node, type TestTypes } from '../../store/fixtures.js'
import { type EtcdServer, startEtcd } from '../../support/etcd.js'
import { freePort } from '../../support/free-port.js'
import { until } from '../../support/until.js'

const base64 = (text: string) => Buffer.from(text).toString('base64')
const open = (medium: EtcdMedium, opened = async () => {}) =>
  Store.open<TestTypes, MacIndex>({
    medium,
    kinds,
    createIndex: () => new MacIndex(),
    beforeFirstWrite: opened
  })
type TestStore = Awaited<ReturnType<typeof open>>
const set = (store: TestStore, value: number, name = 'c') =>
  store.change(tx => tx.put('counter', name, { name, value }))
const stored = (store: TestStore, name = 'c') => store.current.get('counter', name)?.value

/** A server in the place of etcd that does with each request what it is told. */
async function serve(
  t: Test,
  answer: (path: string, body: Buffer) => Promise<{ status?: number; text: string; rest?: Readable }>
): Promise<string> {
  const server = createServer((request, response) => {
    buffer(request)
      .then(body => answer(request.url ?? '', body))
      .then(({ status = 200, text, rest }) =>
        pipeline(rest ?? Readable.from([text]), response.writeHead(status))
      )
      .catch(() => request.socket.destroy()) // who asked has gone away
  })
  server.listen(0)
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

/** Hands a request on to etcd. */
const passOn = async ({ url }: EtcdServer, path: string, body: Buffer) => {
  const answer = await fetch(url + path, { method: 'POST', body })
  const { status } = answer
  // That of a watch has no end.
  if (path === '/v3/watch') return { status, text: '', rest: Readable.fromWeb(answer.body as ReadableStream) }
  return { status, text: await answer.text() }
}

async function endLease(etcd: EtcdServer, prefix = '/svcd/'): Promise<void> {
  const { kvs = [] } = await etcd.ask('kv/range', { key: base64(`${prefix}writer`) })
  for (const { lease } of kvs) await etcd.ask('lease/revoke', { ID: lease })
}

t.test(
  'a commit that reaches etcd after its writer lost the right does nothing; that writer follows then',
  async t => {
    const etcd = await startEtcd(t)
    let isHeld = false
    const held: (() => void)[] = []
    const late: Promise<string>[] = []
    const url = await serve(t, async (path, body) => {
      if (!isHeld) return passOn(etcd, path, body)
      if (path !== '/v3/kv/txn') return new Promise(() => {})
      const sent = new Promise<void>(resolve => held.push(resolve)).then(() => passOn(etcd, path, body))
      late.push(sent.then(({ text }) => text))
      return sent
    })
    const first = await open(new EtcdMedium({ endpoints: [url], ttlSeconds: 1, patienceMs: 500 }))
    await set(first, 1)
    isHeld = true
    const lost = set(first, 2)
    lost.catch(() => {}) // it fails while the other one opens
    await until(() => held.length > 0)
    // Its lease runs out by itself: nobody hears of it any more.
    const second = await open(new EtcdMedium({ endpoints: [etcd.url], ttlSeconds: 1 }), async () => {
      // It has read, and not written yet: the head is as the late commit wants it, and the writer is not.
      isHeld = false
      for (const go of held) go()
      for (const text of await Promise.all(late)) t.notMatch(text, '"succeeded":true')
    })
    t.equal(stored(second), 1)
    await t.rejects(lost, StoreError)
    for (let i = 0; i < 3; i++) await t.rejects(set(first, 4), StoreError)
    t.equal(stored(first), 1, 'what it told is what it knew to be stored')
    await set(second, 3)
    await set(second, 5)
    await until(
      () => stored(first) === 5 && first.role.following.includes('process'),
      () => first.health
    )
    t.equal(
      first.role.following,
      `etcd at ${url}: what is below /svcd/ is written by process ${process.pid} on ${hostname()}`
    )
    // Who asks is not told where etcd is.
    await t.rejects(set(first, 6), new NotLeaderError())
    await second.close()
    await until(() => first.role.following === '')
    await set(first, 7)
    await first.close()
    const third = await open(new EtcdMedium({ endpoints: [etcd.url], ttlSeconds: 1 }))
    t.equal(stored(third), 7)
    await third.close()
  }
)

t.test(
  'etcd stands still for longer than the lease lasts: changes are taken again by themselves',
  async t => {
    const etcd = await startEtcd(t)
    const store = await open(new EtcdMedium({ endpoints: [etcd.url], ttlSeconds: 1, patienceMs: 500 }))
    await set(store, 1)
    etcd.child.process.kill('SIGSTOP')
    const began = performance.now()
    await t.rejects(set(store, 2), new RegExp(`${etcd.url}: no answer within 2 s; look whether it runs`))
    t.ok(performance.now() - began < 30_000, 'in time')
    t.equal(stored(store), 1)
    t.notOk(store.health.ok)
    await sleep(1500)
    etcd.child.process.kill('SIGCONT')
    await until(() => store.health.ok)
    await set(store, 3)
    await endLease(etcd)
    await until(() =>
      set(store, 4).then(
        () => true,
        () => false
      )
    )
    await store.close()
    const again = await open(new EtcdMedium({ endpoints: [etcd.url], ttlSeconds: 1 }))
    t.equal(stored(again), 4)
    await again.close()
  }
)

t.test(
  'a commit that was told as failed and never made leaves its number out, and cannot come late',
  async t => {
    const etcd = await startEtcd(t)
    let isHeld = false
    const late: (() => Promise<string>)[] = []
    const url = await serve(t, async (path, body) => {
      // What moves the head on is a commit.
      const isCommit = body.includes(`"request_put":{"key":"${base64('/svcd/head')}"`)
      if (!isHeld || !isCommit) return passOn(etcd, path, body)
      late.push(async () => (await passOn(etcd, path, body)).text)
      return new Promise(() => {})
    })
    const head = async () => {
      const { kvs = [] } = await etcd.ask('kv/range', { key: base64('/svcd/head') })
      const [{ value }] = kvs as unknown as [{ value: string }]
      const [number, revision] = Buffer.from(value, 'base64').toString().split(' ')
      return { number: Number(number), revision }
    }
    // The lease is kept meanwhile: the same one goes on to write.
    const store = await open(new EtcdMedium({ endpoints: [url], ttlSeconds: 3, patienceMs: 500 }))
    await set(store, 1)
    const before = await head()
    isHeld = true
    await t.rejects(set(store, 2), StoreError)
    isHeld = false
    t.equal(stored(store), 1)
    await set(store, 3)
    // One number is that of the commit that was given up, the next one makes that impossible, and the third
    // is the new commit.
    t.strictSame(await head(), { ...before, number: before.number + 3 })
    t.ok(late.length > 0)
    for (const text of await Promise.all(late.map(send => send()))) t.notMatch(text, '"succeeded":true')
    t.equal(stored(store), 3)
    await store.close()
    const again = await open(new EtcdMedium({ endpoints: [etcd.url], ttlSeconds: 3 }))
    t.equal(stored(again), 3)
    await again.close()
  }
)

t.test('an endpoint that is gone is left for the next one', async t => {
  const etcd = await startEtcd(t)
  const gone = `http://127.0.0.1:${await freePort()}`
  const store = await open(new EtcdMedium({ endpoints: [gone, etcd.url], ttlSeconds: 1 }))
  await set(store, 1)
  t.ok(store.health.ok)
  await store.close()
})

t.test('an object that etcd does not take is refused by name; the rest goes on', async t => {
  const etcd = await startEtcd(t)
  const store = await open(new EtcdMedium({ endpoints: [etcd.url], ttlSeconds: 1 }))
  const tags = ['x'.repeat(1024 * 1024)]
  await t.rejects(
    store.change(tx => tx.put('node', 'n1', { ...node('n1'), tags })),
    /node n1 has \d+ bytes: etcd holds objects of up to 1048576 bytes/
  )
  await until(() => store.health.ok)
  await set(store, 1)
  await store.close()
})

t.test(
  'what is staged and never committed is removed; an intent without its writes stops the start',
  async t => {
    const etcd = await startEtcd(t)
    const put = (key: string, text: string) => etcd.ask('kv/put', { key: base64(key), value: base64(text) })
    await put('/svcd/staged/7-1/counter/c', '{"name":"c","value":1}\n')
    const store = await open(new EtcdMedium({ endpoints: [etcd.url], ttlSeconds: 1 }))
    t.strictSame(store.current.names('counter'), [])
    await store.close()
    const question = { key: base64('/svcd/staged/'), range_end: base64('/svcd/staged0') }
    t.equal((await etcd.ask('kv/range', question)).kvs, undefined)
    await put('/svcd/intent', '{"id":"9-1","writes":2}')
    await put('/svcd/staged/9-1/counter/c', '{"name":"c","value":1}\n')
    const medium = () => new EtcdMedium({ endpoints: [etcd.url], ttlSeconds: 1 })
    await t.rejects(open(medium()), /\/svcd\/intent: a damaged intent: 1 of its 2 writes are there/)
    await put('/svcd/staged/9-1/strange/d', '{}\n')
    await t.rejects(
      open(medium()),
      /\/svcd\/intent: a damaged intent: it has a write of an unknown type, "strange"/
    )
  }
)

t.test('what is no etcd, or answers badly, is told with its place, in time and memory', async t => {
  const answers = {
    'is not etcd, or not its JSON gateway': { status: 404, text: '<html>' },
    'a lease without a number': { text: '{}' },
    'etcdserver: permission denied': {
      status: 403,
      text: '{"error":"etcdserver: permission denied","code":7}'
    },
    'its answer has more than 67108864 bytes': { text: 'x'.repeat(65 * 1024 * 1024) }
  }
  for (const [reason, answer] of Object.entries(answers)) {
    const url = await serve(t, async () => answer)
    // A long answer takes its time: a third of that of the lease.
    const ttlSeconds = answer.text.length > 1000 ? 60 : 1
    const medium = new EtcdMedium({ endpoints: [url], ttlSeconds, patienceMs: 100 })
    await t.rejects(open(medium), new RegExp(`etcd at ${url}.*${reason}`), reason)
    await medium.close()
  }
  for (const endpoints of [[], ['127.0.0.1:2379'], ['https://a:1/x'], ['']])
    t.throws(() => new EtcdMedium({ endpoints }), TypeError)
  for (const prefix of ['', 'svcd', '/svcd', '//', '/a b/'])
    t.throws(() => new EtcdMedium({ endpoints: ['http://127.0.0.1:1'], prefix }), TypeError)
})

t.test('what etcd and its gateway say of a request that is too large is known', async t => {
  const etcd = await startEtcd(t)
  const client = new Client({ endpoints: [etcd.url] })
  t.teardown(() => client.close())
  for (const bytes of [1_700_000, 4_000_000]) {
    const sent = transact(client, [], [put('/svcd/large', 'x'.repeat(bytes))], [], 10_000)
    t.ok((await sent.catch(error => error)) instanceof TooLargeError, `${bytes} bytes`)
  }
})
