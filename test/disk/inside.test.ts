import { mkdirSync, renameSync, symlinkSync, unlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { openInside, resolveInside } from '../../lib/disk/open-directory.js'
import { place } from '../image/place.js'
import { requireRootAndPrograms, run } from '../image/rich-tree.js'

requireRootAndPrograms()

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
  const refused = (path: string, message: string) => t.rejects(read(path), new Error(message))
  await refused('secret', `there is no file secret in ${tree}`)
  await refused('nowhere', `there is no file nowhere in ${tree}`)
  await refused('', `there is no file  in ${tree}`)
  await refused('boot', `boot in ${tree} is no regular file`)
  await refused('fifo', `fifo in ${tree} is no regular file`)
  await refused('zero', `zero in ${tree} is no regular file`)
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
  for (let i = 0; i < 500 || !seen.has('inside') || seen.size < 2; i++)
    try {
      const handle = await openInside(tree, 'boot/kernel')
      seen.add(await handle.readFile('utf8'))
      await handle.close()
    } catch (error) {
      seen.add((error as Error).message.replace(/: E.*/, ''))
    }
  isDone = true
  await swapping
  seen.delete(`there is no file boot/kernel in ${tree}`)
  seen.delete(`boot/kernel in ${tree} cannot be read`)
  t.strictSame([...seen], ['inside'])
})
