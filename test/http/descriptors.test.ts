import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { share } from '../../lib/http/admission/limits.js'
import { Daemon } from '../support/daemon.js'
import { proof } from '../support/proof.js'
import { scratch } from '../support/scratch.js'
import { until } from '../support/until.js'
import { arrived, gated, RawClient, route, start } from './helpers.js'

const get = (path: string) => `GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`

/** So that other addresses of loopback are those of strangers. */
const ownAddresses = ['127.0.0.1']

/** Connections that ask nothing, from an address of loopback; they are open when this resolves. */
async function idle(t: Test, port: number, count: number, localAddress = '127.0.0.1'): Promise<Socket[]> {
  const sockets = Array.from({ length: count }, () =>
    connect({ port, host: '127.0.0.1', localAddress }).on('error', () => undefined)
  )
  t.teardown(() => {
    for (const socket of sockets) socket.destroy()
  })
  await Promise.all(sockets.map(socket => new Promise(resolve => socket.once('connect', resolve))))
  return sockets.map(socket => socket.resume())
}

const open = (sockets: readonly Socket[]) => sockets.filter(({ closed }) => !closed).length

// rules 2.15
t.test('where room is short idle connections end, and no request', async t => {
  const { gate, begun, routes } = gated()
  const limits = { connections: 20, connectionsPerAddress: 12 }
  const { port, log } = await start(t, routes, { limits, ownAddresses })
  const busy = new RawClient(port).send(get('/slow'))
  await begun.promise
  const used = new RawClient(port).send(get('/fast'))
  await used.response()
  const many = await idle(t, port, 50, '127.0.0.5')
  await until(() => open(many) <= 10, 'those over the most of one address have ended')
  t.ok(open(many) >= 5, 'not more than need be')
  t.ok(open(many.slice(40)) > open(many.slice(0, 10)), 'the idlest ended first')
  const others = await idle(t, port, 6, '127.0.0.2')
  t.equal(open(others), 6, 'another address has room')
  const more = await Promise.all(['127.0.0.3', '127.0.0.4'].map(address => idle(t, port, 10, address)))
  await until(() => open([...many, ...others, ...more.flat()]) < 20, 'and all together have a bound')

  const late = new RawClient(port).send(get('/fast'))
  t.match(await late.response(), { status: 200 })
  gate.resolve()
  t.match(await busy.response(), { body: '"done"\n' })
  const warnings = log.lines.filter(line => line.startsWith('warn'))
  t.match(warnings, [/^warn 127\.0\.0\.5 has 1\d connections, which is the most for one address/])
  t.equal(warnings.length, 1, 'said once')
  for (const { socket } of [busy, late]) socket.destroy()
})

// rules 2.15
t.test('many addresses with some connections each leave room for one that has none', async t => {
  const { gate, routes } = gated()
  const { port } = await start(t, routes, {
    limits: { connections: 20, connectionsPerAddress: 12, crowded: 3 },
    ownAddresses
  })
  // Each has asked a moment ago, and is no idle one.
  const strangers: RawClient[] = []
  for (let i = 0; i < 20; i++) {
    const client = new RawClient(
      port,
      false,
      connect({ port, host: '127.0.0.1', localAddress: `127.0.1.${1 + (i % 5)}` })
    ).send(get('/fast'))
    t.match(await client.response(), { status: 200 })
    strangers.push(client)
  }
  for (let i = 0; i < 5; i++) {
    const machine = new RawClient(
      port,
      false,
      connect({ port, host: '127.0.0.1', localAddress: `127.0.2.${i + 1}` })
    ).send(get('/fast'))
    t.match(await machine.response(), { status: 200 })
    machine.socket.destroy()
  }
  gate.resolve()
  for (const { socket } of strangers) socket.destroy()
})

// rules 2.15
t.test('a connection whose first request is on the way does not end while another one is idle', async t => {
  const { port } = await start(t, gated().routes, { limits: { connections: 20 } })
  const fresh = Array.from({ length: 15 }, () => new RawClient(port))
  await Promise.all(fresh.map(({ socket }) => once(socket, 'connect')))
  const used = Array.from({ length: 5 }, () => new RawClient(port).send(get('/fast')))
  for (const client of used) await client.response()
  fresh.push(...Array.from({ length: 3 }, () => new RawClient(port)))
  await until(() => open(used.map(({ socket }) => socket)) === 2, 'as many as are needed have ended')
  for (const client of fresh) client.send(get('/fast'))
  for (const client of fresh) t.match(await client.response(), { status: 200 })
  for (const { socket } of [...fresh, ...used]) socket.destroy()
})

