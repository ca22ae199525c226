import { execFileSync } from 'node:child_process'
import { chmodSync, chownSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { isOwnEntry } from '../../lib/backup/state-names.js'
import { kinds } from '../../lib/model/types.js'
import { makeTree } from '../image/small-tree.js'
import { start } from '../support/child.js'
import { Daemon } from '../support/daemon.js'
import { requirePrograms, requireRoot } from '../support/programs.js'
import { proof } from '../support/proof.js'
import { scratch } from '../support/scratch.js'
import { until } from '../support/until.js'

requireRoot()
requirePrograms('setpriv', 'systemd-socket-activate')

const nobody = 65534
const unprivileged = ['setpriv', `--reuid=${nobody}`, `--regid=${nobody}`, '--clear-groups'].concat([
  ...['--bounding-set=-all', '--inh-caps=-all', '--no-new-privs']
])

/** What is added to the reason where root's rights were missing. */
const lacking =
  /; this needs root, and svcd is user 65534 with no helper at \/run\/svcd\/helper\.sock: start svcd as root/

/** A daemon that is not root, on directories as the packages make them. */
async function unprivilegedDaemon(t: Test, ...set: string[]): Promise<Daemon> {
  const daemon = new Daemon({ directory: scratch(t), enter: unprivileged, set })
  t.teardown(() => daemon.kill())
  for (const name of ['state', 'files']) {
    mkdirSync(daemon.path(name), { recursive: true })
    chownSync(daemon.path(name), nobody, nobody)
    chmodSync(daemon.path(name), 0o700)
  }
  mkdirSync(daemon.path('images'))
  makeTree(daemon.path('images/compute'))
  // As initramfs-tools leaves it.
  chmodSync(daemon.path('images/compute/boot/initrd.img-6.1.0-10'), 0o600)
  await daemon.start()
  await daemon.create('osimage', 'compute', {})
  return daemon
}

// rules 9.14
t.test('with a helper that systemd starts, a daemon without any power packs, clones and deletes', async t => {
  const directory = scratch(t)
  const socket = join(directory, 'helper.sock')
  const daemon = await unprivilegedDaemon(t, `image.helper=${socket}`)
  const { status, body } = await daemon.request('GET', '/config/osimage/compute/_pack')
  t.equal(status, 503, 'it says what is lacking, and all else works')
  t.match(body, {
    message: /helper\.sock: ENOENT; type "systemctl start svcd-helper\.socket", or start svcd as root$/
  })
  t.strictSame(readdirSync(daemon.path('files')), [])
  const settings = ['state', 'files'].map(name => `paths.${name}=${daemon.path(name)}`)
  const words = [...settings, `image.directory=${daemon.path('images')}`].flatMap(value => ['--set', value])
  const ini = ['--config', join(daemon.tree, 'etc/svcd.ini')]
  const helper = start('systemd-socket-activate', [
    ...['-l', socket, join(daemon.tree, 'bin/svcd'), 'helper', ...ini, ...words]
  ])
  t.teardown(() => helper.kill())
  await until(() => readdirSync(directory).includes('helper.sock'))
  chownSync(socket, nobody, nobody)
  const packed = await daemon.request('GET', '/config/osimage/compute/_pack')
  t.equal(packed.status, 204, JSON.stringify(packed.body))
  const files = readdirSync(daemon.path('files'))
  t.equal(files.length, 3, 'archive, kernel and initramfs', { files })
  for (const name of files) {
    const { uid, mode } = statSync(daemon.path('files', name))
    t.strictSame([uid, mode & 0o777], [nobody, 0o600], name)
  }
  const initrd = files.find(name => name.endsWith('initrd.img-6.1.0-10')) ?? ''
  t.equal(readFileSync(daemon.path('files', initrd), 'utf8'), 'initramfs 10')
  const cloned = await daemon.request('POST', '/config/osimage/compute/_clone', {
    config: { osimage: { compute: { newosimage: 'copy' } } }
  })
  t.equal(cloned.status, 201, JSON.stringify(cloned.body))
  t.strictSame(readdirSync(daemon.path('images')).sort(), ['compute', 'copy'])
  t.equal(statSync(daemon.path('images/copy/etc/shadow')).uid, 0, 'its owners are the same')
  t.equal((await daemon.request('GET', '/config/osimage/copy/_delete')).status, 204)
  await until(() => !readdirSync(daemon.path('images')).some(name => name.startsWith('.') || name === 'copy'))
  await daemon.stop()
})

// rules 9.14
t.test('a daemon from a checkout, neither root nor with a helper, packs what it can read', async t => {
  const daemon = await unprivilegedDaemon(t)
  const tree = daemon.path('images/compute')
  execFileSync('chown', ['-R', `${nobody}:${nobody}`, tree])
  const packed = await daemon.request('GET', '/config/osimage/compute/_pack')
  t.equal(packed.status, 204, JSON.stringify(packed.body))
  t.equal(readdirSync(daemon.path('files')).length, 3, 'archive, kernel and initramfs')
  chownSync(daemon.path('images'), nobody, nobody)
  const clone = (newosimage: string) =>
    daemon.request('POST', '/config/osimage/compute/_clone', {
      config: { osimage: { compute: { newosimage } } }
    })
  t.equal((await clone('copy')).status, 201, 'all in it is its own')
  t.equal(statSync(daemon.path('images/copy/etc/shadow')).uid, nobody)
  chownSync(join(tree, 'etc/hostname'), 0, 0)
  const lost = await clone('other')
  t.equal(lost.status, 503)
  t.match(lost.body, {
    message: /compute\/etc\/hostname belongs to another user or group: to keep that is not permitted/
  })
  t.match(lost.body, { message: lacking })
  t.strictSame(readdirSync(daemon.path('images')).sort(), ['compute', 'copy'])
  chownSync(join(tree, 'etc/shadow'), 0, 0)
  const refused = await daemon.request('GET', '/config/osimage/compute/_pack')
  t.equal(refused.status, 503)
  t.match(refused.body, { message: /shadow.*Permission denied/ })
  t.match(refused.body, { message: lacking })
  mkdirSync(join(tree, 'usr/sbin'))
  writeFileSync(join(tree, 'usr/sbin/mkinitramfs'), '', { mode: 0o755 })
  const unbuilt = await daemon.request('GET', '/config/osimage/compute/_pack')
  t.equal(unbuilt.status, 503)
  t.match(unbuilt.body, { message: /initramfs.*not permitted/ })
  t.match(unbuilt.body, { message: lacking })
  await daemon.stop()
})

// rules 9.14
t.test('the state of a daemon that was root is handed over by the command that the start names', async t => {
  const enter: string[] = []
  const daemon = new Daemon({ directory: scratch(t), enter, set: [] })
  t.teardown(() => daemon.kill())
  makeTree(daemon.path('images/compute'))
  await daemon.start()
  await daemon.create('osimage', 'compute', {})
  t.equal((await daemon.request('GET', '/config/osimage/compute/_pack')).status, 204)
  const before = (await daemon.request('GET', '/config/osimage')).body
  t.strictSame(
    [...readdirSync(daemon.path('state')), ...Object.keys(kinds)].filter(name => !isOwnEntry(name)),
    [],
    'the names are known'
  )
  t.ok(
    ['node-boots', 'node-inventory', 'node-status'].every(name => isOwnEntry(`${name}.journal.new`)),
    'what a crash leaves too'
  )
  t.notMatch(daemon.log(), /who cannot read/)
  await daemon.stop()
  enter.push(...unprivileged)
  const commandNamed = async () => {
    const refused = await daemon.launch().ended
    t.equal(refused.code, 1)
    const [, path = '', command = ''] =
      /^svcd: (\S+) belongs to user 0, and svcd runs as user 65534: stop svcd on this machine and type, as root: (sh .*)$/m.exec(
        refused.stderr
      ) ?? []
    t.match(command, /hand-over\.sh .* nobody$/, refused.stderr)
    return { path, command }
  }
  const handOver = (command: string) => start('sh', ['-c', command], { input: '' }).ended
  const { command } = await commandNamed()
  t.equal((await handOver(command)).code, 0)
  const export1 = daemon.path('state/export.json')
  writeFileSync(export1, '{}', { mode: 0o600 })
  await daemon.start()
  t.equal(statSync(export1).uid, 0, 'a file that svcd does not make hinders nobody')
  const after = (await daemon.request('GET', '/config/osimage')).body
  const lost = JSON.stringify(after) === JSON.stringify(before) ? 0 : 1
  proof('state directory of another owner', {
    tried: 1,
    crashes: 0,
    lost,
    note: 'root to svcd, by the command named'
  })
  t.strictSame(after, before)
  await daemon.create('group', 'compute', { osimage: 'compute' })
  t.equal(statSync(daemon.path('images/compute/etc/shadow')).uid, 0, 'images stay root’s')
  t.equal(statSync(daemon.path('state')).mode & 0o7777, 0o1771)
  const held = await handOver(command)
  t.equal(held.code, 1, 'not while a daemon runs')
  t.match(held.stderr, `svcd is running on ${daemon.path('state')}: stop it first (systemctl stop svcd)`)
  t.equal(statSync(export1).uid, 0)
  await daemon.stop()
  const file = daemon.path('state/group/compute.json')
  chownSync(file, 0, 0)
  t.equal((await commandNamed()).path, file, 'also one file is found')
  enter.length = 0
  await daemon.start()
  t.match(
    daemon.log(),
    /belongs to user nobody, who cannot read what svcd makes as root: stop it, type sh \S+hand-over/
  )
  t.match(daemon.log(), /systemctl start svcd/)
  await daemon.stop()
})
