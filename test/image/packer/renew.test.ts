import { execFileSync } from 'node:child_process'
import {
  appendFileSync,
  chmodSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync
} from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { buildInitramfs } from '../../../lib/image/packer/initramfs.js'
import { renewInitramfs } from '../../../lib/image/packer/renew.js'
import { entriesBefore } from '../../../lib/image/packer/traces.js'
import { requirePrograms, requireRoot } from '../../support/programs.js'
import { kernel, Tree } from '../initramfs-tree.js'

requireRoot()
requirePrograms('busybox', 'unshare', 'setpriv', 'chattr')

/** Reads files of /etc, lists a directory, and does what /etc/late says when all is read. */
const tool = `#!/bin/sh
for file in "$@"; do
  case $file in
    /tmp/svc/initrd) out=$file ;;
  esac
done
cat /etc/read /etc/link /etc/script.py /var/log/read /srv/listed/* >"$out"
ls /srv/empty >/dev/null
sh /etc/late
`
const used = 'the initramfs of the last pack is used: nothing that it is made of has changed'
const initrd = `boot/initramfs-${kernel}.img`

/** An image of one test, packed again and again. */
class Image extends Tree {
  record: string | undefined
  lines: string[] = []

  constructor(t: Test) {
    super(t, 'dracut')
    this.program('dracut', tool)
    for (const path of [
      'etc/read',
      'etc/motd',
      'etc/target',
      'etc/script.py',
      'var/log/read',
      'srv/listed/a'
    ])
      this.write(path, `${path}\n`)
    for (const path of ['usr/lib/libother.so', 'opt/application', 'opt/library.py', 'var/log/other'])
      this.write(path, `${path}\n`)
    for (const path of ['etc/late', 'etc/empty']) this.write(path, '')
    mkdirSync(join(this.path, 'srv/empty'))
    symlinkSync('target', join(this.path, 'etc/link'))
  }

  /** What a pack does before it packs. Gives whether the initramfs was built. */
  async renew(more: Partial<Parameters<typeof renewInitramfs>[0]> = {}): Promise<boolean> {
    this.lines = []
    const request = {
      kernelversion: kernel,
      dracutmodules: [],
      kernelmodules: [],
      signal: new AbortController().signal,
      timeLimitMs: 600_000,
      line: (text: string) => this.lines.push(text),
      ...more
    }
    const renewed = await renewInitramfs({
      ...request,
      path: this.path,
      tree: this.path,
      record: this.record,
      build: () => buildInitramfs({ ...request, tree: this.path }),
      ...more
    })
    if (renewed === undefined) throw new Error('there is no tool')
    if (renewed.isBuilt) this.record = renewed.record
    return renewed.isBuilt
  }
}

/** An image whose initramfs has been built and is used again. */
async function packed(t: Test): Promise<Image> {
  const image = new Image(t)
  t.equal(await image.renew(), true, 'the first one is built')
  t.type(image.record, 'string', image.lines.join('\n'))
  const { mtimeMs } = statSync(join(image.path, initrd))
  t.equal(await image.renew(), false, 'the second time it is used')
  t.strictSame(image.lines, [used])
  t.equal(statSync(join(image.path, initrd)).mtimeMs, mtimeMs, 'and as it was')
  return image
}

// rules 9.4
t.test('what the initramfs is not made of may change', async t => {
  const image = await packed(t)
  image.write('etc/motd', 'other words\n')
  t.equal(await image.renew(), false, 'a file that was not read, in place')
  image.write('etc/motd.new', 'more other words\n')
  renameSync(join(image.path, 'etc/motd.new'), join(image.path, 'etc/motd'))
  t.equal(await image.renew(), false, 'another one in its place')
  image.write('opt/application', 'version 2\n')
  image.write('var/log/other', 'more of the log\n')
  image.write('var/log/new', 'new\n')
  image.write('home/user/file', 'new\n')
  image.write('tmp/file', 'new\n')
  t.equal(await image.renew(), true, '/home was not there')
  image.write('home/user/other', 'new\n')
  image.write('var/cache/new', 'new\n')
  t.equal(await image.renew(), true, 'nor was /var/cache')
  image.write('var/cache/newer', 'new\n')
  t.equal(await image.renew(), false)
})

