import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import t from 'tap'
import { removeTree } from '../../lib/disk/open-directory.js'
import { localHelper } from '../../lib/helper/local.js'
import { requirePrograms } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { beginning } from './imaging.js'
import { kernel, Tree } from './initramfs-tree.js'
import { makeTree } from './small-tree.js'

requirePrograms('chattr')

const chattr = (...words: string[]) => execFileSync('chattr', words)

// rules 3.12
t.test('a tree with immutable files is not removed: the file is named, and what to type', async t => {
  for (const [attribute, path] of [
    ['+i', 'etc/shadow'],
    ['+a', 'etc/shadow'],
    ['+i', 'etc'],
    ['+i', 'boot'],
    ['+i', '.']
  ] as const) {
    const tree = makeTree(join(scratch(t), 'image'))
    chattr(attribute, join(tree, path))
    const error: Error = await removeTree(tree, '/images/x').then(
      () => t.fail(path),
      error => error
    )
    t.match(error.message, path === '.' ? '/images/x' : `/images/x/${path}`)
    t.match(
      error.message,
      /is not removed: EPERM: it, or its directory, is immutable: type, as root: chattr -R -i -a \/images\/x$/
    )
    chattr('-R', '-i', '-a', tree)
    await removeTree(tree)
    t.notOk(existsSync(tree))
  }
})

// rules 3.12
t.test('the delete of an image with an immutable directory says it in its record', async t => {
  const { c, images, records } = await beginning(t)
  await c.post('/config/osimage/compute/_clone', { newosimage: 'copy' })
  const tree = join(images, 'copy')
  t.teardown(() => execFileSync('sh', ['-c', `chattr -R -i -a ${images} || :`]))
  writeFileSync(join(tree, 'etc/resolv.conf'), 'x')
  chattr('+i', join(tree, 'etc/resolv.conf'))
  await c.get('/config/osimage/copy/_delete')
  for (;;) {
    const [record] = await records('delete')
    if (!record?.ended) continue
    t.match(record.lines.join('\n'), /etc\/resolv\.conf is not removed: EPERM: .*chattr -R -i -a /)
    break
  }
  const [hidden = ''] = readdirSync(images).filter(name => name.startsWith('.svcd-'))
  t.ok(
    existsSync(join(images, hidden, 'etc/resolv.conf')),
    'what is left has a hidden name until the next start'
  )
})

// rules 9.4
t.test('an initramfs that may not be replaced is named, and what to type', async t => {
  const tree = new Tree(t, 'mkinitramfs')
  tree.write('etc/debian_version', '12\n')
  const initrd = `boot/initrd.img-${kernel}`
  tree.write(initrd, 'old')
  const images = dirname(tree.path)
  const place = { images, files: images, state: images, sshKey: '', sshPort: 22, byRoot: true, units: [] }
  const args = {
    tree: tree.path,
    kernelversion: kernel,
    dracutmodules: [],
    kernelmodules: [],
    record: undefined
  }
  const build = () => localHelper(place).call('initramfs', args)
  for (const path of [initrd, 'boot']) {
    chattr('+i', join(tree.path, path))
    await t.rejects(build(), {
      message: new RegExp(`boot/.*not permitted.*type, as root: chattr -R -i -a ${join(tree.path, 'boot')}$`)
    })
    chattr('-i', join(tree.path, path))
    t.equal(tree.read(initrd), 'old')
    t.strictSame(tree.list('boot'), [`initrd.img-${kernel}`])
  }
  t.match(await build(), { initrd })
})
