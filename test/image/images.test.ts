import { createHash } from 'node:crypto'
import {
  chmodSync,
  existsSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync
} from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { Controller } from '../api/controller.js'
import { output, requireRoot } from '../machine/programs.js'
import { type Files, makeTree, small } from './small-tree.js'

const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex')

/** A controller with an image `compute` that has a small tree, and what the tests ask of it. */
async function beginning(t: Test, files: Files = small, ...overrides: string[]) {
  const c = await Controller.start(t, ...overrides)
  const images = join(c.directory, 'images')
  const directory = join(c.directory, 'files')
  const tree = makeTree(join(images, 'compute'), files)
  await c.post('/config/osimage/compute', { distribution: 'debian' })
  const image = async (name = 'compute') =>
    (await c.get(`/config/osimage/${name}`)).body?.config.osimage[name]
  const pack = (name = 'compute') => c.get(`/config/osimage/${name}/_pack`)
  const served = (file: string) => readFileSync(join(directory, file))
  const packs = () => readdirSync(join(c.directory, 'state', 'pack'))
  /** The records of a kind of request, newest first. */
  const records = async (kind: string) => {
    const { monitor } = (await c.get('/monitor/request')).body
    const ids = Object.values<{ request_id: string; kind: string }>(monitor.request).filter(
      one => one.kind === kind
    )
    return Promise.all(
      ids.map(async ({ request_id: id }) => (await c.get(`/monitor/request/${id}`)).body.monitor.request[id])
    )
  }
  /** Nothing that was begun is left. */
  const clean = (what: string) => {
    const left = [...readdirSync(directory), ...(existsSync(images) ? readdirSync(images) : [])]
    t.strictSame(
      left.filter(name => name.startsWith('.')),
      [],
      `${what}: no temporary is left`
    )
    t.strictSame(readdirSync(join(c.directory, 'state', 'work')), [], `${what}: no note is left`)
  }
  return { c, images, directory, tree, image, pack, served, packs, records, clean }
}

t.test('pack: checksum, names, kernel, modes, record', async t => {
  const { c, directory, image, pack, served, records, clean } = await beginning(t)
  t.equal((await pack()).status, 204)
  const { imagefile, kernelfile, initrdfile, kernelversion } = await image()
  const sum = sha256(served(imagefile))
  t.equal(imagefile, `compute-${sum.slice(0, 12)}.tar.zst`)
  t.equal(kernelfile, `compute-${sum.slice(0, 12)}-vmlinuz-6.1.0-10`, 'the newest by version')
  t.equal(initrdfile, `compute-${sum.slice(0, 12)}-initrd.img-6.1.0-10`)
  t.equal(kernelversion, '6.1.0-10')
  t.equal(`${served(kernelfile)}`, 'kernel 10')
  t.equal(`${served(initrdfile)}`, 'initramfs 10')
  for (const file of [imagefile, kernelfile, initrdfile])
    t.equal(statSync(join(directory, file)).mode & 0o777, 0o600, 'it may hold secrets')
  const list = await output('tar', ['--zstd', '-tf', join(directory, imagefile)])
  for (const path of ['./etc/shadow', './boot/vmlinuz-6.1.0-9']) t.match(list, `${path}\n`)
  const stored = JSON.parse(readFileSync(join(c.directory, 'state', 'pack', `${imagefile}.json`), 'utf8'))
  t.match(stored, { osimage: 'compute', sha256: sum, packer: 'system', kernel: 'vmlinuz-6.1.0-10' })
  const [record] = await records('pack')
  t.match(record, {
    object: 'osimage compute',
    by: 'user admin',
    state: 'done',
    progress: 1,
    results: { sha256: sum }
  })
  clean('after a pack')
  const answer = await c.get(`/boot/${kernelfile}`, { token: null, source: '192.0.2.1' })
  t.same([answer.status, answer.text], [200, 'kernel 10'])
})

t.test('two packs at once run one after the other; the same bytes are the same file', async t => {
  const { c, directory, image, pack, packs, records, clean } = await beginning(t)
  const answers = await Promise.all([pack(), pack()])
  t.same(
    answers.map(({ status }) => status),
    [204, 204]
  )
  const [first, second] = (await records('pack')).sort((a, b) => a.started.localeCompare(b.started))
  t.ok(first.ended <= second.started, 'one lane for an image')
  t.equal(packs().length, 1)
  const { imagefile } = await image()
  const { ino } = statSync(join(directory, imagefile))
  t.equal((await pack()).status, 204)
  t.equal(statSync(join(directory, imagefile)).ino, ino, 'who is half way through goes on with the same file')
  clean('after three packs')
  t.same(
    c.log.filter(line => / error /.test(line)),
    []
  )
})

