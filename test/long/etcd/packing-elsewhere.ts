import { createHash } from 'node:crypto'
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import type { Test } from 'tap'
import { content } from '../../image/copies/site.js'
import { makeTree } from '../../image/small-tree.js'
import { controllerOn, isPrimary } from '../../support/controllers.js'
import type { Daemon } from '../../support/daemon.js'
import { startEtcd } from '../../support/etcd.js'
import { adminToken } from '../../support/first-start.js'
import { giveKeys } from '../../support/keys.js'
import { isThere } from '../../support/there.js'
import { until } from '../../support/until.js'

const MEGABYTE = 1024 * 1024
/** Megabytes that take a while to pack. */
export const LARGE = 100

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
export function change(daemon: Daemon, megabytes = 1): void {
  const tree = daemon.path('images', 'compute')
  for (let i = 0; i < megabytes; i += 10)
    writeFileSync(`${tree}/etc/bulk-${i}`, content(Math.min(10, megabytes - i) * MEGABYTE, ++changes))
}

export const imageOf = async (daemon: Daemon) => {
  const { body } = await daemon.request('GET', '/config/osimage/compute')
  return (body as { config: { osimage: { compute: Record<string, string> } } }).config.osimage.compute
}
export const filesOf = async (daemon: Daemon) => {
  const { imagefile = '', kernelfile = '', initrdfile = '' } = await imageOf(daemon)
  return [imagefile, kernelfile, initrdfile]
}

const sum = (file: string) => createHash('sha256').update(readFileSync(file)).digest('hex')

/** Waits until all controllers have the files of the image, and serve the same. */
export async function allServe(t: Test, all: readonly Daemon[], names: readonly string[]): Promise<void> {
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

interface Job {
  readonly request_id: string
  readonly kind: string
  readonly state: string
  readonly message: string
  readonly lines: string[]
}

export async function job(daemon: Daemon, id: string): Promise<Job | undefined> {
  const { body } = await daemon.request('GET', `/monitor/request/${id}`)
  return (body as { monitor?: { request: Record<string, Job> } }).monitor?.request[id]
}

export async function ended(daemon: Daemon, id: string): Promise<Job> {
  let found: Job | undefined
  await until(
    async () => {
      found = await job(daemon, id)
      return ['done', 'failed'].includes(found?.state ?? '')
    },
    () => daemon.log()
  )
  return found as Job
}

export const temporaries = (daemon: Daemon) =>
  readdirSync(daemon.path('files')).filter(name => name.startsWith('.svcd-') && !name.includes('copy'))
export const notes = (daemon: Daemon) => readdirSync(daemon.path('state', 'work'))

/** Asks for a pack, and is answered at once. */
export async function askForPack(asked: Daemon): Promise<{ message: string; request_id: string }> {
  const { port } = asked.client()
  const token = await adminToken(asked.path('state'))
  const response = await fetch(`http://127.0.0.1:${port}/config/osimage/compute/_pack`, {
    headers: { 'x-access-tokens': token, prefer: 'respond-async' }
  })
  return response.json() as Promise<{ message: string; request_id: string }>
}

export const isPacking = (works: Daemon) => temporaries(works).some(name => name.endsWith('.pack'))

/** Asks for a pack, and waits until it is under way on a controller. */
export async function beginPack(asked: Daemon, works: Daemon): Promise<string> {
  change(works, LARGE)
  const { request_id } = await askForPack(asked)
  await until(
    () => isPacking(works),
    () => asked.log() + works.log()
  )
  return request_id
}

/** Nothing that was begun is left. */
export const clean = (t: Test, daemon: Daemon) =>
  until(
    () => [...temporaries(daemon), ...notes(daemon)].length === 0,
    () => [temporaries(daemon), notes(daemon), daemon.log()]
  ).then(() => t.pass('nothing is left'))

/** Who of these writes by now. */
export async function writerAmong(daemons: readonly Daemon[]): Promise<Daemon> {
  let found: Daemon | undefined
  await until(async () => {
    for (const daemon of daemons) if (await isPrimary(daemon)) found = daemon
    return found !== undefined
  })
  return found as Daemon
}

/** A pack works, and all serve it. */
export async function packsAgain(t: Test, writer: Daemon, all: readonly Daemon[]): Promise<void> {
  const { status, body } = await writer.request('GET', '/config/osimage/compute/_pack')
  t.equal(status, 204, JSON.stringify(body))
  await allServe(t, all, await filesOf(writer))
}
