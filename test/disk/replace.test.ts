import {
  chownSync,
  constants,
  lchownSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  unlinkSync,
  writeFileSync
} from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { isBackedUp, isOwnEntry } from '../../lib/backup/state-names.js'
import { isLeftover, removeLeftovers, replaceDurably, replaceFile } from '../../lib/disk/file.js'
import { start } from '../support/child.js'
import { scratch } from '../support/scratch.js'
import { fillDisk, smallDisk } from '../support/small-disk.js'

const program = join(import.meta.dirname, 'writer-program.js')

t.test('a failure names the file, never the temporary one', async t => {
  const root = scratch(t)
  const directory = join(root, 'directory')
  mkdirSync(directory)
  writeFileSync(join(root, 'file'), '')
  const missing = join(root, 'missing', 'x.json')
  const inFile = join(root, 'file', 'x.json')
  for (const replace of [replaceFile, replaceDurably])
    for (const [file, code, message] of [
      [missing, 'ENOENT', `ENOENT: no such file or directory, open '${missing}'`],
      [inFile, 'ENOTDIR', `ENOTDIR: not a directory, open '${inFile}'`],
      [directory, 'EISDIR', `EISDIR: illegal operation on a directory, rename '${directory}'`]
    ] as const)
      await t.rejects(replace(file, 'new'), { code, message })
  t.strictSame(readdirSync(root).sort(), ['directory', 'file'], 'and leaves nothing')
})

// rules 11.10
t.test('no link of another user is followed to the directory of a file', async t => {
  const root = scratch(t)
  const target = join(root, 'target')
  const link = join(root, 'link')
  mkdirSync(target)
  symlinkSync(target, link)
  for (const replace of [replaceFile, replaceDurably])
    await replace(join(link, 'x.json'), 'by a link of ours')
  lchownSync(link, 65534, 65534)
  for (const replace of [replaceFile, replaceDurably])
    await t.rejects(replace(join(link, 'x.json'), 'new'), {
      message: /^.*\/link is a link that belongs to user 65534/
    })
  t.equal(readFileSync(join(target, 'x.json'), 'utf8'), 'by a link of ours')
  t.strictSame(readdirSync(target), ['x.json'])
})

t.test('a link in the place of a file is refused, and nothing behind it changes', async t => {
  const root = scratch(t)
  const [target, link] = [join(root, 'target'), join(root, 'link')]
  writeFileSync(target, 'theirs')
  for (const to of ['target', 'missing']) {
    symlinkSync(to, link)
    for (const replace of [replaceFile, replaceDurably])
      await t.rejects(replace(link, 'mine'), {
        code: 'ELOOP',
        message: `${link} is a link, and svcd follows none here: put the file itself in its place`
      })
    unlinkSync(link)
  }
  t.equal(readFileSync(target, 'utf8'), 'theirs')
  t.strictSame(readdirSync(root), ['target'])
})

t.test('a file gets the mode that is asked for, whatever it had, and belongs to the writer', async t => {
  const file = join(scratch(t), 'x.json')
  writeFileSync(file, '', { mode: 0o666 })
  chownSync(file, 65534, 65534)
  await replaceFile(file, ['one, ', 'two'])
  t.equal(readFileSync(file, 'utf8'), 'one, two')
  t.match(statSync(file), { mode: constants.S_IFREG | 0o600, uid: 0, gid: 0 })
  await replaceFile(file, Buffer.from([0xff]), 0o644)
  t.equal(statSync(file).mode & 0o777, 0o644)
  t.strictSame([...readFileSync(file)], [0xff])
})

t.test('writes of one file at once: the file is that of one of them, and whole', async t => {
  const root = scratch(t)
  const file = join(root, 'x.json')
  const contents = Array.from({ length: 30 }, (_, i) => `${i} `.repeat(10_000))
  await Promise.all(contents.map(content => replaceFile(file, content)))
  t.ok(contents.includes(readFileSync(file, 'utf8')))
  t.strictSame(readdirSync(root), ['x.json'])
})

// A disk that is nearly full takes a part of what is written, and says so only at the next write.
t.test('a short write is an error: the file stays as it was', async t => {
  const root = smallDisk(t)
  const file = join(root, 'x.json')
  writeFileSync(file, 'old')
  writeFileSync(join(root, 'spare'), Buffer.alloc(10_000))
  const free = fillDisk(root)
  rmSync(join(root, 'spare'))
  for (const content of ['x'.repeat(30_000), Buffer.alloc(30_000), ['x'.repeat(15_000), 'x'.repeat(15_000)]])
    for (const replace of [replaceFile, replaceDurably])
      await t.rejects(replace(file, content), {
        code: 'ENOSPC',
        message: 'ENOSPC: no space left on device, write'
      })
  t.equal(readFileSync(file, 'utf8'), 'old')
  t.strictSame(readdirSync(root).sort(), ['filler', 'x.json'])
  free()
  await replaceFile(file, 'x'.repeat(30_000))
  t.equal(readFileSync(file, 'utf8').length, 30_000)
})

t.test('a limit of the size of files is an error too, and not the end of the process', async t => {
  const root = scratch(t)
  const file = join(root, 'x.json')
  writeFileSync(file, 'old')
  const limited = start('prlimit', ['--fsize=1000', process.execPath, program, 'once', file], { input: '' })
  t.match(await limited.ended, { code: 0, signal: null, stdout: 'EFBIG\nEFBIG\nold\n', stderr: '' })
  t.strictSame(readdirSync(root), ['x.json'])
})

t.test(
  'a killed writer: the file is whole, and what it left has a name that the next start knows',
  async t => {
    const root = scratch(t)
    const names = ['holder.json', 'node-status.journal']
    const rounds = process.env.SVCD_LONG === undefined ? 5 : 100
    for (let round = 0; round < rounds; round++) {
      const writer = start(process.execPath, [program, 'loop', root], { input: '' })
      await writer.says('writing')
      await sleep(round * 3)
      await writer.kill()
      for (const name of names) t.match(readFileSync(join(root, name), 'utf8'), /^(\d)\1{19999}$/)
    }
    for (const name of names) {
      const writer = start(process.execPath, [program, 'killed', join(root, name)], { input: '' })
      t.match(await writer.ended, { signal: 'SIGKILL' })
      t.match(readFileSync(join(root, name), 'utf8'), /^(\d)\1{19999}$/)
    }
    const left = readdirSync(root).filter(name => !names.includes(name))
    t.ok(
      names.every(name => left.some(one => one.startsWith(`${name}.`))),
      'each was killed while it was written'
    )
    for (const name of left) {
      t.ok(isLeftover(name) && isOwnEntry(name), name)
      t.notOk(isBackedUp(name), name)
    }
    await removeLeftovers(join(root, 'holder.json'), /\.\d+$/)
    t.strictSame(
      readdirSync(root).filter(name => name.startsWith('holder')),
      ['holder.json']
    )
    // A file that an admin or a rotation made is no leftover.
    for (const name of ['audit.log.1', 'holder.json', 'secret.key', 'backup.tar.20261126', 'a.json.bak'])
      t.notOk(isLeftover(name), name)
  }
)
