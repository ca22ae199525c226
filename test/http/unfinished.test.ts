import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { type ConnectionOptions, connect as connectTls } from 'node:tls'
import t, { type Test } from 'tap'
import { unauthorized } from '../../lib/base/errors.js'
import { share } from '../../lib/http/admission/limits.js'
import { readPair } from '../../lib/http/certificate.js'
import { makeCertificate } from '../support/certificate.js'
import { scratch } from '../support/scratch.js'
import { until } from '../support/until.js'
import { arrived, gated, isRefusal, RawClient, route, start } from './helpers.js'

// Requests whose bodies do not come: they keep nobody else from an answer (rules 2.11, 2.15).

const get = (path: string) => `GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`
const ownAddresses = ['127.0.0.1']
const boot = route('GET', '/boot', () => ({ status: 200, text: '#!ipxe\n' }))
const echo = route('POST', '/echo', ({ body }) => ({ status: 200, body }))
const drop = route('POST', '/drop', () => ({ status: 204 }), { body: 'ignored' })
const routes = [boot, echo, drop]

/** With 128 descriptors. */
const limits = share(128, 28)

/** What comes before a body that never comes whole, by the way in which the request is left unfinished. */
const unfinished: Readonly<Record<string, string>> = {
  'a body with a length': 'POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 65000\r\n\r\n{',
  'a body in chunks': 'POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\n{',
  'a body after a 100':
    'POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 65000\r\nExpect: 100-continue\r\n\r\n',
  'a body that nobody reads': 'POST /drop HTTP/1.1\r\nHost: a\r\nContent-Length: 65000\r\n\r\n{',
  'a GET with a body': 'GET /boot HTTP/1.1\r\nHost: a\r\nContent-Length: 65000\r\n\r\n{',
  'a HEAD with a body': 'HEAD /boot HTTP/1.1\r\nHost: a\r\nContent-Length: 65000\r\n\r\n{',
  'no route': 'GET /none HTTP/1.1\r\nHost: a\r\nContent-Length: 65000\r\n\r\n{',
  'another method': 'PUT /boot HTTP/1.1\r\nHost: a\r\nContent-Length: 65000\r\n\r\n{',
  'no token': 'POST /echo HTTP/1.1\r\nHost: a\r\nX-Deny: 1\r\nContent-Length: 65000\r\n\r\n{',
  'a body that is too large': 'POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n{',
  'whole requests before it': `${get('/boot').repeat(3)}POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{`,
  'whole bodies before it': `${'POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}'.repeat(3)}POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{`,
  'a header that does not end': 'GET /boot HTTP/1.1\r\nHost: a\r\nX: '
}

const authorize = (_: unknown, { headers }: { headers: Record<string, unknown> }) => {
  if (headers['x-deny']) throw unauthorized('no token')
  return 'caller'
}

/** A connection from one of the addresses of loopback. */
function open(port: number, localAddress: string, tls = false): Socket {
  const where = { port, host: '127.0.0.1', localAddress }
  return tls ? connectTls({ ...where, rejectUnauthorized: false } as ConnectionOptions) : connect(where)
}

const from = (port: number, localAddress: string, tls = false) =>
  new RawClient(port, false, open(port, localAddress, tls))

/**
 * How many of 30 machines, one after the other, get what they boot by; the first status of each other one.
 */
async function booted(port: number, tls = false): Promise<{ booted: number; others: number[] }> {
  const others: number[] = []
  for (let n = 0; n < 30; n++) {
    const client = from(port, `127.0.3.${n + 1}`, tls)
    const answer = client.send(get('/boot')).response()
    const { status } = await answer.catch(() => ({ status: 0 }))
    if (status !== 200) others.push(status)
    client.socket.destroy()
  }
  return { booted: 30 - others.length, others }
}

/**
 * Strangers of many addresses that send such requests, a byte of the rest now and then, and come again when
 * they are cut.
 */
function strangers(t: Test, port: number, count: number, text: string, tls = false) {
  const sockets = new Set<Socket>()
  let ended = false
  let cut = 0
  const begin = (n: number) => {
    if (ended) return
    const socket = open(port, `127.0.${10 + Math.floor(n / 200)}.${1 + (n % 200)}`, tls)
    sockets.add(socket)
    socket.on('error', () => undefined).on(tls ? 'secureConnect' : 'connect', () => socket.write(text))
    socket.on('data', () => undefined)
    socket.on('close', () => {
      sockets.delete(socket)
      cut++
      setTimeout(begin, 100 + 100 * (n % 5), n)
    })
  }
  for (let n = 0; n < count; n++) begin(n)
  const drip = setInterval(() => {
    for (const socket of sockets) if (socket.writable) socket.write('x')
  }, 250)
  t.teardown(() => {
    ended = true
    clearInterval(drip)
    for (const socket of sockets) socket.destroy()
  })
  return { cut: () => cut }
}

