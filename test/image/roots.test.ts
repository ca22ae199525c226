import { execFileSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import {
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync
} from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { runFairly } from '../../lib/base/concurrency.js'
import { makeRoot } from '../../lib/image/roots.js'
import type { JobContext } from '../../lib/jobs/jobs.js'
import { wantedRoots } from '../../lib/model/root-format.js'
import type { Controller } from '../support/controller.js'
import { requirePrograms } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { until } from '../support/until.js'
import { beginning, sha256 } from './imaging.js'
import { small } from './small-tree.js'

const version = '6.1.0-10'
const modules = (drivers: readonly string[]) =>
  drivers.map(driver => `kernel/drivers/${driver}.ko:\n`).join('')
const bootable = {
  ...small,
  'usr/sbin/veritysetup': '#!/bin/sh\n',
  [`lib/modules/${version}/modules.dep`]: modules(['squashfs', 'dm-verity'])
}

const run = (program: string, ...args: string[]) => execFileSync(program, args, { encoding: 'utf8' })

const packsIn = ({ daemon: { model } }: Controller) =>
  model.view.names('pack').flatMap(name => model.view.get('pack', name) ?? [])

// rules 4.46
t.test('a pack has the roots that its image or a node asks for', async t => {
  requirePrograms('mksquashfs', 'unsquashfs', 'veritysetup', 'mkfifo')
  const { c, directory, pack, packs, tree, records, clean } = await beginning(t, bootable)
  const packed = async () => {
    t.equal((await pack()).status, 204)
    return packsIn(c)
  }
  t.notOk((await packed())[0]?.roots, 'no one asks for one')

  mkdirSync(join(tree, 'srv/deep'), { recursive: true })
  writeFileSync(join(tree, 'srv/hole'), '')
  truncateSync(join(tree, 'srv/hole'), 3_000_000)
  writeFileSync(join(tree, 'srv/hole'), 'end', { flag: 'a' })
  writeFileSync(join(tree, 'srv/tail'), 'begin')
  truncateSync(join(tree, 'srv/tail'), 2_000_001)
  writeFileSync(join(tree, 'srv/deep/one'), randomBytes(200_000))
  linkSync(join(tree, 'srv/deep/one'), join(tree, 'srv/deep', `${'l'.repeat(180)}`))
  await c.post('/config/group/small', { osimage: 'compute', root_format: 'squashfs' })
  await c.post('/config/node/n1', { group: 'small' })
  const { view, cluster } = c.daemon.model
  t.strictSame([...(await runFairly(wantedRoots(view, cluster, 'compute')))], ['squashfs'])

  const preview = () => c.get('/config/node/n1/_render/install')
  await c.post('/config/group/small', { provision_method: 'stream' })
  t.match((await preview()).text, /SVC_PROVISION_METHOD='?http'?\n/, 'without a root the tar is unpacked')
  t.notMatch((await preview()).text, /SVC_ROOT_HASH/)
  const why = async () => (await c.get('/monitor/node/n1/_why')).body.monitor.why.n1.verdict
  t.match(await why(), /Besides, pack compute-\S+ has no squashfs, .*: svcctl osimage pack compute/)

  const [doc] = (await packed()).filter(({ roots }) => roots)
  const [root] = doc?.roots ?? []
  if (!doc || !root) throw new Error('no root')
  t.notMatch(await why(), /squashfs/)
  t.match(root.file, /^compute-[0-9a-f]{12}-[0-9a-f]{8}\.squashfs$/)
  const file = join(directory, root.file)
  const bytes = readFileSync(file)
  t.strictSame([sha256(bytes), bytes.length], [root.sha256, root.bytes])
  const verity = ['--no-superblock', '--salt=-', `--hash-offset=${root.hashoffset}`]
  const verify = (path: string) =>
    run(
      'veritysetup',
      'verify',
      ...verity,
      `--data-blocks=${root.hashoffset / 4096}`,
      path,
      path,
      root.roothash
    )
  t.doesNotThrow(() => verify(file))
  const wrong = join(c.directory, 'wrong')
  const flipped = Buffer.from(bytes)
  flipped[5000] = (flipped[5000] ?? 0) ^ 1
  writeFileSync(wrong, flipped)
  t.throws(() => verify(wrong), /./, 'a flipped byte is found')

  const [from, to] = [join(c.directory, 'tar'), join(c.directory, 'root')]
  mkdirSync(from)
  run('tar', '--extract', '--file', join(directory, doc.name), '--directory', from)
  run('unsquashfs', '-quiet', '-no-progress', '-dest', to, file)
  t.equal(run('diff', '-r', '--no-dereference', from, to), '', 'the content is that of the tar')
  const listed = (at: string) =>
    run('sh', '-c', `cd ${at} && find . -mindepth 1 -printf '%p %M %U %G %T@ %n %s\\n' | sort`)
  t.equal(
    listed(to)
      .replace(/\.\d+ (?=\d+ \d+$)/gm, ' ')
      .replace(/^.* d.*\n/gm, ''),
    listed(from)
      .replace(/\.\d+ (?=\d+ \d+$)/gm, ' ')
      .replace(/^.* d.*\n/gm, ''),
    'with owners, modes and times'
  )
  t.equal((await c.get(`/files/${root.file}`)).status, 200, 'it is served')
  t.equal((await preview()).status, 200)
  t.match((await preview()).text, new RegExp(`SVC_ROOT_HASH='?${root.roothash}'?\n`))

  const [again] = (await packed()).filter(({ name }) => name === doc.name)
  t.strictSame(again?.roots, doc.roots, 'the same tree gives the same bytes')
  const [record] = await records('pack')
  t.match(JSON.stringify(record), /making a root in the format squashfs/)
  clean('after the packs')
  t.ok((await packs()).length > 1)

  await c.post('/config/group/small', { root_format: '' })
  await c.post('/config/node/n1', {
    root_format: 'squashfs',
    partscript: Buffer.from('true').toString('base64')
  })
  t.strictSame([...(await runFairly(wantedRoots(view, cluster, 'compute')))], [], 'it has a disk')
})

t.test('a file of a removed pack goes, and one that a node streams stays', async t => {
  requirePrograms('mksquashfs', 'veritysetup')
  const { c, directory, pack, tree } = await beginning(t, bootable, 'image.grace=1s')
  await c.post('/config/osimage/compute', { root_format: 'squashfs' })
  t.equal((await pack()).status, 204)
  const [first] = packsIn(c)
  const file = join(directory, first?.roots?.[0]?.file ?? 'none')
  t.ok(existsSync(file))
  writeFileSync(join(tree, 'etc/new'), 'new')
  t.equal((await pack()).status, 204)
  await until(() => !existsSync(file), 'the file of the old pack is gone')

  const [{ name = '', roots } = {}] = packsIn(c).filter(({ name }) => name !== first?.name)
  await c.post('/config/node/n1', { osimage: 'compute', provision_method: 'stream' })
  await c.daemon.boots.recordRunning('n1', {
    ...{ pack: name, osimage: 'compute', osimagetag: 'default', sha256: '' }
  })
  await c.post('/config/node/n1', { provision_method: 'http' })
  await c.post('/config/osimage/compute', { root_format: 'tar' })
  t.equal((await pack()).status, 204)
  t.strictSame(packsIn(c).find(pack => pack.name === name)?.roots, roots, 'packed again, it keeps its root')
  writeFileSync(join(tree, 'etc/new'), 'newer')
  t.equal((await pack()).status, 204)
  await sleep(2500)
  t.ok(existsSync(join(directory, roots?.[0]?.file ?? 'none')), 'a running node may stream it')
})

// rules 4.46
t.test('an inode of the root in two blocks of the table', async t => {
  requirePrograms('mksquashfs', 'unsquashfs', 'veritysetup')
  const directory = scratch(t)
  const job = { line() {}, signal: new AbortController().signal } as unknown as JobContext
  const seen = new Set<number>()
  // The root's inode is the last one; the length of a link moves it byte by byte. Each third of the places
  // where it can be split is tried every day, so that fields of four bytes are split anywhere; all then.
  const step = process.env.SVCD_LONG ? 1 : 3
  for (let length = 20; length <= 36; length += step) {
    const tree = join(directory, `tree${length}`)
    mkdirSync(tree)
    for (let i = 0; i < 254; i++) symlinkSync('x'.repeat(8), join(tree, `l${i}`))
    symlinkSync('x'.repeat(8 + length), join(tree, 'long'))
    const tar = join(directory, 'tar')
    run('tar', '--create', '--format=posix', '--file', tar, '--directory', tree, '.')
    const output = join(directory, 'root')
    const course = { timeLimitMs: 60_000, most: 2 ** 30 }
    await makeRoot(tar, '.tar', { format: 'squashfs', stem: 'x', output }, course, job)
    seen.add(Number(readFileSync(output).readBigUInt64LE(32) % 65_536n))
    t.match(
      run('unsquashfs', '-lln', '-UTC', output),
      /^drwxr-xr-x 0\/0 .* 1970-01-01 00:00 squashfs-root$/m,
      `${length}`
    )
  }
  t.ok(
    [...seen].some(at => at > 8172 && at < 8192),
    String([...seen])
  )
})

t.test('holes of a file count', async t => {
  requirePrograms('mksquashfs', 'veritysetup')
  const { c, directory, pack, tree } = await beginning(t, bootable, 'image.max_unpacked=100m')
  await c.post('/config/osimage/compute', { root_format: 'squashfs' })
  writeFileSync(join(tree, 'etc/lastlog'), 'x')
  truncateSync(join(tree, 'etc/lastlog'), 4 * 2 ** 40)
  const refused = await pack()
  t.equal(refused.status, 503)
  t.match(
    refused.body.message,
    /etc\/lastlog: with it, .* more than 104857600 bytes: name it in \[image\] exclude/
  )
  t.strictSame(readdirSync(directory), [])
})

t.test('what is missing is told before anything is packed', async t => {
  const { c, directory, pack } = await beginning(t, {
    ...small,
    [`lib/modules/${version}/modules.dep`]: modules(['ext4'])
  })
  await c.post('/config/osimage/compute', { root_format: 'erofs' })
  const before = process.env.PATH
  t.teardown(() => {
    process.env.PATH = before
  })
  const bin = join(c.directory, 'bin')
  mkdirSync(bin)
  writeFileSync(join(bin, 'mkfs.erofs'), '#!/bin/sh\necho " --tar=X   of erofs-utils 1.7"\n', { mode: 0o755 })
  process.env.PATH = `${bin}:${before}`
  const refused = await pack()
  t.equal(refused.status, 503)
  for (const words of [
    /OS image compute: root_format: erofs-utils of this controller is older than 1\.8: install a newer one, or /,
    /kernel 6\.1\.0-10 of the image has no driver for erofs/,
    /kernel 6\.1\.0-10 of the image has no dm-verity/,
    /the image has no veritysetup, for its initramfs: chroot \S+ apt-get install cryptsetup-bin/
  ])
    t.match(refused.body.message, words)
  rmSync(join(bin, 'mkfs.erofs'))
  for (const name of ['flock', 'tar', 'zstd']) symlinkSync(`/usr/bin/${name}`, join(bin, name))
  process.env.PATH = bin
  const none = /this controller has no mkfs\.erofs: apt-get install erofs-utils \(1\.8 or later\)/
  t.match(await pack(), { status: 503, body: { message: none } })
  t.strictSame(existsSync(directory) ? readdirSync(directory).join() : '', '')
})
