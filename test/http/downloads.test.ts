import { readdirSync, readlinkSync, truncateSync, writeFileSync } from 'node:fs'
import { ServerResponse } from 'node:http'
import { connect } from 'node:net'
import { join } from 'node:path'
import { performance } from 'node:perf_hooks'
import { Worker } from 'node:worker_threads'
import t, { type Test } from 'tap'
import { proof } from '../support/proof.js'
import { until } from '../support/until.js'
import { isRefusal, RawClient, route, stalled, stalledInOrder, start } from './helpers.js'

const long = process.env.SVCD_LONG !== undefined
const MEGABYTE = 1024 * 1024
const get = (path: string, method = 'GET') => `${method} ${path} HTTP/1.1\r\nHost: a\r\n\r\n`

// Larger than what is answered from memory.
const small = 'small'.padEnd(65 * 1024)
const dir = t.testdir({ small })
// Without blocks on the disk.
for (const name of ['large', 'huge']) writeFileSync(join(dir, name), '')
truncateSync(join(dir, 'large'), 50 * MEGABYTE)
truncateSync(join(dir, 'huge'), 100_000 * MEGABYTE)
const routes = [
  route('GET', '/boot', () => ({ status: 200, text: '#!ipxe\n' })),
  route('GET', '/files/{file}', ({ params }) => ({ status: 200, file: join(dir, params.file as string) }))
]

/**
 * `count` clients in a thread of their own, from each of these addresses, that read without end. Gives what
 * each got.
 */
function readers(
  t: Test,
  port: number,
  addresses: readonly string[],
  count: number
): () => Promise<number[]> {
  const worker = new Worker(
    `const { connect } = require('node:net')
     const { parentPort, workerData: { port, addresses, count } } = require('node:worker_threads')
     const got = addresses.map(() => 0)
     const buffer = Buffer.alloc(1024 * 1024)
     for (const [i, localAddress] of addresses.entries())
       for (let n = 0; n < count; n++) {
         const onread = { buffer, callback: bytes => { got[i] += bytes; return true } }
         connect({ port, host: '127.0.0.1', localAddress, onread })
           .on('error', () => undefined)
           .write('GET /files/huge HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n')
       }
     parentPort.on('message', () => parentPort.postMessage([...got]))`,
    { eval: true, workerData: { port, addresses, count } }
  )
  t.teardown(() => worker.terminate())
  return () =>
    new Promise(resolve => {
      worker.once('message', resolve)
      worker.postMessage('')
    })
}

/** Milliseconds from connecting to the end of a boot script. */
function bootScript(port: number): Promise<number> {
  const began = performance.now()
  return new Promise((resolve, reject) => {
    let text = ''
    connect(port, '127.0.0.1')
      .on('data', data => {
        text += data
      })
      .on('error', reject)
      .on('close', () =>
        text.endsWith('#!ipxe\n') ? resolve(performance.now() - began) : reject(new Error(text))
      )
      .write('GET /boot HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n')
  })
}

// rules 2.13
t.test('those that are refused are told to come back one after the other', async t => {
  const { port } = await start(t, routes, { limits: { downloads: 1, downloadWaitMs: 0, yieldMs: 60_000 } })
  const first = await stalled(port, '/files/large')
  const client = new RawClient(port)
  const seconds: number[] = []
  const begun = performance.now()
  for (let i = 0; i < 900; i++) {
    const { headers } = await client.send(get('/files/small')).response()
    seconds.push(Number(headers['retry-after']))
  }
  const took = (performance.now() - begun) / 1000
  t.ok(
    seconds.slice(0, 50).every(each => each <= 3),
    'the first ones soon'
  )
  for (const [i, each] of seconds.entries())
    if (each > 2 + (i + 1) / 300 + 0.5) t.fail(`${each} s for number ${i}`)
  // Those 900 come back in three seconds, however long it took to refuse them.
  t.ok((seconds.at(-1) ?? 0) + took >= 4.5, `the last one in ${seconds.at(-1)} s`)
  for (const { socket } of [client, first]) socket.destroy()
})