// rules 2.15
for (const [what, text] of Object.entries(unfinished))
  t.test(`where room is short, machines are answered beside strangers who send ${what}`, async t => {
    const { port } = await start(t, routes, { limits, ownAddresses, authorize, isKnown: () => false })
    const crowd = strangers(t, port, 75, text)
    await until(() => crowd.cut() > 20, 'there is no room left')
    t.same(await booted(port), { booted: 30, others: [] })
  })

// rules 2.15
t.test(
  'where two addresses take all places with small requests without end, machines are answered',
  async t => {
    const { port } = await start(t, routes, { limits, ownAddresses })
    let cut = 0
    const ask = (n: number, socket = open(port, `127.0.10.${1 + (n % 2)}`)) => {
      socket.on('error', () => undefined).on('data', () => undefined)
      const asking = setInterval(() => socket.writable && socket.write(get('/boot')), 250)
      socket
        .on('connect', () => socket.write(get('/boot')))
        .on('close', () => {
          cut++
          clearInterval(asking)
          if (!ended) setTimeout(ask, 100 + 100 * (n % 5), n)
        })
      t.teardown(() => socket.destroy())
    }
    let ended = false
    t.teardown(() => {
      ended = true
    })
    for (let n = 0; n < 75; n++) ask(n)
    await until(() => cut > 20, 'there is no room left')
    t.same(await booted(port), { booted: 30, others: [] })
  }
)

// rules 2.15
t.test(
  'where all places are taken by requests that are not whole, the very next machine is answered',
  async t => {
    const limits = { connections: 10, crowded: 2 }
    const kinds = { ...unfinished, nothing: '' }
    for (const [what, text] of Object.entries(kinds)) {
      // Those are answered, and it is the answer that keeps the connection for a while.
      if (what.includes('before it')) continue
      const { port } = await start(t, routes, { limits, ownAddresses, authorize, isKnown: () => false })
      const crowd = Array.from({ length: 10 }, (_, n) => from(port, `127.0.5.${n + 1}`).send(text))
      await arrived()
      t.equal((await from(port, '127.0.3.1').send(get('/boot')).response()).status, 200, what)
      for (const { socket } of crowd) socket.destroy()
    }
  }
)

// rules 2.14, 2.15
t.test(
  'where room is short, requests that wait behind others of their connection keep nobody out',
  async t => {
    const { gate, begun, routes } = gated()
    const limits = { connections: 10, crowded: 2 }
    const { port } = await start(t, [boot, echo, ...routes], { limits, ownAddresses })
    const under = Array.from({ length: 3 }, (_, n) => from(port, `127.0.6.${n + 1}`).send(get('/slow')))
    await begun.promise
    const behind = ['', get('/boot'), unfinished['a body with a length'] ?? ''].map(
      last => get('/boot') + last
    )
    const crowd = Array.from({ length: 7 }, (_, n) =>
      from(port, `127.0.5.${n + 1}`).send(get('/slow') + behind[n % 3])
    )
    await arrived()
    const machines = Array.from({ length: 4 }, (_, n) => from(port, `127.0.3.${n + 1}`))
    for (const machine of machines) t.equal((await machine.send(get('/boot')).response()).status, 200)
    gate.resolve()
    for (const client of under) t.equal((await client.response()).status, 200, 'what is under way goes on')
    for (const { socket } of [...under, ...crowd, ...machines]) socket.destroy()
  }
)

// rules 2.15, 2.18
t.test('where room is short, machines are answered beside strangers over TLS', async t => {
  const { port, server } = await start(t, routes, { limits, ownAddresses, authorize, isKnown: () => false })
  const { context } = await readPair(await makeCertificate(scratch(t), 'controller'))
  const { port: tlsPort } = await server.listenTls('127.0.0.1', 0, () => context)
  const crowd = strangers(t, tlsPort, 60, unfinished['a body with a length'] ?? '', true)
  await until(() => crowd.cut() > 20, 'there is no room left')
  t.same(await booted(port), { booted: 30, others: [] }, 'without TLS')
  t.same(await booted(tlsPort, true), { booted: 30, others: [] }, 'with TLS')
})

