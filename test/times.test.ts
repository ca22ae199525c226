import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { start } from './support/child.js'
import { checkout } from './support/programs.js'
import { scratch } from './support/scratch.js'

const { ordered, slowest, timesIn } = await import(join(checkout, 'test/times.mjs'))

t.test('the order of the next run', async t => {
  const sizes: Record<string, number> = { small: 1, large: 9, fast: 99, slow: 3 }
  const files = ['fast', 'large', 'slow', 'small']
  const order = (times: object) => ordered(files, times, (file: string) => sizes[file])
  t.strictSame(order({}), ['fast', 'large', 'slow', 'small'], 'the largest first where nothing is known')
  t.strictSame(order({ slow: 9000, fast: 5 }), ['large', 'small', 'slow', 'fast'], 'new files begin first')
})

t.test('the ten slowest files and the sum', async t => {
  const lines = Array.from({ length: 12 }, (_, i) => `ok ${i + 1} - t/${i}.js # time=${(i + 1) * 1000}.5ms`)
  const times = timesIn([...lines, '    ok 1 - inside # time=99ms', 'not ok 13 - t/bad.js # time=90000ms'])
  t.equal(times['t/bad.js'], 90_000, 'a file that fails has a time too')
  t.equal(Object.keys(times).length, 13)
  const told = slowest(times)
  t.equal(told.length, 12)
  t.match(told[1], /^ +90\.0 {2}t\/bad\.js$/)
  t.match(told[10], /t\/3\.js$/)
  t.match(told[11], /^ +168\.0 {2}all 13 files/)
  t.strictSame(slowest({ 't/alone.js': 9 }), [], 'not for a single file')
})

t.test('a run keeps its times, and the next one begins with the slowest', async t => {
  const directory = scratch(t)
  const files = ['a.mjs', 'b.mjs'].map(name => join(directory, name))
  for (const file of files) writeFileSync(file, 'console.log("ok 1 - it\\n1..1")\n')
  mkdirSync(join(directory, '.cache'))
  const record = join(directory, '.cache/test-times.json')
  writeFileSync(record, JSON.stringify({ [files[0] ?? '']: 1, [files[1] ?? '']: 1e6, elsewhere: 7 }))
  // Without the variables by which tap knows that it is a child.
  const run = (name: string, ...words: string[]) =>
    start('env', ['-i', '-C', directory, process.execPath, join(checkout, 'test', name), ...words]).ended
  const { stdout } = await run('all.mjs', '--jobs=1', ...files)
  t.strictSame(
    [...stdout.matchAll(/^# Subtest: .*\/(.*)$/gm)].map(([, name]) => name),
    ['b.mjs', 'a.mjs']
  )
  writeFileSync(join(directory, 'log'), stdout)
  const before = readFileSync(record, 'utf8')
  await run('summary.mjs', 'log', '--grep=x')
  t.equal(readFileSync(record, 'utf8'), before, 'a part of a file has no time')
  const summary = await run('summary.mjs', 'log')
  t.match(summary.stdout, / {2}all 2 files, .*\n +\d[.\d]* {2}of CPU\n2 passed, 0 failed\n$/)
  const kept = JSON.parse(readFileSync(record, 'utf8'))
  t.ok(kept[files[1] ?? ''] < 1e6, 'the new time replaces the old')
  t.equal(kept.elsewhere, 7, 'a file that did not run keeps its time')
})
