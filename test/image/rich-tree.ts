import { execFileSync } from 'node:child_process'
import {
  chmodSync,
  chownSync,
  closeSync,
  ftruncateSync,
  lchownSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  rmSync,
  symlinkSync,
  writeFileSync,
  writeSync
} from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'
import { checkout, requirePrograms } from '../support/programs.js'

export const run = (program: string, ...args: string[]) => execFileSync(program, args, { stdio: 'pipe' })

/** What these tests make (owners, devices, mounts, capabilities) is root's to make. */
export function requireRootAndPrograms(): void {
  if (process.getuid?.() !== 0)
    throw new Error('owners, device nodes and mounts need root: run the tests as root (sudo make test)')
  requirePrograms(
    'tar',
    'zstd',
    'pigz',
    'getfattr',
    'setfattr',
    'setfacl',
    'setcap',
    'mknod',
    'mkfifo',
    'touch'
  )
}

/**
 * A directory of its own, by its real path, that is removed at the end of the test; on a file system with
 * extended attributes of users, which a tmpfs of older kernels does not have.
 */
export function workDirectory(test: Test): string {
  for (const parent of [tmpdir(), join(checkout, '.cache')]) {
    mkdirSync(parent, { recursive: true })
    const directory = mkdtempSync(join(parent, 'svcd-image-'))
    test.teardown(() => run('rm', '-rf', '--one-file-system', directory))
    try {
      run('setfattr', '-n', 'user.svcd', '-v', 'x', directory)
      return run('realpath', directory).toString().trim()
    } catch {
      // The next one.
    }
  }
  throw new Error('no temporary directory has user.* extended attributes: set TMPDIR to one that has')
}

const bytes = (directory: string, name: string) => Buffer.from(`${directory}/${name}`, 'latin1')

/** One character per byte: in UTF-8, but for the last three. */
export const NAMES = [
  'new\nline',
  ' blank ',
  'quote\'"`',
  '-rf',
  '--checkpoint-action=exec=touch pwned',
  '$(touch pwned)',
  '; touch pwned',
  'back\\slash\\012',
  '*',
  '[a-z]',
  'a\ttab\rreturn\u001b[31m',
  '@file',
  'C:\\drive',
  'k\u00c3\u00a4se',
  'n'.repeat(255),
  'tar: #7',
  '\nsvcd\ntar: #9\n'
]
export const NAMES_NOT_UTF8 = ['\u00ff\u00fe', 'caf\u00e9', `${'\u00e9'.repeat(200)}`]

/** A tree with every kind of file that an image can have, and some that none should. */
export function richTree(test: Test, tree: string): void {
  mkdirSync(tree)
  for (const name of [...NAMES, ...NAMES_NOT_UTF8]) {
    writeFileSync(bytes(tree, name), name)
    mkdirSync(bytes(`${tree}`, `d${name}`.slice(0, 255)))
    writeFileSync(bytes(`${tree}`, `${`d${name}`.slice(0, 255)}/in`), 'in')
  }
  const at = (name: string) => join(tree, name)
  mkdirSync(at(`deep/${Array.from({ length: 30 }, (_, i) => `directory-${i}`).join('/')}`), {
    recursive: true
  })

  symlinkSync('nowhere', at('dangling'))
  symlinkSync('/etc/passwd', at('absolute'))
  symlinkSync('../../../../etc/shadow', at('out'))
  symlinkSync(`far/${'x'.repeat(200)}`, at('long-link'))
  symlinkSync(Buffer.from([0xff, 0x2f, 0xfe]), at('link-not-utf8'))
  lchownSync(at('dangling'), 7, 8)

  writeFileSync(at('first'), 'three names')
  linkSync(at('first'), at('second'))
  linkSync(at('first'), at('deep/third'))
  run('mkfifo', at('fifo'))
  linkSync(at('out'), at('out-again'))
  run('mknod', at('null'), 'c', '1', '3')
  run('mknod', at('wide'), 'c', '300', '1000000')
  run('mknod', at('disk'), 'b', '8', '1')
  const server = createServer().listen(at('socket'))
  test.teardown(() => new Promise(done => server.close(done)))

  for (const [name, mode, uid, gid] of [
    ['setuid', 0o4755, 0, 0],
    ['setgid', 0o2755, 0, 5],
    ['none', 0, 12345, 54321],
    ['large-owner', 0o640, 3_000_000, 4_000_000_000]
  ] as const) {
    writeFileSync(at(name), name)
    chownSync(at(name), uid, gid)
    chmodSync(at(name), mode)
  }
  for (const [name, mode] of [
    ['mail', 0o2775],
    ['tmp', 0o1777],
    ['closed', 0o700]
  ] as const) {
    mkdirSync(at(name))
    chownSync(at(name), 1, 8)
    chmodSync(at(name), mode)
  }

  const sparse = openSync(at('sparse'), 'w')
  for (const position of [0, 1_000_000, 5_000_001]) writeSync(sparse, 'data', position)
  ftruncateSync(sparse, 8_000_000)
  closeSync(sparse)
  ftruncate(at('only-hole'), 3_000_000)
  writeFileSync(at('empty'), '')
  for (const size of [511, 512, 513, 300_000]) writeFileSync(at(`size-${size}`), Buffer.alloc(size, 'ab'))

  for (const name of ['with-acl', 'with-attributes', 'with-capability', 'with-label'])
    writeFileSync(at(name), name)
  run('setfacl', '-m', 'u:0:rw,u:4711:rwx,g:0:r,m::rx', at('with-acl'))
  run('setfacl', '-d', '-m', 'g:50:rwx,u:4711:---', at('mail'))
  run('setfattr', '-n', 'user.text', '-v', 'a\nb=c', at('with-attributes'))
  run('setfattr', '-n', 'user.empty', '-v', '', at('with-attributes'))
  run('setfattr', '-n', 'user.binary', '-v', '0x00ff0a00', at('with-attributes'))
  run('setfattr', '-n', 'trusted.svcd', '-v', 'x', at('with-attributes'))
  run('setfattr', '-n', 'user.on-directory', '-v', 'x', at('tmp'))
  run('setcap', 'cap_net_raw,cap_net_bind_service+ep', at('with-capability'))
  // As SELinux writes it, with a NUL; nothing here enforces it.
  const label = `0x${Buffer.from('system_u:object_r:etc_t:s0\0').toString('hex')}`
  run('setfattr', '-n', 'security.selinux', '-v', label, at('with-label'))

  for (const [name, time] of [
    ['first', '2001-02-03 04:05:06.123456789'],
    ['absolute', '2002-02-03 04:05:06.999999999'],
    ['null', '1999-12-31 23:59:59.5'],
    ['empty', '1969-12-31 23:00:00.25'],
    ['size-512', '1901-01-01 00:00:00'],
    ['none', '2099-01-01 00:00:00.000000001'],
    ['closed', '2010-10-10 10:10:10'],
    ['.', '2020-02-02 02:02:02.020202020']
  ] as const)
    run('touch', '--no-dereference', '--date', `${time} UTC`, at(name))
}

function ftruncate(file: string, size: number): void {
  const fd = openSync(file, 'w')
  ftruncateSync(fd, size)
  closeSync(fd)
}

/** Unpacks with GNU tar, as root, all that an archive carries, into a new directory. */
export function unpack(archive: string, directory: string, ...more: string[]): void {
  rmSync(directory, { recursive: true, force: true })
  mkdirSync(directory)
  const words = ['--extract', '--preserve-permissions', '--numeric-owner', '--xattrs', '--xattrs-include=*']
  run('tar', ...words, ...more, `--file=${archive}`, `--directory=${directory}`)
}
