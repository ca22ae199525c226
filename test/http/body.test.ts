import t from 'tap'
import { forbidden, unauthorized } from '../../lib/base/errors.js'
import { until } from '../support/until.js'
import { arrived, isRefusal, RawClient, route, start } from './helpers.js'

const MEGABYTE = 1024 * 1024
const echo = route('POST', '/echo', ({ body }) => ({ status: 200, body }))
const drop = route('POST', '/drop', () => ({ status: 204 }), { body: 'ignored' })
const head = (path: string, more: string) => `POST ${path} HTTP/1.1\r\nHost: a\r\n${more}\r\n`
const chunk = (text: string) => `${text.length.toString(16)}\r\n${text}\r\n`

// rules 2.5
t.test('a body over the limit is 413, however it is announced', async t => {
  const { port } = await start(t, [echo, drop], { maxBody: 100 })
  for (const path of ['/echo', '/drop']) {
    const exact = `"${'x'.repeat(98)}"`
    const client = new RawClient(port)
    client.send(head(path, 'Content-Length: 100\r\n') + exact)
    t.ok((await client.response()).status < 300, 'the limit itself is allowed')
    client.send(head(path, 'Transfer-Encoding: chunked\r\n') + chunk(exact) + chunk(''))
    t.ok((await client.response()).status < 300)

    client.send(`${head(path, 'Content-Length: 101\r\n')}${exact} `)
    const announced = await client.response()
    t.equal(announced.status, 413)
    isRefusal(t, announced, /larger than 100 bytes/)
    client.send(head(path, 'Content-Length: 100\r\n') + exact)
    t.ok((await client.response()).status < 300, 'a small rest is dropped and the connection stays in step')

    client.send(head(path, 'Transfer-Encoding: chunked\r\n') + chunk(exact) + chunk('more'))
    const streamed = await client.response()
    t.equal(streamed.status, 413)
    t.equal(streamed.headers.connection, 'close')
    client.send(chunk('still more') + chunk(''))
    t.equal(await client.rest(), '')
    t.equal(client.error, undefined, 'no reset')
  }
})

t.test('a large upload that is refused is told so before the connection ends', async t => {
  const { port } = await start(t, [echo], {
    maxBody: MEGABYTE,
    authorize: (_, { headers }) => {
      if (headers['x-deny'] === '401') throw unauthorized('no token')
      if (headers['x-deny'] === '403') throw forbidden('not yours')
      return 'caller'
    }
  })
  const table: [path: string, header: string, status: number][] = [
    ['/echo', '', 413],
    ['/echo', 'X-Deny: 401\r\n', 401],
    ['/echo', 'X-Deny: 403\r\n', 403],
    ['/nothing', '', 404],
    ['/%zz', '', 400]
  ]
  for (const [path, header, status] of table) {
    for (const length of ['Content-Length: 20971520', 'Transfer-Encoding: chunked']) {
      const client = new RawClient(port)
      client.send(head(path, `${header}${length}\r\n`))
      // Like clients that send it all before they look at the answer.
      client.socket.pause()
      const part = 'x'.repeat(MEGABYTE)
      for (let sent = 0; sent < 20; sent++) {
        const flushed = client.socket.write(length.startsWith('T') ? chunk(part) : part)
        if (!flushed) await new Promise(resolve => client.socket.once('drain', resolve))
      }
      if (length.startsWith('T')) client.send(chunk(''))
      client.socket.resume()
      const response = await client.response()
      t.equal(response.status, status, `${status} ${length}`)
      t.equal(response.headers.connection, 'close')
      isRefusal(t, response, /./)
      t.equal(await client.rest(), '')
      t.equal(client.error, undefined, 'no reset')
    }
  }
})

t.test('Expect: 100-continue is answered after the caller is known', async t => {
  const { port } = await start(t, [echo], {
    maxBody: 100,
    authorize: (_, { headers }) => {
      if (headers['x-deny']) throw unauthorized('no token')
      return 'caller'
    }
  })
  const expects = 'Expect: 100-continue\r\n'
  const allowed = new RawClient(port).send(head('/echo', `${expects}Content-Length: 7\r\n`))
  t.equal((await allowed.response()).status, 100)
  allowed.send('{"a":1}')
  t.match(await allowed.response(), { status: 200, body: '{"a":1}\n' })
  allowed.socket.destroy()

  for (const [header, status] of [
    ['X-Deny: 1\r\nContent-Length: 7\r\n', 401],
    ['Content-Length: 700\r\n', 413]
  ] as const) {
    const client = new RawClient(port).send(head('/echo', expects + header))
    const response = await client.response()
    t.equal(response.status, status, 'no 100 before it')
    t.equal(response.headers.connection, 'close', 'the body may or may not follow')
    t.equal(await client.rest(), '')
  }
})

