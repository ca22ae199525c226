import {
  chmodSync,
  chownSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync
} from 'node:fs'
import { join } from 'node:path'
import { Duplex } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import type { HelperSettings } from '../../lib/helper/directories.js'
import { runCommand } from '../../lib/helper/local.js'
import { serveSocket } from '../../lib/helper/serve.js'
import { HelperClient, openHelper } from '../../lib/helper/start.js'
import { requireNode, startNode } from '../image/node.js'
import { beginning } from '../image/taking.js'
import { output } from '../support/programs.js'
import { scratch } from '../support/scratch.js'

requireNode()

const nobody = 65534
const grab = { node: 'node001', address: '127.0.0.1', filesystems: [], exclude: [], own: [], dryrun: false }
const hidden = '.svcd-0123456789abcdef'

function placesIn(t: Test): HelperSettings & { readonly directory: string } {
  const directory = scratch(t)
  for (const name of ['images/a/etc', 'images/b', 'files', 'state', 'outside'])
    mkdirSync(join(directory, name), { recursive: true })
  writeFileSync(join(directory, 'images/a/etc/motd'), 'hello')
  writeFileSync(join(directory, 'outside/secret'), 'secret')
  symlinkSync(join(directory, 'outside'), join(directory, 'images/link'))
  symlinkSync('/etc/shadow', join(directory, 'images/a/etc/shadow'))
  return {
    ...{ directory, images: join(directory, 'images'), files: join(directory, 'files') },
    ...{ state: join(directory, 'state'), sshKey: '', sshPort: 22, byRoot: true },
    units: ['named']
  }
}

/** Both ends of a connection within this process. */
function pair(): [Duplex, Duplex] {
  const ends: Duplex[] = []
  const end = (other: number) =>
    new Duplex({
      read() {},
      write(chunk, _, done) {
        setImmediate(() => ends[other]?.push(chunk))
        done()
      },
      destroy(error, done) {
        setImmediate(() => ends[other]?.destroy())
        done(error)
      }
    })
  ends.push(end(1), end(0))
  return ends as [Duplex, Duplex]
}

// rules 9.14
t.test('what lies outside of its places is refused, and nothing is made there', async t => {
  const places = placesIn(t)
  const { directory } = places
  const tree = join(places.images, 'a')
  const packed = { excludes: [], packer: 'system', compressor: 'none' }
  for (const [command, args, why] of [
    ['shell', {}, /there is no command "shell"/],
    ['constructor', {}, /there is no command/],
    ['pack', { ...packed, tree, output: hidden, extra: 1 }, /there is no argument "extra"/],
    ['pack', { ...packed, tree }, /argument output must be a text/],
    ['pack', { ...packed, tree, output: `${hidden}\0` }, /argument output must be a text/],
    ['pack', { ...packed, tree, output: hidden, packer: 'sh' }, /argument packer must be system or builtin/],
    ['pack', { ...packed, tree, output: '../outside/x' }, /is no name of something that is being made/],
    ['pack', { ...packed, tree, output: 'a.tar' }, /is no name of something that is being made/],
    ['pack', { ...packed, tree: join(directory, 'outside'), output: hidden }, /is no directory below/],
    ['pack', { ...packed, tree: '/', output: hidden }, /is no directory below/],
    ['pack', { ...packed, tree: places.images, output: hidden }, /is no directory below/],
    ['pack', { ...packed, tree: join(places.images, 'link'), output: hidden }, /is no directory below/],
    ['pack', { ...packed, tree: `${tree}/../../outside`, output: hidden }, /is no directory below/],
    ['copy', { tree, path: 'etc/shadow', output: hidden }, /there is no file etc\/shadow/],
    ['readable', { tree, path: '../../outside/secret' }, /there is no file/],
    ['clone', { tree, parent: '../outside', work: hidden }, /leads out of \[image\] directory/],
    ['clone', { tree, parent: 'link', work: hidden }, /leads out of \[image\] directory/],
    ['clone', { tree, parent: '', work: 'c' }, /is no name of something that is being made/],
    ['rename', { parent: '', from: 'a', to: '../outside/a' }, /is no name of a directory/],
    ['rename', { parent: '', from: 'link', to: 'x' }, /link is no directory/],
    ['rename', { parent: 'link', from: 'secret', to: 'x' }, /leads out of/],
    ['remove', { parent: '', name: 'a' }, /is no name of something that is being made/],
    ['remove', { parent: '../outside', name: hidden }, /leads out of/],
    [
      'systemctl',
      { verb: 'mask', unit: 'named' },
      /argument verb must be start or stop or restart or reload/
    ],
    [
      'grab',
      { ...grab, node: 'a -oProxyCommand=x', parent: '', work: hidden },
      /argument node must be the name/
    ],
    ['grab', { ...grab, address: '-x', parent: '', work: hidden }, /argument address must be an IP address/],
    ['push', { ...grab, tree: '/' }, /is no directory below/],
    ['rehearse', { node: '-x', controller: '10.0.0.1' }, /argument node must be an IP address/],
    ['systemctl', { verb: 'restart', unit: 'ssh' }, /the ini names no server "ssh"/],
    ['systemctl', { verb: 'restart', unit: '--help' }, /the ini names no server/],
    [
      'initramfs',
      { tree: '/', kernelversion: '6.1.0', dracutmodules: [], kernelmodules: [] },
      /is no directory below/
    ]
  ] as const)
    await t.rejects(
      runCommand(places, command, args, {}),
      { message: why },
      `${command} ${JSON.stringify(args)}`
    )
  t.strictSame(readdirSync(join(directory, 'outside')), ['secret'])
  t.strictSame(readdirSync(places.files), [])
  t.strictSame(readdirSync(places.images).sort(), ['a', 'b', 'link'])
})

