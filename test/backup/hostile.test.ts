import { randomBytes } from 'node:crypto'
import {
  chmodSync,
  existsSync,
  lchownSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync
} from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { isOwnEntry } from '../../lib/backup/state-names.js'
import { backup } from '../../lib/cli/backup.js'
import { restore } from '../../lib/cli/restore.js'
import { loadConfig } from '../../lib/config/load.js'
import { fuzzSeed, Random } from '../fuzz/random.js'
import { builtTree, svcd } from '../support/built-tree.js'
import { output, requireRoot } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { archiveOf, bare, generated, plain, type RawEntry, rawEntry, sealed } from './hostile-archives.js'

requireRoot()
const rounds = process.env.SVCD_LONG === undefined ? 60 : 20_000

// Each restore waits for its file system: that of the checkout is slow.
const top = scratch(t)
await output('mount', ['-t', 'tmpfs', '-o', 'size=256m,mode=0755', 'none', top])
t.teardown(() => output('umount', ['--lazy', top]))

/** A machine without svcd, beside a directory that is none of a restore's business. */
function machine() {
  const directory = join(top, randomBytes(4).toString('hex'))
  const at = (...names: string[]) => join(directory, ...names)
  mkdirSync(at('outside/below'), { recursive: true })
  writeFileSync(at('outside/kept'), 'of root\n')
  writeFileSync(at('outside/below/kept'), 'of root\n')
  const set = [
    ...['state', 'files', 'templates', 'roles', 'scripts'].map(name => `paths.${name}=${at(name)}`),
    `image.directory=${at('images')}`,
    'http.url=http://10.141.255.254:7050',
    'controller.address=10.141.255.254'
  ]
  const file = at('backup.tar')
  const run = async (content?: Buffer, force = false) => {
    if (content) writeFileSync(file, content)
    return restore({ file, ini: at('etc/svcd.ini'), set, force })
  }
  return { at, set, run, remove: () => rmSync(directory, { recursive: true }) }
}

type Machine = ReturnType<typeof machine>

/** All that a file system tells of what is below a directory: any change of it shows. */
function all(directory: string): Record<string, string> {
  const found: Record<string, string> = {}
  const add = (path: string) => {
    const { ino, mode, uid, gid, nlink, size, ctimeNs } = lstatSync(path, { bigint: true })
    found[path] = `${ino} ${mode} ${uid} ${gid} ${nlink} ${size} ${ctimeNs}`
    if ((mode & 0o170000n) === 0o040000n) for (const name of readdirSync(path)) add(join(path, name))
  }
  add(directory)
  return found
}

const kindOf = (path: string) => {
  const stat = lstatSync(path)
  return stat.isFile() ? 'file' : stat.isDirectory() ? 'directory' : stat.isSymbolicLink() ? 'link' : 'other'
}

/**
 * What is wrong with the places of a machine after a restore, or a refusal; nothing of it may depend on the
 * backup.
 */
function faults({ at }: Machine, isRestored: boolean): string[] {
  const wrong: string[] = []
  const known = ['backup.tar', 'etc', 'files', 'images', 'outside', 'roles', 'scripts', 'state', 'templates']
  for (const name of readdirSync(at())) if (!known.includes(name)) wrong.push(`${name} is new`)
  for (const place of ['state', 'files', 'etc', 'roles', 'scripts', 'templates']) {
    if (!existsSync(at(place))) continue
    for (const name of readdirSync(at(place), { recursive: true }) as string[]) {
      const path = join(at(place), name)
      const { mode, nlink } = lstatSync(path)
      const kind = kindOf(path)
      if (kind !== 'file' && kind !== 'directory') wrong.push(`${place}/${name} is a ${kind}`)
      if (kind === 'file' && nlink !== 1) wrong.push(`${place}/${name} has another name`)
      if ((mode & 0o7000) !== 0) wrong.push(`${place}/${name} has mode ${mode.toString(8)}`)
      if (place === 'state' && name.startsWith('restore.')) wrong.push(`${name} is left`)
      if (!isRestored && place !== 'state') wrong.push(`${place}/${name} is there`)
    }
  }
  if (!isRestored && existsSync(at('state')) && readdirSync(at('state')).some(isOwnEntry))
    wrong.push('a state is there')
  for (const name of existsSync(at('images')) ? readdirSync(at('images')) : []) {
    if (kindOf(at('images', name)) !== 'directory') wrong.push(`images/${name} is no directory`)
    if (name.startsWith('.') || !isRestored) wrong.push(`images/${name} is there`)
  }
  return wrong
}

