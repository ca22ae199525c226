// What svcd takes from etcd, and from what only says that it is etcd: servers of ours stand in its place.
import { readFileSync } from 'node:fs'
import { createServer, type RequestListener, type Server } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import type { AddressInfo, Socket } from 'node:net'
import { text } from 'node:stream/consumers'
import t, { type Test } from 'tap'
import { problemText } from '../../lib/base/errors.js'
import {
  Client,
  type ClientOptions,
  RefusedError,
  TooLargeError,
  UnclearError
} from '../../lib/store/etcd/client.js'
import { etcdctlFor } from '../../lib/store/etcd/etcdctl.js'
import { keysBelow } from '../../lib/store/etcd/keys.js'
import {
  CompactedError,
  get,
  list,
  transact,
  type WatchedTransaction,
  watchTransactions
} from '../../lib/store/etcd/kv.js'
import { StoredKeys } from '../../lib/store/etcd/stored.js'
import { makeCertificate } from '../support/certificate.js'
import { scratch } from '../support/scratch.js'
import { until } from '../support/until.js'

type Question = Record<string, unknown>
type Answer = (path: string, question: Question, token: string | undefined) => unknown

const base64 = (content: string | Buffer) => Buffer.from(content).toString('base64')
const plain = (content: unknown) => Buffer.from(String(content), 'base64').toString()
const header = { revision: '7' }
const pair = (key: string | Buffer, value: string | Buffer = 'x') => ({
  key: base64(key),
  value: base64(value),
  create_revision: '5',
  mod_revision: '5'
})
const refusal = (code: number, error: string) => ({ error, code })

/** The port of a server that answers with the JSON that it is given; a text is sent as it is. */
function listen(t: Test, make: (listener: RequestListener) => Server, answer: Answer): number {
  const server = make((request, response) => {
    text(request).then(body => {
      const json = answer(request.url ?? '', JSON.parse(body), request.headers.authorization)
      const isRefusal = typeof json === 'object' && json !== null && 'error' in json
      response
        .writeHead(isRefusal ? 400 : 200)
        .end(typeof json === 'string' || Buffer.isBuffer(json) ? json : JSON.stringify(json))
    })
  })
  server.listen(0)
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  return (server.address() as AddressInfo).port
}

function client(t: Test, answer: Answer, more: Partial<ClientOptions> = {}): Client {
  const port = listen(t, createServer, answer)
  return closed(t, new Client({ endpoints: [`http://127.0.0.1:${port}`], ...more }))
}

function closed(t: Test, made: Client): Client {
  t.teardown(() => made.close())
  return made
}

// rules 11.14
t.test(
  'however many questions an endpoint leaves without an answer, the next one of the list is asked then',
  async t => {
    const asked: string[] = []
    const ports = ['second', 'third'].map(name =>
      listen(t, createServer, () => {
        asked.push(name)
        return {}
      })
    )
    const endpoints = [9, ...ports].map(port => `http://127.0.0.1:${port}`)
    const ours = closed(t, new Client({ endpoints }))
    const failures = await Promise.allSettled(Array.from({ length: 3 }, () => ours.ask('kv/range', {}, 1000)))
    t.ok(failures.every(({ status }) => status === 'rejected'))
    await ours.ask('kv/range', {}, 1000)
    t.strictSame(asked, ['second'])
  }
)