// rules 9.14
t.test('an image directory that svcd could put another in the place of is refused', async t => {
  const places = { ...placesIn(t), byRoot: false }
  const remove = () => runCommand(places, 'remove', { parent: '', name: hidden }, {})
  t.equal(await remove(), undefined)
  chownSync(places.directory, 65534, 65534)
  await t.rejects(remove(), { message: /is not safe: .* type chown root .*svcd-test/ })
  chownSync(places.directory, 0, 65534)
  chmodSync(places.directory, 0o770)
  await t.rejects(remove(), { message: /is not safe: .* chmod \+t/ })
  chmodSync(places.directory, 0o1770)
  t.equal(await remove(), undefined, 'names in a sticky directory of root are safe')
  chmodSync(places.images, 0o1770)
  await t.rejects(remove(), { message: /is not safe: .* chmod go-w/ })
})

// rules 9.14
t.test('what is made belongs to the owner of the files directory', async t => {
  const places = placesIn(t)
  chownSync(places.files, 65534, 65534)
  const tree = join(places.images, 'a')
  await runCommand(places, 'copy', { tree, path: 'etc/motd', output: hidden }, {})
  const pack = { tree, excludes: [], packer: 'system', compressor: 'none', output: `${hidden}.pack` }
  await runCommand(places, 'pack', pack, {})
  for (const name of [hidden, `${hidden}.pack`]) {
    const { uid, gid, mode } = statSync(join(places.files, name))
    t.strictSame({ uid, gid, mode: mode & 0o777 }, { uid: 65534, gid: 65534, mode: 0o600 }, name)
  }
  t.equal(readFileSync(join(places.files, hidden), 'utf8'), 'hello')
})

// rules 9.14
t.test(
  'a sparse file of an image takes no more than its time, and one without measure is refused',
  async t => {
    const places = placesIn(t)
    const tree = join(places.images, 'a')
    writeFileSync(join(tree, 'initrd'), '')
    const args = { tree, path: 'initrd', output: hidden }
    truncateSync(join(tree, 'initrd'), 2 ** 28)
    await t.rejects(runCommand(places, 'copy', args, { timeLimitMs: 1 }), /timeout/)
    truncateSync(join(tree, 'initrd'), 2 ** 44 - 2 ** 20)
    const why = /^initrd in .*: it is larger than 4 GiB, the most for a kernel or an initramfs$/
    await t.rejects(
      runCommand(places, 'copy', args, { timeLimitMs: 5000, signal: AbortSignal.timeout(5000) }),
      {
        message: why
      }
    )
    await t.rejects(runCommand(places, 'readable', { tree, path: 'initrd' }, {}), { message: why })
    t.strictSame(readdirSync(places.files), [])
  }
)

// rules 9.14
t.test('a grab without root says what it lacks, and makes nothing', async t => {
  const places = placesIn(t)
  t.intercept(process, 'getuid', { value: () => nobody })
  await t.rejects(runCommand(places, 'grab', { ...grab, parent: '', work: hidden }, {}), {
    message: /^the files of node node001 belong to its users: .* this needs root, and svcd is user 65534/
  })
  t.strictSame(readdirSync(places.images).sort(), ['a', 'b', 'link'])
})

