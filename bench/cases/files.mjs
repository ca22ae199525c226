// A kernel of 12 MB to 16 connections, beside nginx with sendfile.
import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { addressOf, writeCluster } from '../cluster.mjs'
import { startDaemon } from '../daemon.mjs'
import { figure } from '../figures.mjs'
import { ask, cpuOf, inTurn, program, start, temporary } from '../harness.mjs'

const BYTES = 12_000_000

const freePort = () =>
  new Promise(resolve => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address()
      server.close(() => resolve(port))
    })
  })

/** nginx with one worker, which serves `directory`. */
async function startNginx(directory) {
  const own = join(temporary, 'nginx')
  mkdirSync(own)
  const port = await freePort()
  const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
    name => `${name}_temp_path ${own}/${name};`
  )
  const user = process.getuid() === 0 ? 'user root;' : ''
  writeFileSync(
    join(own, 'conf'),
    `daemon off; master_process off; pid ${own}/pid; ${user}
events { worker_connections 512; }
http { access_log ${own}/log; sendfile on; tcp_nopush on; ${paths.join(' ')}
server { listen 127.0.0.1:${port}; location /boot/ { alias ${directory}/; } } }\n`
  )
  const child = program('nginx', ['-c', join(own, 'conf'), '-e', 'stderr'], {
    stdio: ['ignore', 'ignore', 'inherit']
  })
  let missing = false
  child.on('error', () => {
    missing = true
  })
  for (;;) {
    await sleep(50)
    if (missing || child.exitCode !== null) throw new Error('nginx does not run: apt-get install nginx-light')
    if (existsSync(join(own, 'pid'))) return { pid: child.pid, port }
  }
}

const kernel = {
  name: 'kernel',
  title: 'a kernel of 12 MB, 16 connections',
  async run({ rounds, ms }) {
    writeCluster(temporary, 100, BYTES)
    const servers = [await startDaemon(temporary), await startNginx(join(temporary, 'files'))]
    const client = start('load.mjs')
    const sources = Array.from({ length: 16 }, (_, i) => addressOf(i))
    const requests = ['GET /boot/vmlinuz HTTP/1.1\r\nHost: bench\r\n\r\n']
    const work = servers.map(server => async () => {
      const before = cpuOf(server.pid)
      const { answered, ms: took } = await ask(client, { port: server.port, requests, sources, ms })
      const bytes = answered * BYTES
      return { rate: bytes / 1e6 / (took / 1000), cpu: (cpuOf(server.pid) - before) / (bytes / 1e8) }
    })
    await inTurn(1, work)
    const [ours, theirs] = await inTurn(rounds, work)
    const row = (what, unit, key, less) =>
      figure(
        what,
        unit,
        ours.map(result => result[key]),
        {
          less,
          beside: { what: 'nginx', rounds: theirs.map(result => result[key]) }
        }
      )
    return [row('', 'MB/s', 'rate', false), row('CPU of 100 MB', 'ms', 'cpu', true)]
  }
}

export default [kernel]
