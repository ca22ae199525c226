import { execFileSync } from 'node:child_process'
import {
  closeSync,
  openSync,
  readdirSync,
  readlinkSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
  writeSync
} from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import t from 'tap'
import { until } from '../support/until.js'
import { isRefusal, RawClient, route, start } from './helpers.js'

const MEGABYTE = 1024 * 1024
/** A handle that is forgotten is closed in the end all the same, with a warning. */
const warnings: Error[] = []
process.on('warning', warning => warnings.push(warning))

const dir = t.testdir({
  'a.json': '{"a":1}',
  'kernel-6.1': '0123456789',
  'b.tar': '',
  'c.html': '<p>',
  sub: {}
})
const files = [
  route('GET', '/typed', () => ({ status: 200, file: join(dir, 'c.html'), type: 'text/x-own' })),
  route('GET', '/gone', () => ({ status: 404, file: join(dir, 'c.html'), headers: { 'X-Own': '1' } })),
  route('GET', '/relative', () => ({ status: 200, file: 'c.html' })),
  route('GET', '/{file}', ({ params }) => ({ status: 200, file: join(dir, params.file as string) }))
]
const get = (path: string, ...headers: string[]) =>
  `GET ${path} HTTP/1.1\r\n${['Host: a', ...headers].map(line => `${line}\r\n`).join('')}\r\n`

/** Open descriptors of this process below the test's directory. */
function openFiles(): string[] {
  return readdirSync('/proc/self/fd').flatMap(fd => {
    try {
      const path = readlinkSync(`/proc/self/fd/${fd}`)
      return path.startsWith(`${dir}/`) ? [path] : []
    } catch {
      return []
    }
  })
}

// rules 4.9, 2.5
t.test('a file is sent with its exact length, its type and a strong ETag', async t => {
  const { port } = await start(t, files)
  const client = new RawClient(port)
  for (const [path, type, body] of [
    ['/a.json', 'application/json', '{"a":1}'],
    ['/kernel-6.1', 'application/octet-stream', '0123456789'],
    ['/b.tar', 'application/x-tar', ''],
    ['/typed', 'text/x-own', '<p>']
  ] as const) {
    const response = await client.send(get(path)).response()
    t.equal(response.status, 200)
    t.equal(response.body, body)
    t.equal(response.headers['content-length'], String(body.length))
    t.equal(response.headers['content-type'], type)
    t.equal(response.headers['accept-ranges'], 'bytes')
    t.match(response.headers.etag, /^"[\da-f]+-[\da-f]+-[\da-f]+"$/)
    const conditional = await client.send(get(path, `If-None-Match: ${response.headers.etag}`)).response()
    t.equal(conditional.status, 200, 'If-None-Match is ignored')
    const head = await client.send(get(path).replace('GET', 'HEAD')).response(true)
    t.same({ ...head.headers, date: '' }, { ...response.headers, date: '' })
  }
  const own = await client.send(get('/gone', 'Range: bytes=0-0')).response()
  t.match(own, { status: 404, body: '<p>', headers: { 'x-own': '1' } }, 'another status is the whole file')
  await until(() => openFiles().length === 0, 'the files are closed')
  client.socket.destroy()
})

// rules 4.9
t.test('parts of a file', async t => {
  const { port } = await start(t, files)
  const client = new RawClient(port)
  const ask = (...headers: string[]) => client.send(get('/kernel-6.1', ...headers)).response()
  const { etag = '' } = (await ask()).headers
  t.match(await ask('Range: bytes=2-4'), {
    status: 206,
    body: '234',
    headers: { 'content-range': 'bytes 2-4/10', 'content-length': '3', etag }
  })
  t.match(await ask('Range: bytes=-3'), {
    status: 206,
    body: '789',
    headers: { 'content-range': 'bytes 7-9/10' }
  })
  t.match(await ask('Range: bytes=8-99'), {
    status: 206,
    body: '89',
    headers: { 'content-range': 'bytes 8-9/10' }
  })
  t.match(await ask('Range: bytes=0-1,4-5'), { status: 200, body: '0123456789' })
  t.match(await ask('Range: bytes=2-4', `If-Range: ${etag}`), { status: 206, body: '234' })
  const outside = await ask('Range: bytes=10-')
  t.equal(outside.status, 416)
  t.equal(outside.headers['content-range'], 'bytes */10')
  isRefusal(t, outside, /10 bytes/)
  client.send(get('/kernel-6.1', 'Range: bytes=2-4').replace('GET', 'HEAD'))
  t.match(
    await client.response(true),
    { status: 200, headers: { 'content-length': '10' } },
    'Range is for GET'
  )

  utimesSync(join(dir, 'kernel-6.1'), 1, 1)
  t.match(await ask('Range: bytes=2-4', `If-Range: ${etag}`), { status: 200 }, 'the file is another one now')
  t.not((await ask()).headers.etag, etag)
  await until(() => openFiles().length === 0, 'the files are closed')
  client.socket.destroy()
})

