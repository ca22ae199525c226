import {
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  symlinkSync,
  unlinkSync,
  writeFileSync
} from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { openInside, resolveInside } from '../../lib/disk/inside.js'
import { mountsBelow } from '../../lib/disk/mounts.js'
import { removeTree } from '../../lib/disk/remove-tree.js'
import { ServiceError } from '../../lib/errors.js'
import { imageTree } from '../../lib/image/trees.js'
import { NAMES, NAMES_NOT_UTF8, requireRootAndPrograms, richTree, run, workDirectory } from './rich-tree.js'

requireRootAndPrograms()

/** An `[image] directory` with two images in it, and a secret beside it. */
function place(t: Test) {
  const directory = workDirectory(t)
  const images = join(directory, 'images')
  for (const name of ['compute/boot', 'login', 'imposter']) mkdirSync(join(images, name), { recursive: true })
  mkdirSync(join(directory, 'images-of-others/x'), { recursive: true })
  writeFileSync(join(directory, 'secret'), 'secret')
  writeFileSync(join(images, 'file'), '')
  return { directory, images, tree: join(images, 'compute') }
}

// rules 3.12, 9.1
t.test('the directory of an image is strictly below [image] directory', async t => {
  const { directory, images } = place(t)
  const link = (name: string, target: string) => symlinkSync(target, join(images, name))
  link('current', 'compute')
  link('out', '/etc')
  link('out-relative', '../images-of-others/x')
  link('itself', '.')
  link('dangling', 'nowhere')
  link('circle', 'circle')
  mkdirSync(join(images, 'deep'))
  link('deep/out', '../../images-of-others')
  symlinkSync(images, join(directory, 'other-way'))

  for (const [path, real] of [
    ['compute', 'compute'],
    ['compute/boot', 'compute/boot'],
    ['compute/', 'compute'],
    ['.//compute/.', 'compute'],
    ['current', 'compute']
  ] as const)
    t.equal(await imageTree(images, 'compute', `${images}/${path}`), join(images, real))
  const home = join(directory, 'other-way')
  t.equal(await imageTree(home, 'compute', join(home, 'compute')), join(images, 'compute'))
  t.equal(await imageTree(home, 'compute', join(images, 'compute')), join(images, 'compute'))
  t.equal(await imageTree(images, 'compute', join(home, 'compute')), join(images, 'compute'))

  const refused = async (path: string, why: string, home = images) =>
    t.rejects(
      imageTree(home, 'compute', path),
      new ServiceError(
        503,
        `osimage compute: path ${path} is no directory below [image] directory ${home}: ${why}`
      )
    )
  await refused(images, 'it is that directory itself')
  await refused(`${images}/`, 'it is that directory itself')
  await refused(`${images}/itself`, 'it is that directory itself')
  await refused(`${images}/../images/compute`, 'it holds ..')
  await refused(`${images}/compute/..`, 'it holds ..')
  await refused('compute', 'it is relative')
  await refused('', 'it is relative')
  await refused('/etc', 'it leads to /etc')
  await refused('/', 'it leads to /')
  await refused(directory, `it leads to ${directory}`)
  await refused(`${images}-of-others/x`, `it leads to ${images}-of-others/x`)
  await refused(`${images}/out`, 'it leads to /etc')
  await refused(`${images}/out/ssl`, 'it leads to /etc/ssl')
  await refused(`${images}/out-relative`, `it leads to ${images}-of-others/x`)
  await refused(`${images}/deep/out/x`, `it leads to ${images}-of-others/x`)
  await refused(`${images}/file`, 'it is a file')
  await refused(`${images}/file/inner`, 'it: ENOTDIR')
  await refused(`${images}/nowhere`, 'it does not exist')
  await refused(`${images}/dangling`, 'it does not exist')
  await refused(`${images}/circle`, 'it: ELOOP')
  await refused(`${images}/$(touch pwned)`, 'it does not exist')
  await refused(`${images}/compute`, 'that directory does not exist', join(directory, 'nowhere'))
  await t.rejects(imageTree(images, 'compute', `${images}/a\0b`), /ERR_INVALID_ARG_VALUE/)
})

