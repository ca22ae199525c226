import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { join } from 'node:path'
import { type ConnectionOptions, connect as connectTls } from 'node:tls'
import t, { type Test } from 'tap'
import { readPair } from '../../lib/http/certificate.js'
import { makeCertificate } from '../support/certificate.js'
import { Controller } from '../support/controller.js'
import { output, requirePrograms } from '../support/programs.js'
import { proof } from '../support/proof.js'
import { scratch } from '../support/scratch.js'
import { until } from '../support/until.js'
import { arrived, gated, isRefusal, RawClient, route, start } from './helpers.js'

const get = (path: string) => `GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`
const MEGABYTE = 1024 * 1024
/** So that other addresses of loopback are those of strangers. */
const ownAddresses = ['127.0.0.1']

const directory = scratch(t)
const files = makeCertificate(directory, 'controller')
const large = randomBytes(5 * MEGABYTE)
writeFileSync(join(directory, 'large'), large)
const routes = [
  route('GET', '/boot', () => ({ status: 200, text: '#!ipxe\n' })),
  route('GET', '/files/large', () => ({ status: 200, file: join(directory, 'large') })),
  route('GET', '/huge', () => ({ status: 200, text: 'x'.repeat(40 * MEGABYTE) })),
  route('GET', '/from', ({ source }) => ({ status: 200, body: source })),
  route('POST', '/echo', ({ body }) => ({ status: 200, body }))
]

/** A server with TLS on a port of its own. */
async function startTls(
  t: Test,
  ...[own, options]: Parameters<typeof start> extends [Test, ...infer R] ? R : never
) {
  const running = await start(t, own, options)
  const { context } = await readPair(await files)
  const { port: tlsPort } = await running.server.listenTls('127.0.0.1', 0, () => context)
  return { ...running, tlsPort }
}

/** A client whose handshake has ended well. Rejects if it has not. */
async function secured(
  port: number,
  options: ConnectionOptions & { localAddress?: string } = {}
): Promise<RawClient> {
  const ca = readFileSync((await files).certificate)
  const socket = connectTls({ port, host: '127.0.0.1', ca, ...options })
  const client = new RawClient(port, false, socket)
  await once(socket, 'secureConnect')
  return client
}

const ended = (socket: Socket) => socket.closed || new Promise(resolve => socket.once('close', resolve))

/** Connections from an address of loopback that send `first` and nothing more. */
async function half(
  t: Test,
  port: number,
  count: number,
  localAddress: string,
  first = ''
): Promise<Socket[]> {
  const sockets = Array.from({ length: count }, () =>
    connect({ port, host: '127.0.0.1', localAddress }).on('error', () => undefined)
  )
  t.teardown(() => {
    for (const socket of sockets) socket.destroy()
  })
  await Promise.all(sockets.map(socket => new Promise(resolve => socket.once('connect', resolve))))
  for (const socket of sockets) if (first !== '') socket.write(Buffer.from(first, 'latin1'))
  return sockets.map(socket => socket.resume())
}

// rules 2.18
t.test('requests, bodies and files over TLS are those of the plain port', async t => {
  const { tlsPort, port, log } = await startTls(t, routes)
  for (const version of ['TLSv1.2', 'TLSv1.3'] as const) {
    const client = await secured(tlsPort, { minVersion: version, maxVersion: version })
    client.send(get('/boot') + get('/from'))
    t.match(await client.response(), { status: 200, body: '#!ipxe\n' }, version)
    t.match(await client.response(), { status: 200, body: '{"address":"127.0.0.1","loopback":true}\n' })
    client.send('POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\n{"a":1}')
    t.match(await client.response(), { status: 200, body: '{"a":1}\n' })
    client.send('nonsense\r\n\r\n')
    isRefusal(t, await client.response(), /not valid HTTP/)
    t.equal(await client.rest(), '')
  }
  requirePrograms('curl')
  const curl = ['-sS', '-m', '20', '--cacert', (await files).certificate]
  const to = join(directory, 'got')
  await output('curl', [...curl, '-o', to, `https://127.0.0.1:${tlsPort}/files/large`])
  t.ok(readFileSync(to).equals(large), 'a file')
  await output('curl', [...curl, '-r', '100-4000000', '-o', to, `https://127.0.0.1:${tlsPort}/files/large`])
  t.ok(readFileSync(to).equals(large.subarray(100, 4_000_001)), 'a part of it')
  await output('curl', [...curl, '-o', to, `https://127.0.0.1:${tlsPort}/huge`])
  t.equal(readFileSync(to).length, 40 * MEGABYTE, 'a long text')
  const plain = new RawClient(port).send(get('/boot'))
  t.match(await plain.response(), { status: 200, body: '#!ipxe\n' }, 'the plain port stays')
  plain.socket.destroy()
  t.match(
    log.lines.filter(line => line.includes('/boot')),
    Array(3).fill(/^info GET \/boot 200 7 /)
  )
})