// rules 2.15
t.test(
  'machines that boot keep their connections, and those for which there is no room come back',
  async t => {
    const limits = { connections: 10, crowded: 3 }
    const { port, log } = await start(t, gated().routes, { limits, ownAddresses })
    const from = (localAddress: string) =>
      new RawClient(port, false, connect({ port, host: '127.0.0.1', localAddress }))
    const boots = Array.from({ length: 10 }, (_, i) => from(`127.0.1.${i + 1}`))
    const ask = () =>
      Promise.all(
        boots.map(async client => t.match(await client.send(get('/fast')).response(), { status: 200 }))
      )
    await ask()
    for (let i = 0; i < 20; i++) {
      const late = from('127.0.2.1').send(get('/fast'))
      t.match(await late.response(), {
        status: 503,
        headers: { 'retry-after': /^\d+$/, connection: 'close' },
        body: /as many connections are open as there may be; try again in \d+ s/
      })
      t.equal(await late.rest(), '', 'it is closed')
      await ask()
    }
    t.ok(log.lines.filter(line => line.startsWith('warn')).length <= 2, 'said once')

    const silent = Array.from({ length: 30 }, () => from('127.0.2.2'))
    await Promise.all(silent.map(({ socket }) => once(socket, 'connect')))
    await until(
      () => open(silent.map(({ socket }) => socket)) === 3,
      'the oldest that ask nothing to be ended'
    )
    t.match(
      await from('127.0.2.3').send(get('/fast')).response(),
      { status: 503 },
      'they keep nobody from an answer'
    )
    t.match(
      await new RawClient(port).send(get('/fast')).response(),
      { status: 200 },
      'the controller itself has room'
    )
    await sleep(2100)
    const later = from('127.0.2.4').send(get('/fast'))
    t.match(await later.response(), { status: 200 }, 'those that were not used for a while end')
    for (const { socket } of [...boots, ...silent, later]) socket.destroy()
  }
)

// rules 2.15
t.test(
  'those that are told to come back never count as others; a flood that asks nothing keeps nobody out',
  async t => {
    const { gate, routes } = gated()
    const limits = { connections: 10, crowded: 4 }
    const { port } = await start(t, routes, { limits, ownAddresses })
    const from = (localAddress: string) =>
      new RawClient(port, false, connect({ port, host: '127.0.0.1', localAddress }))
    const busy = Array.from({ length: 8 }, (_, i) => from(`127.0.1.${i + 1}`).send(get('/slow')))
    await until(async () => (await from('127.0.3.1').send(get('/fast')).response()).status === 200)
    const silent = await idle(t, port, 40, '127.0.2.2')
    await until(() => open(silent) <= 6)
    await sleep(5300)
    const more = await idle(t, port, 40, '127.0.2.3')
    await until(() => open([...silent, ...more]) <= 6, 'never more than 10 and 4')
    gate.resolve()
    for (const client of busy) t.match(await client.response(), { status: 200 }, 'nobody under way was cut')
    for (const { socket } of busy) socket.destroy()
    const flood = await idle(t, port, 60, '127.0.2.4')
    await sleep(300)
    t.match(await from('127.0.2.5').send(get('/fast')).response(), { status: 200 })
    for (const socket of flood) socket.destroy()
  }
)

// rules 2.15
t.test('no address of loopback has a bound of its own', async t => {
  const { port } = await start(t, gated().routes, { limits: { connections: 100, connectionsPerAddress: 8 } })
  const sockets = await Promise.all(['127.0.0.1', '127.0.0.5'].map(address => idle(t, port, 20, address)))
  t.match(await new RawClient(port).send(get('/fast')).response(), { status: 200 })
  t.equal(open(sockets.flat()), 40)
})

// rules 2.15
t.test('files being sent and connections share the descriptors', async t => {
  const directory = scratch(t)
  for (const name of ['one', 'other']) writeFileSync(join(directory, name), Buffer.alloc(16 * 1024 * 1024))
  const { gate, begun, routes } = gated()
  const file = route('GET', '/{file}', ({ params }) => ({
    status: 200,
    file: join(directory, params.file as string)
  }))
  const { port } = await start(t, [file, ...routes], { limits: { connections: 4 } })
  const reader = new RawClient(port).send(get('/one'))
  reader.socket.once('data', () => reader.socket.pause())
  await once(reader.socket, 'data')
  const clients = [1, 2].map(() => new RawClient(port))
  t.match(await clients[0]?.send(get('/fast')).response(), { status: 200 })
  clients[1]?.send(get('/slow'))
  await begun.promise
  const second = new RawClient(port).send(get('/other'))
  await once(second.socket, 'connect')
  t.equal(await clients[0]?.rest(), '', 'the idle one has ended')
  const refused = await second.response()
  second.send('GET /one HTTP/1.1\r\nHost: a\r\nRange: bytes=0-0\r\n\r\n')
  t.match(await second.response(), { status: 206 }, 'what is open already needs none')
  t.match(refused, {
    status: 503,
    headers: { 'retry-after': /^\d+$/ },
    body: /there are 3 connections, and 1 files/
  })
  gate.resolve()
  for (const { socket } of [reader, second, ...clients]) socket.destroy()
})