// rules 2.11
t.test('a slow upload that lives is taken, one that stalls is 408', async t => {
  const limits = { bodyMs: 1500, bodyBytes: 10, lingerMs: 100 }
  const { port, log } = await start(t, [echo], { limits })
  const living = new RawClient(port).send(head('/echo', 'Content-Length: 302\r\n'))
  living.send('"')
  for (let i = 0; i < 30; i++) {
    await new Promise(resolve => setTimeout(resolve, 60))
    living.send('0123456789')
  }
  living.send('"')
  t.match(await living.response(), { status: 200 }, 'longer than a stall may last')
  living.socket.destroy()

  const stalled = new RawClient(port).send(head('/echo', 'Content-Length: 1000000\r\n'))
  const drip = setInterval(() => stalled.send('x'), 300)
  const response = await stalled.response()
  clearInterval(drip)
  t.equal(response.status, 408)
  isRefusal(t, response, /too slowly/)
  await stalled.rest()
  t.notOk(log.lines.some(line => line.startsWith('error')))
})

t.test('a client that hangs up in its body runs nothing and is no error', async t => {
  let handled = 0
  const count = route('POST', '/count', () => {
    handled++
    return { status: 204 }
  })
  const { port, log } = await start(t, [count, echo])
  const reset = new RawClient(port).send(`${head('/count', 'Content-Length: 100\r\n')}{"a":`)
  await arrived()
  reset.socket.resetAndDestroy()
  await until(() => log.lines.length === 1, 'the cut request is logged')

  const ended = new RawClient(port, true).send(`${head('/count', 'Content-Length: 100\r\n')}{"a":`)
  ended.socket.end()
  const response = await ended.response()
  t.equal(response.status, 400)
  isRefusal(t, response, /ends before it is complete/)
  await ended.rest()

  t.equal(handled, 0)
  t.match(log.lines[0], /^info POST \/count - 0 .*\(client gone\)$/)
  t.notOk(log.lines.some(line => /^(error|warn)/.test(line)))
  const next = new RawClient(port).send(`${head('/echo', 'Content-Length: 2\r\n')}{}`)
  t.equal((await next.response()).status, 200)
  next.socket.destroy()
})

// rules 2.11
t.test(
  'a body in pieces of one byte takes the memory of its bytes, and thousands of them are 400',
  async t => {
    const { port } = await start(t, [echo])
    const some = `"${'x'.repeat(200)}"`
    const client = new RawClient(port)
    client.send(head('/echo', 'Transfer-Encoding: chunked\r\n') + [...some].map(chunk).join('') + chunk(''))
    t.match(await client.response(), { status: 200, body: `${some}\n` })
    client.send(head('/echo', 'Transfer-Encoding: chunked\r\n') + chunk('x').repeat(8000))
    const refused = await client.response()
    t.equal(refused.status, 400)
    isRefusal(t, refused, /too many small pieces/)
    client.socket.destroy()

    const clients = Array.from({ length: 100 }, () => new RawClient(port))
    const before = process.memoryUsage.rss()
    for (const one of clients)
      one.send(head('/echo', 'Transfer-Encoding: chunked\r\n') + chunk('x').repeat(8000))
    for (const one of clients) t.equal((await one.response()).status, 400)
    const grown = (process.memoryUsage.rss() - before) / MEGABYTE
    t.ok(grown < 150, `${Math.round(grown)} MB for 100 of them`)
    for (const { socket } of clients) socket.destroy()
  }
)

// rules 1.7
t.test('an empty body where JSON is needed is 400', async t => {
  const { port } = await start(t, [echo])
  for (const length of ['', 'Content-Length: 0\r\n', 'Content-Length: 1\r\n']) {
    const client = new RawClient(port).send(head('/echo', length) + (length.includes('1') ? ' ' : ''))
    const response = await client.response()
    t.equal(response.status, 400)
    isRefusal(t, response, /line 1, column 1: the body is empty/)
    client.socket.destroy()
  }
})
