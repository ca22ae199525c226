import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { start } from './support/child.js'
import { checkout } from './support/programs.js'
import { scratch } from './support/scratch.js'

const { cpuIn, ordered, shared, slowest, timesIn } = await import(join(checkout, 'test/times.mjs'))

t.test('the order of the next run', async t => {
  const sizes: Record<string, number> = { small: 1, large: 9, fast: 99, slow: 3 }
  const files = ['fast', 'large', 'slow', 'small']
  const order = (times: object, groups = files.map(file => [file])) =>
    ordered(groups, times, (file: string) => sizes[file]).join(' ')
  t.equal(order({}), 'fast large slow small', 'the largest first where nothing is known')
  t.equal(order({ slow: 9000, fast: 5 }), 'large small slow fast', 'new files begin first')
  const times = { fast: 5, slow: 6, small: 7, large: 8 }
  t.equal(order(times, [['fast', 'slow'], ['small'], ['large']]), 'fast,slow large small', 'sums count')
})

t.test('neighbours share a process', async t => {
  const share = (times: object) => shared(['a', 'b', 'c', 'd', 'e'], times, (file: string) => file === 'b')
  const short = { a: 1, b: 1, c: 1, d: 1, e: 1 }
  t.strictSame(share(short), [['b'], ['a', 'c', 'd', 'e']], 'but for those that are to be alone')
  t.strictSame(share({}), share(short), 'files without a time too')
  t.strictSame(share({ ...short, c: 17_000, d: 3000 }), [['b'], ['a', 'c'], ['d', 'e']], 'for some seconds')
  t.strictSame(share({ ...short, d: 20_001 }), [['b'], ['d'], ['a', 'c', 'e']], 'and none that is long')
})

t.test('the ten slowest files and the sum', async t => {
  const lines = Array.from(
    { length: 12 },
    (_, i) => `    ok ${i + 1} - t/${i}.js # time=${(i + 1) * 1000}.5ms`
  )
  const times = timesIn([
    ...lines,
    '        ok 1 - inside # time=99ms',
    '    not ok 13 - t/bad.js # time=90000ms',
    'not ok 1 - t/0.js t/bad.js # time=168000ms'
  ])
  t.equal(times['t/bad.js'], 90_000, 'a file that fails has a time too')
  t.equal(Object.keys(times).length, 13)
  const told = slowest(times, cpuIn(['    # cpu=8.25 t/bad.js', '# cpu=99']))
  t.equal(told.length, 12)
  t.match(told[1], /^ +90\.0 +8\.3 {2}t\/bad\.js$/)
  t.match(told[10], /t\/3\.js$/)
  t.match(told[11], /^ +168\.0 {2}all 13 files/)
  t.strictSame(slowest({ 't/alone.js': 9 }), [], 'not for a single file')
})

t.test('a run keeps its times, and the next one begins with the slowest', async t => {
  const directory = scratch(t)
  const files = ['a.mjs', 'b.mjs'].map(name => join(directory, name))
  const tap = join(checkout, '.cache/node_modules/@tapjs/file.js')
  for (const file of files) writeFileSync(file, `import t from '${tap}?${file}'; t.pass('it')\n`)
  mkdirSync(join(directory, '.cache'))
  const record = join(directory, '.cache/test-times.json')
  const [a = '', b = ''] = files
  writeFileSync(record, JSON.stringify({ [a]: 1, [b]: 1e6, elsewhere: 7 }))
  // Without the variables by which tap knows that it is a child.
  const run = (name: string, ...words: string[]) =>
    start('env', ['-i', '-C', directory, process.execPath, join(checkout, 'test', name), ...words]).ended
  const { stdout } = await run('all.mjs', '--jobs=1', ...files)
  t.strictSame(
    [...stdout.matchAll(/^ {4}# Subtest: (.*)$/gm)].map(([, name]) => name),
    [b, a]
  )
  writeFileSync(join(directory, 'log'), stdout)
  const before = readFileSync(record, 'utf8')
  await run('summary.mjs', 'log', '--grep=x')
  t.equal(readFileSync(record, 'utf8'), before, 'a part of a file has no time')
  const summary = await run('summary.mjs', 'log')
  t.match(summary.stdout, / {2}all 2 files, .*\n +\d[.\d]* {2}of CPU\n2 passed, 0 failed\n$/)
  const kept = JSON.parse(readFileSync(record, 'utf8'))
  t.ok(kept[b] < 1e6, 'the new time replaces the old')
  t.equal(kept.elsewhere, 7, 'a file that did not run keeps its time')
})

t.test('a process that crashes is a failure', async t => {
  const directory = scratch(t)
  writeFileSync(
    join(directory, 'log'),
    'not ok 1 - a b {\n    ok 1 - a # time=1ms\n}\n# { total: 1, pass: 1 }\n'
  )
  const words = ['-C', directory, process.execPath, join(checkout, 'test/summary.mjs'), 'log']
  const { code, stdout } = await start('env', words).ended
  t.equal(code, 1)
  t.match(stdout, /^not ok 1 - a b {\nok 1 - a .*\n1 passed, 1 failed\n$/)
})
