import { mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { replaceDurably, replaceFile } from '../../lib/disk/replace.js'
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
