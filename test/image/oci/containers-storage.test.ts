import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  unlinkSync,
  writeFileSync
} from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import type { RootHelper } from '../../../lib/helper/commands.js'
import { runCommand } from '../../../lib/helper/local.js'
import { platform, readReference, Skopeo } from '../../../lib/image/oci/skopeo.js'
import { output, requirePrograms, requireRoot } from '../../support/programs.js'
import { scratch } from '../../support/scratch.js'
import { beginning } from '../imaging.js'
import { imageOf, sha, tarEntry, tarOf, writeLayout } from './hostile.js'
import { bootable, buildLayout, debian, digestIn } from './registry.js'
import { startStorage } from './storage.js'

requirePrograms('buildah')

const settings = ({ path }: { path: string }) => `image.containers_storage=${path}`

/** All that is in a directory, with owners, modes, sizes and times of change. */
const listing = (directory: string) => output('find', [directory, '-printf', '%p %U %m %s %T@ %C@\n'])

/** Adds a list for several platforms, tagged `list`, to a layout with one image. Returns its digest. */
function listOf(layout: string): string {
  const blobs = join(layout, 'blobs/sha256')
  const index = JSON.parse(readFileSync(join(layout, 'index.json'), 'utf8'))
  const [{ annotations: _, ...found }] = index.manifests
  const mediaType = 'application/vnd.oci.image.index.v1+json'
  const other = { ...found, digest: sha('other'), platform: { os: 'linux', architecture: 'riscv64' } }
  const own = { ...found, platform: { os: 'linux', architecture: platform() } }
  const text = JSON.stringify({ schemaVersion: 2, mediaType, manifests: [other, own] })
  const digest = sha(text)
  writeFileSync(join(blobs, digest.slice('sha256:'.length)), text)
  const annotations = { 'org.opencontainers.image.ref.name': 'list' }
  index.manifests.push({ mediaType, digest, size: text.length, annotations })
  writeFileSync(join(layout, 'index.json'), JSON.stringify(index))
  return digest
}

// rules 9.16
t.test('import and update', async t => {
  requireRoot()
  const own = scratch(t)
  const storage = startStorage(own)
  const { c, images, directory, image, clean, ended } = await beginning(t, undefined, settings(storage))
  const digest = await storage.build('localhost/compute:1', bootable)
  const before = await listing(storage.path)
  const source = 'containers-storage:localhost/compute:1'
  const imported = await c.post('/config/osimage/new/_import', { source })
  t.equal(imported.status, 201, imported.text)
  t.equal(readFileSync(join(images, 'new/etc/hostname'), 'utf8'), 'first\n')
  const shown = await image('new')
  t.match(shown._source, { reference: source, digest, labels: { site: 'hall 4' }, layers: { length: 1 } })
  t.equal((await ended('import')).results.digest, digest, 'the digest that podman shows')
  t.equal((await c.post('/config/osimage/new/_update', {})).status, 204)
  t.match((await ended('update')).lines.join('\n'), /is still sha256:.*: nothing was fetched/)
  t.equal((await image('new'))._source.time, shown._source.time)
  t.equal(await listing(storage.path), before, 'nothing is written into the storage')

  const second = await storage.build('localhost/compute:1', { 'etc/hostname': 'second\n' }, source)
  t.not(second, digest)
  const updated = await c.post('/config/osimage/new/_update', {})
  t.equal(updated.status, 204, updated.text)
  t.match((await image('new'))._source, { digest: second, layers: { length: 2 } })
  t.equal(readFileSync(join(images, 'new/etc/hostname'), 'utf8'), 'second\n')
  t.match(
    await c.post('/config/osimage/new/_update', {
      source: `containers-storage:localhost/compute@${second}`
    }),
    { status: 204 }
  )
  t.match(await image('new'), { _source: { reference: `containers-storage:localhost/compute@${second}` } })

  // An image that was fetched: its manifest is that of the registry, with layers that gzip has packed.
  const fetched = await buildLayout(own, 'fetched', bootable, { 'etc/hostname': 'third\n' })
  const into = `containers-storage:[vfs@${storage.path}+${join(own, 'run')}]localhost/fetched:1`
  await output('skopeo', ['copy', '--quiet', `oci:${fetched}`, into])
  const third = await c.post('/config/osimage/new/_update', {
    source: 'containers-storage:localhost/fetched:1'
  })
  t.equal(third.status, 204, third.text)
  t.match((await image('new'))._source, { digest: digestIn(join(own, 'fetched')), layers: { length: 2 } })
  t.equal(readFileSync(join(images, 'new/etc/hostname'), 'utf8'), 'third\n')
  t.strictSame(readdirSync(join(directory, '.svcd-layers')), [], 'its layers are kept in the storage alone')

  // A list of which the image for this platform was fetched: both digests name it there.
  const list = listOf(join(own, 'fetched'))
  const tagged = into.replace('fetched', 'listed')
  await output('skopeo', ['copy', '--quiet', `oci:${join(own, 'fetched')}:list`, tagged])
  const fourth = await c.post('/config/osimage/new/_update', {
    source: `containers-storage:localhost/listed@${list}`
  })
  t.equal(fourth.status, 204, fourth.text)
  t.match((await image('new'))._source, { reference: `containers-storage:localhost/listed@${list}` })
  clean('after an update')
})