t.test('only regular files are sent, and nothing else is waited for', async t => {
  execFileSync('mkfifo', [join(dir, 'fifo')])
  symlinkSync(join(dir, 'nowhere'), join(dir, 'dangling'))
  symlinkSync('loop', join(dir, 'loop'))
  symlinkSync('/dev/zero', join(dir, 'device'))
  symlinkSync(join(dir, 'a.json'), join(dir, 'link.json'))
  const unix = createServer().listen(join(dir, 'socket'))
  t.teardown(() => void unix.close())
  const { port, log } = await start(t, files)
  const client = new RawClient(port)
  for (const name of [
    'nothing',
    'sub',
    'fifo',
    'device',
    'dangling',
    'loop',
    'socket',
    'x'.repeat(300),
    '.',
    '..'
  ]) {
    const response = await client.send(get(`/${name}`)).response()
    t.equal(response.status, 404, name.slice(0, 20))
    isRefusal(t, response, /there is no file/)
    t.notMatch(response.body, dir, 'the directory is nobody else’s business')
  }
  t.match(await client.send(get('/link.json')).response(), { status: 200, body: '{"a":1}' })
  t.notOk(log.lines.some(line => line.startsWith('error')))
  const relative = await client.send(get('/relative')).response()
  t.equal(relative.status, 500, 'a path that depends on the working directory is a defect')
  await until(() => openFiles().length === 0, 'the files are closed')
  client.socket.destroy()
})

t.test('a large file goes out whole and the connection can be used again', async t => {
  const content = Buffer.alloc(5 * MEGABYTE + 3, '0123456789abcdef')
  writeFileSync(join(dir, 'large'), content)
  const { port } = await start(t, files)
  const client = new RawClient(port).send(get('/large') + get('/a.json'))
  const response = await client.response()
  t.ok(response.body === content.toString(), 'every byte')
  t.equal((await client.response()).body, '{"a":1}')
  await until(() => openFiles().length === 0, 'the files are closed')
  client.socket.destroy()
})

t.test('a client that hangs up in its download: the file is closed, no error', async t => {
  writeFileSync(join(dir, 'large'), Buffer.alloc(50 * MEGABYTE))
  const { port, log } = await start(t, files)
  const client = new RawClient(port).send(get('/large'))
  await new Promise(resolve => client.socket.once('data', resolve))
  client.socket.pause()
  t.same(openFiles(), [join(dir, 'large')])
  client.socket.destroy()
  await until(() => openFiles().length === 0, 'the file is closed')
  await until(() => log.lines.length === 1, 'the request is logged')
  t.match(log.lines[0], /^info GET \/large 200 \d+ .*\(client gone\)$/)
})

t.test('a client that takes nothing more is cut, and the file closed', async t => {
  writeFileSync(join(dir, 'large'), Buffer.alloc(50 * MEGABYTE))
  const { port, log } = await start(t, files, { limits: { stallMs: 200 } })
  const client = new RawClient(port).send(get('/large'))
  await new Promise(resolve => client.socket.once('data', resolve))
  client.socket.pause()
  await until(() => log.lines.length === 1, 'the connection is cut')
  await until(() => openFiles().length === 0, 'the files are closed')
  t.notOk(log.lines.some(line => line.startsWith('error')))
  client.socket.destroy()
})

