// A booting machine's view: asks for the paths it is sent, one every 2 ms on one connection, and tells how long each took.
import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'

const PAUSE_MS = 2

process.on('message', async ({ port, paths, ms }) => {
  const socket = connect({ host: '127.0.0.1', port, noDelay: true })
  let answered = () => {}
  let pending = ''
  socket.setEncoding('latin1')
  socket.on('data', text => {
    pending += text
    const end = pending.indexOf('\r\n\r\n')
    const length = /\r\ncontent-length: (\d+)/i.exec(pending)?.[1]
    if (end < 0 || pending.length < end + 4 + Number(length)) return
    if (!pending.startsWith('HTTP/1.1 200')) throw new Error(pending)
    pending = ''
    answered()
  })
  const found = []
  const until = performance.now() + ms
  for (let i = 0; performance.now() < until; i++) {
    const from = performance.now()
    const done = new Promise(resolve => {
      answered = resolve
    })
    socket.write(`GET ${paths[i % paths.length]} HTTP/1.1\r\nHost: bench\r\n\r\n`)
    await done
    found.push(performance.now() - from)
    await sleep(PAUSE_MS)
  }
  socket.destroy()
  process.send(found)
})
