// The servers that machines boot from: daemons with so many nodes, and a bare node:http that sends the same bytes.
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { addressOf, macOf, nameOf, writeCluster } from '../cluster.mjs'
import { startControllers } from '../controllers.mjs'
import { startDaemon } from '../daemon.mjs'
import { ask, start, temporary } from '../harness.mjs'

/**
 * One daemon on files, or so many on as many members of a real etcd, and those members. Kernel and initramfs
 * have `bytes` each.
 */
export async function servers(machines, bytes, count = 1) {
  const { controllers, members } =
    count === 1
      ? { controllers: [await single(machines, bytes)], members: [] }
      : await startControllers(count, machines, { members: count, bytes })
  return { daemons: controllers, members, bare: await bareOf(controllers[0]) }
}

async function single(machines, bytes) {
  const directory = join(temporary, `storm-${machines}`)
  mkdirSync(directory)
  writeCluster(directory, machines, bytes)
  return startDaemon(directory)
}

async function bareOf(daemon) {
  const get = path => daemon.send('GET', path, { localAddress: addressOf(0), agent: false })
  const script = await get(`/boot/install/${nameOf(0)}`)
  const library = /^ {2}library '([\da-f]{64})'$/m.exec(script)?.[1]
  const answers = library === undefined ? [] : [['/boot/library', await get(`/boot/library/${library}`)]]
  for (const [begin, path] of [
    ['/boot/search', `/boot/search/mac/${macOf(0)}`],
    ['/boot/vmlinuz', '/boot/vmlinuz'],
    ['/boot/initrd', '/boot/initrd.img'],
    ['/boot', '/boot']
  ])
    answers.push([begin, await get(path)])
  answers.unshift(['/boot/install', script])
  const bare = start('bare.mjs')
  const { port } = await ask(bare, answers)
  return { pid: bare.pid, port, stop: () => bare.kill('SIGKILL') }
}
