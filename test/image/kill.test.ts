import { createHash, randomBytes } from 'node:crypto'
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { until } from '../support/until.js'
import { type Crash, CrashingDaemon } from './crashing-daemon.js'
import { makeTree, small } from './small-tree.js'

/** Each place costs two starts of a daemon: those that differ most are tried every day, all of them then. */
const isLong = process.env.SVCD_LONG !== undefined

interface Shown {
  readonly name: string
  readonly path: string | null
  readonly imagefile: string | null
  readonly kernelfile: string | null
  readonly initrdfile: string | null
}

/** A daemon with an image that was packed and has changed since. */
async function beginning(t: Test) {
  const daemon = new CrashingDaemon(t)
  await daemon.start()
  const tree = makeTree(daemon.path('images', 'compute'), small)
  await daemon.admin.post('/config/osimage/compute', { path: tree })
  const first = await daemon.admin.get('/config/osimage/compute/_pack')
  t.equal(first.status, 204, first.text)
  const images = async () =>
    (await daemon.admin.read<{ config: { osimage: Record<string, Shown> } }>('/config/osimage')).config
      .osimage
  const sum = (file: string) => createHash('sha256').update(readFileSync(file)).digest('hex')
  /** What must be true after every restart; returns the images. */
  const whole = async (what: string) => {
    await daemon.settled()
    const found = await images()
    for (const { imagefile, kernelfile, initrdfile } of Object.values(found)) {
      const doc = JSON.parse(readFileSync(daemon.path('state', 'pack', `${imagefile}.json`), 'utf8'))
      t.equal(sum(daemon.path('files', `${imagefile}`)), doc.sha256, `${what}: no broken file is named`)
      for (const file of [kernelfile, initrdfile])
        t.match(readFileSync(daemon.path('files', `${file}`), 'utf8'), /^(kernel|initramfs) \d+$/)
    }
    const docs = readdirSync(daemon.path('state', 'pack')).map(name => name.replace('.json', ''))
    const packs = readdirSync(daemon.path('files')).filter(name => name.endsWith('.tar.zst'))
    t.strictSame(packs.sort(), docs.sort(), `${what}: each pack is known`)
    const hidden = ['files', 'images'].flatMap(name => readdirSync(daemon.path(name)))
    t.strictSame(
      hidden.filter(name => name.startsWith('.')),
      [],
      `${what}: no temporary is left`
    )
    t.notMatch(readFileSync('/proc/self/mountinfo', 'latin1'), daemon.path(), `${what}: no mount is left`)
    return found
  }
  /** Kills the daemon there, starts it again and looks. */
  const crash = async (kind: string, at: Crash, path: string, body?: object) => {
    await daemon.kill()
    await daemon.start(at)
    const signal = await daemon.dies(client => (body ? client.post(path, body) : client.get(path)))
    t.equal(signal, 'SIGKILL', `${kind} before ${at.before}: it was killed`)
    await daemon.start()
    const found = await whole(`${kind} before ${at.before}`)
    const { monitor } = await daemon.admin.read<{ monitor: { request: Record<string, object> } }>(
      '/monitor/request'
    )
    t.match(Object.values(monitor.request)[0], { kind, state: 'failed', message: 'failed: interrupted' })
    return found
  }
  return { daemon, tree, images, whole, crash }
}

// rules 9.12
t.test('kill -9 during a pack', async t => {
  const { daemon, tree, images, whole, crash } = await beginning(t)
  // Long enough to be killed while tar and zstd run.
  writeFileSync(join(tree, 'noise'), randomBytes(16 << 20))
  const before = await images()
  const places: [Crash, committed: boolean][] = [
    [{ module: 'image/pack', before: 'const { sha256, bytes, omitted } =', after: 60 }, false],
    [{ module: 'image/publish', before: 'await model.change' }, false],
    [{ module: 'image/pack', before: 'for (const [key, value] of Object.entries({ imagefile' }, true]
  ]
  const more: typeof places = [
    [{ module: 'image/pack', before: 'const { sha256, bytes, omitted } =' }, false],
    [{ module: 'image/pack', before: 'const pack: PackDoc' }, false],
    [{ module: 'image/publish', before: 'const to = join(directory, name)' }, false]
  ]
  for (const [place, committed] of isLong ? [...more, ...places] : places) {
    const found = await crash('pack', place, '/config/osimage/compute/_pack')
    if (committed) t.not(found.compute?.imagefile, before.compute?.imagefile, 'what was stored is there')
    else t.same(found, before, `before ${place.before}: the image is as before`)
  }
  t.equal((await daemon.admin.get('/config/osimage/compute/_pack')).status, 204, 'a rerun works')
  await whole('at the end')
  await daemon.kill()
})

