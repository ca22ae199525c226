import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import t from 'tap'
import { proof } from '../support/proof.js'
import { until } from '../support/until.js'
import { arrived, gated, isRefusal, RawClient, route, start } from './helpers.js'

const long = process.env.SVCD_LONG !== undefined
const MEGABYTE = 1024 * 1024
setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void
const get = (path: string, more = '') => `GET ${path} HTTP/1.1\r\nHost: a\r\n${more}\r\n`
const post = (path: string, body: string, more = '') =>
  `POST ${path} HTTP/1.1\r\nHost: a\r\n${more}Content-Length: ${body.length}\r\n\r\n${body}`
const large = `X: ${'x'.repeat(15_000)}\r\n`

// rules 2.14
t.test('few requests in one packet are all answered', async t => {
  const { port } = await start(t, gated().routes)
  const client = new RawClient(port)
  for (let round = 0; round < 3; round++) {
    client.send(get('/fast').repeat(33))
    for (let i = 0; i < 33; i++) t.match(await client.response(), { status: 200, body: '"fast"\n' })
  }
  client.socket.destroy()
})

// rules 2.14
t.test('hundreds of requests of any size are answered in order, however often reading stops', async t => {
  const { gate, begun, routes } = gated()
  const echo = route('POST', '/echo/{n}', ({ params, body }) => ({ status: 200, body: [params.n, body] }))
  const { port, log } = await start(t, [...routes, echo])
  const client = new RawClient(port).send(get('/slow'))
  await begun.promise
  for (let i = 0; i < 300; i++) {
    const body = JSON.stringify('y'.repeat((i * 7919) % (i % 10 === 0 ? 200_000 : 300)))
    client.send(post(`/echo/${i}`, body, i % 3 === 0 ? large : ''))
    if (i % 16 === 15) await arrived()
    if (i === 16) gate.resolve()
  }
  t.match(await client.response(), { body: '"done"\n' })
  for (let i = 0; i < 300; i++) {
    const { status, body } = await client.response()
    if (status !== 200 || !body.startsWith(`["${i}",`))
      return t.fail(`answer ${i} is ${status} ${body.slice(0, 100)}`)
  }
  client.send(get('/fast'))
  t.match(await client.response(), { status: 200 }, 'the connection is in step')
  t.notOk(log.lines.some(line => /^(warn|error)/.test(line)))
  client.socket.destroy()
})

// rules 2.14
t.test('nothing more is read while requests wait', async t => {
  const { gate, begun, routes } = gated()
  const { port } = await start(t, routes)
  const clients = Array.from({ length: long ? 600 : 30 }, () => new RawClient(port).send(get('/slow')))
  await begun.promise
  await arrived()
  collect()
  const before = process.memoryUsage()
  const block = Buffer.from(post('/slow', '{}', large).repeat(50))
  // Shared by all clients: what they have not sent takes no memory of its own.
  for (const client of clients) for (let i = 0; i < 19; i++) client.send(block)
  await new Promise(resolve => setTimeout(resolve, long ? 10_000 : 500))
  collect()
  const after = process.memoryUsage()
  const grown = (after.heapUsed + after.external - before.heapUsed - before.external) / clients.length
  const all = Math.round((grown * clients.length) / MEGABYTE)
  proof('requests pipelined behind a slow one', {
    tried: clients.length,
    crashes: 0,
    memoryMb: all,
    note: 'heap and buffers'
  })
  t.comment(`${Math.round(grown)} bytes for a connection`)
  t.ok(grown < 0.33 * MEGABYTE)
  const other = new RawClient(port).send(get('/fast'))
  t.match(await other.response(), { status: 200 })
  for (const { socket } of [other, ...clients]) socket.destroy()
  gate.resolve()
})

// rules 2.14
t.test('of too many requests in one packet the first are answered, the rest is refused', async t => {
  const { gate, begun, routes } = gated()
  const { port } = await start(t, routes, { limits: { lingerMs: 200 } })
  const client = new RawClient(port).send(get('/slow') + get('/fast').repeat(2000))
  await begun.promise
  await arrived()
  gate.resolve()
  t.match(await client.response(), { body: '"done"\n' })
  for (let i = 0; i < 32; i++) t.match(await client.response(), { body: '"fast"\n' })
  const refused = await client.response()
  t.match(refused, { status: 503, headers: { connection: 'close' } })
  isRefusal(t, refused, /more than 32 requests wait on this connection/)
  t.equal(await client.rest(), '')
})