t.test('a path is resolved inside a tree as a chroot would', async t => {
  const { tree } = place(t)
  const link = (name: string, target: string) => symlinkSync(target, join(tree, name))
  for (const name of ['usr/lib/modules', 'etc', 'sub/boot']) mkdirSync(join(tree, name), { recursive: true })
  for (const name of ['boot/vmlinuz-6.1', 'etc/shadow', 'file', 'sub/boot/initrd'])
    writeFileSync(join(tree, name), name)
  link('lib', 'usr/lib')
  link('absolute', '/boot/vmlinuz-6.1')
  link('out', '../../../../../etc/shadow')
  link('out-absolute', '/../../etc/shadow')
  link('vmlinuz', 'boot/vmlinuz-6.1')
  link('sub/up', '../boot')
  link('root', '/')
  link('dangling', 'nowhere')
  link('secret', '../../secret')
  link('circle-a', 'circle-b')
  link('circle-b', 'circle-a')
  for (let i = 0; i < 45; i++) link(`chain-${i}`, i === 0 ? 'file' : `chain-${i - 1}`)
  link('not-utf8', 'x')
  unlinkSync(join(tree, 'not-utf8'))
  symlinkSync(Buffer.from([0x2f, 0xff]), join(tree, 'not-utf8'))

  for (const [path, found] of [
    ['', ''],
    ['/', ''],
    ['.', ''],
    ['..', ''],
    ['../../..', ''],
    ['/boot/vmlinuz-6.1', 'boot/vmlinuz-6.1'],
    ['boot//./vmlinuz-6.1', 'boot/vmlinuz-6.1'],
    ['boot/../file', 'file'],
    ['lib/modules', 'usr/lib/modules'],
    ['lib/..', 'usr'],
    ['absolute', 'boot/vmlinuz-6.1'],
    ['vmlinuz', 'boot/vmlinuz-6.1'],
    ['sub/up/vmlinuz-6.1', 'boot/vmlinuz-6.1'],
    ['sub/up/..', ''],
    ['root/root/root/file', 'file'],
    ['out', 'etc/shadow'],
    ['out-absolute', 'etc/shadow'],
    ['chain-39', 'file'],
    ['dangling', undefined],
    ['secret', undefined],
    ['circle-a', undefined],
    ['chain-44', undefined],
    ['nowhere/..', undefined],
    ['file/', undefined],
    ['file/.', undefined],
    ['file/..', undefined],
    ['file/inner', undefined],
    ['a\0b', undefined],
    ['not-utf8', undefined],
    ['n'.repeat(300), undefined]
  ] as const)
    t.equal(await resolveInside(tree, path), found)
})

t.test('a file of a tree is opened inside it, or not at all', async t => {
  const { tree } = place(t)
  const read = async (path: string) => {
    const handle = await openInside(tree, path)
    try {
      return await handle.readFile('utf8')
    } finally {
      await handle.close()
    }
  }
  mkdirSync(join(tree, 'etc'))
  writeFileSync(join(tree, 'etc/shadow'), 'of the image')
  writeFileSync(join(tree, 'boot/kernel'), 'kernel')
  symlinkSync('../../../../../../../../etc/shadow', join(tree, 'boot/vmlinuz'))
  symlinkSync('/etc', join(tree, 'boot/etc'))
  symlinkSync('../../secret', join(tree, 'secret'))
  run('mkfifo', join(tree, 'fifo'))
  run('mknod', join(tree, 'zero'), 'c', '1', '5')
  t.equal(await read('boot/kernel'), 'kernel')
  t.equal(await read('/boot/vmlinuz'), 'of the image')
  t.equal(await read('boot/etc/shadow'), 'of the image')
  t.equal(await read('../../../etc/shadow'), 'of the image')
  const refused = (path: string, message: string) => t.rejects(read(path), new ServiceError(503, message))
  await refused('secret', 'the image has no file secret')
  await refused('nowhere', 'the image has no file nowhere')
  await refused('', 'the image has no file ')
  await refused('boot', "the image's boot is no regular file")
  await refused('fifo', "the image's fifo is no regular file")
  await refused('zero', "the image's zero is no regular file")
})

t.test('a directory that turns into a link while a file is opened leads nowhere', async t => {
  const { directory, tree } = place(t)
  writeFileSync(join(tree, 'boot/kernel'), 'inside')
  mkdirSync(join(directory, 'outside'))
  writeFileSync(join(directory, 'outside/kernel'), 'outside')
  const [boot, away, link] = ['boot', 'away', 'link'].map(name => join(tree, name)) as [
    string,
    string,
    string
  ]
  symlinkSync('../../outside', link)
  const seen = new Set<string>()
  let isDone = false
  const swapping = (async () => {
    while (!isDone) {
      renameSync(boot, away)
      renameSync(link, boot)
      await new Promise(setImmediate)
      renameSync(boot, link)
      renameSync(away, boot)
      await new Promise(setImmediate)
    }
  })()
  for (let i = 0; i < 500 || seen.size < 2; i++)
    try {
      const handle = await openInside(tree, 'boot/kernel')
      seen.add(await handle.readFile('utf8'))
      await handle.close()
    } catch (error) {
      seen.add(`${(error as ServiceError).status}`)
    }
  isDone = true
  await swapping
  t.strictSame([...seen].sort(), ['503', 'inside'])
})

