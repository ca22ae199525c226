// Two controllers on one etcd: files of images that one of them has and the other one lacks (rules 11.19).
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { readAnnounce } from '../../../lib/image/torrent/torrent.js'
import { content, Line } from '../../image/copies/site.js'
import { aria2, forSeeders, openTracker } from '../../image/servers.js'
import { controllerOn, isPrimary } from '../../support/controllers.js'
import type { Daemon } from '../../support/daemon.js'
import { type EtcdServer, startEtcd } from '../../support/etcd.js'
import { freePort } from '../../support/free-port.js'
import { giveKeys } from '../../support/keys.js'
import { fillDisk, smallDisk } from '../../support/small-disk.js'
import { until } from '../../support/until.js'

const MEGABYTE = 1024 * 1024

/** A tree that svcd can pack: a kernel, its initramfs, and a file that does not compress. */
function makeImage(daemon: Daemon, megabytes: number): void {
  const tree = daemon.path('images', 'compute')
  execFileSync('mkdir', ['-p', `${tree}/boot`, `${tree}/etc`, `${tree}/sbin`])
  writeFileSync(`${tree}/sbin/init`, '')
  writeFileSync(`${tree}/etc/bulk`, content(megabytes * MEGABYTE))
  writeFileSync(`${tree}/boot/vmlinuz-6.1.0`, content(3 * MEGABYTE, 2))
  writeFileSync(`${tree}/boot/initrd.img-6.1.0`, content(2 * MEGABYTE, 3))
}

/**
 * The first one writes; the second one follows, and asks what the first one tells: its URL, or a way to it
 * that counts.
 */
async function site(
  t: Test,
  { first: more = [], second: others = [] }: { first?: string[]; second?: string[] } = {}
) {
  const etcd = await startEtcd(t)
  const listen = `127.0.0.1:${await freePort()}`
  const line = await Line.to(t, { name: 'one', url: `http://${listen}` })
  const common = ['image.initramfs=no', 'monitor.disk_free=1k', 'node.verify_certificate=no']
  const first = await controllerOn(
    t,
    etcd,
    ...[`http.listen=${listen}`, `store.url=${line.source.url}`, 'controller.name=one', ...common, ...more]
  )
  const second = await controllerOn(t, etcd, 'controller.name=two', ...common, ...others)
  await first.start()
  await until(() => isPrimary(first))
  giveKeys(first, second)
  return { etcd, line, first, second }
}

/** Packs the image on the one that writes; gives the names of its files. */
async function packed(first: Daemon, megabytes: number): Promise<string[]> {
  makeImage(first, megabytes)
  if ((await first.request('GET', '/config/osimage/compute')).status === 404)
    await first.create('osimage', 'compute', { distribution: 'debian' })
  const { status, body } = await first.request('GET', '/config/osimage/compute/_pack')
  if (status >= 300) throw new Error(`${status} ${JSON.stringify(body)}`)
  return filesOf(first)
}

async function filesOf(daemon: Daemon): Promise<string[]> {
  const { body } = await daemon.request('GET', '/config/osimage/compute')
  const { config } = body as { config: { osimage: { compute: Record<string, string> } } }
  const { imagefile = '', kernelfile = '', initrdfile = '' } = config.osimage.compute
  return [imagefile, kernelfile, initrdfile]
}

const has = (daemon: Daemon, names: readonly string[]) =>
  names.every(name => existsSync(daemon.path('files', name)))
const equal = (t: Test, one: Daemon, other: Daemon, names: readonly string[]) => {
  for (const name of names)
    t.ok(readFileSync(one.path('files', name)).equals(readFileSync(other.path('files', name))), name)
}
/** How many bytes of these files are there, in parts too. */
const bytesOf = (daemon: Daemon, names: readonly string[]) =>
  [
    ...partsOf(daemon),
    ...names.map(name => statSync(daemon.path('files', name), { throwIfNoEntry: false })?.size ?? 0)
  ].reduce((sum, size) => sum + size, 0)
const partsOf = (daemon: Daemon) =>
  readdirSync(daemon.path('files'))
    .filter(name => name.startsWith('.svcd-copy-'))
    .map(name => statSync(daemon.path('files', name)).size)
const service = async (daemon: Daemon) =>
  ((await daemon.request('GET', '/monitor/service/svcd')).body as { monitor: { service: { svcd: object } } })
    .monitor.service.svcd
/** What was logged of files that are not here, without the time. */
const warnings = (daemon: Daemon) =>
  [...daemon.log().matchAll(/^\S+ warn (the file .*)$/gm)].map(([, what]) => what)
const toldOnce = (t: Test, daemon: Daemon) =>
  t.equal(new Set(warnings(daemon)).size, warnings(daemon).length, daemon.log())