// rules 11.14
t.test('a transaction that a member does not answer is asked of the next one beside it', async t => {
  let unanswered = 0
  const silent = createServer(() => {
    unanswered++
  })
  silent.listen(0)
  t.teardown(() => {
    silent.closeAllConnections()
    silent.close()
  })
  const endpointOf = (port: number) => `http://127.0.0.1:${port}`
  const first = endpointOf((silent.address() as AddressInfo).port)
  const left = new Promise(resolve =>
    silent.once('connection', (socket: Socket) => socket.once('close', resolve))
  )
  const answers = () => ({ succeeded: true, responses: [{ response_range: { kvs: [pair('/k', 'v')] } }] })
  const ours = closed(t, new Client({ endpoints: [first, endpointOf(listen(t, createServer, answers))] }))
  for (const when of ['beside it', 'in its place, from then on']) {
    const { found } = await transact(ours, [], [get('/k')], [], 60_000)
    t.equal(found[0]?.value.toString(), 'v', when)
  }
  await left
  t.equal(unanswered, 1)

  const refusing = endpointOf(listen(t, createServer, () => refusal(3, 'no')))
  const one = closed(t, new Client({ endpoints: [refusing] }))
  await t.rejects(transact(one, [], [get('/k')], [], 60_000), RefusedError)
  const both = closed(t, new Client({ endpoints: [first, refusing] }))
  await t.rejects(
    transact(both, [], [get('/k')], [], 1200),
    UnclearError,
    'who refused says nothing of the other'
  )
  const none = closed(t, new Client({ endpoints: [first, endpointOf(9)] }))
  await t.rejects(transact(none, [], [get('/k')], [], 1200), UnclearError)

  // One that refuses the connection is not waited for.
  const began = performance.now()
  const dead = endpointOf(9)
  const next = closed(
    t,
    new Client({ endpoints: [dead, dead, endpointOf(listen(t, createServer, answers))] })
  )
  t.equal((await transact(next, [], [get('/k')], [], 60_000)).found[0]?.value.toString(), 'v')
  const nobody = closed(t, new Client({ endpoints: [dead, dead] }))
  await t.rejects(transact(nobody, [], [get('/k')], [], 60_000), UnclearError)
  t.ok(performance.now() - began < 10_000, 'long before the time is over')

  // Slower than the next one is asked: each has refused, and nothing was done.
  let asked = 0
  const slowly = async (ms: number, answer: unknown) => {
    const server = createServer((request, response) => {
      asked++
      request
        .resume()
        .on('end', () =>
          setTimeout(
            () => response.writeHead('error' in Object(answer) ? 400 : 200).end(JSON.stringify(answer)),
            ms
          )
        )
    })
    server.listen(0)
    t.teardown(() => server.close())
    return endpointOf((server.address() as AddressInfo).port)
  }
  const large = refusal(3, 'etcdserver: request is too large')
  const slow = closed(t, new Client({ endpoints: [await slowly(700, large)] }))
  const refused = await transact(slow, [], [get('/k')], [], 60_000).catch(error => error)
  t.ok(refused instanceof TooLargeError, `${refused}`)
  t.equal(asked, 2)
  const [refuses, does] = [await slowly(700, large), await slowly(600, answers())]
  const mixed = closed(t, new Client({ endpoints: [refuses, does] }))
  const { found } = await transact(mixed, [], [get('/k')], [], 60_000)
  t.equal(found[0]?.value.toString(), 'v', 'one that was asked before the refusal has done it')
  t.equal(asked, 4, 'after the refusal nobody else is asked')
})

// rules 11.14
t.test('plain http goes nowhere but to loopback', async t => {
  for (const endpoint of ['http://10.141.0.1:2379', 'http://etcd.cluster:2379', 'http://localhost:2379'])
    t.throws(
      () => new Client({ endpoints: ['http://127.0.0.1:2379', endpoint] }),
      new RegExp(`${endpoint} would be reached by plain http over a network: use https`)
    )
  for (const endpoint of ['http://[::1]:2379', 'http://127.9.9.9:1', 'https://etcd.cluster:2379'])
    closed(t, new Client({ endpoints: [endpoint] }))
  const others = [
    'ftp://127.0.0.1',
    'https://u:p@a:1',
    'https://a:1/?x',
    'https://a:1/#x',
    'http:127.0.0.1@b'
  ]
  for (const endpoint of others) t.throws(() => new Client({ endpoints: [endpoint] }), TypeError, endpoint)
})