// rules 9.16
t.test('a storage with the driver overlay, whose layers lie over one another', async t => {
  requireRoot()
  const storage = startStorage(scratch(t), 'overlay')
  const { c, images } = await beginning(t, undefined, settings(storage))
  await storage.build('localhost/base:1', { ...debian, 'etc/issue': 'base\n' })
  await storage.build('localhost/site/compute', { 'etc/hostname': 'second\n' }, 'localhost/base:1')
  const before = await listing(storage.path)
  const source = 'containers-storage:localhost/site/compute'
  const imported = await c.post('/config/osimage/new/_import', { source })
  t.equal(imported.status, 201, imported.text)
  t.equal(readFileSync(join(images, 'new/etc/hostname'), 'utf8'), 'second\n')
  t.equal(readFileSync(join(images, 'new/etc/issue'), 'utf8'), 'base\n')
  t.equal(await listing(storage.path), before, 'nothing is written into the storage')
})

// rules 9.16
t.test('what is refused leaves nothing', async t => {
  requireRoot()
  const directory = scratch(t)
  const storage = startStorage(directory)
  await storage.build('localhost/compute:1', { bulk: 'x'.repeat(1_500_000) })
  // The manifest of an image that was fetched has the bytes of its packed layers.
  const zeros = await buildLayout(directory, 'zeros', { zeros: '\0'.repeat(4_000_000) })
  const into = `containers-storage:[vfs@${storage.path}+${join(directory, 'run')}]localhost/zeros:1`
  await output('skopeo', ['copy', '--quiet', `oci:${zeros}`, into])
  const refused = async (
    { c, images, clean }: Awaited<ReturnType<typeof beginning>>,
    name: string,
    says: RegExp
  ) => {
    const answer = await c.post('/config/osimage/new/_import', { source: `containers-storage:${name}` })
    t.match(answer, { status: 503, body: { message: says } })
    t.match(answer.body.message, `OS image new: containers-storage:${name}: `)
    t.equal((await c.get('/config/osimage/new')).status, 404)
    t.strictSame(readdirSync(images), ['compute'])
    clean(`after ${says}`)
  }
  const without = /: \[image\] containers_storage is empty in svcd.ini: put containers_storage = \/var\/lib\//
  await refused(await beginning(t), 'localhost/compute:1', without)
  const small = await beginning(t, undefined, settings(storage), 'image.max_unpacked=1m')
  await refused(
    small,
    'localhost/none:1',
    /there is no image localhost\/none:1 in \/.*: podman images lists them/
  )
  await storage.buildah('manifest', 'create', 'localhost/list:1', 'localhost/compute:1')
  await refused(
    small,
    'localhost/list:1',
    /: it is a list for several platforms, import the image for this one: there is no image localhost/
  )
  for (const name of ['localhost/compute:1', 'localhost/zeros:1'])
    await refused(small, name, /: the image (has|takes) more than 1048576 bytes.*\[image\] max_unpacked/)
})

