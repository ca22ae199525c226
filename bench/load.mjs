// The load: asks a server for what it is sent, one request after the other on each connection, and tells how
// many were answered, how long each took, and its own CPU time. A process of its own, because it must not
// share the server's. Raw sockets: node:http as a client costs more than the servers that are measured.
import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'

/** All connections read into it: what came is looked at before the next read. */
const shared = Buffer.allocUnsafe(256 * 1024)

/**
 * One connection that asks `next()` until that gives undefined, `pause` ms after each answer. `done(ms)` is
 * called for each answer; another status than 2xx, and a connection that ends, reject.
 */
function converse({ port, localAddress, pause }, next, done) {
  return new Promise((resolve, reject) => {
    let head = ''
    let awaited = 0
    let asked = 0
    const ask = () => {
      const request = next()
      if (request === undefined) return socket.destroy()
      asked = performance.now()
      socket.write(request, 'latin1')
    }
    const answered = () => {
      done(performance.now() - asked)
      if (pause === undefined) ask()
      else sleep(pause).then(ask)
    }
    const callback = bytes => {
      if (awaited > 0) {
        awaited -= bytes
        if (awaited <= 0) answered()
        return true
      }
      head += shared.latin1Slice(0, bytes)
      const end = head.indexOf('\r\n\r\n')
      if (end < 0) return true
      const length =
        /\r\ncontent-length: *(\d+)/i.exec(head)?.[1] ?? (head.startsWith('HTTP/1.1 204') ? 0 : undefined)
      if (!head.startsWith('HTTP/1.1 2') || length === undefined) reject(new Error(head.slice(0, 2000)))
      awaited = end + 4 + Number(length) - head.length
      head = ''
      if (awaited <= 0) answered()
      return true
    }
    const onread = { buffer: shared, callback }
    const socket = connect({ host: '127.0.0.1', port, localAddress, noDelay: true, onread }, ask)
    socket.on('error', reject)
    socket.on('close', () => resolve())
  })
}

/**
 * `requests`: whole requests, taken in turn by all connections; with `own` each connection keeps to the one
 * of its number. `sources`: the source address of each connection. It ends after `ms`, or after `count`
 * requests.
 */
async function load({
  port,
  requests,
  sources,
  own = false,
  ms = Infinity,
  count = Infinity,
  pause,
  times = false
}) {
  const found = []
  const from = performance.now()
  const cpu = process.cpuUsage()
  const until = from + ms
  let asked = 0
  let answered = 0
  let longest = 0
  const request = (connection, number) => requests[(own ? connection : number) % requests.length]
  await Promise.all(
    sources.map((localAddress, i) =>
      converse(
        { port, localAddress, pause },
        () => (asked >= count || stopped || performance.now() >= until ? undefined : request(i, asked++)),
        time => {
          answered++
          if (time > longest) longest = time
          if (times) found.push(time)
        }
      )
    )
  )
  const { user, system } = process.cpuUsage(cpu)
  return { answered, ms: performance.now() - from, longest, times: found, clientCpu: (user + system) / 1000 }
}

let stopped = false
process.on('message', async task => {
  if (task === 'stop') {
    stopped = true
    return
  }
  stopped = false
  try {
    process.send(await load(task))
  } catch (error) {
    process.send({ error: String(error) })
  }
})