t.test('https: whom to trust, and a certificate of our own', async t => {
  const directory = scratch(t)
  const [etcd, ours, other] = await Promise.all(
    ['etcd', 'ours', 'other'].map(async name => {
      const files = await makeCertificate(directory, name)
      return { cert: readFileSync(files.certificate), key: readFileSync(files.key) }
    })
  )
  if (!etcd || !ours || !other) throw new Error('no certificates')
  const asks = { ...etcd, ca: ours.cert, requestCert: true, rejectUnauthorized: true }
  const port = listen(
    t,
    listener => createTlsServer(asks, listener),
    () => ({ header })
  )
  const ask = (tls: ClientOptions['tls'], host = '127.0.0.1') =>
    closed(t, new Client({ endpoints: [`https://${host}:${port}`], tls })).ask('kv/range', {}, 5000)
  t.match(await ask({ ca: etcd.cert, ...ours }), { header })
  await t.rejects(ask({ ...ours }), /its certificate is not trusted: name its authority in \[store\] ca/)
  await t.rejects(ask({ ca: other.cert, ...ours }), /its certificate is not trusted/)
  await t.rejects(
    ask({ ca: etcd.cert, ...ours }, 'localhost'),
    /its certificate is for another name: name the endpoint as its certificate does/
  )
  await t.rejects(ask({ ca: etcd.cert }), /\[store\] cert and key/)
  await t.rejects(ask({ ca: etcd.cert, ...other }), UnclearError)
})

t.test('a token of a user is asked for once, and again when it is refused', async t => {
  const asked: string[] = []
  const given: unknown[] = []
  let valid = 'first.1'
  const ours = client(
    t,
    (path, question, token) => {
      asked.push(path)
      if (path === '/v3/auth/authenticate') {
        given.push(question)
        return { header, token: valid }
      }
      return token === valid ? { header } : refusal(16, 'etcdserver: invalid auth token')
    },
    { login: { user: 'svcd', password: 'p"w' } }
  )
  const ask = () => ours.ask('kv/range', {}, 5000)
  await Promise.all([ask(), ask()])
  t.strictSame(given, [{ name: 'svcd', password: 'p"w' }], 'both wait for one login')
  valid = 'second.2'
  await Promise.all([ask(), ask()])
  await ask()
  t.equal(given.length, 2)
  asked.length = 0
  valid = 'no\r\ntoken'
  await t.rejects(ask(), /its answer to a login has no token: user "svcd" is not let in/)
  t.strictSame(asked, ['/v3/kv/range', '/v3/auth/authenticate'], 'it is not tried without end')
})

t.test('a login that is refused names its keys of the ini, and no password', async t => {
  let said = refusal(3, 'etcdserver: authentication failed, invalid user ID or password')
  const ours = client(t, () => said, { login: { user: 'svcd', password: 'hush' } })
  const failure = async () => (await ours.ask('kv/range', {}, 5000).catch(error => error)) as Error
  const first = await failure()
  t.ok(first instanceof RefusedError)
  t.match(first.message, /invalid user ID or password: user "svcd" is not let in; look at \[store\] user/)
  t.notMatch(first.message, /hush/)
  said = refusal(9, 'etcdserver: authentication is not enabled')
  t.match((await failure()).message, /not enabled: .*etcdctl --endpoints=http:\S+ --user root auth enable/)
  const none = client(t, () => refusal(3, 'etcdserver: user name is empty'))
  await t.rejects(none.ask('kv/range', {}, 5000), /name a user of etcd in \[store\] user/)
})

t.test('a request that is too large is no matter of room', async t => {
  let said = {}
  const ours = client(t, () => said)
  const failure = async (code: number, error: string) => {
    said = refusal(code, error)
    return (await ours.ask('kv/txn', {}, 5000).catch(error => error)) as Error
  }
  for (const [code, error] of [
    [8, 'grpc: received message larger than max (3600000 vs. 2097152)'],
    [3, 'etcdserver: request is too large']
  ] as const) {
    const refused = await failure(code, error)
    t.ok(refused instanceof TooLargeError)
    t.match(refused.message, /has more bytes than etcd takes in a request \(etcd --max-request-bytes\)$/)
  }
  const full = await failure(8, 'etcdserver: mvcc: database space exceeded')
  t.notOk(full instanceof TooLargeError)
  t.match(full.message, /make room: type etcdctl --endpoints=\S+ compact /)
})