/** Whether a backup was restored, after a look at everything. */
async function tried(t: Test, content: Buffer, name: string): Promise<string | undefined> {
  const m = machine()
  const before = all(m.at('outside'))
  let refusal: string | undefined
  await m.run(content).catch(({ message }: Error) => {
    refusal = message
  })
  const changed = JSON.stringify(all(m.at('outside'))) !== JSON.stringify(before)
  const wrong = [...faults(m, refusal === undefined), ...(changed ? ['what is outside has changed'] : [])]
  if (wrong.length > 0) t.fail(name, { wrong, refusal })
  m.remove()
  return refusal
}

// rules 11.13
t.test('entries that svcd backup never writes are refused, and nothing is made', async t => {
  // From where images, and packed files, are unpacked, this is the directory beside the places of the ini.
  const outside = '../../outside'
  const attacks: Record<string, readonly RawEntry[]> = {
    'images/ is a link': [{ path: 'images/', type: '2', link: outside }],
    'files/ is a link': [{ path: 'files/', type: '2', link: outside }],
    'state/ is a link': [{ path: 'state/', type: '2', link: outside }],
    'config/ is a link': [{ path: 'config/', type: '2', link: outside }],
    'the same after the directory': [
      { path: 'images/', type: '5' },
      { path: 'images/', type: '2', link: outside }
    ],
    'an image is a link': [{ path: 'images/other', type: '2', link: '/etc' }],
    'an image is a file': [{ path: 'images/other', content: 'x' }],
    'an image with a hidden name': [{ path: 'images/.svcd-0123456789abcdef/', type: '5' }],
    'an image whose name is no UTF-8': [{ path: 'images/\ufffd/', type: '5' }],
    'a device among the packed files': [{ path: 'files/mem', type: '3' }],
    'a pipe among the packed files': [{ path: 'files/pipe', type: '6' }],
    'a link among the packed files': [{ path: 'files/other', type: '2', link: '/etc/shadow' }],
    'a hard link among the packed files': [{ path: 'files/other', type: '1', link: 'state/admin-password' }],
    'the ini is a link': [{ path: 'config/svcd.ini', type: '2', link: '/etc/shadow' }],
    'a role is a link': [{ path: 'config/roles/other', type: '2', link: '/etc/shadow' }],
    'a role is a hard link': [{ path: 'config/roles/other', type: '1', link: 'config/svcd.ini' }],
    'a file twice': [{ path: 'files/compute.tar.gz', content: 'other' }],
    'the ini twice': [{ path: 'config/svcd.ini', content: '# other\n' }],
    'a file where a directory is': [{ path: 'state/network', content: 'x' }],
    'a file below a file': [{ path: 'state/admin-password/x', content: 'x' }],
    'an absolute name': [{ path: '/images/x', content: 'x' }],
    'two dots': [{ path: 'images/compute/../../x', content: 'x' }],
    'two dots of an extended header': [
      { path: 'images/compute/x', pax: { path: 'images/../../x' }, content: 'x' }
    ],
    'a global header': [{ path: 'x', type: 'g', content: '20 path=images/abc\n' }],
    'a long name of GNU': [{ path: '././@LongLink', type: 'L', content: 'images/x' }],
    'a size beyond the end': [{ path: 'files/x', size: 2 ** 30 }],
    'a negative size': [{ path: 'files/x', size: -1 }],
    'a huge size of an extended header': [{ path: 'files/x', pax: { size: '99999999999999999999' } }],
    'content of a link': [{ path: 'images/compute/x', type: '2', link: 'y', content: 'x' }]
  }
  for (const [name, entries] of Object.entries(attacks)) {
    const isTop = /^\w+\/$/.test(entries[0]?.path ?? '')
    const refusal = await tried(t, archiveOf([...(isTop ? bare : plain), ...entries]), name)
    t.match(refusal, /^\S+backup\.tar: .*; nothing is restored$/, name)
  }
  const whole = archiveOf(plain).subarray(0, -2048)
  for (const [name, body] of [
    ['cut off in an entry', whole.subarray(0, -512)],
    [
      'an extended header without a file',
      Buffer.concat([whole, rawEntry({ path: 'x', type: 'x', content: '10 size=0\n' })])
    ],
    ['it ends before its end', Buffer.concat([whole, Buffer.alloc(1024), whole])]
  ] as const)
    t.match(await tried(t, sealed(body), name), /no entry that svcd backup writes begins at byte/, name)
  t.equal(await tried(t, archiveOf(plain), 'a plain one'), undefined)
})