t.test('a pack while a client downloads: the rest is of the old one; a tag pins it', async t => {
  const { c, tree, image, pack, served, directory } = await beginning(t, small, 'image.grace=0s')
  await pack()
  const before = await image()
  const whole = served(before.imagefile)
  await c.post('/config/osimage/compute/tag', { tag: 'v1' })
  const half = await c.raw('GET', `/files/${before.imagefile}`, undefined, { Range: 'bytes=0-99' })
  t.equal(half.status, 206)
  writeFileSync(join(tree, 'etc/hostname'), 'another\n')
  t.equal((await pack()).status, 204)
  const after = await image()
  t.not(after.imagefile, before.imagefile)
  const rest = await c.raw('GET', `/files/${before.imagefile}`, undefined, {
    Range: 'bytes=100-',
    'If-Range': String(half.headers.etag)
  })
  t.equal(rest.status, 206)
  t.equal(rest.headers['content-range'], `bytes 100-${whole.length - 1}/${whole.length}`)
  t.equal(sha256(served(before.imagefile)), sha256(whole))
  await c.daemon.images.sweep.run()
  t.ok(existsSync(join(directory, before.imagefile)), 'the tag keeps it')
  t.ok(existsSync(join(directory, before.kernelfile)))
  await c.get('/config/osimage/compute/osimagetag/v1/_delete')
  await c.daemon.images.sweep.run()
  t.strictSame(
    readdirSync(directory).sort(),
    [after.imagefile, after.kernelfile, after.initrdfile].sort(),
    'nobody names it any more'
  )
  t.equal((await c.get(`/files/${before.imagefile}`)).status, 404)
})

t.test('kernel: chosen by file or version, refused when the image lacks it, kept by later packs', async t => {
  const { c, tree, image, pack, served } = await beginning(t, {
    ...small,
    'boot/special.img': 'special initramfs',
    'boot/out': '-> ../../../../../../etc/passwd',
    'boot/shadow': '-> ../etc/shadow'
  })
  const kernel = (body: object) => c.post('/config/osimage/compute/kernel', body)
  const chosen = async () => {
    const { kernelfile, initrdfile, kernelversion } = await image()
    return [`${served(kernelfile)}`, `${served(initrdfile)}`, kernelversion]
  }
  const before = c.state()
  for (const [body, says] of [
    [{ kernelfile: 'vmlinuz-7' }, /"kernelfile": the image has no \/boot\/vmlinuz-7/],
    [{ kernelfile: 'out' }, /"kernelfile".*no \/boot\/out/],
    [{ kernelfile: 'shadow' }, /"kernelfile".*no \/boot\/shadow/],
    [{ kernver: '7' }, /"kernelversion": the image has no \/boot\/vmlinuz-7/],
    [{ kernver: '../../etc/shadow' }, /"kernelversion"/],
    [{ kernelfile: 'vmlinuz-6.1.0-9', initrdfile: 'none' }, /"initrdfile".*no \/boot\/none/],
    [{ kernelfile: '../etc/shadow' }, /"kernelfile" must be a file name/],
    [{ kernelfile: 'vmlinuz-6.1.0-9', comment: 'x' }, /no field "comment" here/],
    [{ kernver: '6.1.0-9', kernelversion: '6.1.0-10' }, /twice/],
    [{}, /one of the fields kernelfile/]
  ] as const) {
    const { status, body: answer } = await kernel(body)
    t.equal(status, 400, JSON.stringify(Object.keys(body)))
    t.match(answer.message, says)
  }
  t.same(c.state(), before, 'what was refused changed nothing')
  t.equal((await kernel({ kernver: '6.1.0-9' })).status, 204)
  t.same(await chosen(), ['kernel 9', 'initramfs 9', '6.1.0-9'])
  t.equal((await pack()).status, 204)
  t.same(await chosen(), ['kernel 9', 'initramfs 9', '6.1.0-9'], 'a pack keeps the kernel that was chosen')
  t.equal((await kernel({ kernelfile: 'vmlinuz-6.1.0-10', initrdfile: 'special.img' })).status, 204)
  t.same(await chosen(), ['kernel 10', 'special initramfs', '6.1.0-10'])
  rmSync(join(tree, 'boot/vmlinuz-6.1.0-10'))
  t.equal((await pack()).status, 204)
  t.same(await chosen(), ['kernel 9', 'special initramfs', '6.1.0-9'], 'the one that is left')
})