// rules 2.14
t.test('requests that wait on one connection do not keep others waiting', async t => {
  let served = 0
  const work = route('GET', '/slow', () => {
    const until = performance.now() + 1
    while (performance.now() < until);
    served++
    return { status: 200, body: 'done' }
  })
  const fast = route('GET', '/fast', () => ({ status: 200, body: served }))
  const { port } = await start(t, [work, fast])
  const clients = [1, 2, 3].map(() => new RawClient(port).send(get('/slow').repeat(400)))
  await until(() => served > 0)
  const other = new RawClient(port).send(get('/fast'))
  const { body } = await other.response()
  t.ok(Number(body) < 300, `it is served beside them, after ${body.trim()} of 1,200`)
  for (const { socket } of [other, ...clients]) socket.destroy()
})

// rules 2.14
t.test('requests that wait on many connections do not keep others waiting', async t => {
  let served = 0
  const work = route('GET', '/slow', () => {
    const until = performance.now() + 1
    while (performance.now() < until);
    served++
    return { status: 200, body: 'done' }
  })
  const fast = route('GET', '/fast', () => ({ status: 200, body: served }))
  const { port } = await start(t, [work, fast])
  const clients = Array.from({ length: 200 }, () => new RawClient(port).send(get('/fast')))
  for (const client of clients) await client.response()
  for (const client of clients) client.send(get('/slow').repeat(3))
  await until(() => served > 200)
  const before = served
  const other = new RawClient(port).send(get('/fast'))
  const { body } = await other.response()
  t.ok(Number(body) - before < 100, `it is served after ${Number(body) - before} of the waiting requests`)
  for (const { socket } of [other, ...clients]) socket.destroy()
})

// rules 2.14
t.test(
  'of the requests of many connections 16 are begun in a turn, in the order in which they came',
  async t => {
    let turn = 0
    const turns: number[] = []
    const order: string[] = []
    const work = route('GET', '/slow/{n}', ({ params }) => {
      turns[turn] = (turns[turn] ?? 0) + 1
      order.push(params.n as string)
      return { status: 200, body: 'done' }
    })
    const { port } = await start(t, [work])
    const clients = Array.from({ length: 200 }, () => new RawClient(port).send(get('/slow/warm')))
    for (const client of clients) await client.response()
    turns.length = 0
    order.length = 0
    let counting = true
    const count = () => {
      turn++
      if (counting) setImmediate(count)
    }
    setImmediate(count)
    for (const [i, client] of clients.entries()) client.send(get(`/slow/${i}`))
    // Nothing is read meanwhile, so that all have come when it is looked.
    for (const end = performance.now() + 200; performance.now() < end; );
    for (const client of clients) t.match(await client.response(), { status: 200 })
    counting = false
    // What is begun before and after the counter of a turn may count as one turn.
    t.ok(Math.max(...turns.filter(Boolean)) <= 32, `${Math.max(...turns.filter(Boolean))} in a turn`)
    t.ok(turns.filter(Boolean).length >= 200 / 32, `in ${turns.filter(Boolean).length} turns`)
    t.equal(new Set(order).size, 200, 'each of them once')
    t.strictSame(
      order,
      order.toSorted((a, b) => Number(a) - Number(b)),
      'in order'
    )
    for (const { socket } of clients) socket.destroy()
  }
)

// rules 2.14
t.test('a client that hangs up while its requests wait leaves nothing', async t => {
  const { gate, begun, routes } = gated()
  const { port, server, log } = await start(t, routes)
  const client = new RawClient(port).send(get('/slow') + get('/fast', large).repeat(100))
  await begun.promise
  await arrived()
  client.socket.destroy()
  gate.resolve()
  await until(() => log.lines.length > 0, 'the first is logged')
  await server.close(60_000)
  t.notOk(log.lines.some(line => line.startsWith('error')))
})
