// Requests that another server answers in the place of this one (rules 11.16).
import type { IncomingMessage } from 'node:http'
import { createServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { badRequest, ServiceError } from '../../lib/base/errors.js'
import type { Limits } from '../../lib/http/admission/limits.js'
import type { ForwardedCaller, Route } from '../../lib/http/route.js'
import { instead } from '../support/instead.js'
import { until } from '../support/until.js'
import { arrived, deferred, isRefusal, RawClient, route, start } from './helpers.js'

const get = (path: string, method = 'GET', more = '') =>
  `${method} ${path} HTTP/1.1\r\nHost: a\r\n${more}\r\n`
const post = (path: string, body: string, more = '') =>
  `POST ${path} HTTP/1.1\r\nHost: a\r\nContent-Length: ${Buffer.byteLength(body)}\r\n${more}\r\n${body}`

/** A server in front that answers nothing itself but /here: `port` answers the rest. */
async function front(
  t: Test,
  routes: readonly Route<string>[],
  port: number,
  {
    gone = new AbortController().signal,
    limits = {}
  }: { readonly gone?: AbortSignal; readonly limits?: Partial<Limits> } = {}
) {
  const never = routes.map(one => ({
    ...one,
    handler: () => t.fail(`${one.path} was answered in front`) as never
  }))
  const here = route('GET', '/here', () => ({ status: 200, text: 'here' }))
  /** Why the other one could not be asked, '' for each answer. */
  const told: string[] = []
  const running = await start(t, [...never, here], {
    limits,
    upstreamFor: ({ path }) =>
      path === '/here'
        ? undefined
        : {
            url: `http://127.0.0.1:${port}`,
            headersFor: async () => ({ 'x-by': 'front' }),
            trust: { rejectUnauthorized: true },
            gone,
            onOutcome: failure => void told.push(failure)
          }
  })
  const client = new RawClient(running.port)
  t.teardown(() => client.socket.destroy())
  return { ...running, client, told }
}

const large = 'x'.repeat(3 * 1024 * 1024)
const routes: Route<string>[] = [
  route('GET', '/echo/{name}', ({ params, query, headers }) => ({
    status: 200,
    headers: { 'X-Own': 'kept' },
    body: {
      name: params.name,
      query: query.get('q'),
      by: headers['x-by'],
      for: headers['x-forwarded-for'],
      other: headers['x-other']
    }
  })),
  route('POST', '/made', ({ body }) => ({ status: 201, body: { body } })),
  route('POST', '/emptied', () => ({ status: 204 })),
  route('GET', '/large', () => ({ status: 200, text: large })),
  route('GET', '/list', () => ({ status: 200, json: ['[', ...Array(200_000).fill('1,'), '1]'] }))
]

t.test('request and answer are handed on as they are; what is answered here is not', async t => {
  const { port } = await start(t, routes)
  const { client, log } = await front(t, routes, port)
  const echoed = await client
    .send(get('/echo/a%20b?q=%C3%A9', 'GET', 'X-Other: 1\r\nX-Forwarded-For: 192.0.2.1\r\n'))
    .response()
  t.match(echoed, { status: 200, headers: { 'content-type': 'application/json', 'x-own': 'kept' } })
  t.same(JSON.parse(echoed.body), { name: 'a b', query: 'é', by: 'front', other: '1' })
  t.match(await client.send(post('/made', '{"a":["é"]}')).response(), {
    status: 201,
    body: '{"body":{"a":["é"]}}\n'
  })
  t.match(await client.send(post('/emptied', '{}')).response(), { status: 204, body: '' })
  t.match(await client.send(get('/here')).response(), { status: 200, body: 'here' })
  const head = await client.send(get('/large', 'HEAD')).response(true)
  t.match(head, { status: 200, headers: { 'content-length': String(large.length) } })
  t.equal((await client.send(get('/large')).response()).body, large)
  t.equal((await client.send(get('/list')).response()).body.length, 400_004)
  t.ok(log.lines.some(line => / \/large 200 3145728 /.test(line)))
})

t.test(
  'one request after the other goes over one connection, until nothing has gone over it for a while',
  async t => {
    const ended = deferred()
    let connections = 0
    const port = await instead(t, socket => {
      connections++
      socket.once('close', () => ended.resolve())
      const answer = () => socket.write('HTTP/1.1 204 No Content\r\n\r\n')
      answer()
      socket.on('data', answer)
    })
    const { client, told } = await front(t, routes, port)
    for (let i = 0; i < 3; i++) t.match(await client.send(post('/emptied', '')).response(), { status: 204 })
    t.equal(connections, 1)
    await ended.promise
    t.match(await client.send(post('/emptied', '')).response(), { status: 204 })
    t.equal(connections, 2)
    t.strictSame(told, ['', '', '', ''])
  }
)

t.test('a connection that ends between two requests is no failure', async t => {
  let connections = 0
  const port = await instead(t, socket => {
    connections++
    socket.end('HTTP/1.1 204 No Content\r\n\r\n')
  })
  const { client, told } = await front(t, routes, port)
  for (let i = 0; i < 3; i++) {
    t.match(await client.send(post('/emptied', '')).response(), { status: 204 })
    // The end of it has come by then.
    await sleep(100)
  }
  t.equal(connections, 3)
  t.strictSame(told, ['', '', ''])
})

t.test('what is wrong is told by who finds it', async t => {
  const { port } = await start(t, routes)
  const { client, port: at, told } = await front(t, routes, port)
  isRefusal(t, await client.send(post('/made', '{"a"')).response(), /JSON/)
  t.equal((await client.send(get('/nowhere')).response()).status, 404)
  const oversized = new RawClient(at).send(post('/made', 'x'.repeat(2 * 1024 * 1024)))
  t.equal((await oversized.response()).status, 413)
  oversized.socket.destroy()
  t.same(new Set(told), new Set(['']), 'who answers can be asked')
})

t.test('nobody listens there: 503, also for a change, as nothing can have been done', async t => {
  const { server, port } = await start(t, routes)
  await server.close(0)
  const { client, told } = await front(t, routes, port)
  for (const request of [get('/large'), post('/made', '{}')]) {
    const refusal = await client.send(request).response()
    t.match(refusal, { status: 503, headers: { 'retry-after': '5' } })
    isRefusal(t, refusal, /^the primary cannot be asked now \(ECONNREFUSED\); try again in some seconds$/)
  }
  t.same(told, ['ECONNREFUSED', 'ECONNREFUSED'])
})

t.test('it ends before it answers: 502 for a change, which may have been made, 503 for the rest', async t => {
  const server = createServer(socket =>
    socket.once('data', () => socket.destroy()).on('error', () => undefined)
  )
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => server.close())
  const { client } = await front(t, routes, (server.address() as { port: number }).port)
  t.equal((await client.send(get('/large')).response()).status, 503)
  const refusal = await client.send(post('/made', '{}')).response()
  t.equal(refusal.status, 502)
  isRefusal(t, refusal, /^the primary gave no answer \(ECONNRESET\), and may have done this: look first$/)
})