// rules 9.4
t.test('each change of what it may be made of has it built', async t => {
  const image = await packed(t)
  const inside = (path: string) => join(image.path, path)
  const sameSize = (path: string) => image.write(path, image.read(path).toUpperCase())
  const changes: Record<string, () => void> = {
    'a file that was read, in place and as long as before': () => sameSize('etc/read'),
    'the same through a link': () => sameSize('etc/target'),
    'the same in a directory that does not count else': () => sameSize('var/log/read'),
    'the same bytes, written again': () => image.write('etc/read', image.read('etc/read')),
    'another file in the place of one that was read': () => {
      image.write('etc/new', image.read('etc/read'))
      renameSync(inside('etc/new'), inside('etc/read'))
    },
    'a link that leads elsewhere': () => {
      rmSync(inside('etc/link'))
      symlinkSync('read', inside('etc/link'))
    },
    'a file is added in /etc': () => image.write('etc/added', 'new\n'),
    'a file is removed from /etc': () => rmSync(inside('etc/added')),
    'a file is added in a directory that was listed': () => image.write('srv/listed/b', 'new\n'),
    'the first file in a directory that was listed': () => image.write('srv/empty/file', 'new\n'),
    'what was not read may be run': () => chmodSync(inside('etc/motd'), 0o755),
    'what was empty is so no more': () => image.write('etc/empty', 'no more\n'),
    'a library that was not read': () => sameSize('usr/lib/libother.so'),
    'a program in Python': () => sameSize('opt/library.py'),
    'a directory below /opt': () => image.write('opt/directory/file', 'new\n'),
    'a kernel': () => image.write('boot/vmlinuz-6.1.0-10', 'new\n'),
    'the initramfs is damaged': () => appendFileSync(inside(initrd), '!'),
    'the initramfs is missing': () => rmSync(inside(initrd)),
    'the initramfs is a link': () => {
      renameSync(inside(initrd), inside('etc/initrd'))
      symlinkSync('/etc/initrd', inside(initrd))
    }
  }
  for (const [name, change] of Object.entries(changes)) {
    change()
    t.equal(await image.renew(), true, name)
    t.match(image.lines[0], /^the initramfs is built: .* (has changed|is not the one that was built)$/, name)
    if (/link$/.test(name)) continue
    t.equal(await image.renew(), false, `${name}: it is used then`)
  }
})

// rules 9.4
t.test('the reason says what has changed', async t => {
  const image = await packed(t)
  image.write('etc/read', 'new\n')
  await image.renew()
  t.match(image.lines[0], 'the initramfs is built: /etc/read has changed')
  image.write('etc/added', 'new\n')
  await image.renew()
  t.match(image.lines[0], 'the initramfs is built: something in /etc has changed')
  t.equal(await image.renew({ kernelmodules: ['xfs'] }), true, 'another wish')
  t.match(image.lines[0], /its kernel, its modules, svcd or this machine is another one/)
  rmSync(join(image.path, initrd))
  await image.renew({ kernelmodules: ['xfs'] })
  t.match(image.lines[0], `the initramfs is built: /${initrd} is not the one that was built`)
  t.equal(readFileSync(join(image.path, initrd), 'utf8').startsWith('new\n'), true)
})

// rules 9.4
t.test('a record that is damaged counts for nothing', async t => {
  const image = await packed(t)
  const { record = '' } = image
  const at = record.length - 10
  for (const damaged of [
    '',
    'no record',
    record.slice(0, -1),
    record.replace(/"files":\{[^}]*\}/, '"files":{}'),
    `${record.slice(0, at)}${record[at] === 'A' ? 'B' : 'A'}${record.slice(at + 1)}`
  ]) {
    image.record = damaged
    t.equal(await image.renew(), true)
    t.match(image.lines[0], 'the initramfs is built: nothing is known of an earlier build')
  }
})

// rules 9.4
t.test('where it is not sure what was read, the next pack builds again', async t => {
  const image = new Image(t)
  execFileSync('chattr', ['+A', join(image.path, 'bin/dracut')])
  t.equal(await image.renew(), true)
  t.match(image.lines.at(-1), /builds the initramfs again: .* does not tell which files were read/)
  t.equal(image.record, undefined)
  const limits = { signal: new AbortController().signal, timeLimitMs: 60_000 }
  await t.rejects(entriesBefore('/proc/sys/vm', limits), /does not tell which files were read/)
  execFileSync('chattr', ['-A', join(image.path, 'bin/dracut')])
  t.equal(await image.renew(), true)
  t.type(image.record, 'string')

  image.write('etc/late', 'echo changed >/etc/read\n')
  t.equal(await image.renew(), true)
  image.write('etc/late', '')
  t.equal(await image.renew(), true, 'a file that changed during the build after it was read')
  t.equal(await image.renew(), false)

  const ours = image.record
  t.equal(await image.renew({ build: async () => Promise.reject(new Error('no')) }), false)
  writeFileSync(join(image.path, 'etc/read'), 'new\n')
  await t.rejects(image.renew({ build: async () => Promise.reject(new Error('no')) }), { message: 'no' })
  t.equal(image.record, ours)
  t.equal(await image.renew(), true, 'after a build that failed')
})

// rules 9.4
t.test('an initramfs without measure is not read to its end', async t => {
  const image = new Image(t)
  const build = async () => {
    image.write(initrd, '')
    truncateSync(join(image.path, initrd), 2 ** 33)
    return { tool: 'dracut' as const, initrd }
  }
  t.equal(await image.renew({ build }), true)
  t.match(image.lines.at(-1), /builds the initramfs again: .* is larger than 4 GiB/)
})
