import { createHash } from 'node:crypto'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import type { Test } from 'tap'
import { content } from '../../image/copies/site.js'
import { makeTree } from '../../image/small-tree.js'
import { controllerOn, isPrimary } from '../../support/controllers.js'
import type { Daemon } from '../../support/daemon.js'
import { startEtcd } from '../../support/etcd.js'
import { giveKeys } from '../../support/keys.js'
import { isThere } from '../../support/there.js'
import { until } from '../../support/until.js'

const MEGABYTE = 1024 * 1024

/** Three controllers: c1 writes, c2 has the directory of the image compute, c3 is a third one. */
export async function three(t: Test) {
  const etcd = await startEtcd(t)
  const daemons: Daemon[] = []
  for (const name of ['c1', 'c2', 'c3'])
    daemons.push(
      await controllerOn(t, etcd, `controller.name=${name}`, 'image.initramfs=no', 'monitor.disk_free=1k')
    )
  const [first, second, third] = daemons as [Daemon, Daemon, Daemon]
  await second.start()
  await until(() => isPrimary(second))
  for (const other of [first, third]) giveKeys(second, other)
  makeTree(second.path('images', 'compute'))
  await second.create('osimage', 'compute', { distribution: 'debian' })
  t.equal((await second.request('GET', '/config/osimage/compute/_pack')).status, 204)
  await first.start()
  await answers(first)
  await second.stop()
  await until(() => isPrimary(first))
  await second.start()
  await third.start()
  for (const daemon of [second, third]) await answers(daemon)
  await allThere(first, ['c1', 'c2', 'c3'])
  return { etcd, first, second, third, all: daemons }
}

export const answers = (daemon: Daemon) =>
  until(async () => (await daemon.request('GET', '/config/node')).status === 200)

/** Waits until a controller knows that these are there. */
export const allThere = (daemon: Daemon, names: readonly string[]) =>
  until(async () => (await Promise.all(names.map(name => isThere(daemon, name)))).every(Boolean))

let changes = 0
/** Changes what the image holds, so that a pack of it has another name. */
export function change(daemon: Daemon): void {
  writeFileSync(`${daemon.path('images', 'compute')}/etc/bulk`, content(MEGABYTE, ++changes))
}

export const imageOf = async (daemon: Daemon) => {
  const { body } = await daemon.request('GET', '/config/osimage/compute')
  return (body as { config: { osimage: { compute: Record<string, string> } } }).config.osimage.compute
}
const filesOf = async (daemon: Daemon) => {
  const { imagefile = '', kernelfile = '', initrdfile = '' } = await imageOf(daemon)
  return [imagefile, kernelfile, initrdfile]
}

const sum = (file: string) => createHash('sha256').update(readFileSync(file)).digest('hex')

/** Waits until all controllers have the files of the image, and serve the same. */
async function allServe(t: Test, all: readonly Daemon[], names: readonly string[]): Promise<void> {
  const [one] = all as [Daemon]
  for (const daemon of all)
    for (const name of names) {
      await until(
        () => existsSync(daemon.path('files', name)),
        () => daemon.log()
      )
      t.equal(sum(daemon.path('files', name)), sum(one.path('files', name)), name)
    }
  for (const daemon of all) {
    const { port } = daemon.client()
    const response = await fetch(`http://127.0.0.1:${port}/files/${names[0]}`)
    t.equal(response.status, 200)
    await response.arrayBuffer()
  }
}

/** A pack works, and all serve it. */
export async function packsAgain(t: Test, writer: Daemon, all: readonly Daemon[]): Promise<void> {
  const { status, body } = await writer.request('GET', '/config/osimage/compute/_pack')
  t.equal(status, 204, JSON.stringify(body))
  await allServe(t, all, await filesOf(writer))
}
