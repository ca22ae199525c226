import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  appendFileSync,
  chmodSync,
  chownSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync
} from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { buildInitramfs } from '../../../lib/helper/packer/initramfs.js'
import { initramfsOf, listTree } from '../../../lib/helper/packer/initramfs-cache.js'
import { kernel, Tree } from '../../image/initramfs-tree.js'
import { requirePrograms, requireRoot } from '../../support/programs.js'

requireRoot()
requirePrograms('busybox', 'unshare', 'setpriv', 'mount')

/** Reads files of the image, and runs /etc/late when all is read. */
const tool = `#!/bin/sh
for file in "$@"; do
  case $file in
    /tmp/svc/initrd) out=$file ;;
  esac
done
cat /etc/read /etc/link /srv/listed/* >"$out"
sh /etc/late
`
const used = 'the initramfs of the last pack is used: nothing that it is made of has changed'
const initrd = `boot/initramfs-${kernel}.img`

/** An image of one test, packed again and again. */
class Image extends Tree {
  /** Every build is the quick one. */
  isQuick = false

  /** Stands for the sandbox and the tool, which take a second. */
  readonly quickBuild = async () => {
    this.write(initrd, `${this.read('etc/read')}${performance.now()}`)
    return { tool: 'dracut' as const, initrd }
  }

  record: string | undefined
  lines: string[] = []

  constructor(t: Test) {
    super(t, 'dracut')
    this.program('dracut', tool)
    for (const path of ['etc/read', 'etc/target', 'srv/listed/a', 'opt/tool', 'root/hook', 'home/user/file'])
      this.write(path, `${path}\n`)
    for (const path of ['usr/lib/libother.so', 'usr/local/bin/hook', 'var/lib/state', 'var/log/messages'])
      this.write(path, `${path}\n`)
    for (const path of ['var/cache/file', 'var/lib/dpkg/status']) this.write(path, `${path}\n`)
    this.write(`usr/lib/modules/${kernel}/extra/driver.ko`, 'a driver\n')
    this.write('etc/late', '')
    symlinkSync('target', join(this.path, 'etc/link'))
  }

  /** Gets the initramfs as a pack does. Returns whether it was built. */
  async isBuilt(more: Partial<Parameters<typeof initramfsOf>[0]> = {}): Promise<boolean> {
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
    const got = await initramfsOf({
      ...request,
      path: this.path,
      tree: this.path,
      record: this.record,
      build: this.isQuick ? this.quickBuild : () => buildInitramfs({ ...request, tree: this.path }),
      ...more
    })
    if (got === undefined) throw new Error('there is no tool')
    if (got.isBuilt) this.record = got.record
    return got.isBuilt
  }
}

/**
 * An image whose initramfs has been built and is used again. The build may be quick where nothing depends on
 * what the tool reads or does.
 */
async function packed(t: Test, build: 'whole' | 'quick' = 'whole'): Promise<Image> {
  const image = new Image(t)
  image.isQuick = build === 'quick'
  t.equal(await image.isBuilt(), true, 'the first one is built')
  t.type(image.record, 'string', image.lines.join('\n'))
  const { mtimeMs } = statSync(join(image.path, initrd))
  t.equal(await image.isBuilt(), false, 'the second time it is used')
  t.strictSame(image.lines, [used])
  t.equal(statSync(join(image.path, initrd)).mtimeMs, mtimeMs, 'and as it was')
  return image
}

// rules 9.4
t.test('what no initramfs is made of may change', async t => {
  const image = await packed(t)
  for (const path of [
    'var/cache/file',
    'var/cache/new',
    'var/log/messages',
    'var/lib/dpkg/status',
    'tmp/file'
  ])
    image.write(path, 'new\n')
  t.equal(await image.isBuilt(), false)
  t.equal(readFileSync(join(image.path, 'etc/read'), 'utf8'), 'etc/read\n')
  t.equal(await image.isBuilt(), false, 'a file that is read counts as before')
})