t.test('mount points at and below a directory', async t => {
  const { tree, images } = place(t)
  const [odd, plain] = [join(tree, 'a b\n\\040\tc'), join(tree, 'proc')]
  for (const point of [odd, plain]) mkdirSync(point)
  mkdirSync(`${tree}-beside`)
  t.strictSame(await mountsBelow(tree), [])
  const mount = (point: string) => {
    run('mount', '-t', 'tmpfs', 'tmpfs', point)
    t.teardown(() => run('umount', point))
  }
  for (const point of [plain, plain, odd, `${tree}-beside`]) mount(point)
  mkdirSync(join(plain, 'inner'))
  mount(join(plain, 'inner'))
  t.strictSame(await mountsBelow(tree), [plain, plain, odd, join(plain, 'inner')])
  t.strictSame(await mountsBelow(plain), [plain, plain, join(plain, 'inner')])
  symlinkSync(tree, join(images, 'link'))
  t.equal((await mountsBelow(join(images, 'link'))).length, 4)
  t.ok((await mountsBelow('/')).includes(plain))
  t.strictSame(await mountsBelow(join(tree, 'nowhere')), [])
})

t.test('a tree is removed with all that is in it, and nothing else', async t => {
  const { directory, images } = place(t)
  const tree = join(images, 'rich')
  richTree(t, tree)
  symlinkSync(directory, join(tree, 'link-out'))
  symlinkSync('/', join(tree, 'deep/link-to-root'))
  t.ok(readdirSync(tree).length > NAMES.length + NAMES_NOT_UTF8.length)
  await removeTree(tree)
  t.notOk(existsSync(tree))
  t.equal(readFileSync(join(directory, 'secret'), 'utf8'), 'secret')
  t.ok(existsSync('/etc/passwd'))
  await removeTree(tree)

  symlinkSync('compute', join(images, 'link'))
  await t.rejects(removeTree(join(images, 'link')), /is not removed: (ELOOP|ENOTDIR)/)
  await t.rejects(removeTree(join(images, 'file')), /is not removed: ENOTDIR/)
  t.ok(existsSync(join(images, 'compute/boot')))
  t.ok(lstatSync(join(images, 'link')).isSymbolicLink())
})

t.test('a tree with something mounted in it is not removed, in no part', async t => {
  const { directory, tree } = place(t)
  for (const name of ['a', 'z', 'dev']) mkdirSync(join(tree, name))
  writeFileSync(join(tree, 'a/file'), '')
  mkdirSync(join(directory, 'outside'))
  writeFileSync(join(directory, 'outside/file'), 'kept')
  for (const words of [
    ['-t', 'tmpfs', 'tmpfs'],
    ['--bind', join(directory, 'outside')]
  ]) {
    const before = readdirSync(tree)
    run('mount', ...words, join(tree, 'dev'))
    try {
      await t.rejects(
        removeTree(tree),
        new Error(`${tree} is not removed: something is mounted at ${join(tree, 'dev')}`)
      )
      t.strictSame(readdirSync(tree), before)
      t.ok(existsSync(join(tree, 'a/file')))
    } finally {
      run('umount', join(tree, 'dev'))
    }
  }
  t.equal(readFileSync(join(directory, 'outside/file'), 'utf8'), 'kept')
  // The rerun, with nothing mounted any more.
  await removeTree(tree)
  t.notOk(existsSync(tree))
})

t.test('what cannot be removed is named', async t => {
  const { tree } = place(t)
  writeFileSync(join(tree, 'boot/kept'), '')
  try {
    run('chattr', '+i', join(tree, 'boot/kept'))
  } catch {
    t.comment('this file system has no immutable files')
    return
  }
  await t.rejects(removeTree(tree), new Error(`${tree}/boot/kept is not removed: EPERM`))
  run('chattr', '-i', join(tree, 'boot/kept'))
  await removeTree(tree)
  t.notOk(existsSync(tree))
})