// rules 2.13
t.test('over the most downloads a new one is asked to come back; all else is answered', async t => {
  const { port } = await start(t, routes, { limits: { downloads: 2, downloadWaitMs: 100 } })
  const first = [await stalled(port, '/files/large'), await stalled(port, '/files/large')]
  const client = new RawClient(port)
  const refused = await client.send(get('/files/large')).response()
  t.equal(refused.status, 503)
  isRefusal(t, refused, /2 files are being downloaded, which is the most \(\[http\] max_downloads\)/)
  t.match(refused.headers['retry-after'], /^([2-9]|10)$/)
  t.match(await client.send(get('/boot')).response(), { status: 200 })
  t.match(await client.send(get('/files/large', 'HEAD')).response(true), { status: 200 })

  first[0]?.socket.destroy()
  await until(
    async () => (await client.send(get('/files/small')).response()).status === 200,
    'a place is free'
  )
  t.match(await client.send(get('/files/small')).response(), { body: small }, 'and is given back')
  for (const { socket } of [client, ...first]) socket.destroy()
})

// rules 2.13
t.test('a client that reads nothing of its download leaves its place to a new one', async t => {
  const { port } = await start(t, routes, { limits: { downloads: 2, yieldMs: 100 } })
  const first = await stalledInOrder(port, '/files/large')
  const client = new RawClient(port)
  await until(
    async () => (await client.send(get('/files/small')).response()).status === 200,
    'it has a place'
  )
  for (const { socket } of first) socket.resume()
  const received = await Promise.all(
    first.map(one =>
      one.response().then(
        () => 'whole',
        () => 'cut'
      )
    )
  )
  t.same(received, ['cut', 'whole'], 'the one that waits longest has gone, no other')
  for (const { socket } of [client, ...first]) socket.destroy()
})

// rules 2.13
t.test('boot scripts over new connections are not delayed by downloads', async t => {
  const downloads = long ? 500 : 100
  const { port, log } = await start(t, routes)
  const burst = () => Promise.all(Array.from({ length: downloads }, () => bootScript(port)))
  const alone = await burst()
  readers(t, port, ['127.0.0.1'], downloads)
  await new Promise(resolve => setTimeout(resolve, 500))
  const times: number[] = []
  for (let i = 0; i < 20; i++) times.push(await bootScript(port))
  const atOnce = await burst()
  const median = (of: number[]) => of.sort((a, b) => a - b)[Math.floor(of.length / 2)] as number
  const [single, many, yardstick] = [median(times), median(atOnce), median(alone)]
  const note = `one by one ${single.toFixed(1)} ms, at once ${many.toFixed(1)} ms, without downloads ${yardstick.toFixed(1)} ms (medians)`
  proof('boot scripts while images are downloaded', { tried: downloads, crashes: 0, unmeant5xx: 0, note })
  t.comment(note)
  t.ok(single < Math.max(100, yardstick), 'one by one')
  t.ok(many < Math.max(2 * downloads, 10 * yardstick), 'at once')
  t.notOk(log.lines.some(line => /^(warn|error)/.test(line)))
})

// rules 2.13
t.test('four pieces are sent in a turn, whatever is asked for', async t => {
  const { port } = await start(t, routes)
  const got = readers(t, port, ['127.0.0.1', '127.0.0.2'], 200)
  const { write } = ServerResponse.prototype
  t.teardown(() => {
    ServerResponse.prototype.write = write
  })
  let pieces = 0
  ServerResponse.prototype.write = function (this: ServerResponse, ...given: unknown[]) {
    pieces++
    return Reflect.apply(write, this, given)
  } as typeof write
  let most = 0
  let sent = 0
  await until(async () => {
    for (let turn = 0; turn < 100; turn++) {
      pieces = 0
      await new Promise(setImmediate)
      sent += pieces
      // While the requests themselves come, it is more.
      if (sent > (long ? 3000 : 2000)) most = Math.max(most, pieces)
    }
    return sent > (long ? 10_000 : 5000)
  })
  t.ok(most > 0 && most <= 4, `${most} pieces in a turn`)
  t.ok((await got()).every(bytes => bytes > 0))
  ServerResponse.prototype.write = write
})

