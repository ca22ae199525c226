// A real etcd, and the yardstick of what is kept in it: puts by gRPC, one after the other on each connection,
// as etcd's own benchmark sends them.
import { once } from 'node:events'
import { connect } from 'node:http2'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { program, temporary } from './harness.mjs'

/** A port of this machine that nothing listens on now. */
export async function freePort() {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address()
  server.close()
  return port
}

/**
 * Resolves with the members of an etcd (each `{ url, pid }`), with their data below the directory of this
 * process, once each answers.
 */
export async function startEtcd(members = 1) {
  const all = []
  for (let i = 0; i < members; i++)
    all.push({
      name: `m${i}`,
      url: `http://127.0.0.1:${await freePort()}`,
      peer: `http://127.0.0.1:${await freePort()}`
    })
  const cluster = all.map(({ name, peer }) => `${name}=${peer}`).join(',')
  const pids = []
  let failed
  for (const { name, url, peer } of all) {
    const words = [
      ...[
        '--name',
        name,
        '--data-dir',
        join(temporary, `etcd-${name}`),
        '--log-level',
        'error',
        '--logger',
        'zap'
      ],
      ...['--listen-client-urls', url, '--advertise-client-urls', url],
      ...['--listen-peer-urls', peer, '--initial-advertise-peer-urls', peer, '--initial-cluster', cluster]
    ]
    const child = program('etcd', words, { stdio: 'ignore' }).once('error', error => {
      failed = new Error(
        `etcd does not start: install it (Debian: apt install etcd-server): ${error.message}`
      )
    })
    pids.push(child.pid)
  }
  const isUp = ({ url }) =>
    fetch(`${url}/health`).then(
      answer => answer.ok,
      () => false
    )
  for (let tries = 0; !(await Promise.all(all.map(isUp))).every(Boolean); tries++) {
    if (failed) throw failed
    if (tries > 200) throw new Error('etcd did not answer within 20 s')
    await sleep(100)
  }
  return all.map(({ url }, i) => ({ url, pid: pids[i] }))
}

/** A field of a protocol buffer that holds bytes. */
const field = (number, bytes) => {
  const length = []
  for (let left = bytes.length; ; left >>>= 7) {
    length.push(left > 127 ? (left & 127) | 128 : left)
    if (left <= 127) break
  }
  return Buffer.concat([Buffer.from([(number << 3) | 2, ...length]), bytes])
}

function putMessage(key, value) {
  const message = Buffer.concat([field(1, Buffer.from(key)), field(2, Buffer.from(value))])
  const head = Buffer.alloc(5)
  head.writeUInt32BE(message.length, 1)
  return Buffer.concat([head, message])
}

/** One put; rejects unless etcd has done it. */
const put = (session, message) =>
  new Promise((resolve, reject) => {
    const stream = session.request({
      ':method': 'POST',
      ':path': '/etcdserverpb.KV/Put',
      'content-type': 'application/grpc',
      te: 'trailers'
    })
    stream.on('error', reject)
    stream.on('trailers', trailers => {
      if (trailers['grpc-status'] === '0') resolve()
      else reject(new Error(`put: ${trailers['grpc-status']} ${trailers['grpc-message']}`))
    })
    stream.resume()
    stream.end(message)
  })

/** Puts per second over `connections` for `ms`; `text(i)` is what the key of number `i` gets. */
export async function puts(url, connections, ms, text) {
  const sessions = Array.from({ length: connections }, () => connect(url))
  const from = performance.now()
  let begun = 0
  let done = 0
  await Promise.all(
    sessions.map(async session => {
      session.on('error', () => {})
      while (performance.now() - from < ms) {
        const i = begun++
        await put(session, putMessage(`/beside/${i}`, text(i)))
        done++
      }
      session.close()
    })
  )
  return (done * 1000) / (performance.now() - from)
}