t.test(
  'a pack of the one that writes arrives at the standby, which boots nodes with it after a takeover',
  async t => {
    const { first, second } = await site(t)
    await second.start()
    const names = await packed(first, 20)
    await until(
      () => has(second, names),
      () => second.log()
    )
    equal(t, first, second, names)
    t.strictSame(partsOf(second), [])
    await until(async () => !/fetched|is not on controller/.test(JSON.stringify(await service(second))))
    await first.create('network', 'cluster', { network: '10.141.0.0/16' })
    await first.create('group', 'g', { osimage: 'compute' })
    await first.create('node', 'n1', {
      group: 'g',
      interfaces: [
        { interface: 'BOOTIF', network: 'cluster', ipaddress: '10.141.0.7', macaddress: '52:54:00:00:00:07' }
      ]
    })
    await first.kill()
    await until(() => isPrimary(second))
    const { port } = second.client()
    const { text: script } = await second.client().get('/boot/search/mac/52:54:00:00:00:07')
    const [imagefile = '', kernel = '', initrd = ''] = names
    t.match(script, kernel)
    t.match(script, initrd)
    for (const [path, name] of [
      [`/boot/${kernel}`, kernel],
      [`/boot/${initrd}`, initrd],
      [`/files/${imagefile}`, imagefile]
    ] as const) {
      const bytes = Buffer.from(await (await fetch(`http://127.0.0.1:${port}${path}`)).arrayBuffer())
      t.ok(bytes.equals(readFileSync(first.path('files', name))), path)
    }
    await second.stop()
  }
)

t.test('with torrents, the standby offers a pack with a tracker and a seeder of its own', async t => {
  const own = async () => {
    const [tracker, seeder] = [await openTracker(t), await aria2(t)]
    await tracker.start()
    await seeder.start()
    return {
      announce: `http://127.0.0.1:${tracker.port}/announce`,
      settings: [
        `torrent.tracker=http://127.0.0.1:${tracker.port}/announce`,
        `torrent.whitelist=${tracker.whitelist}`,
        `torrent.tracker_reload=${tracker.reload.join(' ')}`,
        'torrent.seeder=aria2',
        `torrent.seeder_url=${seeder.url}`,
        'torrent.seeder_secret=swordfish'
      ]
    }
  }
  const [one, two] = [await own(), await own()]
  const { first, second } = await site(t, { first: one.settings, second: two.settings })
  for (const daemon of [first, second]) await forSeeders(daemon.path('files'))
  const names = await packed(first, 40)
  const isOffered = async (daemon: Daemon) => {
    const { body } = await daemon.request('GET', '/monitor/service/seeder')
    return JSON.stringify(body).includes('"ok"') && has(daemon, [`${names[0]}.torrent`])
  }
  await until(
    () => isOffered(first),
    () => first.log()
  )
  await second.start()
  await until(
    async () => has(second, names) && (await isOffered(second)),
    () => second.log()
  )
  equal(t, first, second, names)
  for (const [daemon, { announce }] of [
    [first, one],
    [second, two]
  ] as const)
    t.equal(await readAnnounce(daemon.path('files', `${names[0]}.torrent`)), announce)
  await second.stop()
})

t.test('the standby is killed half-way, and goes on where it was', async t => {
  const { first, second, line } = await site(t)
  const names = await packed(first, 60)
  const whole = names.reduce((sum, name) => sum + statSync(first.path('files', name)).size, 0)
  line.bytesPerSecond = 20 * MEGABYTE
  await second.start()
  await until(
    () => partsOf(second).some(size => size > 20 * MEGABYTE),
    () => second.log()
  )
  await second.kill()
  const had = bytesOf(second, names)
  t.ok(had < whole && !has(second, names), `${had} of ${whole} bytes`)
  line.bytesPerSecond = Number.POSITIVE_INFINITY
  const before = line.sent
  await second.start()
  await until(
    () => has(second, names),
    () => second.log()
  )
  equal(t, first, second, names)
  const rest = line.sent - before
  t.comment(
    `${before} bytes were sent before the kill, ${had} of them kept; ${rest} bytes after it, of ${whole}`
  )
  // What is handed on and asked beside it is little.
  t.ok(rest < whole - had + MEGABYTE, `${rest} bytes for the rest of ${whole - had}`)
  t.strictSame(partsOf(second), [])
  await second.stop()
  await first.stop()
})

t.test('the source is killed half-way, comes back, and what is there is not sent again', async t => {
  const { first, second, line } = await site(t)
  const names = await packed(first, 60)
  line.bytesPerSecond = 20 * MEGABYTE
  await second.start()
  await until(
    () => partsOf(second).some(size => size > 20 * MEGABYTE),
    () => second.log()
  )
  await first.kill()
  await until(
    async () => /is not on controller/.test(JSON.stringify(await service(second))),
    () => second.log()
  )
  const had = bytesOf(second, names)
  line.bytesPerSecond = Number.POSITIVE_INFINITY
  const before = line.sent
  await first.start()
  await until(
    () => has(second, names),
    () => second.log()
  )
  equal(t, first, second, names)
  const whole = names.reduce((sum, name) => sum + statSync(first.path('files', name)).size, 0)
  t.comment(`${had} bytes were there; ${line.sent - before} bytes were sent after that, of ${whole}`)
  t.ok(line.sent - before < whole - had + MEGABYTE)
  await second.stop()
  await first.stop()
})

