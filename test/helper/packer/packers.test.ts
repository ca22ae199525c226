import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { ServiceError } from '../../../lib/base/errors.js'
import { walk } from '../../../lib/helper/packer/archive.js'
import { choosePacker } from '../../../lib/helper/packer/choose-packer.js'
import { hashFile } from '../../../lib/helper/packer/in-worker.js'
import type { Packer } from '../../../lib/helper/packer/packer.js'
import { compareTrees } from '../../image/compare-trees.js'
import { onlyPrograms, request } from '../../image/packing.js'
import {
  NAMES_NOT_UTF8,
  requireRootAndPrograms,
  richTree,
  run,
  unpack,
  workDirectory
} from '../../image/rich-tree.js'

requireRootAndPrograms()

const sha256 = (file: string) => createHash('sha256').update(readFileSync(file)).digest('hex')

const members = (archive: string) =>
  execFileSync('tar', ['--list', '--quoting-style=escape', `--file=${archive}`], { encoding: 'latin1' })
    .trimEnd()
    .split('\n')

/** What a mount hides and shows: a tmpfs, a directory of this disk from outside, a file from outside. */
function mountThings(t: Test, directory: string, tree: string): void {
  mkdirSync(join(directory, 'outside'))
  writeFileSync(join(directory, 'outside/secret'), 'secret')
  const mount = (point: string, ...words: string[]) => {
    run('mount', ...words, join(tree, point))
    t.teardown(() => run('umount', join(tree, point)))
  }
  for (const name of ['proc', 'bound * [x]', 'proc2']) mkdirSync(join(tree, name))
  writeFileSync(join(tree, 'resolv.conf'), 'hidden by a mount')
  writeFileSync(join(tree, 'proc2/kept'), 'not mounted')
  mount('proc', '-t', 'tmpfs', 'tmpfs')
  writeFileSync(join(tree, 'proc/secret'), 'secret')
  mkdirSync(join(tree, 'proc/inner'))
  mount('proc/inner', '-t', 'tmpfs', 'tmpfs')
  mount('bound * [x]', '--bind', join(directory, 'outside'))
  mount('resolv.conf', '--bind', join(directory, 'outside/secret'))
}

/** The same tree gives the same bytes, though it was read meanwhile, and whenever that is. */
async function packsAlike(t: Test, packer: Packer, tree: string, sum: string): Promise<void> {
  run('touch', '--time=atime', join(tree, 'first'), join(tree, 'sparse'))
  const output = join(tree, '../again')
  t.equal((await packer.pack(request(tree, output))).sha256, sum)
  rmSync(output)
}

t.test('the system packer: what is unpacked is what was packed', async t => {
  const directory = workDirectory(t)
  const tree = join(directory, 'tree')
  richTree(t, tree)
  for (const [compressor, suffix] of [
    ['zstd', '.tar.zst'],
    ['pigz', '.tar.gz'],
    ['none', '.tar']
  ] as const) {
    const packer = await choosePacker('system', compressor)
    t.strictSame([packer.name, packer.suffix], ['system', suffix])
    const output = join(directory, `image${suffix}`)
    const asked = request(tree, output)
    const packed = await packer.pack(asked)
    t.strictSame(packed, {
      sha256: sha256(output),
      bytes: statSync(output).size,
      omitted: ['sockets are left out (1): ./socket']
    })
    t.equal(statSync(output).mode & 0o777, 0o600)
    t.strictSame(asked.lines, [])
    t.ok(members(output).every(name => name.startsWith('./')))
    // The lists are there twice: tar's own are taken with --acls.
    unpack(output, join(directory, 'unpacked'), ...(compressor === 'none' ? ['--acls', '--selinux'] : []))
    t.strictSame(await compareTrees(tree, join(directory, 'unpacked'), { without: ['./socket'] }), [])
    if (compressor === 'none')
      t.ok(readFileSync(output).includes('RHT.security.selinux=system_u:object_r:etc_t:s0\n'))
    else await packsAlike(t, packer, tree, packed.sha256)
  }
})

t.test('the builtin packer: what is unpacked is what was packed, but for what it names', async t => {
  const directory = workDirectory(t)
  const tree = join(directory, 'tree')
  richTree(t, tree)
  const packer = await choosePacker('builtin', 'zstd')
  t.strictSame([packer.name, packer.suffix], ['builtin', '.tar.gz'])
  const output = join(directory, 'image.tar.gz')
  const { sha256: sum, bytes, omitted } = await packer.pack(request(tree, output))
  t.strictSame([sum, bytes], [sha256(output), statSync(output).size])
  t.strictSame(omitted, [
    'extended attributes, access control lists, file capabilities and SELinux labels are not carried',
    'modification times are kept to the millisecond',
    'files with a name or a link target that is not UTF-8 are left out (7): ./caf\\351, ./dcaf\\351, ' +
      `./d${'\\351'.repeat(200)}, ./d\\377\\376, ./link-not-utf8, ./${'\\351'.repeat(200)}, ./\\377\\376`,
    'files that take less disk than their size (sparse ones) are packed in full (2): ./only-hole, ./sparse',
    'sockets are left out (1): ./socket'
  ])
  unpack(output, join(directory, 'unpacked'))
  const without = [
    './socket',
    './link-not-utf8',
    ...NAMES_NOT_UTF8.flatMap(name => [`./${name}`, `./d${name}`])
  ]
  const compared = { attributes: false, nanoseconds: false, holes: false, without }
  const differences = await compareTrees(tree, join(directory, 'unpacked'), compared)
  // A time before 1970 has whole seconds in such an archive.
  t.strictSame(differences, ['./empty: time is -3600000, was -3599750'])
  t.ok(members(output).every(name => name.startsWith('./')))
  await packsAlike(t, packer, tree, sum)
})