// rules 9.16
t.test('what comes from a storage is stopped at twice the bound', async t => {
  const directory = scratch(t)
  const limits = { registry_auth: '', max_unpacked: 2 ** 20, time_limit: 60_000 }
  const job = { id: '', signal: new AbortController().signal, line() {}, progress() {}, result() {} }
  // A helper that copies until it is stopped, or for more than two looks.
  const work = {
    call: (_command: string, _args: object, { signal }: { signal?: AbortSignal } = {}) =>
      sleep(1200, undefined, signal ? { signal } : {}),
    close: async () => {}
  }
  const source = readReference('containers-storage:localhost/compute:1', 'it')
  const skopeo = new Skopeo(limits, source, work as unknown as RootHelper)
  const found = { digest: `sha256:${'0'.repeat(64)}`, bytes: 1, layers: [] }
  writeFileSync(join(directory, 'temporary'), Buffer.alloc(1.9 * 2 ** 20))
  await skopeo.copy(directory, found, job)
  await t.rejects(skopeo.copy(directory, { ...found, bytes: 2 ** 20 + 1 }, job), {
    message: /^the image has more than 1048576 bytes: \[image\] max_unpacked$/
  })
  writeFileSync(join(directory, 'temporary'), Buffer.alloc(2.1 * 2 ** 20))
  await t.rejects(skopeo.copy(directory, found, job), { message: /^the image has more than 1048576 bytes/ })
})

// rules 9.16
t.test('names that are none, and a push', async t => {
  const { c, pack } = await beginning(t, undefined, settings({ path: '/none' }))
  for (const name of [
    ...['', 'compute', '-compute', '[vfs@/etc+/etc]localhost/x', '[::1]:5000/x', 'localhost/../x', '/etc/x'],
    ...[
      'localhost/x:-1',
      'localhost/x y',
      'localhost/x:1,readonly',
      'localhost/x\n',
      `localhost/${'x'.repeat(500)}`
    ],
    `localhost/x:1@sha256:${'0'.repeat(64)}`
  ]) {
    const { status, body } = await c.post('/config/osimage/new/_import', {
      source: `containers-storage:${name}`
    })
    t.equal(status, 400, name)
    t.match(body.message, /field "source"/, name)
  }
  await pack()
  t.match(await c.post('/config/osimage/compute/_push', { target: 'containers-storage:localhost/x:1' }), {
    status: 400,
    body: { message: /field "target": it must be docker:\/\/REGISTRY\/NAME:TAG/ }
  })
})

const layout = '.svcd-0123456789abcdef.oci'

// rules 9.16
t.test('an image that leads skopeo elsewhere gets nothing of this machine', async t => {
  requireRoot()
  const directory = scratch(t)
  const storage = startStorage(directory)
  const files = join(directory, 'files')
  const places = { images: files, files, state: files, sshKey: '', sshPort: 22, byRoot: false, units: [] }
  const secret = 'for root alone, '.repeat(32)
  const outside = join(directory, 'outside')
  mkdirSync(outside, { mode: 0o700 })
  writeFileSync(join(outside, 'secret'), secret, { mode: 0o600 })
  await output('mkfifo', [join(outside, 'pipe')])
  const guess = 'g'.repeat(secret.length)
  const parts = outside.slice(1).split('/')
  // A link needs its target when podman unpacks the layer.
  const directories = parts.map((_, i) => tarEntry(parts.slice(0, i + 1).join('/'), '5', '', '', 0, 0o755))
  const last = tarEntry('z', '0', 'z')
  const linked = (name: string) => [
    ...[...directories, tarEntry('a', '2', '', outside)],
    ...[tarEntry(`a/${name}`, '0', guess), last]
  ]
  const images = {
    link: linked('secret'),
    pipe: linked('pipe'),
    upwards: [tarEntry(`${'../'.repeat(12)}${parts.join('/')}/secret`, '0', guess), last],
    process: [tarEntry(`${'../'.repeat(12)}proc/1/root${outside}/secret`, '0', guess), last]
  }
  for (const [name, entries] of Object.entries(images)) {
    const from = join(directory, `layout-${name}`)
    writeLayout(from, imageOf(tarOf(...entries)))
    const into = `containers-storage:[vfs@${storage.path}+${join(directory, 'run')}]localhost/${name}:1`
    await output('skopeo', ['copy', '--quiet', `oci:${from}`, into])
    const own = `.svcd-${sha(name).slice(7, 23)}.oci`
    mkdirSync(join(files, own), { recursive: true })
    const args = { layout: own, image: `localhost/${name}:1`, copy: true }
    const copied = runCommand({ ...places, storage: storage.path }, 'stored', args, {
      signal: AbortSignal.timeout(20_000)
    })
    // An import may fail, or hold the content of the layer itself.
    await copied.catch(({ message }) => t.notMatch(message, /abort/i, `${name}: it hangs`))
    const found = await output('sh', ['-c', 'grep -rlaF "for root alone" "$1" || :', 'sh', join(files, own)])
    t.equal(found, '', name)
    for (const file of readdirSync(join(files, own), { recursive: true, encoding: 'utf8' }))
      if (/blobs\/sha256\/[0-9a-f]{64}$/.test(file)) {
        const text = await output('sh', [
          '-c',
          'gzip -dc <"$1" 2>/dev/null || cat "$1"',
          'sh',
          join(files, own, file)
        ])
        t.notMatch(text, /for root alone/, `${name}: ${file}`)
      }
  }
  t.equal(readFileSync(join(outside, 'secret'), 'utf8'), secret)
})