/** Tells in etcd of a controller that gives these bytes for every file. */
async function impostor(t: Test, etcd: EtcdServer, bytes: Buffer) {
  const asked: string[] = []
  const server = createServer(({ url = '' }, response) => {
    asked.push(url)
    response.writeHead(200, { 'content-length': bytes.length }).end(bytes)
  })
  await new Promise<void>(done => server.listen(0, '127.0.0.1', done))
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const base64 = (text: string) => Buffer.from(text).toString('base64')
  const said = { name: 'odd', host: 'odd', address: '10.141.0.9', port: 1, ini: '/x', url }
  await etcd.ask('kv/put', { key: base64('/svcd/controllers/odd'), value: base64(JSON.stringify(said)) })
  return { asked, url }
}

t.test('wrong bytes never have the name, and the file is got elsewhere', async t => {
  const { etcd, first, second } = await site(t)
  const names = await packed(first, 5)
  const [imagefile = ''] = names
  const { size } = statSync(first.path('files', imagefile))
  const odd = await impostor(t, etcd, Buffer.alloc(size, 1))
  // Only the odd one is there: the one that writes is gone, and this one writes then.
  await first.kill()
  await second.start()
  await until(() => isPrimary(second))
  await until(
    () => odd.asked.includes(`/copies/${imagefile}`) && warnings(second).length >= 3,
    () => second.log()
  )
  await sleep(5000)
  t.strictSame(readdirSync(second.path('files')), [])
  // Once more at once: a bit might have changed on the way.
  t.equal(odd.asked.filter(url => url === `/copies/${imagefile}`).length, 2, odd.asked.join('\n'))
  toldOnce(t, second)
  t.match(await service(second), {
    status: /fail/i,
    reason: /controller odd \(http.*another file.*put the right file there, or pack the image again/
  })
  await first.start()
  await until(
    () => has(second, names),
    () => second.log()
  )
  equal(t, first, second, names)
  await until(async () => !/is not on controller/.test(JSON.stringify(await service(second))))
  await second.stop()
  await first.stop()
})

t.test('a full disk of the standby is told once, and the files arrive when there is room', async t => {
  const disk = smallDisk(t, '16m')
  const free = fillDisk(disk)
  const { first, second } = await site(t, { second: [`paths.files=${disk}`] })
  const names = await packed(first, 5)
  await second.start()
  await until(
    () => warnings(second).length >= 3,
    () => second.log()
  )
  await sleep(5000)
  toldOnce(t, second)
  t.match(JSON.stringify(await service(second)), /no room for its \d+ bytes/)
  t.strictSame(readdirSync(disk), ['filler'])
  free()
  await until(
    () => names.every(name => existsSync(`${disk}/${name}`)),
    () => second.log()
  )
  for (const name of names)
    t.ok(readFileSync(`${disk}/${name}`).equals(readFileSync(first.path('files', name))))
  await second.stop()
  await first.stop()
})

t.test("an admin's own file stays; files of packs that nobody names go from every controller", async t => {
  const grace = ['image.grace=1s']
  const { first, second } = await site(t, { first: grace, second: grace })
  await first.create('osimage', 'compute', { distribution: 'debian', kernelfile: 'own-kernel' })
  writeFileSync(second.path('files', 'own-kernel'), 'another one')
  writeFileSync(second.path('files', 'notes'), 'mine')
  // Before the other one is there: it would have the kernel, and the pack would wait for it.
  const names = await packed(first, 2)
  await second.start()
  await until(
    () => has(second, names),
    () => second.log()
  )
  writeFileSync(first.path('images', 'compute', 'etc', 'bulk'), content(MEGABYTE, 5))
  writeFileSync(first.path('images', 'compute', 'boot', 'vmlinuz-6.1.0'), content(MEGABYTE, 6))
  await first.request('GET', '/config/osimage/compute/_pack')
  const now = await filesOf(first)
  t.notSame(now, names)
  await until(
    () => has(second, now) && names.every(name => !existsSync(first.path('files', name))),
    () => first.log()
  )
  await until(
    () => names.every(name => !existsSync(second.path('files', name))),
    () => second.log()
  )
  t.equal(readFileSync(second.path('files', 'own-kernel'), 'utf8'), 'another one')
  t.equal(readFileSync(second.path('files', 'notes'), 'utf8'), 'mine')
  equal(t, first, second, now)
  const sums = now.map(name =>
    createHash('sha256')
      .update(readFileSync(second.path('files', name)))
      .digest('hex')
  )
  t.equal(new Set(sums).size, 3)

  // The same for what the one that wrote has packed itself.
  await first.kill()
  await until(() => isPrimary(second))
  await first.start()
  await second.request('POST', '/config/osimage/compute', {
    config: {
      osimage: { compute: { imagefile: 'own-image', kernelfile: 'own-kernel', initrdfile: 'own-initrd' } }
    }
  })
  for (const daemon of [second, first])
    await until(
      () => now.every(name => !existsSync(daemon.path('files', name))),
      () => daemon.log()
    )
  t.equal(readFileSync(second.path('files', 'own-kernel'), 'utf8'), 'another one')
  await second.stop()
  await first.stop()
})