t.test('it ends in the middle of its answer: the client sees that it is not whole', async t => {
  const server = createServer(socket =>
    socket
      .once('data', () => {
        socket.write('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf')
        setTimeout(() => socket.destroy(), 50)
      })
      .on('error', () => undefined)
  )
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => server.close())
  const { client } = await front(t, routes, (server.address() as { port: number }).port)
  t.match(await client.send(get('/large')).rest(), /\r\n\r\nhalf$/)
})

t.test('one that is not the one that writes has done nothing: 503, and why is told', async t => {
  const refuse = route('POST', '/made', () => {
    throw new ServiceError(503, 'not here', { 'x-svcd-not-taken': 'yes' })
  })
  const { port } = await start(t, [refuse])
  const { client, told } = await front(t, routes, port)
  const refusal = await client.send(post('/made', '{}')).response()
  t.match(refusal, { status: 503, headers: { 'retry-after': '5' } })
  t.notOk(refusal.headers['x-svcd-not-taken'], 'that is between the two')
  isRefusal(
    t,
    refusal,
    /^the primary cannot be asked now \(another one answers there\); try again in some seconds$/
  )
  t.match(told, [/^another controller answers there, or it has just begun to write$/])
})

t.test('it writes no more: who waits for it is told at once', async t => {
  const begun = deferred()
  const waiting = [
    route('POST', '/made', () => {
      begun.resolve()
      return new Promise(() => undefined)
    })
  ]
  const { port } = await start(t, waiting)
  const gone = new AbortController()
  const { client, told } = await front(t, waiting, port, { gone: gone.signal })
  client.send(post('/made', '{}'))
  await begun.promise
  gone.abort()
  const refusal = await client.response()
  t.equal(refusal.status, 502)
  isRefusal(t, refusal, /gave no answer \(it writes no more\)/)
  t.same(told, [], 'another one is asked from now on')
})