/** The head of a record of 512 bytes, with the head of a ClientHello and nothing after it. */
const hello = '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03'

// rules 2.13, 2.16, 2.18
t.test('a client that reads slowly gets a long answer whole; one that does not read is cut', async t => {
  const limits = { stallMs: 1500 }
  const { tlsPort } = await startTls(t, routes, { limits })
  const slow = await secured(tlsPort)
  let got = 0
  slow.socket.on('data', (piece: Buffer) => {
    got += piece.length
    slow.socket.pause()
    setTimeout(() => slow.socket.resume(), 4)
  })
  const deaf = await secured(tlsPort)
  deaf.socket.pause()
  const started = performance.now()
  for (const client of [slow, deaf]) client.send(get('/huge'))
  await until(
    () => got > 40 * MEGABYTE,
    () => `${got} bytes`
  )
  t.ok(performance.now() - started > 2 * limits.stallMs, 'it took longer than a client may read nothing')
  slow.socket.destroy()
  deaf.socket.resume()
  t.ok((await deaf.rest()).length < 40 * MEGABYTE)
})

// rules 2.11, 2.14, 2.18
t.test('the limits of requests and of requests that wait hold over TLS', async t => {
  const { gate, begun, routes: slow } = gated()
  const limits = { headersMs: 400, bodyMs: 300 }
  const { tlsPort } = await startTls(t, [...slow, ...routes], { limits })
  const header = await secured(tlsPort)
  isRefusal(t, await header.send('GET /boot HT').response(), /the request header came too slowly/)
  const body = await secured(tlsPort)
  body.send('POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n\r\n{')
  isRefusal(t, await body.response(), /the body came too slowly/)
  await Promise.all((await half(t, tlsPort, 5, '127.0.0.1', hello)).map(ended))
  const silent = await secured(tlsPort)
  t.match(await silent.rest(), /^HTTP\/1\.1 408 /)

  const many = await secured(tlsPort)
  many.send(get('/slow'))
  await begun.promise
  many.send(get('/fast').repeat(40))
  await arrived()
  gate.resolve()
  const rest = (await many.rest()).match(/HTTP\/1\.1 \d+/g) ?? []
  t.strictSame(
    rest.map(line => Number(line.slice(9))),
    [...Array(33).fill(200), 503]
  )
  for (const { socket } of [header, body]) socket.destroy()
})

// rules 2.15, 2.18
t.test('connections with TLS have the bounds of all, before their handshake and after it', async t => {
  const limits = { connections: 40, connectionsPerAddress: 10 }
  const { tlsPort, log } = await startTls(t, routes, { limits, ownAddresses })
  const idle = await Promise.all(
    Array.from({ length: 6 }, () => secured(tlsPort, { localAddress: '127.0.0.5' }))
  )
  const before = await half(t, tlsPort, 30, '127.0.0.5')
  const open = () => [...idle.map(({ socket }) => socket), ...before].filter(({ closed }) => !closed).length
  await until(() => open() <= 10, 'those over the most of one address have ended')
  t.ok(open() >= 5, 'not more than need be')
  t.match(
    log.lines.filter(line => line.startsWith('warn')),
    [/^warn 127\.0\.0\.5 has 10 connections, which is the most for one address/]
  )
  const client = await secured(tlsPort)
  t.match(await client.send(get('/boot')).response(), { status: 200 })
  for (const { socket } of [client, ...idle]) socket.destroy()
})

