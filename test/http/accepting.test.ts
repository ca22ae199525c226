import { EventEmitter } from 'node:events'
import { connect, type Server } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { Acceptor } from '../../lib/http/admission/acceptor.js'
import { memoryLog, route, start } from './helpers.js'

/** Milliseconds that each turn of the event loop takes. */
const TURN_MS = 2
const AT_ONCE = 64

// rules 2.15
t.test('a busy event loop accepts many connections in a turn', { timeout: 60_000 }, async t => {
  let turn = 0
  let most = 0
  let inTurn = { turn, count: 0 }
  const { port, log } = await start(t, [
    route('GET', '/boot', () => {
      inTurn = inTurn.turn === turn ? inTurn : { turn, count: 0 }
      most = Math.max(most, ++inTurn.count)
      return { status: 200, body: 'script' }
    })
  ])
  let busy = true
  const spin = () => {
    turn++
    for (const end = performance.now() + TURN_MS; performance.now() < end; );
    if (busy) setImmediate(spin)
  }
  spin()
  t.teardown(() => {
    busy = false
  })
  const ask = () =>
    new Promise<string>((resolve, reject) => {
      let text = ''
      const socket = connect(port, '127.0.0.1').setEncoding('latin1')
      socket.on('data', piece => {
        text += piece
      })
      socket.on('error', reject).on('close', () => resolve(text))
      socket.write('GET /boot HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n')
    })
  const answers: string[] = []
  // The first ones make the server see that it is busy; it takes a while until it accepts more.
  const until = performance.now() + 30_000
  while (most < 4 && performance.now() < until)
    answers.push(...(await Promise.all(Array.from({ length: AT_ONCE }, ask))))
  t.ok(most >= 4, `${most} were accepted in one turn`)
  t.same(
    answers.filter(answer => !/^HTTP\/1\.1 200 .*"script"\n$/s.test(answer)),
    [],
    'each of them is answered'
  )
  t.same(
    log.lines.filter(line => !line.startsWith('info GET /boot 200')),
    []
  )
})

// rules 2.15
t.test('where what listens cannot be duplicated, one line says so and all goes on as it began', async t => {
  const table: [is: string, handle: unknown, says: RegExp][] = [
    ['a version of Node without the handle', undefined, /slow: node v\S+ does not show the handle/],
    ['a handle that cannot be sent', {}, /slow: .*handle/]
  ]
  for (const [is, handle, says] of table) {
    const log = memoryLog()
    const close = (done: () => void) => done()
    const server = Object.assign(new EventEmitter(), { _handle: handle, close })
    const accepting = new Acceptor(server as unknown as Server, {}, log)
    for (const until = performance.now() + 20; performance.now() < until; );
    for (let i = 0; i < 3 * AT_ONCE; i++) server.emit('connection')
    await sleep(100)
    t.equal(log.lines.length, 1, is)
    t.match(log.lines[0], says)
    await accepting.close()
  }
})