// rules 2.15
t.test('a new connection is refused if all others have a request under way', async t => {
  const { gate, begun, routes } = gated()
  const { port } = await start(t, routes, { limits: { connections: 4 } })
  const busy = [1, 2, 3, 4].map(() => new RawClient(port).send(get('/slow')))
  await begun.promise
  await arrived()
  const refused = new RawClient(port)
  t.equal(await refused.rest(), '')
  gate.resolve()
  for (const client of busy) t.match(await client.response(), { status: 200 })
  for (const { socket } of busy) socket.destroy()
})

// rules 2.15
t.test('a trusted proxy and the controller itself have no bound of their own', async t => {
  const fast = route('GET', '/fast', () => ({ status: 200, body: 'fast' }))
  const limits = { connections: 100, connectionsPerAddress: 8 }
  const { port } = await start(t, [fast], { limits, ownAddresses, trustedProxies: ['127.0.0.2'] })
  const proxy = await idle(t, port, 40, '127.0.0.2')
  const own = await idle(t, port, 40, '127.0.0.1')
  const other = await idle(t, port, 15, '127.0.0.3')
  await until(() => open(other) <= 8)
  t.equal(open(proxy), 40)
  t.equal(open(own), 40)
})

t.test('the share of clients in the file descriptors', t => {
  t.same(share(128, 28), { connections: 51, downloads: 13, crowded: 13 })
  t.same(share(1024, 24), { connections: 907, downloads: 234, crowded: 45 })
  t.same(share(65536, 36), { connections: 62958, downloads: 16247, crowded: 2158 })
  t.same(share(60, 30), { connections: 16, downloads: 4, crowded: 3 }, 'a few in any case')
  t.same(share(Number.POSITIVE_INFINITY, 30), {
    connections: Number.POSITIVE_INFINITY,
    downloads: Number.POSITIVE_INFINITY,
    crowded: 0
  })
  t.end()
})

// rules 2.15
t.test('400 idle connections at a limit of 128 files: login, boot and writes go on', async t => {
  const limited = ['sh', '-c', 'ulimit -n 128; exec "$0" "$@"']
  const daemon = await Daemon.start({ directory: scratch(t), enter: limited })
  t.teardown(() => daemon.stop())
  const port = Number(/listens on http:\S+:(\d+);/.exec(daemon.log())?.[1])
  for (const address of ['127.0.0.1', '127.0.0.2', '127.0.0.3', '127.0.0.4'])
    await idle(t, port, 100, address)
  await sleep(200)
  await daemon.create('network', 'cluster', { network: '10.1.0.0/16' })
  for (let i = 0; i < 10; i++) await daemon.create('group', `g${i}`, {})
  const login = await daemon.request('POST', '/token', { username: 'admin', password: 'wrong' })
  t.equal(login.status, 401)
  const client = new RawClient(port).send(get('/boot'))
  t.match(await client.response(), { status: 200 })
  client.socket.destroy()
  proof('idle connections at the limit of files', { tried: 400, crashes: 0, unmeant5xx: 0 })
  t.notMatch(daemon.log(), /EMFILE|too many open files/)
  t.match(daemon.log(), /idle connections are ended/)
})

// rules 2.15
t.test('900 clients at once at a limit of 1,024 files are all answered', async t => {
  const limited = ['prlimit', '--nofile=1024:1024']
  const daemon = await Daemon.start({ directory: scratch(t), enter: limited })
  t.teardown(() => daemon.stop())
  const port = Number(/listens on http:\S+:(\d+);/.exec(daemon.log())?.[1])
  const clients = Array.from({ length: 900 }, () => new RawClient(port).send(get('/boot')))
  const statuses = await Promise.all(
    clients.map(client =>
      client.response().then(
        ({ status }) => status,
        () => 0
      )
    )
  )
  for (const { socket } of clients) socket.destroy()
  t.equal(statuses.filter(status => status === 200).length, 900)
})