t.test(
  'owners and the users in access control lists are numbers: unpacked where no name is known',
  async t => {
    const directory = workDirectory(t)
    const tree = join(directory, 'tree')
    mkdirSync(tree)
    writeFileSync(join(tree, 'file'), '')
    run('chown', '1:8', join(tree, 'file'))
    run('setfacl', '-m', 'u:daemon:rwx,g:mail:r', join(tree, 'file'))
    const output = join(directory, 'image.tar')
    await (await choosePacker('system', 'none')).pack(request(tree, output))
    t.match(run('tar', '--list', '--verbose', '--file', output).toString(), / 1\/8 .* \.\/file\n/)
    const script =
      'mount --bind /dev/null /etc/passwd && mount --bind /dev/null /etc/group && mkdir "$1" && ' +
      'exec tar --extract --numeric-owner --xattrs "--xattrs-include=*" --file "$2" --directory "$1"'
    run('unshare', '--mount', 'sh', '-c', script, 'sh', join(directory, 'unpacked'), output)
    t.strictSame(await compareTrees(tree, join(directory, 'unpacked')), [])
  }
)

t.test('what is mounted in an image stays out, its mount point stays in', async t => {
  for (const packer of [await choosePacker('auto', 'none'), await choosePacker('builtin', 'none')])
    await t.test(packer.name, async t => {
      const directory = workDirectory(t)
      const tree = join(directory, 'tree')
      mkdirSync(tree)
      writeFileSync(join(tree, 'file'), '')
      mountThings(t, directory, tree)
      // One that was mounted unseen lies on another device.
      const unaware = [...walk({ tree, leaveOut: () => false, mounts: new Set() })].map(({ path }) => path)
      t.strictSame(
        unaware.filter(path => path.startsWith('./proc/')),
        []
      )
      const output = join(directory, `image${packer.suffix}`)
      const { omitted } = await packer.pack(request(tree, output))
      t.strictSame(members(output), ['./', './bound * [x]/', './file', './proc/', './proc2/', './proc2/kept'])
      const sentence = 'what is mounted in the image or lies on another file system is left out (3): '
      const left = omitted.filter(text => text.startsWith(sentence)).map(text => text.slice(sentence.length))
      t.strictSame(
        left.flatMap(text => text.split(', ').sort()),
        ['./bound * [x]', './proc', './resolv.conf']
      )
    })
})

t.test('the packer that the ini names, or an answer that says what is missing', async t => {
  await t.test('without GNU tar', async t => {
    onlyPrograms(t, workDirectory(t), { tar: 'echo bsdtar 3.6.2', zstd: true })
    t.equal((await choosePacker('auto', 'zstd')).name, 'builtin')
    t.equal((await choosePacker('builtin', 'zstd')).name, 'builtin')
    await t.rejects(
      choosePacker('system', 'zstd'),
      new ServiceError(503, 'GNU tar is not installed, which [image] packer = system needs')
    )
  })
  await t.test('without the compressor', async t => {
    onlyPrograms(t, workDirectory(t), { tar: true, zstd: true })
    t.equal((await choosePacker('system', 'zstd')).suffix, '.tar.zst')
    t.equal((await choosePacker('system', 'none')).suffix, '.tar')
    for (const packer of ['auto', 'system'] as const)
      await t.rejects(
        choosePacker(packer, 'pigz'),
        new ServiceError(503, 'pigz is not installed, which [image] compressor = pigz needs')
      )
  })
})

t.test('the checksum of a file', async t => {
  const file = join(workDirectory(t), 'file')
  writeFileSync(file, 'x'.repeat(3_000_001))
  t.strictSame(await hashFile(file), { sha256: sha256(file), bytes: 3_000_001 })
  await t.rejects(hashFile(`${file}-missing`), /file-missing failed: ENOENT/)
  await t.rejects(hashFile(file, AbortSignal.abort()), /stopped/)
  const controller = new AbortController()
  const hashing = hashFile(file, controller.signal)
  controller.abort()
  await t.rejects(hashing, /stopped/)
})
