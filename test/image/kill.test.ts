import { createHash, randomBytes } from 'node:crypto'
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { until } from '../support/until.js'
import { type Crash, CrashingDaemon } from './crashing-daemon.js'
import { makeTree, small } from './small-tree.js'

/** Each place costs a start of a daemon: those that differ most are tried every day, all of them then. */
const isLong = process.env.SVCD_LONG !== undefined

interface Shown {
  readonly name: string
  readonly path: string | null
  readonly imagefile: string | null
  readonly kernelfile: string | null
  readonly initrdfile: string | null
}

/**
 * A daemon with an image that was packed and has changed since. It has other modules, and dies at `first`,
 * where a pack does not come by.
 */
async function beginning(t: Test, first?: Crash, modules: Readonly<Record<string, string>> = {}) {
  const daemon = new CrashingDaemon(t)
  for (const [name, code] of Object.entries(modules)) daemon.replace(name, code)
  await daemon.start(first)
  const tree = makeTree(daemon.path('images', 'compute'), small)
  await daemon.admin.post('/config/osimage/compute', { path: tree })
  const packed = await daemon.admin.get('/config/osimage/compute/_pack')
  t.equal(packed.status, 204, packed.text)
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
  /**
   * Has the daemon die there, where it was started to, and looks at what the next start makes of it. That one
   * dies at `next`, which no repair comes by.
   */
  const crash = async (kind: string, at: Crash, next: Crash | undefined, path: string, body?: object) => {
    const signal = await daemon.dies(client => (body ? client.post(path, body) : client.get(path)))
    t.equal(signal, 'SIGKILL', `${kind} before ${at.before}: it was killed`)
    await daemon.start(next)
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
  const all = isLong ? [...more, ...places] : places
  await daemon.kill()
  await daemon.start(all[0]?.[0])
  for (const [i, [place, committed]] of all.entries()) {
    const found = await crash('pack', place, all[i + 1]?.[0], '/config/osimage/compute/_pack')
    if (committed) t.not(found.compute?.imagefile, before.compute?.imagefile, 'what was stored is there')
    else t.same(found, before, `before ${place.before}: the image is as before`)
  }
  t.equal((await daemon.admin.get('/config/osimage/compute/_pack')).status, 204, 'a rerun works')
  await whole('at the end')
  await daemon.kill()
})

// rules 9.12
t.test('kill -9 during a clone', async t => {
  const at = (before: string): Crash => ({ module: 'image/tree-changes', before })
  const more = isLong ? ['await placement.fill', 'signal.throwIfAborted()', 'if (replaces)'].map(at) : []
  const undone = [...more, at('await placement.commit')]
  const [done, filling] = [at('// From here on'), at('await placement.fill')]
  const { daemon, tree, images, whole, crash } = await beginning(t, undone[0])
  const before = await images()
  const clone = (place: Crash, next: Crash) =>
    crash('clone', place, next, '/config/osimage/compute/_clone', { newosimage: 'copy' })
  for (const [i, place] of undone.entries()) {
    t.same(await clone(place, undone[i + 1] ?? done), before, `before ${place.before}: no clone`)
    t.strictSame(readdirSync(daemon.path('images')), ['compute'], 'and no directory')
  }
  const found = await clone(done, filling)
  t.match(found.copy, { path: daemon.path('images', 'copy') }, 'what was stored is there')
  t.equal(readFileSync(daemon.path('images', 'copy', 'etc/hostname'), 'utf8'), 'image\n')
  t.ok(existsSync(tree))
  // A directory of the admin's with the name of a clone that was interrupted is not touched.
  await daemon.dies(client => client.post('/config/osimage/compute/_clone', { newosimage: 'third' }))
  makeTree(daemon.path('images', 'third'), { mine: 'mine' })
  await daemon.start()
  await whole('after the last kill')
  const again = await daemon.admin.post('/config/osimage/compute/_clone', { newosimage: 'second' })
  t.equal(again.status, 201, 'a rerun works')
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
  const all = isLong ? [...more, ...places] : places
  const modules = { 'helper/transfer/node-transfer': fakeGrab, 'helper/transfer/reach': fakeReach }
  const { daemon, tree, whole, crash } = await beginning(t, all[0]?.[0], modules)
  await daemon.admin.post('/config/network/cluster', { network: '10.1.0.0/16' })
  await daemon.admin.post('/config/node/n1', { interfaces: [{ interface: 'BOOTIF', network: 'cluster' }] })
  const state = () => readFileSync(join(tree, 'etc/hostname'), 'utf8')
  for (const [i, [place, after]] of all.entries()) {
    await crash('grab', place, all[i + 1]?.[0], '/config/node/n1/_osgrab', { osimage: 'compute' })
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