// rules 2.18
t.test('handshakes that do not go on', async t => {
  const limits = { headersMs: 60_000 }
  const { tlsPort, port } = await startTls(t, routes, { limits, ownAddresses })
  const sockets = [
    ...(await half(t, tlsPort, 250, '127.0.0.5')),
    ...(await half(t, tlsPort, 250, '127.0.0.5', hello))
  ]
  const started = performance.now()
  const client = await secured(tlsPort)
  t.match(await client.send(get('/boot')).response(), { status: 200 }, 'another address has its turn')
  const took = performance.now() - started
  t.ok(took < limits.headersMs / 2, `after ${took.toFixed(0)} ms`)
  const left = sockets.filter(({ closed }) => !closed).length
  t.ok(left > 250, `before the ${left} that came first`)
  proof('TLS handshakes that do not go on', {
    ...{ tried: sockets.length, crashes: 0 },
    note: `another address is answered after ${took.toFixed(0)} ms`
  })
  const plain = new RawClient(port).send(get('/boot'))
  t.match(await plain.response(), { status: 200 }, 'and the plain port goes on')
  t.match(await client.send(get('/boot')).response(), { status: 200 }, 'none but those')
  for (const { socket } of [client, plain]) socket.destroy()
})

// rules 2.18
t.test('a slow handshake is cut only where others wait for its place, and no more than wait', async t => {
  const limits = { handshakes: 32, handshakeYieldMs: 200, headersMs: 60_000 }
  const { tlsPort } = await startTls(t, routes, { limits, ownAddresses })
  const slow = await half(t, tlsPort, 1, '127.0.0.5', hello)
  // Longer than it may take while others wait.
  await new Promise(resolve => setTimeout(resolve, 700))
  const open = (sockets: readonly Socket[]) => sockets.filter(({ closed }) => !closed).length
  for (let i = 0; i < 3; i++) (await secured(tlsPort)).socket.destroy()
  t.equal(open(slow), 1, '31 places are free')
  const more = await half(t, tlsPort, 31, '127.0.0.5', hello)
  const client = await secured(tlsPort)
  t.match(await client.send(get('/boot')).response(), { status: 200 })
  t.equal(open([...slow, ...more]), 31, 'one has made room')
  client.socket.destroy()
})

// rules 2.18
t.test(
  'handshakes of many addresses that do not go on: another address does not wait for theirs',
  async t => {
    const [addresses, handshakes] = process.env.SVCD_LONG ? [400, 512] : [48, 64]
    const { tlsPort } = await startTls(t, routes, { limits: { handshakes, headersMs: 60_000 }, ownAddresses })
    const each = Array.from({ length: addresses }, (_, i) => `127.1.${i >> 8}.${i & 255}`)
    const sockets = (await Promise.all(each.map(address => half(t, tlsPort, 2, address, hello)))).flat()
    t.ok(sockets.length > handshakes, 'no place is free')
    const started = performance.now()
    const client = await secured(tlsPort)
    t.match(await client.send(get('/boot')).response(), { status: 200 })
    const took = performance.now() - started
    t.ok(took < 2000, `after ${took.toFixed(0)} ms`)
    const alone = each.filter((_, i) => sockets.slice(2 * i, 2 * i + 2).every(({ closed }) => closed))
    t.same(alone, [], 'none lost all it had')
    client.socket.destroy()
  }
)

