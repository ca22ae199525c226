import { readdirSync, readlinkSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { unauthorized } from '../../lib/base/errors.js'
import { until } from '../support/until.js'
import { arrived, deferred, gated, isRefusal, RawClient, route, start } from './helpers.js'

const routes = [
  route('GET', '/boot', () => ({ status: 200, text: '#!ipxe\n' })),
  route('POST', '/echo', ({ body }) => ({ status: 200, body })),
  route('POST', '/drop', () => ({ status: 204 }), { body: 'ignored' })
]
const post = (path: string, body: string, more = '') =>
  `POST ${path} HTTP/1.1\r\nHost: a\r\n${more}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`

// rules 1.5, 2.11
t.test('what the parser of node refuses is answered like any other refusal', async t => {
  const { port, log } = await start(t, routes, { limits: { lingerMs: 200, headerBytes: 4096 } })
  const table: [name: string, bytes: string, status: number, message: RegExp][] = [
    ['no request line', 'rubbish\r\n\r\n', 400, /not valid HTTP/],
    ['an unknown method', 'FOO /boot HTTP/1.1\r\nHost: a\r\n\r\n', 400, /not valid HTTP/],
    ['no version', 'GET /boot\r\n\r\n', 400, /Host header is missing/],
    ['an unknown version', 'GET /boot HTTP/9.9\r\nHost: a\r\n\r\n', 400, /not valid HTTP/],
    ['a space in the path', 'GET /bo ot HTTP/1.1\r\nHost: a\r\n\r\n', 400, /not valid HTTP/],
    ['a NUL in the path', 'GET /bo\0ot HTTP/1.1\r\nHost: a\r\n\r\n', 400, /not valid HTTP/],
    ['a TLS greeting', '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03', 400, /not valid HTTP/],
    ['a header without a colon', 'GET /boot HTTP/1.1\r\nHost: a\r\nrubbish\r\n\r\n', 400, /not valid HTTP/],
    [
      'a control character in a header',
      'GET /boot HTTP/1.1\r\nHost: a\r\nX: \x01\r\n\r\n',
      400,
      /not valid HTTP/
    ],
    ['no Host', 'GET /boot HTTP/1.1\r\n\r\n', 400, /Host header is missing/],
    [
      'a header too large',
      `GET /boot HTTP/1.1\r\nHost: a\r\nX: ${'x'.repeat(5000)}\r\n\r\n`,
      431,
      /4096 bytes/
    ],
    [
      'a header of too many lines',
      `GET /boot HTTP/1.1\r\nHost: a\r\nConnection: close\r\n${'a:b\r\n'.repeat(127)}\r\n`,
      431,
      /more than 128 lines/
    ],
    ['a path too long', `GET /${'x'.repeat(5000)} HTTP/1.1\r\nHost: a\r\n\r\n`, 431, /4096 bytes/],
    [
      'two lengths',
      'POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}',
      400,
      /HTTP/
    ],
    ['a length and chunks', post('/echo', '{}', 'Transfer-Encoding: chunked\r\n'), 400, /not valid HTTP/],
    [
      'a negative length',
      'POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: -2\r\n\r\n{}',
      400,
      /not valid HTTP/
    ],
    [
      'a bad chunk',
      'POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n',
      400,
      /HTTP/
    ],
    ['the authority form', 'CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n', 400, /must be a path/],
    [
      'the asterisk form',
      'OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n',
      400,
      /must be a path/
    ],
    [
      'an unknown expectation',
      'GET /boot HTTP/1.1\r\nHost: a\r\nExpect: tea\r\nConnection: close\r\n\r\n',
      417,
      /100/
    ]
  ]
  for (const [name, bytes, status, message] of table) {
    await t.test(name, async t => {
      const client = new RawClient(port).send(Buffer.from(bytes, 'latin1'))
      const response = await client.response()
      t.equal(response.status, status)
      isRefusal(t, response, message)
      if (name !== 'no Host') {
        t.equal(response.headers.connection, 'close')
        t.equal(await client.rest(), '')
      } else client.socket.destroy()
    })
  }
  t.notOk(
    log.lines.some(line => line.startsWith('error')),
    'none of it is an error of ours'
  )
})

t.test('HTTP/1.0 needs no Host and is closed after the answer', async t => {
  const { port } = await start(t, routes)
  const client = new RawClient(port).send('GET /boot HTTP/1.0\r\n\r\n')
  const response = await client.response()
  t.match(response, { status: 200, body: '#!ipxe\n', headers: { connection: 'close' } })
  t.equal(await client.rest(), '')
})

t.test('an offer to upgrade is not taken up', async t => {
  const { port } = await start(t, routes)
  const upgrade = 'Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n'
  const client = new RawClient(port)
  for (let i = 0; i < 2; i++) {
    client.send(`GET /boot HTTP/1.1\r\nHost: a\r\n${upgrade}\r\n`)
    t.match(await client.response(), { status: 200, body: '#!ipxe\n' })
  }
  client.socket.destroy()
})

t.test('the absolute form is answered like the path in it', async t => {
  const { port } = await start(t, routes)
  const client = new RawClient(port).send('GET http://elsewhere:1/boot?x HTTP/1.1\r\nHost: a\r\n\r\n')
  t.match(await client.response(), { status: 200, body: '#!ipxe\n' })
  client.socket.destroy()
})

t.test('pipelined requests are served one after the other, in order', async t => {
  const events: string[] = []
  const gate = deferred()
  const { port } = await start(t, [
    route('POST', '/slow', async () => {
      events.push('slow begins')
      await gate.promise
      events.push('slow ends')
      return { status: 200, body: 'slow' }
    }),
    route('GET', '/fast/{n}', ({ params }) => {
      events.push(`fast ${params.n}`)
      return { status: 200, body: params.n }
    })
  ])
  const get = (n: number) => `GET /fast/${n} HTTP/1.1\r\nHost: a\r\n\r\n`
  const client = new RawClient(port).send(post('/slow', '{}') + get(1) + get(2) + get(3))
  await until(() => events.length > 0, 'the first is served')
  await arrived()
  t.same(events, ['slow begins'])
  gate.resolve()
  t.match(await client.response(), { body: '"slow"\n' })
  for (const n of [1, 2, 3]) t.match(await client.response(), { body: `"${n}"\n` })
  t.same(events, ['slow begins', 'slow ends', 'fast 1', 'fast 2', 'fast 3'])
  client.socket.destroy()
})

t.test('rubbish after a good request does not cost that its answer', async t => {
  const gate = deferred()
  const { port } = await start(
    t,
    [
      route('GET', '/slow', async () => {
        await gate.promise
        return { status: 200, body: 'done' }
      })
    ],
    { limits: { lingerMs: 200 } }
  )
  const client = new RawClient(port).send('GET /slow HTTP/1.1\r\nHost: a\r\n\r\nrubbish\r\n\r\n')
  setTimeout(gate.resolve, 30)
  t.match(await client.response(), { status: 200, body: '"done"\n' })
  const second = await client.response()
  t.equal(second.status, 400)
  isRefusal(t, second, /not valid HTTP/)
  t.equal(await client.rest(), '')
})

t.test('chunked bodies are read like others', async t => {
  const { port } = await start(t, routes)
  const client = new RawClient(port)
  client.send('POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4;x=y\r\n{"a"\r\n')
  client.send('3\r\n:1}\r\n0\r\nX-Trailer: x\r\n\r\n')
  t.match(await client.response(), { status: 200, body: '{"a":1}\n' })
  client.send(post('/drop', 'any bytes at all'))
  const dropped = await client.response()
  t.equal(dropped.status, 204)
  t.equal(dropped.headers['content-length'], undefined)
  t.equal(dropped.headers['content-type'], undefined)
  t.equal(dropped.headers['transfer-encoding'], undefined)
  client.send('GET /boot HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabcde')
  t.match(await client.response(), { status: 200 }, 'a GET may bring a body that is dropped')
  client.socket.destroy()
})

// rules 2.5
t.test('HEAD is the head of the GET', async t => {
  const { port } = await start(t, [
    ...routes,
    route('GET', '/list', () => ({ status: 200, json: ['{"a":', '"é"', '}'] })),
    route('GET', '/long', () => ({ status: 200, json: Array.from({ length: 400 }, () => ' '.repeat(1000)) })),
    route('GET', '/do', () => ({ status: 204 }), { effect: 'changes' }),
    route('GET', '/fail', () => {
      throw new Error('broken')
    })
  ])
  const client = new RawClient(port)
  const ask = (method: string, path: string) => {
    client.send(`${method} ${path} HTTP/1.1\r\nHost: a\r\n\r\n`)
    return client.response(method === 'HEAD')
  }
  for (const path of ['/boot', '/list', '/long', '/fail', '/nothing']) {
    const head = await ask('HEAD', path)
    const get = await ask('GET', path)
    t.equal(head.status, get.status, path)
    t.same({ ...head.headers, date: '' }, { ...get.headers, date: '' }, path)
    t.equal(get.headers['content-length'], String(Buffer.byteLength(get.body)))
  }
  const refused = await ask('HEAD', '/do')
  t.match(refused, { status: 405, headers: { allow: 'GET' } })
  t.match(await ask('GET', '/boot'), { status: 200 }, 'the connection is in step')
  client.socket.destroy()
})

// rules 2.11
t.test('a client that is slow with its header gets 408', async t => {
  const { port, log } = await start(t, routes, { limits: { headersMs: 200, lingerMs: 100 } })
  const client = new RawClient(port).send('GET /boot HTTP/1.1\r\nHos')
  const drip = setInterval(() => client.send('x'), 20)
  const response = await client.response()
  clearInterval(drip)
  t.equal(response.status, 408)
  isRefusal(t, response, /too slowly/)
  await client.rest()
  t.notOk(log.lines.some(line => line.startsWith('error')))
})

t.test('a CONNECT behind another request cuts the connection, and what waits is not served', async t => {
  const { gate, begun, routes } = gated()
  const { port } = await start(t, routes)
  const client = new RawClient(port).send(
    'GET /slow HTTP/1.1\r\nHost: a\r\n\r\nGET /fast HTTP/1.1\r\nHost: a\r\n\r\nCONNECT x HTTP/1.1\r\n\r\n'
  )
  await begun.promise
  t.equal(await client.rest(), '')
  gate.resolve()
})

const linkOf = (path: string) => {
  try {
    return readlinkSync(path)
  } catch {
    return ''
  }
}

// A file that is being sent when CONNECT comes once stayed open for ever, with its connection.
t.test('a CONNECT behind a file leaves neither the file nor the connection open', async t => {
  const file = join(t.testdir({ kernel: 'x'.repeat(3_000_000) }), 'kernel')
  const { port, server, log } = await start(t, [route('GET', '/kernel', () => ({ status: 200, file }))])
  const isOpen = () => readdirSync('/proc/self/fd').some(fd => linkOf(`/proc/self/fd/${fd}`) === file)
  for (let i = 0; i < 20; i++) {
    const client = new RawClient(port)
    client.socket.pause()
    client.send('GET /kernel HTTP/1.1\r\nHost: a\r\n\r\nCONNECT x HTTP/1.1\r\n\r\n')
    if (i % 2) client.socket.resume()
  }
  await until(() => log.lines.filter(line => line.includes('GET /kernel')).length === 20)
  await until(() => !isOpen())
  await server.close(60_000)
})

t.test('what is not HTTP is refused after the answers to all that came before it', async t => {
  const { gate, begun, routes } = gated()
  const { port } = await start(t, routes)
  const get = (path: string) => `GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`
  const client = new RawClient(port).send(`${get('/slow')}${get('/fast')}GARBAGE\r\n\r\n`)
  await begun.promise
  gate.resolve()
  t.match(await client.response(), { status: 200, body: '"done"\n' })
  t.match(await client.response(), { status: 200, body: '"fast"\n' })
  isRefusal(t, await client.response(), /not valid HTTP/)
  t.equal(await client.rest(), '')
})

t.test('a request whose body is broken is not served, and those before it are', async t => {
  const { gate, begun, routes } = gated()
  let posted = 0
  const posts = route('POST', '/post', () => ({ status: 200, body: posted++ }))
  const { port } = await start(t, [...routes, posts])
  const client = new RawClient(port).send(
    'GET /slow HTTP/1.1\r\nHost: a\r\n\r\nPOST /post HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\nGARBAGE\r\n\r\n'
  )
  await begun.promise
  gate.resolve()
  t.match(await client.response(), { status: 200 })
  isRefusal(t, await client.response(), /not valid HTTP/)
  t.equal(await client.rest(), '')
  t.equal(posted, 0)
})

t.test('two Host headers are refused', async t => {
  const { port } = await start(t, routes)
  const client = new RawClient(port).send('GET /boot HTTP/1.1\r\nHost: a\r\nHOST: b\r\n\r\n')
  const answer = await client.response()
  t.equal(answer.status, 400)
  isRefusal(t, answer, /Host header is given twice/)
})

t.test('a caller who may no longer do it when the body has come is refused', async t => {
  let calls = 0
  let posted = 0
  const authorize = () => {
    if (calls++ > 0) throw unauthorized('the token in x-access-tokens is not valid')
    return 'caller'
  }
  const posts = route('POST', '/post', () => ({ status: 200, body: posted++ }))
  const { port } = await start(t, [posts], { authorize })
  const client = new RawClient(port).send(post('/post', '{}'))
  const answer = await client.response()
  t.equal(answer.status, 401)
  isRefusal(t, answer, /not valid/)
  t.equal(posted, 0)
})

t.test('a connection that is reset, at any moment, harms no other', async t => {
  const gate = deferred()
  const { port, log } = await start(
    t,
    [
      ...routes,
      route('GET', '/slow', async () => {
        await gate.promise
        return { status: 200, body: 'done' }
      }),
      route('GET', '/long', () => ({
        status: 200,
        json: Array.from({ length: 400 }, () => ' '.repeat(1000))
      }))
    ],
    { limits: { lingerMs: 200 } }
  )
  const moments = [
    '',
    'GET /bo',
    'CONNECT x HTTP/1.1\r\n\r\n',
    'CONNECT x:1 HTTP/1.1\r\nHost: a\r\n\r\nmore',
    'GET /slow HTTP/1.1\r\nHost: a\r\n\r\nCONNECT x HTTP/1.1\r\n\r\n',
    'GET /boot HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n',
    'GET /slow HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n',
    'GET /long HTTP/1.1\r\nHost: a\r\n\r\n',
    'POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{"a":',
    'POST /nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n{"a":',
    'POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n',
    'POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}',
    'rubbish\r\n\r\n'
  ]
  for (const bytes of moments)
    for (const waits of [false, true]) {
      const client = new RawClient(port).send(bytes)
      await new Promise(resolve => client.socket.once('connect', resolve))
      // At once, or when the answer has begun where there is one.
      if (waits) await arrived()
      client.socket.resetAndDestroy()
      await client.rest()
    }
  gate.resolve()
  const next = new RawClient(port).send('GET /boot HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n')
  t.match(await next.response(), { status: 200, body: '#!ipxe\n' })
  t.notOk(log.lines.some(line => line.startsWith('error')))
})