// rules 9.12
t.test('kill -9 during a clone', async t => {
  const { daemon, tree, images, whole, crash } = await beginning(t)
  const before = await images()
  const clone = (before: string) =>
    crash('clone', { module: 'image/tree-changes', before }, '/config/osimage/compute/_clone', {
      newosimage: 'copy'
    })
  const more = isLong ? ['await placement.fill', 'signal.throwIfAborted()', 'if (replaces)'] : []
  for (const place of [...more, 'await placement.commit']) {
    t.same(await clone(place), before, `before ${place}: no clone`)
    t.strictSame(readdirSync(daemon.path('images')), ['compute'], 'and no directory')
  }
  const found = await clone('// From here on')
  t.match(found.copy, { path: daemon.path('images', 'copy') }, 'what was stored is there')
  t.equal(readFileSync(daemon.path('images', 'copy', 'etc/hostname'), 'utf8'), 'image\n')
  t.ok(existsSync(tree))
  const again = await daemon.admin.post('/config/osimage/compute/_clone', { newosimage: 'second' })
  t.equal(again.status, 201, 'a rerun works')
  // A directory of the admin's with the name of a clone that was interrupted is not touched.
  await daemon.kill()
  await daemon.start({ module: 'image/tree-changes', before: 'await placement.fill' })
  await daemon.dies(client => client.post('/config/osimage/compute/_clone', { newosimage: 'third' }))
  makeTree(daemon.path('images', 'third'), { mine: 'mine' })
  await daemon.start()
  await whole('at the end')
  t.equal(readFileSync(daemon.path('images', 'third', 'mine'), 'utf8'), 'mine')
  await daemon.kill()
})

const fakeGrab = `
import { cp, writeFile } from 'node:fs/promises'
export async function copyFromNode({ tree, work, change }) {
  await cp(tree, work, { recursive: true })
  await writeFile(work + '/etc/hostname', 'grabbed')
  change('changed etc/hostname')
  return { changes: 1 }
}
export const copyToNode = async () => { throw new Error('only a grab') }`
const fakeReach = `
export const checkReachable = async () => {}
export const checkPrograms = async () => {}
export const nodeMounts = async () => []`

// rules 9.12
t.test('kill -9 during a grab', async t => {
  const { daemon, tree, whole, crash } = await beginning(t)
  daemon.replace('helper/transfer/node-transfer', fakeGrab)
  daemon.replace('helper/transfer/reach', fakeReach)
  await daemon.admin.post('/config/network/cluster', { network: '10.1.0.0/16' })
  await daemon.admin.post('/config/node/n1', { interfaces: [{ interface: 'BOOTIF', network: 'cluster' }] })
  const state = () => readFileSync(join(tree, 'etc/hostname'), 'utf8')
  const places: [Crash, after: string][] = [
    [{ module: 'image/tree-changes', before: 'await rename(hidden, place)' }, 'image\n'],
    [{ module: 'image/tree-changes', before: '// From here on' }, 'image\n'],
    [{ module: 'image/tree-changes', before: '  await clear()' }, 'grabbed']
  ]
  const more: typeof places = [
    [{ module: 'image/tree-changes', before: 'await placement.fill' }, 'image\n'],
    [{ module: 'image/tree-changes', before: 'signal.throwIfAborted()' }, 'image\n'],
    [{ module: 'image/tree-changes', before: 'if (replaces)' }, 'image\n'],
    [{ module: 'image/tree-changes', before: 'await placement.commit' }, 'image\n']
  ]
  for (const [place, after] of isLong ? [...more, ...places] : places) {
    await crash('grab', place, '/config/node/n1/_osgrab', { osimage: 'compute' })
    t.equal(state(), after, `before ${place.before}: the tree is whole`)
    t.strictSame(readdirSync(daemon.path('images')), ['compute'])
    writeFileSync(join(tree, 'etc/hostname'), 'image\n')
  }
  const { status, text } = await daemon.admin.post('/config/node/n1/_osgrab', { osimage: 'compute' })
  t.equal(status, 200, text)
  const { request_id: id } = JSON.parse(text)
  type Monitor = { monitor: { request: Record<string, { state: string }> } }
  const record = async () => (await daemon.admin.read<Monitor>(`/monitor/request/${id}`)).monitor.request[id]
  await until(async () => !['queued', 'running'].includes((await record())?.state ?? ''))
  t.match(await record(), {
    state: 'done',
    results: { n1: { changes: 1 }, 'n1.changes': ['changed etc/hostname'] }
  })
  t.equal(state(), 'grabbed', 'a rerun works')
  await whole('at the end')
  await daemon.kill()
})
