import { lchownSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { replaceDurably, replaceFile } from '../../lib/disk/file.js'
import { scratch } from '../support/scratch.js'

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
