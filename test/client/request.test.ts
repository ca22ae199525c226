// The http client that all rooms share.
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import {
  Connections,
  NoResponseError,
  originAt,
  request,
  requestWhole,
  TimeLimitError,
  TooLongError
} from '../../lib/client/request.js'

/** Returns the URL of a server that answers so, and the requests that it got by connection. */
async function serve(t: Test, listener: RequestListener) {
  const server = createServer(listener)
  t.teardown(() => server.close().closeAllConnections())
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  return originAt('http', '127.0.0.1', (server.address() as AddressInfo).port)
}

t.test('method, path, headers and body arrive as they are given', async t => {
  const url = await serve(t, (incoming, response) => {
    const { method, url: path, headers } = incoming
    incoming
      .setEncoding('utf8')
      .on('data', body => response.end(JSON.stringify({ method, path, headers, body })))
    if (method === 'GET') response.end(JSON.stringify({ method, path, headers }))
  })
  const read = async (more: object) =>
    JSON.parse(String((await requestWhole({ url, most: 1e6, ...more })).body))
  t.match(await read({ path: '/a/../b%41?c' }), {
    method: 'GET',
    path: '/a/../b%41?c',
    headers: { host: new URL(url).host, connection: 'close', 'content-length': undefined }
  })
  t.match(await read({ url: `${url}/x?y`, body: 'ä', headers: { 'x-own': '1' } }), {
    ...{ method: 'POST', path: '/x?y', body: 'ä' },
    headers: { 'content-length': '2', 'x-own': '1' }
  })
})

t.test('each time limit ends a request, or its body', async t => {
  const url = await serve(t, ({ url: path }, response) => {
    if (path !== '/mute') response.write('x')
  })
  const late = { name: 'TimeLimitError', message: 'no answer within 0.05 s' }
  await t.rejects(request({ url: `${url}/mute`, headMs: 50 }), new TimeLimitError(50))
  await t.rejects(request({ url: `${url}/mute`, wholeMs: 50 }), late)
  await t.rejects(request({ url: `${url}/mute`, silenceMs: 50 }), late)
  await t.rejects(requestWhole({ url, most: 9, wholeMs: 50 }), late)
  await t.rejects(requestWhole({ url, most: 9, silenceMs: 50 }), late)
  // 192.0.2.0/24 has no machines: packets get lost, or there is no route.
  await t.rejects(request({ url: 'http://192.0.2.1:9', connectMs: 50 }), NoResponseError)
})

t.test('the reason of the signal is the error, before the response and in its body', async t => {
  const url = await serve(t, ({ url: path }, response) => {
    if (path !== '/mute') response.write('x')
  })
  const stop = new AbortController()
  const both = [
    request({ url: `${url}/mute`, signal: stop.signal }),
    requestWhole({ url, most: 9, signal: stop.signal })
  ]
  const reason = new Error('enough')
  setTimeout(() => stop.abort(reason), 50)
  for (const ended of await Promise.allSettled(both)) t.match(ended, { status: 'rejected', reason })
  await t.rejects(request({ url, signal: stop.signal }), reason)
})

t.test('no response: the reason, and whether a connection was there', async t => {
  let connected = 0
  const url = await serve(t, incoming => incoming.socket.destroy())
  const ask = (url: string) => request({ url, connected: () => connected++ })
  await t.rejects(ask(url), { name: 'NoResponseError', reason: 'ECONNRESET', message: 'socket hang up' })
  t.equal(connected, 1)
  await t.rejects(ask('http://127.0.0.1:1'), { reason: 'ECONNREFUSED', message: /^connect ECONNREFUSED 127/ })
  t.equal(connected, 1)
})

t.test('a body has a bound, and a break in it is an error', async t => {
  const url = await serve(t, ({ url: path, socket }, response) => {
    response.write('0123456789')
    if (path === '/broken') setTimeout(() => socket.destroy(), 20)
    else response.end()
  })
  t.equal(String((await requestWhole({ url, most: 10 })).body), '0123456789')
  await t.rejects(requestWhole({ url, most: 9 }), new TooLongError(9))
  await t.rejects(requestWhole({ url: `${url}/broken`, most: 99 }), { code: 'ECONNRESET' })
})

t.test('connections are kept and bounded, and a request that waits for one can be ended', async t => {
  const sockets = new Set<unknown>()
  const url = await serve(t, ({ url: path, socket }, response) => {
    sockets.add(socket)
    if (path !== '/mute') response.end('x')
  })
  const connections = new Connections({ most: 1 })
  t.teardown(() => connections.close())
  for (let i = 0; i < 3; i++) await requestWhole({ url, connections, most: 9 })
  t.equal(sockets.size, 1)
  const mute = request({ url: `${url}/mute`, connections, wholeMs: 200 })
  await t.rejects(request({ url, connections, headMs: 20 }), TimeLimitError)
  await t.rejects(mute, TimeLimitError)
})

t.test('a request that waited for a connection has it, and begins within its limit', async t => {
  const url = await serve(t, (_incoming, response) => void setTimeout(() => response.end('x'), 150))
  const connections = new Connections({ most: 1 })
  let connected = 0
  const ask = () => requestWhole({ url, most: 9, connections, connectMs: 250, connected: () => connected++ })
  await Promise.all([ask(), ask()])
  t.equal(connected, 2)
  connections.close()
})
