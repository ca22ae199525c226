// nginx with sendfile and one worker, which logs no request: the yardstick of files.
import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { freePort } from './etcd.mjs'
import { program, temporary } from './harness.mjs'

/** Whether nginx can be started here. */
export const isThere = () => spawnSync('nginx', ['-v']).error === undefined

/**
 * Starts nginx, which serves `directory` below /boot/. `texts`: further answers, each of the paths that begin
 * with its key. Gives its pid and port.
 */
export async function startNginx(directory, texts = {}) {
  const own = join(temporary, 'nginx')
  mkdirSync(own)
  const port = await freePort()
  const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
    name => `${name}_temp_path ${own}/${name};`
  )
  const user = process.getuid() === 0 ? 'user root;' : ''
  const locations = Object.entries(texts).map(([path, text], i) => {
    writeFileSync(join(own, `text${i}`), text)
    return `location ${path} { root ${own}; try_files /text${i} =404; }`
  })
  writeFileSync(
    join(own, 'conf'),
    `daemon off; master_process off; pid ${own}/pid; ${user}
events { worker_connections 4096; }
http { access_log off; sendfile on; tcp_nopush on; ${paths.join(' ')}
server { listen 127.0.0.1:${port} backlog=4096; ${locations.join(' ')}
location /boot/ { alias ${directory}/; } } }\n`
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