// rules 11.13
t.test('what an image holds comes back below it: links, devices, setuid files, odd names', async t => {
  const m = machine()
  await m.run(archiveOf(plain))
  const image = (name: string) => m.at('images/compute', name)
  symlinkSync('/etc/shadow', image('absolute'))
  symlinkSync('../../../outside', image('upwards'))
  writeFileSync(image('setuid'), 'x')
  chmodSync(image('setuid'), 0o4755)
  lchownSync(image('setuid'), 1234, 1235)
  linkSync(image('etc/hostname'), image('other'))
  await output('mknod', [image('null'), 'c', '1', '3'])
  await output('mkfifo', [image('pipe')])
  writeFileSync(image('a\nb'), 'x')
  await output('truncate', ['--size=1M', image('sparse')])
  await output('setfattr', ['-n', 'trusted.x', '-v', 'a\n10 size=0\n', image('etc/hostname')])
  // Read by lines, the extended header of this one says that it is empty, and that its content is the next
  // entry.
  const smuggled = rawEntry({ path: 'config/roles/smuggled', content: '#!/bin/sh\n' })
  writeFileSync(image(`${'n'.repeat(120)}\n10 size=0`), smuggled)
  mkdirSync(m.at('state/node'), { recursive: true })
  writeFileSync(m.at('state/node', `${'n'.repeat(120)}\n10 size=0`), smuggled)
  const taken = m.at('backup.tar')
  await backup(loadConfig(m.at('etc/svcd.ini'), m.set), taken, true)

  const other = machine()
  await other.run(readFileSync(taken))
  t.notOk(existsSync(other.at('roles/smuggled')), 'the content of a file is no entry')
  const told = (path: string) => {
    const { mode, uid, gid, rdev, nlink, size } = lstatSync(path)
    const content =
      kindOf(path) === 'file'
        ? readFileSync(path, 'latin1')
        : kindOf(path) === 'link'
          ? readlinkSync(path)
          : ''
    return { mode, uid, gid, rdev, nlink, size: kindOf(path) === 'directory' ? 0 : size, content }
  }
  const names = (readdirSync(m.at('images'), { recursive: true }) as string[]).sort()
  t.strictSame((readdirSync(other.at('images'), { recursive: true }) as string[]).sort(), names)
  t.equal(names.length, 12)
  for (const name of names) t.strictSame(told(other.at('images', name)), told(m.at('images', name)), name)
  t.equal(
    await output('getfattr', ['--only-values', '-n', 'trusted.x', other.at('images/compute/etc/hostname')]),
    'a\n10 size=0\n'
  )
  const kept = `state/node/${'n'.repeat(120)}\n10 size=0`
  t.equal(readFileSync(other.at(kept), 'latin1'), smuggled.toString('latin1'))
})

