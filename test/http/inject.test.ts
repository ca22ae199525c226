import { request as httpRequest } from 'node:http'
import t from 'tap'
import { HttpServer } from '../../lib/http/server.js'
import { inject } from '../support/inject.js'
import { memoryLog, route, start } from './helpers.js'

t.test('inject gives what a socket gives', async t => {
  const { server, port } = await start(
    t,
    [
      route('GET', '/text', () => ({ status: 200, text: 'é' })),
      route('GET', '/none', () => ({ status: 204 })),
      route('POST', '/echo/{x}', ({ body, params, query }) => ({
        status: 201,
        body: [body, params, `${query}`]
      })),
      route('GET', '/fail', () => Promise.reject(new Error('x')))
    ],
    { maxBody: 1000 }
  )
  const table: { method: string; path: string; body?: string | Buffer; headers?: Record<string, string> }[] =
    [
      { method: 'GET', path: '/text' },
      { method: 'HEAD', path: '/text' },
      { method: 'GET', path: '/none' },
      { method: 'GET', path: '/fail' },
      { method: 'GET', path: '/nothing' },
      { method: 'PATCH', path: '/text' },
      { method: 'OPTIONS', path: '*' },
      { method: 'GET', path: '/text', body: 'dropped' },
      { method: 'POST', path: '/echo/%2e%2e?a=%20', body: '{"é":1}' },
      { method: 'POST', path: '/echo/a', body: Buffer.from('{"a":1,}') },
      { method: 'POST', path: '/echo/a', body: '{}', headers: { Expect: 'tea' } },
      { method: 'POST', path: '/echo/a' },
      { method: 'POST', path: '/echo/a', body: 'x'.repeat(2000) },
      { method: 'POST', path: '/echo/a', body: 'x'.repeat(2_000_000) },
      { method: 'GET', path: '/text', headers: { 'X-Large': 'x'.repeat(20_000) } }
    ]
  for (const one of table) {
    const injected = await inject(server, one)
    const real = await new Promise<{ status: number | undefined; headers: object; body: Buffer }>(
      (resolve, reject) => {
        const length = one.body === undefined ? {} : { 'Content-Length': Buffer.byteLength(one.body) }
        const headers = { Host: 'localhost', ...length, ...one.headers }
        const outgoing = httpRequest(
          { port, method: one.method, path: one.path, headers, agent: false },
          incoming => {
            const chunks: Buffer[] = []
            incoming.on('data', chunk => chunks.push(chunk))
            incoming.on('end', () =>
              resolve({ status: incoming.statusCode, headers: incoming.headers, body: Buffer.concat(chunks) })
            )
          }
        )
        outgoing.on('error', reject).end(one.body)
      }
    )
    const undated = ({ status, headers, body }: typeof real) => ({
      status,
      headers: { ...headers, date: '' },
      body: body.toString()
    })
    t.same(undated(injected), undated(real), `${one.method} ${one.path}`)
  }
  await t.rejects(
    inject(server, { method: 'GET', path: '/a b' }),
    'what http cannot carry is the caller’s mistake'
  )
})

t.test('inject rejects when the answer is cut, and needs no listening server', async t => {
  const server = new HttpServer<string>({
    routes: [
      {
        ...route('GET', '/never', () => new Promise(() => undefined)),
        handler: () => new Promise(() => undefined)
      },
      { ...route('GET', '/now', () => ({ status: 200 })), handler: () => ({ status: 200, body: 1 }) }
    ],
    authorize: () => '',
    maxBody: 1,
    trustedProxies: [],
    log: memoryLog()
  })
  t.equal((await inject(server, { method: 'GET', path: '/now' })).status, 200)
  const never = inject(server, { method: 'GET', path: '/never' })
  await new Promise(resolve => setTimeout(resolve, 20))
  await Promise.all([t.rejects(never), server.close(10)])
})

t.test('hundreds at once, each with its own answer', async t => {
  const { server } = await start(t, [
    route('POST', '/echo', async ({ body }) => {
      await new Promise(resolve => setImmediate(resolve))
      return { status: 200, body }
    })
  ])
  const answers = await Promise.all(
    Array.from({ length: 300 }, (_, i) => inject(server, { method: 'POST', path: '/echo', body: `${i}` }))
  )
  t.same(
    answers.map(({ body }) => body.toString()),
    answers.map((_, i) => `${i}\n`)
  )
})
