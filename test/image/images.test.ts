import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync
} from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { Controller } from '../support/controller.js'
import { output } from '../support/programs.js'
import { documents } from '../support/state.js'
import { until } from '../support/until.js'
import { beginning, sha256 } from './imaging.js'
import { onlyPrograms } from './packing.js'
import { makeTree, small } from './small-tree.js'

// rules 9.2, 9.3, 9.11
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
  const stored = await documents(c)
  t.match(stored[`pack/${imagefile}.json`], {
    osimage: 'compute',
    sha256: sum,
    packer: 'system',
    kernel: 'vmlinuz-6.1.0-10'
  })
  const [record] = await records('pack')
  t.match(record, {
    object: 'OS image compute',
    by: 'user admin',
    state: 'done',
    progress: 1,
    results: { sha256: sum }
  })
  clean('after a pack')
  const answer = await c.get(`/boot/${kernelfile}`, { token: null, source: '192.0.2.1' })
  t.same([answer.status, answer.text], [200, 'kernel 10'])
})

// rules 9.2, 8.1
t.test('two packs at once run one after the other; the same bytes are the same file', async t => {
  const { c, directory, image, pack, packs, records, clean } = await beginning(t)
  const answers = await Promise.all([pack(), pack()])
  t.same(
    answers.map(({ status }) => status),
    [204, 204]
  )
  const [first, second] = (await records('pack')).sort((a, b) => a.started.localeCompare(b.started))
  t.ok(first.ended <= second.started, 'one lane for an image')
  t.equal((await packs()).length, 1)
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
  await c.daemon.images.packs.run()
  t.ok(existsSync(join(directory, before.imagefile)), 'the tag keeps it')
  t.ok(existsSync(join(directory, before.kernelfile)))
  await c.get('/config/osimage/compute/osimagetag/v1/_delete')
  await c.daemon.images.packs.run()
  t.strictSame(
    readdirSync(directory).sort(),
    [after.imagefile, after.kernelfile, after.initrdfile].sort(),
    'nobody names it any more'
  )
  t.equal((await c.get(`/files/${before.imagefile}`)).status, 404)
})

// rules 2.8
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

// rules 9.11
t.test('a setgid files directory lets the group of the seeder read', async t => {
  const { directory, image, pack } = await beginning(t)
  chmodSync(directory, 0o2750)
  await pack()
  t.equal(statSync(join(directory, (await image()).imagefile)).mode & 0o777, 0o640)
})

// rules 9.6
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
  await c.daemon.images.packs.run()
  const late = await c.get(`/files/${imagefile}`, { source: '192.0.2.1', token })
  t.equal(late.status, 200, 'its token still gets what the script names')
  await c.post('/config/osimage/other', {})
  makeTree(join(c.directory, 'images', 'other'))
  await pack('other')
  const wrong = await c.get(`/files/${(await image('other')).imagefile}`, { source: '192.0.2.1', token })
  t.equal(wrong.status, 403, 'and nothing of another image')
  const inside = await c.get(`/files/${(await image('other')).imagefile}`, { ...node, token })
  t.equal(inside.status, 200, 'where no token is needed, one does no harm')
  await c.post('/config/node/n1', { osimage: 'other' })
  const moved = await c.get(`/files/${imagefile}`, { source: '192.0.2.1', token })
  t.equal(moved.status, 200, 'what it has begun, also when it has another image by now')
  for (const [state, left] of [
    ['installer.unpack', 3],
    ['installer.completed', 2]
  ] as const) {
    t.equal((await c.post('/monitor/node/n1', { state }, { ...node, token })).status, 204)
    await c.daemon.images.packs.run()
    t.equal((await packs()).length, left, state)
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

// rules 9.9
t.test(
  'the host key of a node is forgotten when it is installed, not when its script is asked for',
  async t => {
    const { c, pack } = await beginning(t)
    await c.post('/config/network/cluster', { network: '10.141.0.0/16' })
    await c.post('/config/node/n1', {
      osimage: 'compute',
      interfaces: [{ interface: 'BOOTIF', network: 'cluster', ipaddress: '10.141.0.1' }]
    })
    await pack()
    const known = join(c.directory, 'state', 'ssh', 'known_hosts')
    mkdirSync(known, { recursive: true })
    writeFileSync(join(known, 'n1'), 'key')
    const node = { source: '10.141.0.1', token: null }
    for (const method of ['HEAD', 'GET'])
      t.equal((await c.get('/boot/install/n1', { ...node, method })).status, 200)
    const token = /SVC_TOKEN=['"]?([\w.-]+)/.exec((await c.get('/boot/install/n1', node)).text)?.[1] ?? ''
    const report = (state: string) => c.post('/monitor/node/n1', { state }, { ...node, token })
    await report('installer.unpack')
    t.ok(existsSync(join(known, 'n1')))
    t.equal((await report('installer.completed')).status, 204)
    t.notOk(existsSync(join(known, 'n1')))
  }
)

// rules 9.9
t.test('after a start the image directory and the public key for grabs and pushes are there', async t => {
  const c = await Controller.start(t)
  t.ok(existsSync(join(c.directory, 'images')))
  const key = join(c.directory, 'state', 'ssh', 'id_ed25519.pub')
  await until(() => existsSync(key))
  const made = readFileSync(key, 'utf8')
  t.match(made, /^ssh-ed25519 /)
  await c.restart()
  t.equal(readFileSync(key, 'utf8'), made)
})

t.test('a start without ssh-keygen, and with an image directory that cannot be made, only warns', async t => {
  const directory = t.testdir({ file: '' })
  onlyPrograms(t, directory, { flock: true })
  const c = await Controller.start(t, `image.directory=${join(directory, 'file', 'images')}`)
  t.equal((await c.get('/version')).status, 200)
  const warned = (about: RegExp) => c.log.some(line => about.test(line))
  t.ok(warned(/\[image\] directory \S*file\/images cannot be made: ENOTDIR/))
  await until(() => warned(/no grab and no push can start: ssh-keygen is not installed/))
})
