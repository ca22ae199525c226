// How one controller asks another (rules 6.11, 9.15, 11.19).
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { askController } from '../lib/ask-controller.js'
import { instead } from './support/instead.js'

const ask = (port: number) =>
  askController({
    ...{ url: `http://127.0.0.1:${port}`, path: '/', headers: {}, verified: true, answerMs: 600_000 },
    signal: new AbortController().signal
  })

t.test('another protocol is no answer', async t => {
  const port = await instead(t, socket =>
    socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n')
  )
  await t.rejects(ask(port), { message: 'it ended the connection', isReached: true, isUntrusted: false })
})

t.test('who goes on promising an answer is left', async t => {
  const port = await instead(t, async socket => {
    while (!socket.destroyed) {
      socket.write('HTTP/1.1 100 Continue\r\n\r\n')
      await sleep(1)
    }
  })
  await t.rejects(ask(port), { message: 'it goes on promising an answer', isReached: true })
})

t.test('who promises an answer and gives it has answered', async t => {
  const port = await instead(t, socket =>
    socket.end(`${'HTTP/1.1 100 Continue\r\n\r\n'.repeat(3)}HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n`)
  )
  const answer = await ask(port)
  t.equal(answer.statusCode, 200)
  answer.resume()
})