// rules 2.3, 2.11
t.test('a body that a request does not need is refused at once, and the connection ends', async t => {
  const { port } = await start(t, routes, { authorize, limits: { lingerMs: 100 } })
  const table: [what: string, status: number][] = [
    ['a GET with a body', 400],
    ['a HEAD with a body', 400],
    ['no route', 404],
    ['another method', 405],
    ['no token', 401],
    ['a body that is too large', 413]
  ]
  for (const [what, status] of table)
    for (const length of ['Content-Length: 65000', 'Transfer-Encoding: chunked']) {
      if (status === 413 && length.startsWith('T')) continue
      const text = unfinished[what] ?? ''
      const rest = length.startsWith('T') ? '1\r\n{\r\n' : '{'
      const client = new RawClient(port).send(
        text.replace('Content-Length: 65000', length).replace(/\{$/, rest)
      )
      const response = await client.response(what.includes('HEAD'))
      t.equal(response.status, status, `${what}, ${length}`)
      t.equal(response.headers.connection, 'close')
      if (!what.includes('HEAD')) isRefusal(t, response, /./)
      t.equal(await client.rest(), '', 'it has ended')
    }
  const kept = new RawClient(port)
  for (const path of ['/none', '/none']) {
    kept.send(`GET ${path} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}`)
    t.match(
      await kept.response(),
      { status: 404 },
      'one that came whole is dropped, and the next is answered'
    )
  }
  kept.socket.destroy()
})

// rules 2.11
t.test('a body of up to 64 KiB has a short time, a long one of a user has none', async t => {
  const limits = { shortBodyMs: 400, bodyMs: 60_000, lingerMs: 50 }
  const maxBody = (caller: string) => (caller === 'user' ? 10_000_000 : 65_536)
  const as = (_: unknown, { headers }: { headers: Record<string, unknown> }) => String(headers['x-caller'])
  const { port } = await start(t, routes, { limits, maxBody, authorize: as, isKnown: one => one === 'user' })
  const send = (caller: string, length: string) =>
    new RawClient(port).send(`POST /echo HTTP/1.1\r\nHost: a\r\nX-Caller: ${caller}\r\n${length}\r\n\r\n`)
  const long = send('user', 'Content-Length: 70002')
  const chunked = send('user', 'Transfer-Encoding: chunked').send('1\r\n"\r\n')
  const short = [
    send('user', 'Content-Length: 65536'),
    send('node', 'Content-Length: 900'),
    send('node', 'Transfer-Encoding: chunked').send('1\r\n"\r\n')
  ]
  const drips = short
    .slice(0, 2)
    .map(({ socket }) => setInterval(() => socket.writable && socket.write('1'), 20))
  for (const client of short.slice(0, 2)) {
    const response = await client.response()
    t.equal(response.status, 408)
    isRefusal(t, response, /too slowly/)
  }
  t.equal((await short[2]?.response())?.status, 408, 'so is one in chunks of a node')
  for (const drip of drips) clearInterval(drip)
  long.send('"').send('x'.repeat(70_000)).send('"')
  t.equal((await long.response()).status, 200)
  chunked.send('1\r\n"\r\n0\r\n\r\n')
  t.equal((await chunked.response()).status, 200, 'nobody knows how long a chunked one is')
  for (const { socket } of [long, chunked, ...short]) socket.destroy()
})

// rules 2.11
t.test('bodies that are on their way have a bound, for each address and in all', async t => {
  const limits = { bodiesPerAddress: 3, bodies: 5 }
  const trustedProxies = ['127.0.0.9']
  const { port } = await start(t, routes, { limits, ownAddresses, trustedProxies })
  const begin = (address: string, forwarded = '') =>
    from(port, address).send(`POST /echo HTTP/1.1\r\nHost: a\r\n${forwarded}Content-Length: 9\r\n\r\n{`)
  const some = [1, 2, 3].map(() => begin('127.0.0.2'))
  await arrived()
  const refused = await begin('127.0.0.2').response()
  t.equal(refused.status, 503)
  t.match(refused.headers, { 'retry-after': /^\d+$/, connection: 'close' })
  isRefusal(t, refused, /127\.0\.0\.2 has 3 requests whose bodies have not come whole/)
  const behind = [1, 2].map(() => begin('127.0.0.9', 'X-Forwarded-For: 192.0.2.7\r\n'))
  await arrived()
  t.equal(
    (await begin('127.0.0.9', 'X-Forwarded-For: 127.0.0.2\r\n').response()).status,
    503,
    'behind a proxy'
  )
  // All places are taken: the oldest that has had its time makes room.
  const later = begin('127.0.0.3')
  await once(some[0]?.socket as Socket, 'close')
  later.send('"a":"b"}'.slice(0, 8))
  t.equal((await later.response()).status, 200)
  t.equal(some.filter(({ socket }) => !socket.closed).length, 2, 'one was cut')
  for (const client of [...some.slice(1), ...behind]) client.send('"a":"b"}')
  for (const client of [...some.slice(1), ...behind]) t.equal((await client.response()).status, 200)
  for (const { socket } of [...some, ...behind, later]) socket.destroy()
})

// rules 2.15
t.test("where room is short, a user's upload ends after all others", async t => {
  const limits = { connections: 20, crowded: 2, bodiesPerAddress: 1000 }
  const as = (_: unknown, { headers }: { headers: Record<string, unknown> }) => String(headers['x-caller'])
  for (const trusted of [false, true]) {
    const options = { limits, authorize: as, isKnown: (one: string) => one === 'user' }
    const { port } = await start(t, routes, trusted ? options : { ...options, ownAddresses })
    const upload = from(port, '127.0.4.1')
    upload.send('POST /echo HTTP/1.1\r\nHost: a\r\nX-Caller: user\r\nContent-Length: 70002\r\n\r\n"')
    await arrived()
    const crowd = strangers(t, port, 40, unfinished['a body with a length'] ?? '')
    await until(() => crowd.cut() > 100, 'many times as many as there is room for were cut')
    upload.send('x'.repeat(70_000)).send('"')
    t.equal(
      (await upload.response()).status,
      200,
      trusted ? 'among addresses without a bound' : 'among strangers'
    )
    upload.socket.destroy()
  }
})
