import { spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import t from 'tap'
import { unifiedDiff } from '../../lib/services/render-job.js'
import { requirePrograms } from '../support/programs.js'

requirePrograms('patch')

t.test('what diff(1) says of the same texts', async t => {
  const lines = Array.from({ length: 40 }, (_, i) => `line ${i}\n`)
  const text = lines.join('')
  t.equal(unifiedDiff('f', text, text), '')
  t.equal(unifiedDiff('f', undefined, 'a\nb\n'), '--- /dev/null\n+++ f\n@@ -0,0 +1,2 @@\n+a\n+b\n')
  t.equal(unifiedDiff('f', 'a\n', undefined), '--- f\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n')
  t.equal(
    unifiedDiff('f', text, text.replace('line 5\n', 'line five\n').replace('line 30\n', '')),
    '--- f\n+++ f\n@@ -3,7 +3,7 @@\n line 2\n line 3\n line 4\n-line 5\n+line five\n line 6\n line 7\n line 8\n' +
      '@@ -28,7 +28,6 @@\n line 27\n line 28\n line 29\n-line 30\n line 31\n line 32\n line 33\n'
  )
  t.equal(
    unifiedDiff('f', 'a\nb', 'a\nb\n'),
    '--- f\n+++ f\n@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b\n'
  )
})

t.test('patch(1) makes the new text of the old one and the difference', async t => {
  const directory = t.testdir({})
  const text = fc
    .array(fc.constantFrom('a', 'b', 'c', '', '-d', '+e', '@@ f'), { maxLength: 30 })
    .chain(lines => fc.constantFrom(lines.map(line => `${line}\n`).join(''), lines.join('\n')))
  fc.assert(
    fc.property(text, text, (before, after) => {
      const file = join(directory, 'file')
      const patch = unifiedDiff('file', before, after)
      if (before === after) return patch === ''
      writeFileSync(file, before)
      const { status, stdout } = spawnSync('patch', ['--no-backup-if-mismatch', '-u', file], {
        input: patch,
        encoding: 'utf8'
      })
      // An emptied file is removed.
      const now = after === '' ? '' : readFileSync(file, 'utf8')
      if (status !== 0 || now !== after) throw new Error(`${stdout}\n${patch}`)
      return true
    }),
    { numRuns: 60 }
  )
})

t.test(
  'texts that differ in thousands of lines: the old one gone and the new one there, at once',
  async t => {
    const file = join(t.testdir({}), 'file')
    const text = (word: string) => Array.from({ length: 5000 }, (_, i) => `${word} ${i}\n`).join('')
    const [before, after] = [text('old'), `${text('new')}no end`]
    writeFileSync(file, before)
    const patch = unifiedDiff('file', before, after)
    t.match(patch, '@@ -1,5000 +1,5001 @@')
    t.equal(spawnSync('patch', ['-u', file], { input: patch }).status, 0)
    t.equal(readFileSync(file, 'utf8'), after)
  }
)