t.test('over a socket: results, errors, what is said, and the end', async t => {
  const places = placesIn(t)
  const [ours, theirs] = pair()
  const served = serveSocket(theirs, places)
  const helper = new HelperClient(async () => ours, 60_000)
  const tree = join(places.images, 'a')
  const lines: string[] = []
  const args = { tree, kernelversion: '-k', dracutmodules: [], kernelmodules: [], record: undefined }
  await t.rejects(helper.call('initramfs', args), { message: 'kernelversion: "-k" is no name of a kernel' })
  t.equal(await helper.call('readable', { tree, path: 'etc/motd' }), undefined)
  const pack = { tree, excludes: [], packer: 'system', compressor: 'none', output: hidden } as const
  t.match(await helper.call('pack', pack, { line: text => lines.push(text) }), { sha256: /^[0-9a-f]{64}$/ })
  const aborted = AbortSignal.abort()
  await t.rejects(helper.call('pack', pack, { signal: aborted }), { message: 'pack was stopped' })
  await helper.close()
  await served
})

t.test('what is refused leaves no file open', async t => {
  const places = placesIn(t)
  const [ours, theirs] = pair()
  const served = serveSocket(theirs, places)
  const helper = new HelperClient(async () => ours, 60_000)
  const open = () => readdirSync('/proc/self/fd').length
  const copy = { tree: join(places.images, 'a'), path: 'etc/motd', output: 'x' }
  await t.rejects(helper.call('copy', copy))
  const before = open()
  for (let i = 0; i < 200; i++) {
    await t.rejects(helper.call('copy', copy), { message: /is no name of something/ })
  }
  t.ok(open() < before + 20, `${open()} are open, before ${before}`)
  await helper.close()
  await served
})

t.test('where the unit shows the images read-only, the answer says what to type', async t => {
  const places = placesIn(t)
  await output('mount', ['--bind', '-o', 'ro', places.images, places.images])
  const [ours, theirs] = pair()
  const served = serveSocket(theirs, places)
  const helper = new HelperClient(async () => ours, 60_000)
  try {
    const tree = join(places.images, 'a')
    const message = new RegExp(
      `systemctl edit svcd-helper.service, and in \\[Service\\] ReadWritePaths=${places.images}$`
    )
    await t.rejects(helper.call('clone', { tree, parent: '', work: hidden }), { message })
    await t.rejects(helper.call('rename', { parent: '', from: 'a', to: 'c' }), { message })
  } finally {
    await helper.close()
    await served
    await output('umount', [places.images])
  }
})

t.test('a connection that is lost, and bytes that are no message', async t => {
  const places = placesIn(t)
  const [ours, theirs] = pair()
  const helper = new HelperClient(async () => ours, 60_000)
  const waiting = helper.call('readable', { tree: join(places.images, 'a'), path: 'etc/motd' })
  setImmediate(() => theirs.destroy())
  await t.rejects(waiting, { status: 503, message: /the helper that does root's work was lost/ })
  for (const bytes of ['nothing\n', '[]\n', '{"id":"1"}\n', 'null\n']) {
    const [one, other] = pair()
    const served = serveSocket(other, places)
    one.write(bytes)
    await served
    t.ok(other.destroyed, bytes)
  }
})

t.test('where nobody listens, the answer says what to type', async t => {
  const work = openHelper('/nowhere/helper.sock', [])
  await t.rejects(work.call('remove', { parent: '', name: hidden }), {
    status: 503,
    message: /helper\.sock: ENOENT; type "systemctl start svcd-helper\.socket"/
  })
  await work.close()
  await sleep(0)
})

// rules 9.14
t.test(
  'a grab for a daemon that is not root: the tree is root’s, key and host keys are the daemon’s',
  async t => {
    const { directory, remote, root, path } = await beginning(t)
    await startNode(t, root, [], remote.port)
    for (const name of ['images', 'files']) mkdirSync(path(name))
    await output('chown', ['-R', `${nobody}:${nobody}`, path('my state'), path('files')])
    const places = {
      ...{ images: path('images'), files: path('files'), state: path('my state'), sshKey: '' },
      ...{ sshPort: remote.port, sshUser: 'games', byRoot: false, units: [] }
    }
    const work = '.svcd-0123456789abcdef'
    await runCommand(places, 'grab', { ...grab, parent: '', work }, { timeLimitMs: 60_000 })
    t.equal(readFileSync(join(places.images, work, 'etc/motd'), 'utf8'), 'first\n')
    t.equal(statSync(join(places.images, work, 'etc/motd')).uid, 0)
    t.equal(
      statSync(join(directory, 'my state/ssh/known_hosts/node001')).uid,
      nobody,
      'ssh did not run as root'
    )
    chownSync(places.images, nobody, nobody)
    await t.rejects(runCommand(places, 'grab', { ...grab, parent: '', work }, {}), { message: /is not safe/ })
  }
)