t.test('the client goes: nothing goes on behind', async t => {
  const begun = deferred()
  const ended = deferred()
  const waiting = [
    route('GET', '/slow', ({ signal }) => {
      signal.addEventListener('abort', () => ended.resolve())
      begun.resolve()
      return new Promise(() => undefined)
    }),
    route('GET', '/endless', () => ({
      status: 200,
      feed: { next: () => 'x'.repeat(65_536), keepAlive: '', follow: () => () => ended.resolve() }
    }))
  ]
  const { port } = await start(t, waiting)
  const { client } = await front(t, waiting, port)
  client.send(get('/slow'))
  await begun.promise
  client.socket.destroy()
  await ended.promise
  t.pass('the one behind was told')
})

t.test('a client that reads nothing does not fill the memory of who hands on', async t => {
  let sent = 0
  const server = createServer(socket => {
    socket
      .on('error', () => undefined)
      .once('data', () => {
        socket.write('HTTP/1.1 200 OK\r\n\r\n')
        const write = () => {
          while (!socket.destroyed && socket.write(Buffer.alloc(65_536))) sent++
          socket.once('drain', write)
        }
        write()
      })
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => server.close())
  const { client } = await front(t, routes, (server.address() as { port: number }).port)
  client.send(get('/large'))
  await until(() => sent > 0)
  client.socket.pause()
  let before = -1
  await until(async () => {
    const same = before === sent
    before = sent
    await new Promise(resolve => setTimeout(resolve, 300))
    return same
  })
  // The buffers of the system hold some megabytes on both ways.
  t.ok(sent < 400, `${sent} pieces of 64 KiB were taken`)
  client.socket.destroy()
})

t.test('the address that asked counts, but for addresses of the one that answers', async t => {
  let asked: string | undefined
  const seen = route('GET', '/seen', ({ source }) => ({ status: 200, body: source }))
  const { port } = await start(t, [seen], {
    ownAddresses: ['127.0.0.1/32'],
    trustedProxies: ['10.141.0.9'],
    handedOnFor: () => {
      if (asked === 'forged') throw badRequest('leave it out')
      return asked === undefined ? undefined : { address: asked, checkBody: async () => undefined }
    }
  })
  const client = new RawClient(port)
  t.teardown(() => client.socket.destroy())
  const source = async (address?: string) => {
    asked = address
    return JSON.parse((await client.send(get('/seen')).response()).body)
  }
  t.same(await source(), { address: '127.0.0.1', loopback: true })
  t.same(await source('10.141.0.7'), { address: '10.141.0.7', loopback: false, isHandedOn: true })
  for (const own of ['127.0.0.1', '10.141.0.9'])
    t.same(await source(own), { address: '127.0.0.1', loopback: false, isHandedOn: true }, own)
  t.same(await source('forged'), { message: 'leave it out', code: 'invalid-request' })
})

t.test('so many at once, and no more', async t => {
  let asked = 0
  const waiting = [
    route('GET', '/slow', () => {
      asked++
      return new Promise(() => undefined)
    })
  ]
  const { port } = await start(t, waiting)
  const gone = new AbortController()
  const { port: at } = await front(t, waiting, port, {
    gone: gone.signal,
    limits: { forwards: 3, forwardWaitMs: 50 }
  })
  const clients = Array.from({ length: 3 }, () => new RawClient(at).send(get('/slow')))
  await until(() => asked === 3)
  const more = new RawClient(at).send(get('/slow'))
  const refusal = await more.response()
  t.equal(refusal.status, 503)
  isRefusal(t, refusal, /^3 requests are handed on to the primary, which is the most/)
  gone.abort()
  for (const client of clients) t.equal((await client.response()).status, 503)
  await arrived()
  for (const client of [more, ...clients]) client.socket.destroy()
})

t.test('it is silent: what waits for long gives its place to one that has waited in vain', async t => {
  let asked = 0
  const silent = await instead(t, () => asked++)
  const limits = { forwards: 2, forwardWaitMs: 1000, yieldMs: 200 }
  const { port } = await front(t, routes, silent, { limits })
  const clients: RawClient[] = []
  const sent = (request: string) => {
    const client = new RawClient(port).send(request)
    clients.push(client)
    return client
  }
  const reading = sent(get('/large'))
  await until(() => asked === 1)
  const changing = sent(post('/made', '{}'))
  await until(() => asked === 2)
  sent(get('/large'))
  sent(get('/large'))
  const read = await reading.response()
  t.match(read, { status: 503, headers: { 'retry-after': '5' } })
  isRefusal(t, read, /cannot be asked now \(it has been silent for long, .*\); try again in some seconds$/)
  const changed = await changing.response()
  t.equal(changed.status, 502)
  isRefusal(t, changed, /^the primary gave no answer \(.*\), and may have done this: look first$/)
  await until(() => asked === 4)
  for (const client of clients) client.socket.destroy()
})

t.test('what is slow by design keeps its place while others get theirs in time', async t => {
  const [slow, quick] = [deferred(), deferred()]
  let asked = 0
  const waiting = [slow, quick].map((gate, i) =>
    route('GET', `/gate${i}`, async () => {
      asked++
      await gate.promise
      return { status: 204 }
    })
  )
  const { port } = await start(t, [...waiting, ...routes])
  const yieldMs = 1000
  const { port: at } = await front(t, [...waiting, ...routes], port, {
    limits: { forwards: 2, forwardWaitMs: 10_000, yieldMs }
  })
  const first = new RawClient(at).send(get('/gate0'))
  await until(() => asked === 1)
  await sleep(yieldMs + 100)
  const second = new RawClient(at).send(get('/gate1'))
  await until(() => asked === 2)
  const third = new RawClient(at).send(get('/echo/a'))
  await arrived()
  quick.resolve()
  t.equal((await third.response()).status, 200)
  t.equal((await second.response()).status, 204)
  slow.resolve()
  t.equal((await first.response()).status, 204)
  for (const client of [first, second, third]) client.socket.destroy()
})

t.test('it ends, or never ends, what is no answer', async t => {
  const table: [what: string, text: string, times: number, reason: RegExp][] = [
    [
      'another protocol',
      'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n',
      1,
      /\(it ended the connection\)/
    ],
    ['promises', 'HTTP/1.1 100 Continue\r\n\r\n', Infinity, /\(it goes on promising an answer\)/]
  ]
  for (const [what, text, times, reason] of table) {
    const closed = deferred()
    const port = await instead(t, async socket => {
      socket.once('close', () => closed.resolve())
      for (let i = 0; i < times && !socket.destroyed; i++) {
        socket.write(text)
        await sleep(1)
      }
    })
    const { client } = await front(t, routes, port)
    const read = await client.send(get('/large')).response()
    t.equal(read.status, 503, what)
    isRefusal(t, read, reason)
    const changed = await client.send(post('/made', '{}')).response()
    t.equal(changed.status, 502, what)
    isRefusal(t, changed, reason)
    await closed.promise
  }
})

t.test('it promises an answer, and gives it', async t => {
  const port = await instead(t, socket =>
    socket.write(`${'HTTP/1.1 100 Continue\r\n\r\n'.repeat(3)}HTTP/1.1 204 No Content\r\n\r\n`)
  )
  const { client } = await front(t, routes, port)
  t.equal((await client.send(post('/emptied', '{}')).response()).status, 204)
})

// rules 2.5
t.test('a status that svcd never answers with is 502', async t => {
  for (const status of ['000', '099', '302', '304', '600', '999']) {
    const port = await instead(t, socket =>
      socket.end(`HTTP/1.1 ${status} x\r\nContent-Length: 0\r\nLocation: http://192.0.2.1/\r\n\r\n`)
    )
    const { client, log, told } = await front(t, routes, port)
    for (const [request, more] of [
      [get('/large'), ''],
      [post('/made', '{}'), ', and whether this was done']
    ] as const) {
      const refusal = await client.send(request).response()
      t.equal(refusal.status, 502, status)
      t.notOk(refusal.headers.location)
      isRefusal(
        t,
        refusal,
        new RegExp(`^svcd never answers with ${Number(status)}: look whether .* leads to it${more}$`)
      )
    }
    t.same(new Set(told), new Set([`it answers with ${Number(status)}`]))
    t.strictSame(
      log.lines.filter(line => line.startsWith('error')),
      [],
      'nothing has failed here'
    )
  }
})

t.test('what a front server is told is not handed on', async t => {
  const port = await instead(t, socket =>
    socket.end(
      'HTTP/1.1 200 OK\r\nX-Accel-Redirect: /secret\r\nX-Accel-Buffering: no\r\nX-Own: kept\r\nContent-Length: 0\r\n\r\n'
    )
  )
  const { client } = await front(t, routes, port)
  const { status, headers } = await client.send(get('/large')).response()
  t.match({ status, headers }, { status: 200, headers: { 'x-own': 'kept' } })
  t.strictSame(
    Object.keys(headers).filter(name => name.startsWith('x-accel')),
    []
  )
})

/** What the one that writes knows a request of `front` by. */
const byFront = ({ headers }: IncomingMessage): ForwardedCaller | undefined =>
  headers['x-by'] === 'front' ? { address: '192.0.2.1', checkBody: async () => undefined } : undefined

// rules 2.11
t.test('a header that one takes goes through another one, which adds to it', async t => {
  const { port } = await start(t, routes, { handedOnFor: byFront })
  const { port: at } = await front(t, routes, port)
  const statusOf = async (to: number, more: string) => {
    const client = new RawClient(to).send(get('/echo/a', 'GET', more))
    const { status, body } = await client.response()
    client.socket.destroy()
    return { status, body }
  }
  const lines = (many: number) => Array.from({ length: many }, (_, i) => `X-${i}: 1\r\n`).join('')
  // Beside these are the path, Host and its value, and the names of the line.
  const bytes = (many: number) => `X: ${'x'.repeat(many - '/echo/aHostaX'.length)}\r\n`
  for (const to of [port, at]) {
    t.equal((await statusOf(to, lines(127))).status, 200)
    t.match(await statusOf(to, lines(128)), { status: 431, body: /more than 128 lines/ })
    t.equal((await statusOf(to, bytes(16_383))).status, 200)
    t.match(await statusOf(to, bytes(16_384)), { status: 431, body: /larger than 16384 bytes/ })
  }
})

t.test('a body that was not handed on so is refused before anything is done', async t => {
  let made = 0
  const making = [
    route('POST', '/made', () => {
      made++
      return { status: 204 }
    }),
    route('POST', '/dropped', () => ({ status: 204 }), { body: 'ignored' })
  ]
  const { port } = await start(t, making, {
    handedOnFor: () => ({
      address: '192.0.2.1',
      checkBody: async body => {
        if (body.toString() !== '{"a":1}') throw badRequest('another body')
      }
    })
  })
  const client = new RawClient(port)
  t.teardown(() => client.socket.destroy())
  t.equal((await client.send(post('/made', '{"a":1}')).response()).status, 204)
  for (const body of ['{"a":2}', '']) {
    const refusal = await client.send(post('/made', body)).response()
    t.equal(refusal.status, 400)
    isRefusal(t, refusal, /^another body$/)
  }
  t.equal(made, 1)
  t.equal((await client.send(post('/dropped', 'x')).response()).status, 204, 'it is not read')
})
