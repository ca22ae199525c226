import { mkdir, readdir, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { requireNode, startNode } from '../../image/node.js'
import { beginning } from '../../image/taking.js'

requireNode()

t.test('file systems within file systems', async t => {
  const { remote, root, take, path } = await beginning(t)
  for (const name of ['boot', 'var/lib', 'home', 'odd\\ [m]*'])
    await mkdir(join(root, name), { recursive: true })
  await writeFile(join(root, 'boot/hidden'), 'under the mount')
  const mounts = ['/boot', '/var', '/home']
  const node = await startNode(t, root, mounts, remote.port)
  await node.inside(`echo k > boot/vmlinuz; mkdir var/lib; mount -t tmpfs node var/lib; echo l > var/lib/l
    echo v > var/v; echo a > home/alice; mkdir -m 755 bind; mount --bind etc bind
    mount --bind etc 'odd\\ [m]*'`)

  const first = await take({ work: path('one') })
  t.ok(first.lines.includes('/var of node node001 is another file system: left out'))
  for (const name of ['boot', 'var', 'home', 'odd\\ [m]*', 'bind'])
    t.strictSame(await readdir(path(`one/${name}`)), [], 'a mount point alone')

  await take({ tree: path('one'), work: path('two'), filesystems: ['/var/', '/', '/boot', '//var'] })
  t.strictSame(await readdir(path('two/boot')), ['vmlinuz'])
  t.strictSame((await readdir(path('two/var'))).sort(), ['lib', 'v'])
  t.strictSame(await readdir(path('two/var/lib')), [], 'not named')

  const lib = await take({ tree: path('one'), work: path('lib'), filesystems: ['/var/lib', '/'] })
  t.strictSame(lib.changes, ['new var/lib/', 'new var/lib/l'], 'within one that is not named')

  await node.inside('rm var/v')
  const third = await take({
    ...{ tree: path('two'), work: path('three') },
    filesystems: ['/', '/boot', '/var', '/var/lib', '/usr']
  })
  t.strictSame(third.changes, ['deleted var/v', 'new var/lib/l'])
  t.ok(third.lines.includes('/usr is no file system of its own on node node001'))

  await node.inside('echo 2 > boot/initrd; echo 2 > var/lib/l2; echo 2 > etc/two')
  const fourth = await take({ tree: path('three'), work: path('four'), filesystems: ['/var/lib'] })
  t.strictSame(fourth.changes, ['new var/lib/l2'], 'the others stay as the image has them')
  t.strictSame(await readdir(path('four/boot')), ['vmlinuz'])

  await symlink('/etc', join(root, 'link'))
  for (const [name, why] of [
    ['/srv', /^grab_filesystems: no file system is mounted at "\/srv" on node node001$/],
    ['/link', /no file system is mounted at "\/link"/],
    ['boot', /^grab_filesystems: "boot" is no absolute path$/],
    ['/var/../etc', /holds \. or \.\./],
    ['/bo*', /holds a wildcard/],
    ['/$(touch /tmp/grab-was-here)', /no file system is mounted/]
  ] as const)
    await t.rejects(take({ filesystems: [name], dryrun: true }), { message: why })
})

t.test('what an image holds cannot lead a grab out of it', async t => {
  const { remote, root, take, path } = await beginning(t)
  await mkdir(join(root, 'boot'))
  const node = await startNode(t, root, ['/boot'], remote.port)
  await node.inside('echo k > boot/vmlinuz')
  await mkdir(path('image'))
  await mkdir(path('outside'))
  await writeFile(path('outside/precious'), 'x')
  for (const name of ['boot', 'usr', 'etc', 'var']) await symlink(path('outside'), path(`image/${name}`))
  await take({ tree: path('image'), filesystems: ['/', '/boot'] })
  t.strictSame(await readdir(path('outside')), ['precious'])
  t.strictSame(await readdir(path('work/boot')), ['vmlinuz'])
})
