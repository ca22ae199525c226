// rules 6.11
import type { RequestListener } from 'node:http'
import t, { type Test } from 'tap'
import { checkParam } from '../../lib/api/params.js'
import type { Caller } from '../../lib/auth/access.js'
import { createLog } from '../../lib/base/log.js'
import { HttpServer } from '../../lib/http/server.js'
import { ControllerAuth } from '../../lib/peers/proofs.js'
import { AUDIT_LINES, AuditLogs, lineRoutes } from '../../lib/peers/routes.js'
import { impostor } from '../support/impostor.js'

const key = Buffer.alloc(32, 7)
const line = (second: number, name: string, controller?: string) => ({
  time: new Date(second * 1000).toISOString(),
  ...(controller ? { controller } : {}),
  name
})
const log = (...lines: object[]) => ({ last: async () => ({ lines }) })

/** A controller that has these lines. */
async function controllerWith(t: Test, name: string, lines: object[], by: Uint8Array = key) {
  const server = new HttpServer<Caller>({
    routes: lineRoutes(
      { [`${AUDIT_LINES}/users`]: async () => lines, [`${AUDIT_LINES}/machines`]: async () => lines },
      new ControllerAuth(by, Date.now)
    ),
    authorize: () => ({ kind: 'anonymous' }),
    param: checkParam,
    maxBody: 1024,
    trustedProxies: [],
    log: createLog('error', () => undefined)
  })
  const { port } = await server.listen('127.0.0.1', 0)
  t.teardown(() => server.close(0))
  return { name, url: `http://127.0.0.1:${port}` }
}

const logsOf = (
  lines: object[],
  others: readonly { readonly name: string; readonly url?: string }[],
  known: string[] = []
) =>
  new AuditLogs({
    ...{ own: 'c1', audit: log(...lines), trust: { rejectUnauthorized: true } },
    others: () => others,
    controllerNames: () => known,
    proofs: new ControllerAuth(key, Date.now)
  })

t.test('the lines of all controllers are one list, the newest first, each with its controller', async t => {
  const others = [
    await controllerWith(t, 'c2', [line(9, 'e', 'c2'), line(2, 'b', 'c2')]),
    // Its clock was set back: the order of its own lines stays.
    await controllerWith(t, 'c3', [line(4, 'd', 'c3'), line(7, 'c', 'c3'), line(1, 'a', 'old')])
  ]
  const { lines, missing } = await logsOf([line(10, 'f', 'c1'), line(3, 'x')], others, ['c1', 'c2']).last(
    'users'
  )
  t.strictSame(
    lines.map(line => {
      const { name, controller } = line as { name: string; controller: string }
      return `${controller} ${name}`
    }),
    ['c1 f', 'c2 e', 'c3 d', 'c3 c', 'c1 x', 'c2 b', 'old a']
  )
  t.strictSame(missing, [])
})

t.test('200 lines at most, of all together', async t => {
  const many = (from: number) => Array.from({ length: 200 }, (_, i) => line(1000 - i * 2 - from, `n${i}`))
  const { lines } = await logsOf(many(0), [await controllerWith(t, 'c2', many(1))]).last('machines')
  t.equal(lines.length, 200)
  t.match(lines.at(-1), { controller: 'c2', name: 'n99' })
})

t.test('who cannot be asked, or is not believed, is named; the others are shown', async t => {
  const forged = { lines: JSON.stringify([line(5, 'forged')]), proof: '0'.repeat(64) }
  let asked = ''
  const odd = (name: string, answer: RequestListener) => impostor(t, answer, name)
  const others = [
    { name: 'c2', url: 'http://127.0.0.1:9' },
    { name: 'c3' },
    await controllerWith(t, 'c4', [line(4, 'x')], Buffer.alloc(32, 8)),
    await odd('c5', ({ headers }, response) => {
      asked = String(headers['x-svcd-controller'])
      response.end(JSON.stringify(forged))
    }),
    await odd('c6', (_, response) => {
      response.write('x'.repeat(5 * 1024 * 1024))
    }),
    await odd('c7', (_, response) => response.writeHead(404).end()),
    await odd('c8', (_, response) => response.end('x'))
  ]
  const { lines, missing = [] } = await logsOf([line(1, 'a')], others, ['c1', 'c2', 'c9']).last('users')
  t.strictSame(lines, [{ controller: 'c1', ...line(1, 'a') }])
  t.not(asked, '')
  t.match(Object.fromEntries(missing.map(({ controller, reason }) => [controller, reason])), {
    c2: /cannot be asked \(ECONNREFUSED\)/,
    c3: /no URL of its own/,
    c4: /does not believe that a controller asks/,
    c5: /not proved/,
    c6: /more than it may/,
    c7: /of a release/,
    c8: /not proved/,
    c9: /it is not there/
  })
  t.equal(missing.length, 8)
})

t.test('lines are for controllers alone, and an answer is that to one question', async t => {
  const { url } = await controllerWith(t, 'c2', [line(1, 'a')])
  const questions = new ControllerAuth(key, Date.now)
  const ask = async (path: string, headers: Record<string, string>) =>
    (await fetch(url + path, { headers })).status
  t.equal(await ask('/audit/users', {}), 401)
  t.equal(await ask('/audit/users', questions.headersFor('/audit/machines')), 401)
  const headers = questions.headersFor('/audit/users')
  t.equal(await ask('/audit/users', headers), 200)
  t.equal(await ask('/audit/users', headers), 401, 'once')
  t.equal(await ask('/audit/none', questions.headersFor('/audit/none')), 404)
})
