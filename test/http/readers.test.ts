import t from 'tap'
import { proof } from '../support/proof.js'
import { until } from '../support/until.js'
import { isRefusal, RawClient, route, stalled, stalledInOrder, start } from './helpers.js'

const get = (path: string) => `GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`
const list = Array.from({ length: 12_000 }, () => ' '.repeat(1000))
const routes = [
  route('GET', '/boot', () => ({ status: 200, text: '#!ipxe\n' })),
  route('GET', '/list', () => ({ status: 200, json: list })),
  route('GET', '/short', () => ({ status: 200, json: ['[', ']'] })),
  route('GET', '/large', () => ({ status: 200, text: 'x'.repeat(40_000_000) })),
  route('GET', '/medium', () => ({ status: 200, text: 'x'.repeat(60_000) })),
  // Made anew for each, as a rendered template is.
  route('GET', '/text/{n}', ({ params }) => ({ status: 200, text: String(params.n).repeat(6_000_000) }))
]

// rules 2.13
t.test('long lists have a bound; a client that reads nothing leaves its place', async t => {
  const { port, log } = await start(t, routes, { limits: { lists: 2, listWaitMs: 0, yieldMs: 1000 } })
  const first = await stalledInOrder(port, '/list')
  const client = new RawClient(port)
  const refused = await client.send(get('/list')).response()
  t.equal(refused.status, 503)
  isRefusal(t, refused, /2 long lists and exports are being sent, which is the most; try again in \d+ s/)
  t.match(refused.headers['retry-after'], /^\d+$/)
  t.match(await client.send(get('/boot')).response(), { status: 200 })
  await until(async () => (await client.send(get('/list')).response()).status === 200, 'one gave its place')
  t.match(await client.send(get('/short')).response(), { status: 200, body: '[]\n' })
  for (const { socket } of first) socket.resume()
  const ends = await Promise.all(
    first.map(one =>
      one.response().then(
        ({ body }) => body.length,
        () => 'cut'
      )
    )
  )
  t.same(ends, ['cut', 12_000_001], 'the one that waits longest has gone, no other')
  t.notOk(log.lines.some(line => line.startsWith('error')))
  for (const { socket } of [client, ...first]) socket.destroy()
})

// rules 2.13
t.test('one list too many waits for its turn', async t => {
  const { port } = await start(t, routes, { limits: { lists: 2 } })
  const all = Array.from({ length: 10 }, () => new RawClient(port).send(get('/list')))
  for (const client of all) t.equal((await client.response()).status, 200)
  for (const { socket } of all) socket.destroy()
})

// rules 2.16
t.test(
  'one answer larger than what all may leave unread comes whole; who reads is not cut for others',
  async t => {
    const { port } = await start(t, routes)
    const large = await stalled(port, '/large')
    const other = await stalled(port, '/large')
    for (const { socket } of [large, other]) socket.resume()
    for (const client of [large, other]) t.equal((await client.response()).body.length, 40_000_000)
    for (const { socket } of [large, other]) socket.destroy()
  }
)

// rules 2.16
t.test('what clients leave unread has a bound in all', async t => {
  const { port, log } = await start(t, routes)
  const clients: RawClient[] = []
  for (let i = 0; i < 30; i++) clients.push(await stalled(port, `/text/${i % 10}`))
  // The answers that wait longest are cut: 32 MiB hold five of them.
  await until(() => log.lines.filter(line => !line.startsWith('warn')).length === 25)
  proof('readers that do not read', {
    tried: 30,
    crashes: 0,
    note: 'what they leave unread is held to 32 MiB'
  })
  clients.at(-1)?.socket.resume()
  t.equal((await clients.at(-1)?.response())?.body.length, 6_000_000, 'the last one gets its answer')
  t.match(
    await new RawClient(port)
      .send(get('/boot').replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n'))
      .response(),
    {
      status: 200
    }
  )
  for (const { socket } of clients) socket.destroy()
})

// rules 2.16
t.test('an answer of any size of which the client takes nothing is cut', async t => {
  const { server, port, log } = await start(t, routes, { limits: { stallMs: 200 } })
  const client = new RawClient(port)
  client.socket.pause()
  // Requests one after the other, until the system takes no more answers.
  for (let answered = -1; log.lines.length > answered; ) {
    answered = log.lines.length
    client.send(get('/medium').repeat(16))
    await new Promise(resolve => setTimeout(resolve, 100))
  }
  const begun = Date.now()
  await server.close(20_000)
  t.ok(Date.now() - begun < 15_000, 'before the end of the time that a stop gives')
  client.socket.destroy()
})