// rules 2.11, 2.18
t.test('what is no handshake ends its connection and nothing else', async t => {
  const { tlsPort, log } = await startTls(t, routes)
  const short = Buffer.from('1603010005010000010303', 'hex')
  const garbage = [
    ...['GET /boot HTTP/1.1\r\nHost: a\r\n\r\n', '\0', '\x80\x2e\x01', short, randomBytes(100_000)],
    Buffer.concat([Buffer.from('160301ffff', 'hex'), randomBytes(70_000)]),
    Buffer.from('15030100020228', 'hex'),
    ...Array.from({ length: 50 }, () => randomBytes(1 + Math.floor(Math.random() * 600)))
  ]
  for (const bytes of garbage) {
    const client = new RawClient(tlsPort)
    client.send(bytes as Buffer)
    client.socket.end()
    await client.rest()
  }
  // A reset in the middle of one.
  for (const socket of await half(t, tlsPort, 20, '127.0.0.1', '\x16\x03\x01\x02\x00'))
    socket.resetAndDestroy()
  for (const maxVersion of ['TLSv1.1', 'TLSv1'] as const)
    await t.rejects(
      secured(tlsPort, { minVersion: 'TLSv1', maxVersion, ciphers: 'DEFAULT@SECLEVEL=0' }),
      maxVersion
    )
  await t.rejects(
    secured(tlsPort, { maxVersion: 'TLSv1.2', ciphers: 'AES128-GCM-SHA256' }),
    'RSA key exchange'
  )
  // Bytes that are no record after a handshake.
  const raw = connect({ port: tlsPort, host: '127.0.0.1' }).on('error', () => undefined)
  const broken = await secured(tlsPort, { socket: raw })
  raw.write('no record')
  await broken.rest()
  const client = await secured(tlsPort)
  t.match(await client.send(get('/boot')).response(), { status: 200 })
  t.ok(
    log.lines.some(line =>
      /^info - - - - - 127\.0\.0\.1 \(TLS: (http request|unsupported protocol)\)$/.test(line)
    )
  )
  t.notOk(log.lines.some(line => /^(warn|error)/.test(line)))
  client.socket.destroy()
})

// rules 11.5, 2.18
t.test('closing waits for no handshake, and for a request under way', async t => {
  const { gate, begun, routes: slow } = gated()
  const { tlsPort, server } = await startTls(t, slow)
  const client = await secured(tlsPort)
  const idle = await secured(tlsPort)
  client.send(get('/slow'))
  await begun.promise
  const handshakes = await half(t, tlsPort, 40, '127.0.0.1', '\x16\x03\x01')
  await arrived()
  const closed = server.close(60_000)
  await Promise.all([idle.rest(), ...handshakes.map(ended)])
  gate.resolve()
  t.match(await client.response(), { status: 200, body: '"done"\n' })
  await closed
  await t.rejects(secured(tlsPort))
})

// rules 2.18
t.test('the daemon: a login and a change over TLS, plain http beside it', async t => {
  const { certificate, key } = await files
  const settings = [`http.tls_certificate=${certificate}`, `http.tls_key=${key}`, 'http.tls_port=0']
  const c = await Controller.start(t, ...settings)
  const password = readFileSync(join(c.directory, 'state', 'admin-password'), 'utf8').trim()
  const url = `https://127.0.0.1:${c.daemon.tlsPort}`
  const curl = (...args: string[]) => output('curl', ['-sS', '-m', '20', '--cacert', certificate, ...args])
  const login = JSON.stringify({ username: 'admin', password })
  const { token } = JSON.parse(await curl('-d', login, `${url}/token`))
  const auth = ['-H', `x-access-tokens: ${token}`]
  await curl(...auth, '-d', '{"network":"10.141.0.0/16"}', `${url}/config/network/cluster`)
  t.match(JSON.parse(await curl(...auth, `${url}/config/network/cluster`)), {
    config: { network: { cluster: { network: '10.141.0.0/16' } } }
  })
  t.equal((await c.raw('GET', '/version')).status, 200)
  t.ok(c.log.some(line => line.includes(`listening with TLS on 127.0.0.1 port ${c.daemon.tlsPort}`)))
  await t.rejects(Controller.start(t, ...settings, `http.tls_key=${certificate}`), {
    message: /controller\.crt has mode 0644: others than its owner and its group may read or change it/
  })
})