// rules 2.13
t.test('an address with many downloads does not take the turns of one with few', async t => {
  const { port } = await start(t, routes)
  readers(t, port, ['127.0.0.1'], 40)
  await new Promise(resolve => setTimeout(resolve, 300))
  const { write } = ServerResponse.prototype
  t.teardown(() => {
    ServerResponse.prototype.write = write
  })
  /** Pieces of the others from the moment when the one has its last piece, to its next. */
  let before: number | undefined
  const waited: number[] = []
  ServerResponse.prototype.write = function (this: ServerResponse, bytes: Buffer, sent: () => void) {
    if (this.socket?.remoteAddress !== '127.0.0.2') {
      if (before !== undefined) before++
      return Reflect.apply(write, this, [bytes, sent])
    }
    if (before !== undefined) waited.push(before)
    before = undefined
    const ready = (...given: []) => {
      before = 0
      sent(...given)
    }
    return Reflect.apply(write, this, [bytes, ready])
  } as typeof write
  readers(t, port, ['127.0.0.2'], 1)
  await until(async () => waited.length > 100)
  ServerResponse.prototype.write = write
  const median = waited.sort((a, b) => a - b)[50] as number
  t.comment(`${median} pieces of 40 other downloads between two of its own`)
  t.ok(median < 10)
})

// rules 2.13
t.test('refusals for want of room are one line of the log for each kind, not one each', async t => {
  const { port, log } = await start(t, routes, {
    limits: { downloads: 1, downloadWaitMs: 0, yieldMs: 60_000 }
  })
  const first = await stalled(port, '/files/huge')
  for (let i = 0; i < 20; i++) {
    const refused = new RawClient(port).send(get('/files/small'))
    t.equal((await refused.response()).status, 503)
    refused.socket.destroy()
  }
  const warnings = log.lines.filter(line => line.startsWith('warn'))
  t.match(warnings, [/^warn GET \/files\/small: 1 files are being downloaded, which is the most/])
  t.equal(warnings.length, 1, 'said once')
  t.equal(
    log.lines.filter(line => / \/files\/small 503 /.test(line)).length,
    20,
    'the access log has them all'
  )
  first.socket.destroy()
})

// rules 2.13
t.test(
  'a download waits for a place, without an open file, and gets the first that is given back',
  async t => {
    const { port } = await start(t, routes, { limits: { downloads: 1, downloadWaitMs: 60_000 } })
    const first = await stalled(port, '/files/large')
    const next = new RawClient(port)
    const answer = next.send(get('/files/small')).response()
    const client = new RawClient(port)
    t.match(await client.send(get('/boot')).response(), { status: 200 }, 'all else is answered')
    const open = () => readdirSync('/proc/self/fd').filter(fd => linkOf(fd).endsWith('/small')).length
    t.equal(open(), 0)
    first.socket.destroy()
    t.match(await answer, { status: 200, body: small })
    for (const { socket } of [client, next]) socket.destroy()
  }
)

/** What a descriptor of this process is open on; '' for one that was closed meanwhile. */
function linkOf(fd: string): string {
  try {
    return readlinkSync(`/proc/self/fd/${fd}`)
  } catch {
    return ''
  }
}

// rules 2.13
t.test('one address has a quarter of the places, and those who wait take turns', async t => {
  const { port } = await start(t, routes, {
    ownAddresses: ['127.0.0.9'],
    limits: { downloads: 20, downloadWaitMs: 60_000 }
  })
  const from = (address: string) =>
    new RawClient(port, false, connect({ port, host: '127.0.0.1', localAddress: address }))
  // Each has its place before another one asks: that one would have the place of the last.
  const many = await Promise.all(
    Array.from({ length: 16 }, () => stalled(port, '/files/huge', from('127.0.0.2')))
  )
  await until(async () => {
    const client = from('127.0.0.2')
    const refused = await client.send(get('/files/small')).response()
    client.socket.destroy()
    if (refused.status === 503) isRefusal(t, refused, /127\.0\.0\.2 has 16 downloads .* most for one address/)
    return refused.status === 503
  }, 'it has all that one address may have')
  const other = from('127.0.0.3')
  t.match(await other.send(get('/files/small')).response(), { status: 200, body: small })
  for (const client of [...many, other]) client.socket.destroy()
})

// rules 2.15
t.test('downloads that wait do not count as open files', async t => {
  const { port } = await start(t, routes, {
    limits: { connections: 12, downloads: 2, downloadWaitMs: 60_000 }
  })
  const clients = Array.from({ length: 8 }, () => new RawClient(port).send(get('/files/huge')))
  for (const { socket } of clients) socket.pause()
  const client = new RawClient(port)
  t.match(await client.send(get('/boot')).response(), { status: 200 })
  for (const { socket } of [client, ...clients]) socket.destroy()
})
