import { connect } from 'node:net'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import t from 'tap'
import { Controller } from '../support/controller.js'
import { until } from '../support/until.js'

const CLIENTS = 100
const NODES = 2000
setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void
const heapMb = () => {
  collect()
  return process.memoryUsage().heapUsed / 1024 / 1024
}

// rules 1.12, 2.13
t.test('long lists that wait for their turn take no memory', async t => {
  const c = await Controller.start(t)
  const node = Object.fromEntries(Array.from({ length: NODES }, (_, n) => [`n${n}`, { group: 'all' }]))
  t.equal((await c.post('/config/cluster/import', { config: { group: { all: {} }, node } })).status, 201)
  const path = '/config/node'
  t.equal(Object.keys((await c.get(path)).body.config.node).length, NODES)
  const before = heapMb()
  let asked = 0
  const { address, port } = c.daemon
  const clients = Array.from({ length: CLIENTS }, () => {
    const socket = connect(port, address).on('error', () => undefined)
    socket.write(`GET ${path} HTTP/1.1\r\nHost: a\r\nx-access-tokens: ${c.token}\r\n\r\n`, () => asked++)
    return socket.pause()
  })
  await until(() => asked === CLIENTS)
  // Read in order: all that came before this was read too.
  await c.raw('GET', '/version')
  const grown = heapMb() - before
  t.ok(grown < 80, `${grown.toFixed()} MB for ${CLIENTS} lists of ${NODES} nodes`)
  for (const client of clients) client.destroy()
})

// rules 2.13, 12.4
t.test('text that is not read takes no memory for its rows', async t => {
  const c = await Controller.start(t)
  const node = Object.fromEntries(Array.from({ length: 2 * NODES }, (_, n) => [`n${n}`, { group: 'all' }]))
  t.equal((await c.post('/config/cluster/import', { config: { group: { all: {} }, node } })).status, 201)
  const fields = Array.from({ length: 127 }, (_, i) => `n${i}.network`).join(',')
  const path = `/config/node?format=text&fields=name,${fields}`
  const { address, port } = c.daemon
  const before = heapMb()
  const readers = Array.from({ length: 30 }, () => {
    const socket = connect(port, address).on('error', () => undefined)
    socket.write(`GET ${path} HTTP/1.1\r\nHost: a\r\nx-access-tokens: ${c.token}\r\n\r\n`)
    return socket.once('readable', () => {})
  })
  await until(() => readers.every(({ bytesRead }) => bytesRead > 0))
  const grown = heapMb() - before
  t.ok(grown < 60, `${grown.toFixed()} MB for ${readers.length} lists that are not read`)
  for (const reader of readers) reader.destroy()
})
