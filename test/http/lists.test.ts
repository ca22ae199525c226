import t from 'tap'
import { RawClient, route, start } from './helpers.js'

// rules 2.13
t.test('a turn makes one piece of one list, the first pieces too', async t => {
  let made = 0
  const list = function* () {
    for (let i = 0; i < 6; i++) {
      made++
      yield String(i).repeat(100_000)
    }
  }
  const again = { [Symbol.iterator]: list }
  const { port } = await start(t, [
    route('GET', '/list', () => ({ status: 200, json: again, type: 'text/plain' }))
  ])
  let before = 0
  let most = 0
  let isOver = false
  const turn = () => {
    most = Math.max(most, made - before)
    before = made
    if (!isOver) setImmediate(turn)
  }
  setImmediate(turn)
  const clients = Array.from({ length: 20 }, () =>
    new RawClient(port).send('GET /list HTTP/1.1\r\nHost: x\r\n\r\n')
  )
  for (const client of clients) {
    t.match(await client.response(), { status: 200 })
    client.socket.destroy()
  }
  isOver = true
  t.ok(made >= 20 * 6, String(made))
  t.ok(most <= 4, `${most} in one turn`)
})