t.test('memory stays flat while slow clients download', async t => {
  writeFileSync(join(dir, 'large'), Buffer.alloc(100 * MEGABYTE))
  const { port } = await start(t, files)
  const before = process.memoryUsage().arrayBuffers
  const clients = Array.from({ length: 10 }, () => new RawClient(port).send(get('/large')))
  await Promise.all(
    clients.map(async ({ socket }) => {
      await new Promise(resolve => socket.once('data', resolve))
      socket.pause()
    })
  )
  await new Promise(resolve => setTimeout(resolve, 200))
  const grown = process.memoryUsage().arrayBuffers - before
  t.ok(grown < 40 * MEGABYTE, `${grown} bytes for 10 downloads of 100 MB`)
  for (const { socket } of clients) socket.destroy()
  await until(() => openFiles().length === 0, 'the files are closed')
})

t.test('a file that gets shorter while it is sent ends the connection', async t => {
  writeFileSync(join(dir, 'large'), Buffer.alloc(50 * MEGABYTE))
  const { port, log } = await start(t, files)
  const client = new RawClient(port).send(get('/large'))
  await new Promise(resolve => client.socket.once('data', resolve))
  client.socket.pause()
  truncateSync(join(dir, 'large'), 10)
  client.socket.resume()
  const received = await client.rest()
  t.ok(received.length < 50 * MEGABYTE, 'the promised length was not reached')
  await until(() => log.lines.length === 2, 'the reason and the request are logged')
  t.match(
    log.lines.find(line => line.startsWith('error')),
    /got shorter by \d+ bytes/
  )
  await until(() => openFiles().length === 0, 'the files are closed')
})

t.test('a file is open once, however many clients it is sent to', async t => {
  writeFileSync(join(dir, 'large'), Buffer.alloc(50 * MEGABYTE, 'a'))
  const { port } = await start(t, files)
  const stalled = Array.from({ length: process.env.SVCD_LONG ? 20 : 4 }, () =>
    new RawClient(port).send(get('/large'))
  )
  for (const client of stalled) {
    await new Promise(resolve => client.socket.once('data', resolve))
    client.socket.pause()
  }
  t.same(openFiles(), [join(dir, 'large')])

  // Another file in its place, and other bytes in the same file: who asks now gets them, who has begun gets
  // what it began.
  writeFileSync(join(dir, 'new'), Buffer.alloc(50 * MEGABYTE, 'b'))
  renameSync(join(dir, 'new'), join(dir, 'large'))
  const second = await new RawClient(port).send(get('/large', 'Range: bytes=0-0')).response()
  t.match(second, { status: 206, body: 'b' })
  const half = new RawClient(port).send(get('/large'))
  await new Promise(resolve => half.socket.once('data', resolve))
  half.socket.pause()
  const file = openSync(join(dir, 'large'), 'r+')
  writeSync(file, 'c')
  closeSync(file)
  const third = await new RawClient(port).send(get('/large', 'Range: bytes=0-0')).response()
  t.match(third, { status: 206, body: 'c' })
  t.not(third.headers.etag, second.headers.etag)
  half.socket.destroy()
  for (const client of stalled) client.socket.resume()
  const got = await Promise.all(stalled.map(client => client.response()))
  t.ok(
    got.every(({ body }) => /^a+$/.test(body)),
    'what was begun is of one file'
  )
  for (const { socket } of stalled) socket.destroy()
  await until(() => openFiles().length === 0, 'the files are closed')
})

t.test('a file that is missing while others have it open is 404 for all who ask', async t => {
  writeFileSync(join(dir, 'large'), Buffer.alloc(50 * MEGABYTE))
  const { port } = await start(t, files)
  const client = new RawClient(port).send(get('/large'))
  await new Promise(resolve => client.socket.once('data', resolve))
  client.socket.pause()
  rmSync(join(dir, 'large'))
  const answers = await Promise.all(
    Array.from({ length: 10 }, () => new RawClient(port).send(get('/large')).response())
  )
  t.same([...new Set(answers.map(({ status }) => status))], [404])
  client.socket.destroy()
  await until(() => openFiles().length === 0, 'the file is closed')
})

t.test('no file was left to the garbage collector', async t => {
  t.same(
    warnings.map(({ message }) => message),
    []
  )
})
