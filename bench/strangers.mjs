// Strangers: posts to a path so often a second from addresses of no node, each over a connection of its own,
// until 'stop'; then it tells how many were sent, and how many were answered with which status.
import { connect } from 'node:net'

const TICK_MS = 10

function post(port, path, body, localAddress, statuses) {
  const socket = connect({ host: '127.0.0.1', port, localAddress, noDelay: true })
  const head = `POST ${path} HTTP/1.1\r\nHost: bench\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n`
  socket.write(head)
  socket.write(body)
  socket.once('data', bytes => {
    const [, status] = /^HTTP\/1\.1 (\d+)/.exec(String(bytes)) ?? []
    statuses[status] = (statuses[status] ?? 0) + 1
    socket.destroy()
  })
  // svcd answers before it has read all, and closes.
  socket.on('error', () => {})
}

let timer
const statuses = {}
let sent = 0
process.on('message', task => {
  if (task === 'stop') {
    clearInterval(timer)
    process.send({ sent, statuses })
    return
  }
  const { port, path, bytes, perSecond, sources } = task
  const body = Buffer.alloc(bytes, 'a')
  const from = performance.now()
  timer = setInterval(() => {
    const due = ((performance.now() - from) * perSecond) / 1000
    for (; sent < due; sent++) post(port, path, body, sources[sent % sources.length], statuses)
  }, TICK_MS)
  process.send({})
})
