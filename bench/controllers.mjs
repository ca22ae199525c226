// Daemons that share their objects in a real etcd.
import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { writeCluster } from './cluster.mjs'
import { checkout, startDaemon } from './daemon.mjs'
import { freePort, startEtcd } from './etcd.mjs'
import { temporary } from './harness.mjs'

/**
 * An etcd of so many members that holds the objects of `nodes` nodes, which are in the files of the directory
 * of this process as well: its members (each `{ url, pid }`), and the settings of a daemon for it. `bytes`:
 * of each file that an image names.
 */
export async function etcdWith(nodes, { members: count = 1, bytes } = {}) {
  const members = await startEtcd(count)
  writeCluster(temporary, nodes, bytes)
  // A start makes the keys, and writes what a copy needs.
  await (await startDaemon(temporary)).stop()
  const settings = { 'store.medium': 'etcd', 'store.endpoints': members.map(({ url }) => url).join(', ') }
  const all = {
    'paths.state': join(temporary, 'state'),
    'paths.files': join(temporary, 'files'),
    ...settings
  }
  execFileSync(join(checkout, 'bin/svcd'), [
    ...['store', 'copy', 'files', 'etcd', '--config', join(checkout, 'etc/svcd.ini')],
    ...Object.entries(all).flatMap(([key, value]) => ['--set', `${key}=${value}`])
  ])
  return { members, settings }
}

/**
 * Starts `count` controllers with the same nodes and files; the first of them writes. `options`: as etcdWith
 * has them. Gives the members of their etcd too.
 */
export async function startControllers(count, nodes, options) {
  const { members, settings } = await etcdWith(nodes, options)
  const controllers = []
  for (let i = 1; i <= count; i++) {
    const directory = i === 1 ? temporary : join(temporary, `c${i}`)
    if (i > 1) {
      mkdirSync(join(directory, 'state'), { recursive: true, mode: 0o700 })
      for (const name of ['secret.key', 'token.key', 'admin-password'])
        cpSync(join(temporary, 'state', name), join(directory, 'state', name))
      cpSync(join(temporary, 'files'), join(directory, 'files'), { recursive: true })
    }
    // The others hand on to it what they do not answer, so it has to be known beforehand.
    const port = await freePort()
    const own = {
      'controller.name': `c${i}`,
      'http.listen': `127.0.0.1:${port}`,
      'http.url': `http://127.0.0.1:${port}`
    }
    controllers.push(await startDaemon(directory, { settings: { ...settings, ...own } }))
  }
  return { controllers, members }
}