// rules 11.13
t.test('root goes through no link of user svcd, also one that comes meanwhile', async t => {
  const directory = t.testdir()
  const tree = join(directory, 'lib/svcd')
  mkdirSync(tree, { recursive: true })
  builtTree(tree)
  const m = machine()
  mkdirSync(join(directory, 'lib/systemd/system'), { recursive: true })
  writeFileSync(
    join(directory, 'lib/systemd/system/svcd.service'),
    `[Service]\nUser=nobody\nExecStart=/x/svcd serve --config ${m.at('etc/svcd.ini')}\n`
  )
  const content = archiveOf([...plain, { path: 'files/sub/x', content: 'packed' }])
  writeFileSync(m.at('backup.tar'), content)
  const command = () =>
    svcd(tree, [
      'restore',
      '--force',
      m.at('backup.tar'),
      '--config',
      m.at('etc/svcd.ini'),
      ...m.set.flatMap(key => ['--set', key])
    ])
  const first = await command()
  t.equal(first.code, 0, first.stderr)
  const svcdUid = 65534
  t.equal(lstatSync(m.at('files/compute.tar.gz')).uid, svcdUid)
  t.equal(lstatSync(m.at('files/sub/x')).uid, svcdUid)
  t.equal(lstatSync(m.at('state')).uid, 0)
  t.equal(lstatSync(m.at('state/admin-password')).uid, svcdUid)
  const before = all(m.at('outside'))
  const isAsBefore = (name: string) =>
    t.strictSame(all(m.at('outside')), before, `${name}: nothing outside changes`)
  // Names that are links already.
  for (const name of ['files/sub', 'files/compute.tar.gz']) {
    rmSync(m.at(name), { recursive: true })
    symlinkSync(m.at('outside'), m.at(name))
    lchownSync(m.at(name), svcdUid, svcdUid)
    const { code } = await command()
    t.equal(code, name === 'files/sub' ? 1 : 0, name)
    isAsBefore(name)
    rmSync(m.at(name), { recursive: true })
    t.equal((await command()).code, 0, `${name}: the same command ends it`)
  }
  for (const name of ['files', 'images', 'roles', 'state/replaced']) {
    rmSync(m.at(name), { recursive: true, force: true })
    symlinkSync(m.at('outside'), m.at(name))
    lchownSync(m.at(name), svcdUid, svcdUid)
    const { code, stderr } = await command()
    t.equal(code, 1, name)
    t.match(stderr, /is a link that belongs to user 65534|is no directory: remove it/, name)
    isAsBefore(name)
    rmSync(m.at(name))
  }
  t.equal((await command()).code, 0)
  // Names that change all the time, by user svcd.
  const swapping = [
    'import os, sys',
    'os.setgid(65534); os.setuid(65534)',
    'files, outside = sys.argv[1:]',
    'os.chdir(files)',
    'print("ready", flush=True)',
    'while True:',
    '  for name in os.listdir("."):',
    '    try:',
    '      os.rename(name, ".aside"); os.symlink(outside, name); os.unlink(name); os.rename(".aside", name)',
    '    except OSError: pass'
  ].join('\n')
  const { start } = await import('../support/child.js')
  const child = start('/usr/bin/python3', ['-c', swapping, m.at('files'), m.at('outside')])
  for (let i = 0; i < (process.env.SVCD_LONG === undefined ? 3 : 200); i++) await command()
  child.process.kill('SIGKILL')
  await child.ended
  isAsBefore('files that are swapped')
})

// rules 11.13
t.test(`${rounds} generated backups: nothing but the places of the ini changes`, async t => {
  const seed = fuzzSeed()
  const random = new Random(seed)
  const known = archiveOf([...plain, { path: 'images/', type: '2', link: join(top, 'x') }])
  t.ok(await tried(t, known, 'a link in the place of images'), 'the fuzzer sees what is refused')
  const refusals = new Map<string, number>()
  const root = readdirSync('/').join()
  const passwd = all('/etc/passwd')
  for (let i = 0; i < rounds; i++) {
    const m = machine()
    const before = JSON.stringify(all(m.at('outside')))
    let refusal = 'restored'
    await m.run(generated(random, m.at('outside'))).catch(({ message }: Error) => {
      refusal =
        /does not belong|stands there|begins at byte|no whole|no state|no directory of an image|tar cannot unpack|has format/.exec(
          message
        )?.[0] ?? message
    })
    refusals.set(refusal, (refusals.get(refusal) ?? 0) + 1)
    const wrong = faults(m, refusal === 'restored')
    if (JSON.stringify(all(m.at('outside'))) !== before) wrong.push('what is outside has changed')
    if (wrong.length > 0) t.fail(`seed ${seed}, backup ${i}`, { wrong, refusal })
    m.remove()
  }
  t.equal(readdirSync('/').join(), root)
  t.strictSame(all('/etc/passwd'), passwd)
  const count = (what: string) => refusals.get(what) ?? 0
  t.ok(count('restored') > rounds / 50, 'some are restored')
  const told = [...refusals].sort(([, a], [, b]) => b - a).slice(0, 30)
  t.comment(
    `seed ${seed}: ${rounds} backups: ${told.map(([what, n]) => `${n} ${what.replaceAll('\n', ' ').slice(0, 120)}`).join('; ')}`
  )
})

t.test('a pipe is no backup, and nobody waits for its writer', { timeout: 20_000 }, async t => {
  const pipe = join(top, 'pipe')
  await output('mkfifo', [pipe])
  const asked = restore({ file: pipe, ini: '/nonexistent/ini', set: [], force: false })
  await t.rejects(asked, /is no regular file: copy the backup to one/)
})
