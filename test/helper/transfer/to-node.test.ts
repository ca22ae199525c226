import { existsSync } from 'node:fs'
import { chmod, mkdir, readdir, readFile, rename, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { copyToNode, type ToNodeRequest } from '../../../lib/helper/transfer/node-transfer.js'
import { Remote } from '../../../lib/helper/transfer/remote.js'
import { compareTrees } from '../../image/compare-trees.js'
import { age, listener, makeSystem, remember, requireNode, startNode } from '../../image/node.js'
import { richTree } from '../../image/rich-tree.js'
import { identity } from '../../image/taking.js'
import { freePort } from '../../support/free-port.js'
import { output } from '../../support/programs.js'
import { scratch } from '../../support/scratch.js'

requireNode()

/** A node's system in `root`, and an image in `image` that was made from it. */
async function beginning(t: Test) {
  const directory = scratch(t)
  const remote = new Remote({ state: join(directory, 'my state'), sshKey: '', sshPort: await freePort() })
  await remote.prepare()
  const path = (name: string) => join(directory, name)
  await makeSystem(path('node'), await readFile(remote.publicKey, 'utf8'))
  const bring = async (options: Partial<ToNodeRequest> = {}) => {
    const heard = listener()
    const { changes } = await copyToNode({
      ...{ remote, node: 'node001', address: '127.0.0.1', tree: path("my 'image'") },
      ...{ filesystems: [], dryrun: false, signal: new AbortController().signal },
      ...{ timeLimitMs: 60_000, ...heard, ...options },
      exclude: [...identity, ...(options.exclude ?? [])]
    })
    t.equal(changes, heard.changes.length, 'each change is heard')
    return heard
  }
  const shell = (where: string, script: string) => output('sh', ['-c', `cd "$1" && ${script}`, '', where])
  const toImage = () => output('cp', ['-a', '-x', path('node'), path("my 'image'")])
  return {
    ...{ remote, path, bring, toImage, root: path('node'), image: path("my 'image'") },
    node: (script: string) => shell(path('node'), script),
    tree: (script: string) => shell(path("my 'image'"), script)
  }
}

// Some of each kind that docs/grab-and-push.md names.
const units = 'etc/systemd/system'
const own = [
  ...['boot/grub/grub.cfg', 'etc/fstab', 'etc/hostname', 'etc/hosts', 'etc/machine-id', 'etc/resolv.conf'],
  ...['etc/netplan/60-svc.yaml', 'etc/network/interfaces', 'etc/systemd/network/05-svc-BOOTIF.network'],
  ...['etc/NetworkManager/system-connections/svc-BOOTIF.nmconnection', 'etc/default/grub', 'etc/chrony.conf'],
  ...[`${units}/svc-role-x.service`, `${units}/multi-user.target.wants/svc-role-x.service`],
  ...[`${units}/network-online.target.wants/systemd-networkd-wait-online.service`, 'swapfile'],
  ...['usr/local/lib/svc/roles/x', 'etc/systemd/timesyncd.conf.d/svc.conf', 'var/log/messages'],
  ...[
    'var/lib/systemd/random-seed',
    'tmp/session',
    'run/pid',
    'var/tmp/build',
    'boot/efi/EFI/BOOT/BOOTX64.EFI'
  ]
]

// rules 9.8
t.test('a push makes the node what the image is, but for what is its own', async t => {
  const { remote, root, image, path, bring, node, tree, toImage } = await beginning(t)
  await node(
    'mkdir -p usr/old/deep data; echo old > usr/old/deep/file; echo old > data/changed; echo p > data/p'
  )
  await toImage()
  richTree(t, join(image, 'rich'))
  await age(join(image, 'rich'))
  await tree(
    'rm -r usr/old; echo newer > data/changed; chmod 600 data/p; echo n > data/new; touch root/.profile'
  )
  for (const name of own) {
    await mkdir(join(root, name, '..'), { recursive: true })
    await writeFile(join(root, name), 'of the node')
    await mkdir(join(image, name, '..'), { recursive: true })
  }
  // Of every second the image has its own, of the others not even the directory.
  for (const [i, name] of own.entries())
    if (i % 2 === 0) await writeFile(join(image, name), 'of the image')
    else await output('rmdir', ['-p', '--ignore-fail-on-non-empty', join(image, name, '..')])
  const keys = await readFile(join(root, 'etc/ssh/ssh_host_ed25519_key'), 'utf8')
  await tree('rm etc/ssh/ssh_host_ed25519_key; echo image > etc/ssh/ssh_host_ecdsa_key; rm -r root/.ssh')
  await node('mkdir -p home/alice; echo h > home/alice/thesis')
  await tree('mkdir -p home/bob; echo b > home/bob/readme')
  await startNode(t, root, [], remote.port)
  const changedOnNode = await remember(root)

  const dry = await bring({ dryrun: true })
  t.strictSame(await changedOnNode(), [], 'a dry run changes nothing')
  const real = await bring()
  // That a directory below one to be deleted is not empty rsync only finds out by trying.
  const stays = (change: string) => /^deleted .*\/$/.test(change) && !real.changes.includes(change)
  t.strictSame(real.changes.toSorted(), dry.changes.filter(change => !stays(change)).sort())
  for (const change of [
    ...['changed data/changed', 'attributes data/p', 'new data/new', 'new home/bob/readme'],
    ...['deleted usr/old/', 'deleted usr/old/deep/', 'deleted usr/old/deep/file', 'new root/.profile']
  ])
    t.ok(real.changes.includes(change), change)
  const told = real.changes.filter(change => /^(changed|attributes|deleted) /.test(change))
  t.equal(told.length, 5, 'and nothing else of what was there')
  for (const name of own) t.equal(await readFile(join(root, name), 'utf8'), 'of the node', name)
  t.equal(await readFile(join(root, 'etc/ssh/ssh_host_ed25519_key'), 'utf8'), keys)
  t.notMatch(await readFile(join(root, 'etc/ssh/ssh_host_ecdsa_key'), 'utf8'), 'image')
  t.ok(existsSync(join(root, 'root/.ssh/authorized_keys')), 'the controller can still log in')
  t.equal(await readFile(join(root, 'home/alice/thesis'), 'utf8'), 'h\n')
  t.strictSame(await compareTrees(join(image, 'rich'), join(root, 'rich'), { holes: false }), [])
  t.strictSame((await bring()).changes, [], 'a second one finds nothing to do')
  t.notOk(existsSync(path('pwned')))
})

// rules 9.7
t.test('what is excluded is neither sent nor deleted', async t => {
  const { remote, root, bring, node, tree, toImage } = await beginning(t)
  await node(
    'mkdir -p data/cache other; echo 1 > data/cache/c; echo 1 > data/f; echo 1 > other/o; echo 1 > "back\\\\slash?"'
  )
  await toImage()
  await tree('rm data/cache/c other/o back*; echo 22 > data/cache/image; rm data/f; echo 22 > other/image')
  await startNode(t, root, [], remote.port)
  const { changes } = await bring({
    exclude: ['data/cache', '/other/*', '$(touch /pwned)'],
    own: ['/back\\slash?']
  })
  t.strictSame(changes, ['deleted data/f'])
  t.strictSame(await readdir(join(root, 'data/cache')), ['c'])
  t.strictSame(await readdir(join(root, 'other')), ['o'])
  t.notOk(existsSync(join(root, 'pwned')))
})

t.test('file systems of the node that are not named are left alone', async t => {
  const { remote, root, image, bring, node, tree, toImage } = await beginning(t)
  await node('mkdir -p boot var/lib scratch/a home')
  await toImage()
  await tree(`mkdir -p boot var/lib/new scratch/b home/x; echo k > boot/vmlinuz; echo i > var/image; echo i > scratch/b/f
    echo i > home/x/f; echo i > var/lib/l; rmdir scratch/a; echo i > etc/image; chmod 700 scratch`)
  const running = await startNode(t, root, ['/boot', '/var', '/scratch', '/home'], remote.port)
  await running.inside(`echo o > boot/old; echo o > var/own; mkdir var/lib scratch/a; echo o > scratch/a/data
    mount -t tmpfs -o mode=755 node var/lib; echo o > var/lib/own; mkdir empty bind; mount -t tmpfs node empty
    mount --bind etc/ssh bind; chmod 1777 scratch; chmod 711 var`)
  const list = (...names: string[]) => running.inside(`find ${names.join(' ')} | sort | tr '\\n' ' '`)

  const first = await bring()
  t.strictSame(first.changes, ['new etc/image'])
  t.ok(first.lines.includes('/scratch of node node001 is another file system: left alone'))
  t.equal(
    await list('boot', 'var', 'scratch'),
    'boot boot/old scratch scratch/a scratch/a/data var var/lib var/lib/own var/own '
  )
  t.equal(await running.inside('stat -c %a scratch'), '1777\n')

  const boot = await bring({ filesystems: ['/', '/boot'] })
  t.strictSame(boot.changes.toSorted(), ['deleted boot/old', 'new boot/vmlinuz'])
  const lib = await bring({ filesystems: ['/var/lib'] })
  t.strictSame(lib.changes.toSorted(), ['deleted var/lib/own', 'new var/lib/l', 'new var/lib/new/'])
  t.equal(await list('var'), 'var var/lib var/lib/l var/lib/new var/own ')
  t.equal(await running.inside('stat -c %a var'), '711\n', 'what is above it is not its own')
  await tree('rm var/lib/l')
  const both = await bring({ filesystems: ['/var/lib', '/'] })
  t.strictSame(both.changes, ['deleted var/lib/l'])
  t.equal(await list('var'), 'var var/lib var/lib/new var/own ')

  await rename(join(image, 'boot'), join(image, 'away'))
  await symlink('/etc', join(image, 'boot'))
  await t.rejects(bring({ filesystems: ['/', '/boot'] }), {
    message: `grab_filesystems: "/boot" is no directory of the image ${image}`
  })
})

t.test('what is no system is not pushed, and a failure names the node', async t => {
  const { remote, root, image, bring, tree, toImage, path } = await beginning(t)
  const node = await startNode(t, root, [], remote.port)
  await mkdir(path('empty'), { mode: 0o755 })
  await t.rejects(bring({ tree: path('empty') }), {
    message: `${path('empty')} holds no system that could be pushed: it has no /etc`
  })
  await toImage()
  await chmod(image, 0o700)
  await t.rejects(bring(), {
    message: /belongs to user 0 with mode 700, which would become those of the root/
  })
  await chmod(image, 0o755)
  await t.rejects(bring({ filesystems: ['/srv'] }), {
    message: /no file system is mounted at "\/srv" on node node001/
  })
  await t.rejects(bring({ tree: path('none') }), { code: 'ENOENT' })

  const signal = AbortSignal.abort()
  await t.rejects(bring({ signal }), { name: 'ProgramError', kind: 'aborted' })
  await node.stop()
  await t.rejects(bring(), { message: /^node node001 refuses connections/ })

  await mkdir(join(root, 'srv'))
  const running = await startNode(t, root, ['/srv'], remote.port)
  await running.inside('mount -o remount,size=1m srv')
  await tree('mkdir srv; head -c 5000000 /dev/urandom > srv/large')
  await t.rejects(bring({ filesystems: ['/srv'] }), { message: /^node node001: .*No space left on device/ })
})