t.test("a kernel of the admin's own stays; what was changed while it was packed stays too", async t => {
  const { c, image, pack, served } = await beginning(t, { 'etc/hostname': 'x' })
  c.file('mykernel', 'my kernel')
  c.file('myinitrd', 'my initramfs')
  await c.post('/config/osimage/compute', { kernelfile: 'mykernel', initrdfile: 'myinitrd' })
  const [answer] = await Promise.all([
    pack(),
    c.post('/config/osimage/compute', { comment: 'meanwhile', kerneloptions: 'quiet' })
  ])
  t.equal(answer.status, 204)
  t.match(await image(), {
    ...{ kernelfile: 'mykernel', initrdfile: 'myinitrd', comment: 'meanwhile', kerneloptions: 'quiet' },
    imagefile: /^compute-[0-9a-f]{12}\.tar\.zst$/
  })
  t.equal(`${served('mykernel')}`, 'my kernel')
})

t.test('a pack that fails leaves everything as it was', async t => {
  const { c, tree, images, image, pack, clean } = await beginning(t)
  await pack()
  const before = await image()
  const path = { config: { osimage: { compute: { path: null as string | null } } } }
  for (const [given, says] of [
    ['/etc', /\[image\] directory/],
    [join(images, 'none'), /does not exist/],
    [images, /\[image\] directory/],
    [join(images, 'out'), /leads to/]
  ] as const) {
    symlinkSync('/etc', join(images, 'out'))
    path.config.osimage.compute.path = given
    t.equal((await c.post('/config/osimage/compute', path)).status, 204)
    const { status, body } = await pack()
    t.equal(status, 503)
    t.match(body.message, says)
    rmSync(join(images, 'out'))
  }
  await c.post('/config/osimage/compute', { path: null })
  t.same(await image(), before)
  // A kernel whose name cannot be served.
  writeFileSync(join(tree, 'boot/vmlinuz-9 $(reboot)'), 'x')
  t.equal((await pack()).status, 204, 'one that cannot be served is not chosen')
  t.match(await image(), { kernelversion: '6.1.0-10' })
  clean('after failures')
  t.equal((await c.get('/config/osimage/none/_pack')).status, 404)
})

t.test('clone: the directory too, its packed files shared, nothing overwritten', async t => {
  const { c, images, tree, image, pack, clean } = await beginning(t, {
    ...small,
    'etc/link': '-> ../../../../etc'
  })
  await pack()
  const clone = (body: object, name = 'compute') => c.post(`/config/osimage/${name}/_clone`, body)
  const made = await clone({ newosimage: 'copy', comment: 'a copy' })
  t.equal(made.status, 201, made.text)
  t.match(made.body.message, /cloned to copy/)
  const source = await image()
  t.same(await image('copy'), { ...source, name: 'copy', comment: 'a copy', path: join(images, 'copy') })
  const sums = (tree: string) =>
    output('sh', ['-c', 'cd "$1" && find . -printf "%p %y %m %U %T@ %l\\n" | sort', '', tree])
  t.equal(await sums(join(images, 'copy')), await sums(tree))
  t.equal((await pack('copy')).status, 204)
  t.match(await image('copy'), { imagefile: /^copy-/ })
  const before = c.state()
  for (const [body, status, says] of [
    [{}, 404, /"newosimage" is missing/],
    [{ newosimage: 'copy' }, 400, /copy exists already/],
    [{ newosimage: 'taken' }, 400, /taken exists already/],
    [{ newosimage: 'x', path: '/etc' }, 400, /"path": the files of the clone go to/],
    [{ newosimage: '../x' }, 400, /"newosimage" must be/]
  ] as const) {
    makeTree(join(images, 'taken'), { mine: 'mine' })
    const answer = await clone(body)
    t.equal(answer.status, status, answer.text)
    t.match(answer.body.message, says)
  }
  t.equal((await clone({ newosimage: 'y' }, 'none')).status, 404)
  t.same(c.state(), before)
  t.equal(readFileSync(join(images, 'taken', 'mine'), 'utf8'), 'mine')
  clean('after clones')
  // The source read back and posted with a new name.
  t.equal((await clone({ ...source, newosimage: 'third' })).status, 201)
  t.match(await image('third'), { path: join(images, 'third') })
  // Without a directory there is nothing but the object.
  await c.post('/config/osimage/bare', { comment: 'bare' })
  t.equal((await clone({ newosimage: 'bare2' }, 'bare')).status, 201)
  t.match(await image('bare2'), { comment: 'bare', path: null })
})