t.test('what it says is one short line', async t => {
  const ours = client(t, () => refusal(7, `no\u001b[31m\r\n${'x'.repeat(5000)}`))
  const { message } = (await ours.ask('kv/range', {}, 5000).catch(error => error)) as Error
  t.match(message, /no\\u001b\[31m\\u000d\\u000ax+…; give the user/)
  t.ok(message.length < 700, `${message.length}`)
})

t.test('an answer that drips ends in time, one that is too long in memory', async t => {
  let isCut = false
  const server = createServer((_, response) => {
    const drip = setInterval(() => response.write(' '), 20)
    response.on('close', () => {
      clearInterval(drip)
      isCut = true
    })
  }).listen(0)
  t.teardown(() => server.close())
  const slow = closed(
    t,
    new Client({ endpoints: [`http://127.0.0.1:${(server.address() as AddressInfo).port}`] })
  )
  await t.rejects(
    slow.ask('kv/range', {}, 300),
    /no answer within 0.3 s.*etcdctl --endpoints=\S+ endpoint health/
  )
  await until(() => isCut)
  const long = client(t, () => Buffer.alloc(65 * 1024 * 1024, 0x20))
  await t.rejects(long.ask('kv/range', {}, 60_000), /its answer has more than 67108864 bytes/)
})

t.test('what an admin is to type has all that etcdctl needs of the ini', t => {
  const endpoints = ['https://10.141.0.1:2379', 'https://10.141.0.2:2379']
  const plain = 'etcdctl --endpoints=https://10.141.0.1:2379,https://10.141.0.2:2379'
  t.equal(etcdctlFor({ endpoints })('del /svcd/keys'), `${plain} del /svcd/keys`)
  t.equal(etcdctlFor({ endpoints })('endpoint health', true), `${plain} endpoint health`, 'etcd has no users')
  const all = etcdctlFor({ endpoints, ca: '/c/ca.pem', cert: '/c/x.pem', key: '/c/x.key', user: 'svcd' })
  const files = '--cacert=/c/ca.pem --cert=/c/x.pem --key=/c/x.key'
  t.equal(all('del /svcd/keys'), `${plain} ${files} --user svcd del /svcd/keys`)
  t.equal(all('endpoint health', true), `${plain} ${files} --user root endpoint health`)
  t.end()
})

t.test('a list comes in pages, each behind the one before it', async t => {
  const names = Array.from({ length: 2500 }, (_, i) => `/svcd/${String(i).padStart(4, '0')}`)
  const limits: unknown[] = []
  const ours = client(t, (_, { key, limit, revision }) => {
    limits.push([limit, revision])
    const left = names.filter(name => name >= plain(key))
    return {
      header,
      kvs: left.slice(0, Number(limit)).map(name => pair(name)),
      more: left.length > Number(limit)
    }
  })
  const { pairs, revision } = await list(ours, '/svcd/')
  t.strictSame(
    pairs.map(({ key }) => key),
    names
  )
  t.equal(revision, '7')
  t.strictSame(
    limits,
    [
      [1000, undefined],
      [1000, '7'],
      [1000, '7']
    ],
    'all of one revision'
  )
})

t.test('a list goes on with the next endpoint where one is dead, and ends where all are', async t => {
  const port = listen(t, createServer, () => ({ header, kvs: [pair('/svcd/a')] }))
  const [dead, gone] = [1, 2].map(port => `http://127.0.0.1:${port}`)
  const good = `http://127.0.0.1:${port}`
  const of = (...endpoints: (string | undefined)[]) =>
    closed(t, new Client({ endpoints: endpoints.flatMap(endpoint => endpoint ?? []) }))
  t.equal((await list(of(dead, gone, good), '/svcd/')).pairs.length, 1)
  await t.rejects(list(of(dead, gone), '/svcd/'), UnclearError)
})

t.test('a list of what no etcd gives is refused', async t => {
  const lists: readonly (readonly [string, RegExp, object])[] = [
    ['not ascending', /the key \/svcd\/a is out of order/, { kvs: [pair('/svcd/b'), pair('/svcd/a')] }],
    ['twice', /the key \/svcd\/a is out of order/, { kvs: [pair('/svcd/a'), pair('/svcd/a')] }],
    ['the same page again', /the key \/svcd\/a is out of order/, { kvs: [pair('/svcd/a')], more: true }],
    [
      'below another prefix',
      /the key \/other\/a is out of order, or not below \/svcd\//,
      { kvs: [pair('/other/a')] }
    ],
    ['behind the prefix', /the key \/svcd0 is out of order/, { kvs: [pair('/svcd0')] }],
    ['more, and nothing', /it tells of more keys below \/svcd\/, and gives none/, { more: true }],
    ['no list', /its answer has no list of keys/, { kvs: {} }],
    [
      'more than was asked for',
      /gives 1001 keys, and was asked for 1000/,
      {
        kvs: Array.from({ length: 1001 }, (_, i) => pair(`/svcd/${1000 + i}`))
      }
    ],
    ['no revision', /its answer has no revision/, { header: {} }],
    ['a strange revision', /its answer has no revision/, { header: { revision: '7 or so' } }],
    [
      'a key that is not UTF-8',
      /\/svcd\/\\377 is no key in UTF-8; remove it/,
      {
        kvs: [pair(Buffer.from('/svcd/\u00ff', 'latin1'))]
      }
    ],
    ['a key that is not base64', /a key is no key in UTF-8/, { kvs: [{ ...pair('/svcd/a'), key: '*' }] }],
    [
      'a value that is not base64',
      /what it tells of \/svcd\/a is damaged/,
      {
        kvs: [{ ...pair('/svcd/a'), value: 'e A=' }]
      }
    ],
    [
      'a strange lease',
      /what it tells of \/svcd\/a is damaged/,
      { kvs: [{ ...pair('/svcd/a'), lease: 1e30 }] }
    ],
    ['a long key', /the key \/x{299}… is out of order/, { kvs: [pair(`/${'x'.repeat(9000)}`)] }]
  ]
  for (const [name, message, answer] of lists) {
    const ours = client(t, () => ({ header, ...answer }))
    await t.rejects(list(ours, '/svcd/'), { name: 'RefusedError', message }, name)
  }
})

t.test('a list without an end is ended', async t => {
  let next = 10_000
  const endless = client(t, () => ({ header, more: true, kvs: [pair(`/svcd/${next++}`, 'x'.repeat(1000))] }))
  await t.rejects(list(endless, '/svcd/', { bytes: 20_000, ms: 60_000 }), /more than 20000 bytes/)
  t.ok(next < 10_030)
  await t.rejects(list(endless, '/svcd/', { bytes: 1e9, ms: 100 }), /not read within 0.1 s/)
})

t.test('the answer to a transaction is to that one, or says nothing', async t => {
  const strange: readonly object[] = [
    {},
    { responses: {} },
    { responses: [{}] },
    { responses: [{ response_range: { kvs: [pair('/other')] } }] },
    { responses: [{ response_range: { kvs: [pair('/k'), pair('/k')] } }] },
    { responses: [{ response_range: { kvs: [{ ...pair('/k'), create_revision: 'x' }] } }] }
  ]
  for (const answer of strange) {
    const ours = client(t, () => ({ header, succeeded: true, ...answer }))
    await t.rejects(transact(ours, [], [get('/k')], [], 5000), UnclearError, JSON.stringify(answer))
  }
  const good = client(t, () => ({ responses: [{ response_range: { kvs: [pair('/k', 'v')] } }] }))
  const { succeeded, found } = await transact(good, [], [], [get('/k')], 5000)
  t.equal(succeeded, false)
  t.equal(found[0]?.value.toString(), 'v')
})

t.test('what is damaged is a problem that names its key', async t => {
  const read = async (...kvs: object[]) =>
    StoredKeys.read(
      client(t, () => ({ header, kvs })),
      keysBelow('/svcd/')
    )
  for (const head of [
    '',
    '7',
    'x 5',
    'NaN 5',
    '1e3 5',
    '-1 5',
    '1.5 5',
    '9007199254740993 5',
    ' 1 5',
    '1 5\n'
  ]) {
    const problems = (await read(pair('/svcd/head', head))).problems().map(problemText)
    t.match(problems, [/http:\S+: \/svcd\/head: it is no number of a commit/], JSON.stringify(head))
    t.equal(problems.length, 1)
  }
  const good = await read(pair('/svcd/head', '12 345'))
  t.strictSame([good.head, good.problems()], ['12 345', []])
  const bytes = Buffer.from('{\n"name":"\u00ff"}', 'latin1')
  const stored = await read(pair('/svcd/objects/node/bad', bytes), pair('/svcd/objects/node/good', '{}'))
  t.throws(() => stored.text('node', 'bad'), { message: 'not UTF-8', line: 2 })
  t.equal(stored.text('node', 'good'), '{}')
  const intents: readonly (readonly [string | Buffer, RegExp])[] = [
    [bytes, /\/svcd\/intent: a damaged intent: not UTF-8/],
    ['{"id":"a/b","writes":0}', /it names no staged writes/],
    ['{"id":"","writes":0}', /it names no staged writes/],
    ['{"id":"9-1","writes":1}', /a damaged intent: \/svcd\/staged\/9-1\/node\/n1: not UTF-8/]
  ]
  for (const [intent, message] of intents) {
    const found = await read(pair('/svcd/intent', intent), pair('/svcd/staged/9-1/node/n1', bytes))
    t.match(found.problems().map(problemText), [message])
  }
})

t.test('a watch gives each transaction whole, and ends with what it does not understand', async t => {
  const told: Question[] = []
  const watch = async (...parts: readonly unknown[]) => {
    const ours = client(t, (_, question) => {
      told.push(question)
      return parts
        .map(part => (typeof part === 'string' ? part : `${JSON.stringify({ result: part })}\n`))
        .join('')
    })
    const moments: WatchedTransaction[] = []
    const ended = (async () => {
      for await (const moment of watchTransactions(ours, '/svcd/', '7', new AbortController().signal))
        moments.push(moment)
    })()
    const error = await ended.then(
      () => undefined,
      reason => reason
    )
    return { error, shown: moments.map(({ revision, keys }) => [revision, ...keys.map(({ key }) => key)]) }
  }
  const put = (key: string, revision: string) => ({ kv: { ...pair(`/svcd/${key}`), mod_revision: revision } })
  const gone = (key: string, revision: string) => ({
    type: 'DELETE',
    kv: { key: base64(`/svcd/${key}`), mod_revision: revision }
  })
  const good = await watch(
    { created: true },
    { events: [put('a', '7'), gone('b', '7'), put('a', '8')] },
    { header }
  )
  t.strictSame(good.shown, [
    ['7', '/svcd/a', '/svcd/b'],
    ['8', '/svcd/a']
  ])
  t.match(good.error, /it ended the watch/)
  t.strictSame(told, [
    { create_request: { key: base64('/svcd/'), range_end: base64('/svcd0'), start_revision: '7' } }
  ])
  const compacted = await watch({ canceled: true, compact_revision: '9' })
  t.ok(compacted.error instanceof CompactedError)
  const strange: readonly (readonly [unknown, RegExp])[] = [
    [{ events: [put('a', '6')] }, /it tells of revision 6 after 6/],
    [{ events: [put('a', '8'), put('b', '7')] }, /it tells of revision 7 after 8/],
    [{ events: [{ kv: { key: '*' } }] }, /is no key in UTF-8/],
    [{ events: [{}] }, /is no key in UTF-8/],
    [{ events: {} }, /is no list/],
    [{ canceled: true, cancel_reason: 'no\nmore' }, /it ended the watch: no\\u000amore/],
    ['{"error":"x"}\n', /it ended the watch/],
    ['nonsense\n', /a part of its answer is no JSON/]
  ]
  for (const [part, message] of strange) {
    const { error } = await watch(part)
    t.ok(error instanceof UnclearError, String(error))
    t.match(error.message, message)
  }
  const endless = await watch('x'.repeat(65 * 1024 * 1024))
  t.match(endless.error?.message, /has more than \d+ bytes/)
})