// rules 9.14, 9.16
t.test('the helper of an svcd without root', async t => {
  requireRoot()
  const directory = scratch(t)
  const storage = startStorage(directory)
  await storage.build('localhost/compute:1', debian)
  const files = join(directory, 'files')
  const blobs = join(files, layout, 'layout/blobs/sha256')
  mkdirSync(blobs, { recursive: true })
  await output('chown', ['-R', '65534:65534', files])
  // As the unit of the helper has it.
  const mask = process.umask(0o077)
  t.teardown(() => process.umask(mask))
  const places = { images: files, files, state: files, sshKey: '', sshPort: 22, byRoot: false, units: [] }
  const stored = (more: object = {}, path: string | undefined = storage.path) =>
    runCommand(
      { ...places, storage: path },
      'stored',
      { layout, image: 'localhost/compute:1', copy: true, ...more },
      {}
    )
  for (const image of ['[vfs@/etc+/etc]x', '-x', 'a,b', '', 'x'.repeat(501)])
    await t.rejects(stored({ image }), { message: 'that is no name of a container image' }, image)
  await t.rejects(stored({}, ''), { message: /containers_storage is empty/ })
  const none = join(directory, 'none')
  mkdirSync(none)
  for (const path of [none, join(directory, 'missing')])
    await t.rejects(stored({}, path), { message: /is no storage by overlay or vfs: podman info/ })
  t.strictSame(readdirSync(none), [], 'none is made there')
  chmodSync(storage.path, 0o777)
  await t.rejects(stored(), { message: /containers_storage .* is not safe: .* chmod go-w/ })
  chmodSync(storage.path, 0o700)
  chownSync(storage.path, 65534, 65534)
  await t.rejects(stored(), { message: /containers_storage .* belongs to user 65534: podman save/ })
  chownSync(storage.path, 0, 0)
  for (const name of ['../state', 'layout', `${layout}/layout`])
    await t.rejects(stored({ layout: name }), { message: /is no name of something that is being made/ }, name)

  // A compromised svcd puts links in the way of root.
  const outside = join(directory, 'outside')
  mkdirSync(outside)
  await output('rmdir', [blobs])
  symlinkSync(outside, blobs)
  await t.rejects(stored(), { message: /symbolic link/ })
  t.strictSame(readdirSync(outside), [], 'no link is followed')
  unlinkSync(blobs)
  mkdirSync(blobs)
  await output('chown', ['65534:65534', blobs])
  const other = '.svcd-fedcba9876543210.oci'
  symlinkSync(join(files, layout), join(files, other))
  await t.rejects(stored({ layout: other }), { message: /ENOTDIR|ELOOP/ })

  await stored()
  const bySvcd = (...words: string[]) =>
    output('setpriv', ['--reuid=65534', '--regid=65534', '--clear-groups', ...words])
  const read = await bySvcd('find', join(files, layout), '-type', 'f', '-exec', 'cat', '{}', '+')
  for (const part of ['imageLayoutVersion', '"manifests":', '"layers":', '"site":"hall 4"'])
    t.match(read, part)
  await bySvcd('rm', '-r', join(files, layout))
  t.notOk(existsSync(join(files, layout)), 'svcd removes what root made')
})
