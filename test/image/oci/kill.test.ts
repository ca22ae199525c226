import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { notesIn } from '../../support/notes.js'
import { output, requirePrograms, requireRoot } from '../../support/programs.js'
import { scratch } from '../../support/scratch.js'
import { type Crash, CrashingDaemon } from '../crashing-daemon.js'
import { makeTree } from '../small-tree.js'
import { buildLayout, debian } from './registry.js'
import { startStorage } from './storage.js'

const places: readonly Crash[] = [
  { module: 'image/oci/import', before: 'await skopeo.copy(' },
  { module: 'image/oci/import', before: 'await skopeo.copy(', after: 30 },
  { module: 'image/oci/import', before: "await work.call('unpack'" },
  { module: 'image/oci/import', before: "await work.call('unpack'", after: 60 },
  { module: 'image/oci/import', before: 'await model.save(' }
]

// rules 9.12, 9.16
t.test('kill -9 at any place of an import and of an update', async t => {
  requireRoot()
  const directory = scratch(t)
  const archives: string[] = []
  for (const [i, name] of ['one', 'two'].entries()) {
    const bulk = { 'usr/bulk': name.repeat(3_000_000), 'etc/hostname': name }
    const image = await buildLayout(directory, name, debian, bulk)
    archives[i] = join(directory, `${name}.tar`)
    await output('skopeo', ['copy', '--quiet', `oci:${image}`, `oci-archive:${archives[i]}`])
  }
  const daemon = new CrashingDaemon(t)
  await daemon.start(places[0])
  const clean = async (what: string, images: readonly string[]) => {
    await daemon.settled()
    const hidden = readdirSync(daemon.path('files')).filter(name => /^\.(?!svcd-layers$)/.test(name))
    t.strictSame(hidden, [], `${what}: nothing of what came is left`)
    t.strictSame(readdirSync(daemon.path('images')), images, `${what}: no directory is left`)
    t.strictSame(notesIn(daemon.path('state')), [], `${what}: no note is left`)
  }
  // The start that puts things right is the one that dies next: no repair comes by a place of an import.
  for (const [i, crash] of places.entries()) {
    const source = `oci-archive:${archives[0]}`
    const signal = await daemon.dies(admin => admin.post('/config/osimage/new/_import', { source }))
    t.equal(signal, 'SIGKILL', crash.before)
    await daemon.start(places[i + 1])
    await clean(`import, ${crash.before} ${crash.after ?? 0}`, [])
    t.equal((await daemon.admin.get('/config/osimage/new')).status, 404)
  }
  const made = await daemon.admin.post('/config/osimage/new/_import', {
    source: `oci-archive:${archives[0]}`
  })
  t.equal(made.status, 201, made.text)
  const hostname = () => readFileSync(daemon.path('images', 'new/etc/hostname'), 'utf8')
  const source = `oci-archive:${archives[1]}`
  await daemon.kill()
  await daemon.start(places[0])
  for (const [i, crash] of places.entries()) {
    t.equal(await daemon.dies(admin => admin.post('/config/osimage/new/_update', { source })), 'SIGKILL')
    await daemon.start(places[i + 1])
    await clean(`update, ${crash.before} ${crash.after ?? 0}`, ['new'])
    t.equal(hostname(), 'one', 'the old tree is whole')
  }
  t.equal((await daemon.admin.post('/config/osimage/new/_update', { source })).status, 204)
  t.equal(hostname(), 'two')
  await clean('at the end', ['new'])
  t.ok(existsSync(daemon.path('images', 'new/usr/bulk')))
})

// rules 9.12, 9.16
t.test('kill -9 while an image comes from the storage of podman', async t => {
  requireRoot()
  requirePrograms('buildah')
  const storage = startStorage(scratch(t))
  await storage.build('localhost/compute:1', { ...debian, 'usr/bulk': 'one'.repeat(10_000_000) })
  const daemon = new CrashingDaemon(t, `image.containers_storage=${storage.path}`)
  const source = 'containers-storage:localhost/compute:1'
  for (const after of [100]) {
    await daemon.start({ module: 'image/oci/import', before: 'await skopeo.copy(', after })
    const signal = await daemon.dies(admin => admin.post('/config/osimage/new/_import', { source }))
    t.equal(signal, 'SIGKILL')
    t.equal(readdirSync(daemon.path('files')).filter(name => /^\.(?!svcd-layers$)/.test(name)).length, 1)
    await daemon.start()
    await daemon.settled()
    t.strictSame(
      readdirSync(daemon.path('files')).filter(name => name.startsWith('.')),
      [],
      `${after}`
    )
    t.strictSame(readdirSync(daemon.path('images')), [])
    t.strictSame(notesIn(daemon.path('state')), [])
    await daemon.kill()
  }
})

// rules 9.17
t.test('kill -9 in a push', async t => {
  requireRoot()
  const daemon = new CrashingDaemon(t)
  await daemon.start({ module: 'image/oci/push', before: 'await skopeo.push(' })
  makeTree(daemon.path('images', 'compute'))
  t.equal((await daemon.admin.post('/config/osimage/compute', { distribution: 'debian' })).status, 201)
  t.equal((await daemon.admin.get('/config/osimage/compute/_pack')).status, 204)
  const target = 'docker://127.0.0.1:1/site/compute:1'
  const signal = await daemon.dies(admin => admin.post('/config/osimage/compute/_push', { target }))
  t.equal(signal, 'SIGKILL')
  const left = () => readdirSync(daemon.path('files')).filter(name => name.startsWith('.'))
  t.equal(left().length, 1, 'the layout')
  await daemon.start()
  await daemon.settled()
  t.strictSame(left(), [], 'it is gone')
  t.strictSame(notesIn(daemon.path('state')), [])
  t.ok(
    readdirSync(daemon.path('files')).some(name => /^compute-.*\.tar/.test(name)),
    'the pack stays'
  )
})