t.test('delete: what svcd made goes, another path stays', async t => {
  const { c, images, tree, directory, pack } = await beginning(t, small, 'image.grace=0s')
  await c.post('/config/osimage/compute/_clone', { newosimage: 'copy' })
  await pack('copy')
  await c.post('/config/osimage/copy/tag', { tag: 'v1' })
  symlinkSync('copy/usr', join(images, 'alias'))
  await c.post('/config/osimage/shares', { path: join(images, 'alias') })
  const removed = async (name: string) => {
    t.equal((await c.get(`/config/osimage/${name}/_delete`)).status, 204)
    for (;;) {
      const { monitor } = (await c.get('/monitor/request')).body
      const all = Object.values<{ kind: string; state: string }>(monitor.request)
      if (all.every(({ kind, state }) => kind !== 'delete' || state === 'done')) break
      await sleep(5)
    }
    await c.daemon.images.sweep.run()
  }
  await removed('compute')
  t.ok(existsSync(tree), 'a directory that svcd did not make stays')
  await removed('copy')
  t.ok(existsSync(join(images, 'copy')), 'another image uses it')
  t.strictSame(readdirSync(directory), [], 'its packs are gone')
  t.strictSame(c.state()['osimagetag/copy:v1.json'], undefined)
  await c.post('/config/osimage/copy', { path: `${join(images, 'copy')}/` })
  await removed('shares')
  t.ok(existsSync(join(images, 'copy')), 'shares did not own it')
  await removed('copy')
  t.notOk(existsSync(join(images, 'copy')), 'its last user is gone')
  t.strictSame(Object.keys(c.state()), [], 'no object is left')
})

t.test('a setgid files directory lets the group of the seeder read', async t => {
  const { directory, image, pack } = await beginning(t)
  chmodSync(directory, 0o2750)
  await pack()
  t.equal(statSync(join(directory, (await image()).imagefile)).mode & 0o777, 0o640)
})

t.test('a node that installs: the checksum in its script, its pack kept until it is done', async t => {
  const { c, tree, image, pack, served, packs } = await beginning(t, small, 'image.grace=0s')
  await c.post('/config/network/cluster', { network: '10.141.0.0/16' })
  await c.post('/config/group/compute', {
    osimage: 'compute',
    interfaces: [{ interface: 'BOOTIF', network: 'cluster' }]
  })
  await c.post('/config/node/n1', { group: 'compute' })
  await pack()
  const { imagefile } = await image()
  const node = { source: '10.141.0.1', token: null }
  const script = (await c.get('/boot/install/n1', node)).text
  t.match(script, sha256(served(imagefile)), 'the checksum of what it is to fetch')
  const token = /SVC_TOKEN=['"]?([\w.-]+)/.exec(script)?.[1] ?? ''
  writeFileSync(join(tree, 'etc/hostname'), 'another\n')
  await pack()
  await c.daemon.images.sweep.run()
  const late = await c.get(`/files/${imagefile}`, { source: '192.0.2.1', token })
  t.equal(late.status, 200, 'its token still gets what the script names')
  await c.post('/config/osimage/other', {})
  makeTree(join(c.directory, 'images', 'other'))
  await pack('other')
  const wrong = await c.get(`/files/${(await image('other')).imagefile}`, { source: '192.0.2.1', token })
  t.equal(wrong.status, 403, 'and nothing of another image')
  for (const [state, left] of [
    ['installer.unpack', 3],
    ['installer.completed', 2]
  ] as const) {
    t.equal((await c.post('/monitor/node/n1', { state }, { ...node, token })).status, 204)
    await c.daemon.images.sweep.run()
    t.equal(packs().length, left, state)
  }
  t.equal((await c.get(`/files/${imagefile}`, node)).status, 404)
})

t.test(
  'where torrent is off there is no tracker and no seeder; one that does not answer has failed',
  async t => {
    const { c } = await beginning(t)
    const ask = async (service: string) => (await c.get(`/monitor/service/${service}`)).status
    t.same([await ask('tracker'), await ask('seeder')], [404, 404])
    const restartWith = (...overrides: string[]) => {
      Object.assign(c, { overrides: [...c.overrides, ...overrides] })
      return c.restart()
    }
    await restartWith('torrent.tracker=http://127.0.0.1:1/announce')
    t.same([await ask('tracker'), await ask('seeder')], [503, 404], 'no seeder of ours')
    await restartWith('torrent.seeder=aria2', 'torrent.seeder_url=http://127.0.0.1:1/jsonrpc')
    t.same([await ask('tracker'), await ask('seeder')], [503, 503])
  }
)

t.test('delete: a tree with something mounted in it stays until the next start', async t => {
  requireRoot()
  const { c, images, records } = await beginning(t)
  await c.post('/config/osimage/compute/_clone', { newosimage: 'copy' })
  const mounted = join(images, 'copy', 'tmp')
  await output('mount', ['-t', 'tmpfs', 'tmpfs', mounted])
  try {
    t.equal((await c.get('/config/osimage/copy/_delete')).status, 204)
    while ((await records('delete'))[0]?.ended === null) await sleep(5)
    t.match(await records('delete'), [{ state: 'failed', message: /something is mounted at .*copy\/tmp/ }])
    t.ok(existsSync(mounted))
  } finally {
    await output('umount', [mounted])
  }
  await c.restart()
  await c.daemon.images.recovered
  t.strictSame(readdirSync(images), ['compute'])
})
