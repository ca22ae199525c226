import { ftruncateSync, openSync, statSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { removeTree } from '../../lib/disk/open-directory.js'
import { walk } from '../../lib/helper/packer/archive.js'
import { choosePacker } from '../../lib/helper/packer/choose-packer.js'
import { type Compared, compareTrees } from '../image/compare-trees.js'
import { request } from '../image/packing.js'
import { requireRootAndPrograms, run, unpack, workDirectory } from '../image/rich-tree.js'
import { debianTree } from './debian-tree.js'

requireRootAndPrograms()

/** A copy of a real Debian, with what its packages leave to an admin: lists, attributes, a sparse log. */
async function image(t: Test): Promise<{ directory: string; tree: string }> {
  const source = await debianTree({
    packages: ['iputils-ping', 'libcap2-bin', 'openssh-server', 'systemd-sysv']
  })
  const directory = workDirectory(t)
  const tree = join(directory, 'tree')
  run('cp', '--archive', '--one-file-system', source, tree)
  run('setfacl', '-m', 'g:adm:rx,u:daemon:rwx,d:g:adm:rx', join(tree, 'var/log'))
  run('setfattr', '-n', 'user.origin', '-v', 'debootstrap', join(tree, 'etc/os-release'))
  run('setfattr', '-n', 'security.selinux', '-v', 'system_u:object_r:etc_t:s0', join(tree, 'etc/passwd'))
  const log = openSync(join(tree, 'var/log/lastlog'), 'w')
  writeSync(log, 'root', 0)
  writeSync(log, 'user', 292_000_000)
  ftruncateSync(log, 300_000_000)
  return { directory, tree }
}

/** What such a tree must have for the comparison to say something. */
function hasEverything(t: Test, tree: string): void {
  const stats = [...walk({ tree, leaveOut: () => false, mounts: new Set() })].map(({ stat }) => stat)
  t.ok(stats.length > 5000)
  t.ok(stats.some(stat => stat.isCharacterDevice()))
  t.ok(stats.some(stat => stat.isFile() && stat.nlink > 1n))
  t.ok(stats.some(stat => stat.isFile() && stat.mode & 0o4000n))
  t.ok(stats.some(stat => stat.isDirectory() && stat.mode & 0o2000n))
  t.ok(stats.some(stat => stat.gid !== 0n))
  t.match(run('getcap', '-r', join(tree, 'usr/bin')).toString(), 'cap_net_raw')
}

t.test('a real Debian, packed and unpacked again, is what it was', { timeout: 3_600_000 }, async t => {
  const { directory, tree } = await image(t)
  hasEverything(t, tree)
  const output = join(directory, 'image')
  for (const [name, compressor, compared] of [
    ['system', 'zstd', {}],
    ['system', 'pigz', {}],
    ['system', 'none', {}],
    ['builtin', 'zstd', { attributes: false, nanoseconds: false, holes: false }]
  ] as readonly ['system' | 'builtin', 'zstd' | 'pigz' | 'none', Compared][]) {
    const packer = await choosePacker(name, compressor)
    const asked = request(tree, output)
    const start = performance.now()
    const { omitted } = await packer.pack(asked)
    const seconds = ((performance.now() - start) / 1000).toFixed(1)
    t.comment(`${name} ${packer.suffix}: ${statSync(output).size} bytes in ${seconds} s`)
    t.strictSame(asked.lines, [])
    t.strictSame(
      omitted,
      name === 'system'
        ? []
        : [
            'extended attributes, access control lists, file capabilities and SELinux labels are not carried',
            'modification times are kept to the millisecond',
            'files that take less disk than their size (sparse ones) are packed in full (1): ./var/log/lastlog'
          ]
    )
    unpack(output, join(directory, 'unpacked'))
    t.strictSame(await compareTrees(tree, join(directory, 'unpacked'), compared), [])
    await removeTree(join(directory, 'unpacked'))
    run('rm', output)
  }
})
