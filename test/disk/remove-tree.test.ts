import {
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync
} from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { mountsBelow, removeTree } from '../../lib/disk/open-directory.js'
import { place } from '../image/place.js'
import { NAMES, NAMES_NOT_UTF8, requireRootAndPrograms, richTree, run } from '../image/rich-tree.js'

requireRootAndPrograms()

t.test('mount points at and below a directory', async t => {
  const { tree, images } = place(t)
  const [odd, plain] = [join(tree, 'a b\n\\040\tc\u00a0é'), join(tree, 'proc')]
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
