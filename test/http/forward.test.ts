// Requests that another server answers in the place of this one (rules 11.16).
import { createServer } from 'node:net'
import t, { type Test } from 'tap'
import { badRequest } from '../../lib/errors.js'
import type { Limits } from '../../lib/http/limits.js'
import type { Route } from '../../lib/http/route.js'
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
    elsewhere: ({ path }) =>
      path === '/here'
        ? undefined
        : {
            url: `http://127.0.0.1:${port}`,
            headersFor: async () => ({ 'x-by': 'front' }),
            verified: true,
            gone,
            told: failure => void told.push(failure)
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
    isRefusal(
      t,
      refusal,
      /^the controller that writes cannot be asked now \(ECONNREFUSED\); try again in some seconds$/
    )
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
  isRefusal(
    t,
    refusal,
    /^the controller that writes gave no answer \(ECONNRESET\), and may have done this: look first$/
  )
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
      feed: { next: () => 'x'.repeat(65_536), beat: '', follow: () => () => ended.resolve() }
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
  t.same(await source('forged'), { message: 'leave it out' })
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
  isRefusal(t, refusal, /^3 requests are handed on to the controller that writes, which is the most/)
  gone.abort()
  for (const client of clients) t.equal((await client.response()).status, 503)
  await arrived()
  for (const client of [more, ...clients]) client.socket.destroy()
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