// rules 9.4
t.test('each change of what it may be made of has it built', async t => {
  const image = new Image(t)
  const isBuilt = () => image.isBuilt({ build: image.quickBuild })
  t.equal(await isBuilt(), true)
  t.equal(await isBuilt(), false)
  const inside = (path: string) => join(image.path, path)
  const sameSize = (path: string) => image.write(path, image.read(path).toUpperCase())
  const changes: Record<string, () => void> = {
    'a file in place and as long as before': () => sameSize('etc/read'),
    'the same, with its old time of modification': () => {
      const { atime, mtime } = statSync(inside('etc/target'))
      sameSize('etc/target')
      utimesSync(inside('etc/target'), atime, mtime)
    },
    'the same bytes, written again': () => image.write('etc/read', image.read('etc/read')),
    'another file in the place of one': () => {
      image.write('etc/new', image.read('etc/read'))
      renameSync(inside('etc/new'), inside('etc/read'))
    },
    'a link that leads elsewhere': () => {
      rmSync(inside('etc/link'))
      symlinkSync('read', inside('etc/link'))
    },
    'a file is added in /etc': () => image.write('etc/added', 'new\n'),
    'a file is renamed': () => renameSync(inside('etc/added'), inside('etc/other')),
    'a file is removed from /etc': () => rmSync(inside('etc/other')),
    'an empty directory': () => mkdirSync(inside('etc/empty')),
    'the first file of a directory': () => image.write('etc/empty/file', 'new\n'),
    'a file may be run': () => chmodSync(inside('opt/tool'), 0o755),
    'a directory has another owner': () => chownSync(inside('opt'), 1, 1),
    'a kernel module': () => sameSize(`usr/lib/modules/${kernel}/extra/driver.ko`),
    'a library': () => sameSize('usr/lib/libother.so'),
    'a kernel': () => image.write('boot/vmlinuz-6.1.0-10', 'new\n'),
    'the initramfs is damaged': () => appendFileSync(inside(initrd), '!'),
    'the initramfs is missing': () => rmSync(inside(initrd)),
    'the initramfs is a link': () => {
      renameSync(inside(initrd), inside('etc/initrd'))
      symlinkSync('/etc/initrd', inside(initrd))
    }
  }
  for (const path of ['usr/local/bin/hook', 'srv/listed/a', 'root/hook', 'home/user/file', 'var/lib/state'])
    changes[path] = () => sameSize(path)
  for (const [name, change] of Object.entries(changes)) {
    change()
    t.equal(await isBuilt(), true, name)
    t.match(image.lines[0], /^the initramfs is built: .* (has changed|is not the one that was built)$/, name)
    if (/link$/.test(name)) continue
    t.equal(await isBuilt(), false, `${name}: it is used then`)
  }
})

// rules 9.4
t.test('the reason says what has changed', async t => {
  const image = await packed(t, 'quick')
  image.write('etc/read', 'new\n')
  await image.isBuilt()
  t.match(image.lines[0], 'the initramfs is built: something in /etc has changed')
  image.write('opt/directory/file', 'new\n')
  await image.isBuilt()
  t.match(image.lines[0], 'the initramfs is built: something in /opt has changed')
  t.equal(await image.isBuilt({ kernelmodules: ['xfs'] }), true, 'another wish')
  t.match(image.lines[0], /its kernel, its modules, svcd or this machine is another one/)
  rmSync(join(image.path, initrd))
  await image.isBuilt({ kernelmodules: ['xfs'] })
  t.match(image.lines[0], `the initramfs is built: /${initrd} is not the one that was built`)
  t.equal(readFileSync(join(image.path, initrd), 'utf8').startsWith('new\n'), true)
})

