// A keep-alive client: asks for the paths it is sent, in turn, over a few connections, and says how many were answered.
import { connect } from 'node:net'

const HEAD_END = Buffer.from('\r\n\r\n')

/** Answers within `ms`; each of `from` is the source address of one connection. */
async function run({ port, paths, from, ms }) {
  const until = performance.now() + ms
  let answered = 0
  let next = 0
  const one = localAddress =>
    new Promise((resolve, reject) => {
      let awaited = 0
      let pending = Buffer.alloc(0)
      const ask = () => {
        if (performance.now() >= until) return socket.destroy()
        // A connection stays with the path of its address where there are as many paths as connections.
        const path = paths[paths.length === from.length ? from.indexOf(localAddress) : next++ % paths.length]
        socket.write(`GET ${path} HTTP/1.1\r\nHost: bench\r\n\r\n`)
      }
      const socket = connect({ host: '127.0.0.1', port, localAddress }, ask)
      socket.setNoDelay(true)
      socket.on('data', bytes => {
        if (awaited === 0) {
          pending = pending.length === 0 ? bytes : Buffer.concat([pending, bytes])
          const end = pending.indexOf(HEAD_END)
          if (end < 0) return
          const head = pending.toString('latin1', 0, end)
          const length = /\r\ncontent-length: (\d+)/i.exec(head)?.[1]
          if (!head.startsWith('HTTP/1.1 200') || length === undefined) return reject(new Error(head))
          awaited = end + HEAD_END.length + Number(length) - pending.length
          pending = Buffer.alloc(0)
        } else awaited -= bytes.length
        if (awaited > 0) return
        answered++
        ask()
      })
      socket.on('error', reject)
      socket.on('close', resolve)
    })
  await Promise.all(from.map(one))
  return answered
}

process.on('message', async task => {
  try {
    process.send({ answered: await run(task) })
  } catch (error) {
    process.send({ error: String(error) })
  }
})
