// How one controller asks another (rules 6.11, 9.15, 11.19).
import { createServer, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { askController } from '../lib/ask-controller.js'

/** The URL of something in the place of a controller; it is told of each question. */
async function instead(t: Test, asked: (socket: Socket) => void): Promise<string> {
  const sockets = new Set<Socket>()
  const server = createServer(socket => {
    sockets.add(socket)
    socket.on('error', () => undefined).once('data', () => asked(socket))
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return `http://127.0.0.1:${(server.address() as { port: number }).port}`
}

const ask = (url: string) =>
  askController({
    ...{ url, path: '/', headers: {}, verified: true, answerMs: 600_000 },
    signal: new AbortController().signal
  })

t.test('another protocol is no answer', async t => {
  const url = await instead(t, socket =>
    socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n')
  )
  await t.rejects(ask(url), { message: 'it ended the connection', isReached: true, isUntrusted: false })
})

t.test('who goes on promising an answer is left', async t => {
  const url = await instead(t, async socket => {
    while (!socket.destroyed) {
      socket.write('HTTP/1.1 100 Continue\r\n\r\n')
      await sleep(1)
    }
  })
  await t.rejects(ask(url), { message: 'it goes on promising an answer', isReached: true })
})

t.test('who promises an answer and gives it has answered', async t => {
  const url = await instead(t, socket =>
    socket.end(`${'HTTP/1.1 100 Continue\r\n\r\n'.repeat(3)}HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n`)
  )
  const answer = await ask(url)
  t.equal(answer.statusCode, 200)
  answer.resume()
})
