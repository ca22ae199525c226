import t from 'tap'
import { inject } from '../support/inject.js'
import { until } from '../support/until.js'
import { arrived, deferred, gated, isRefusal, RawClient, route, start } from './helpers.js'

const get = (path: string) => `GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`

// rules 11.5
t.test('close: idle connections end, the request under way finishes, new ones are refused', async t => {
  const { gate, begun, routes } = gated()
  const { server, port } = await start(t, routes)
  const silent = new RawClient(port)
  const idle = new RawClient(port).send(get('/fast'))
  t.equal((await idle.response()).status, 200)
  const busy = new RawClient(port).send(get('/slow'))
  await begun.promise
  const half = new RawClient(port).send('GET /fast HTTP/1.1\r\nHo')
  await arrived()

  let closed = false
  const closing = server.close(10_000).then(() => {
    closed = true
  })
  t.equal(await idle.rest(), '', 'the idle one ends')
  t.equal(await silent.rest(), '', 'and the one that never asked')
  const late = new RawClient(port)
  await late.rest()
  t.match(late.error, { code: 'ECONNREFUSED' })

  half.send('st: a\r\n\r\n')
  const refused = await half.response()
  t.equal(refused.status, 503)
  t.equal(refused.headers.connection, 'close')
  isRefusal(t, refused, /shutting down/)
  await half.rest()

  t.equal(closed, false, 'one request is still under way')
  gate.resolve()
  t.match(await busy.response(), { status: 200, body: '"done"\n', headers: { connection: 'close' } })
  t.equal(await busy.rest(), '')
  await closing
  await server.close(0)
})

t.test('close: a request pipelined behind the one under way is not begun', async t => {
  const { gate, begun, routes } = gated()
  const { server, port } = await start(t, routes)
  const client = new RawClient(port).send(get('/slow') + get('/slow'))
  await begun.promise
  const closing = server.close(10_000)
  gate.resolve()
  t.match(await client.response(), { status: 200, headers: { connection: 'close' } })
  t.equal(await client.rest(), '')
  await closing
})

t.test('close: a connection whose answer was promised to be kept alive ends too', async t => {
  const gate = deferred()
  const begun = deferred()
  const long = Array.from({ length: 3000 }, () => ' '.repeat(10_000))
  const { server, port } = await start(t, [
    route('GET', '/long', async () => {
      begun.resolve()
      await gate.promise
      return { status: 200, json: long }
    })
  ])
  const client = new RawClient(port).send(get('/long'))
  await begun.promise
  gate.resolve()
  await new Promise(resolve => client.socket.once('data', resolve))
  const closing = server.close(600_000)
  const response = await client.response()
  t.equal(response.headers.connection, 'keep-alive')
  t.equal(response.body.length, 30_000_001)
  t.equal(await client.rest(), '')
  await closing
})

// rules 11.5
t.test('close: what is not done in time is cut, and its signal fires', async t => {
  const begun = deferred()
  const aborted = deferred()
  const { server, port, log } = await start(t, [
    route('GET', '/forever', ({ signal }) => {
      begun.resolve()
      return new Promise(() => signal.addEventListener('abort', () => aborted.resolve()))
    })
  ])
  const client = new RawClient(port).send(get('/forever'))
  await begun.promise
  await server.close(50)
  t.equal(await client.rest(), '')
  await aborted.promise
  await until(() => log.lines.length > 0, 'the request is logged')
  t.match(log.lines, [/^info GET \/forever - 0 .*client gone/])
})

t.test('close before listen, and inject after close', async t => {
  const { server } = await start(t, [route('GET', '/fast', () => ({ status: 200, body: 1 }))])
  await server.close(0)
  const response = await inject(server, { method: 'GET', path: '/fast' })
  t.equal(response.status, 503)
})

t.test('an address that is taken is told', async t => {
  const { port } = await start(t, [])
  const second = (await start(t, [])).server
  await second.close(0)
  await t.rejects(second.listen('127.0.0.1', port), { code: 'EADDRINUSE' })
})