// rules 9.4
t.test('a record that is damaged counts for nothing', async t => {
  const image = await packed(t, 'quick')
  const { record = '' } = image
  const at = record.length - 10
  for (const damaged of [
    '',
    'no record',
    record.slice(0, -1),
    record.replace(/"directories":\{[^}]*\}/, '"directories":{}'),
    `${record.slice(0, at)}${record[at] === 'A' ? 'B' : 'A'}${record.slice(at + 1)}`
  ]) {
    image.record = damaged
    t.equal(await image.isBuilt(), true)
    t.match(image.lines[0], 'the initramfs is built: nothing is known of an earlier build')
  }
})

// rules 9.4
t.test('a record of a version that went by access times leads to a build', async t => {
  const image = await packed(t, 'quick')
  const { directories, ...kept } = JSON.parse(image.record?.slice(65) ?? '')
  const old = JSON.stringify({ ...kept, seen: { listings: directories, files: {} } })
  image.record = `${createHash('sha256').update(old).digest('hex')} ${old}`
  t.equal(await image.isBuilt(), true)
  t.match(image.lines[0], 'the initramfs is built: nothing is known of an earlier build')
  t.equal(await image.isBuilt(), false)
})

// rules 9.4
t.test('where a change might not show, the next pack builds again', async t => {
  const limits = { signal: new AbortController().signal, timeLimitMs: 60_000 }
  await t.rejects(listTree('/proc/sys/vm', limits), /not known to give each change a new ctime/)
  const image = await packed(t)
  const mount = join(image.path, 'srv/listed')
  for (const words of [
    ['--bind', join(image.path, 'opt')],
    ['-t', 'tmpfs', 'other']
  ]) {
    execFileSync('mount', [...words, mount])
    image.isQuick = false
    try {
      t.equal(await image.isBuilt(), true)
      t.match(image.lines[0], 'the initramfs is built: something is mounted at /srv/listed')
      t.match(image.lines.at(-1), /^the next pack builds the initramfs again: something is mounted/)
      t.equal(image.record, undefined)
    } finally {
      execFileSync('umount', [mount])
    }
    // The tool has run beside the mount, and has no more to show.
    image.isQuick = true
    t.equal(await image.isBuilt(), true)
    t.equal(await image.isBuilt(), false)
  }
  const added = Buffer.concat([Buffer.from(`${image.path}/etc/`), Buffer.from([0xff])])
  writeFileSync(added, '')
  t.equal(await image.isBuilt(), true)
  t.match(image.lines.at(-1), /builds the initramfs again: .* has a name that is not UTF-8/)
  rmSync(added)

  const written = setInterval(() => writeFileSync(join(image.path, 'etc/target'), 'new\n'), 5)
  await t.rejects(listTree(image.path, limits), { message: '/etc/target was changed just before' })
  clearInterval(written)
  t.equal(await image.isBuilt(), true)
  t.equal(await image.isBuilt(), false)
})

// rules 9.4
t.test('what changes during a build, and a build that fails', async t => {
  const image = await packed(t)
  image.write('etc/late', 'echo changed >/etc/read\n')
  t.equal(await image.isBuilt(), true)
  image.write('etc/late', '')
  t.equal(await image.isBuilt(), true, 'a file that changed during the build after it was read')
  t.equal(await image.isBuilt(), false)

  const ours = image.record
  t.equal(await image.isBuilt({ build: async () => Promise.reject(new Error('no')) }), false)
  writeFileSync(join(image.path, 'etc/read'), 'new\n')
  await t.rejects(image.isBuilt({ build: async () => Promise.reject(new Error('no')) }), { message: 'no' })
  t.equal(image.record, ours)
  t.equal(await image.isBuilt(), true, 'after a build that failed')
})

// rules 9.4
t.test('an initramfs without measure is not read to its end', async t => {
  const image = new Image(t)
  const build = async () => {
    image.write(initrd, '')
    truncateSync(join(image.path, initrd), 2 ** 33)
    return { tool: 'dracut' as const, initrd }
  }
  t.equal(await image.isBuilt({ build }), true)
  t.match(image.lines.at(-1), /builds the initramfs again: .* is larger than 4 GiB/)
})
