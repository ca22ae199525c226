import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { runSync } from '../../lib/base/concurrency.js'
import { evaluate as evaluating, isNodeSet } from '../../lib/node-set/evaluate.js'
import { fold, foldSliced } from '../../lib/node-set/hostlist.js'
import { output, requirePrograms } from '../support/programs.js'
import { scratch } from '../support/scratch.js'

const groups: Record<string, string[]> = {
  compute: ['node001', 'node002'],
  all: ['node001', 'node002', 'login'],
  'osimage:rocky': ['login'],
  rack1: ['a'],
  rack2: ['b']
}
let looked = 0
function* resolve(group: string): Generator<void, readonly string[]> {
  looked++
  const found = groups[group]
  yield
  if (!found) throw new Error(`no group ${group}`)
  return found
}
const evaluate = (text: string, of = resolve) => runSync(evaluating(text, of))
const names = (text: string) => [...evaluate(text, resolve)]

// rules 12.1
t.test('what a set stands for', async t => {
  const table: [set: string, names: string[]][] = [
    ['node001', ['node001']],
    ['n[1-3]', ['n1', 'n2', 'n3']],
    ['n[08-11]', ['n08', 'n09', 'n10', 'n11']],
    ['n[0-9/4,7]', ['n0', 'n4', 'n8', 'n7']],
    ['r[1-2]n[1-2].x', ['r1n1.x', 'r1n2.x', 'r2n1.x', 'r2n2.x']],
    ['n[1-4]!n[2-3]', ['n1', 'n4']],
    ['n[1-4]&n[3-9]', ['n3', 'n4']],
    ['n[1-3]^n[3-4]', ['n1', 'n2', 'n4']],
    ['n[1-3]!n2,n2', ['n1', 'n3', 'n2']],
    ['n1,n1', ['n1']],
    [' n1 , n2 ', ['n1', 'n2']],
    ['@compute', ['node001', 'node002']],
    ['@all!@compute', ['login']],
    ['@osimage:rocky,node[001-002]&@all', ['login', 'node001', 'node002']],
    ['@rack[1-2]', ['a', 'b']],
    ['node*', ['node001', 'node002']],
    ['node00*!*2', ['node001']],
    ['*001*', ['node001']],
    ['node001*,*node002', ['node001', 'node002']],
    ['*o*e**1', ['node001']],
    ['log*,node*[1-1]', ['login', 'node001']],
    ['n1!n1', []]
  ]
  for (const [set, expected] of table) t.strictSame(new Set(names(set)), new Set(expected), set)
  for (const name of ['node001', 'a-b.c_d', '5']) t.notOk(isNodeSet(name), name)
  for (const [set] of table.slice(1)) t.ok(isNodeSet(set), set)
})

t.test('a pattern that matches none, and one that a regular expression would not end with', async t => {
  t.throws(() => names('nod*s'), /no node has a name like nod\*s$/)
  for (const pattern of ['node001*1', 'node*e001', '*x*'])
    t.throws(() => names(pattern), /no node has a name like/, pattern)
  const long = 'a'.repeat(63)
  const of = function* () {
    yield
    return Array.from({ length: 5000 }, () => long)
  }
  t.throws(() => evaluate(`${'a*'.repeat(31)}b`, of), /no node has a name like a\*a/)
  const many = Array.from({ length: 100 }, (_, i) => `n*${i}`).join(',')
  t.throws(() => names(`*,${many}`), /no node has a name like n\*0$/)
  const each = Array.from({ length: 100 }, (_, i) => `*${'o*'.repeat(i % 2)}${'*'.repeat(i / 2)}`).join(',')
  t.throws(() => names(each), { message: /more than 100 different groups/ })
})

t.test('what is no set', async t => {
  const table: [set: string, reason: RegExp][] = [
    ['', /a name is missing at the beginning/],
    [',a', /a name is missing at the beginning/],
    ['a,', /a name is missing after ","/],
    ['a!!b', /a name is missing after "!"/],
    ['n[1-3', /brackets do not match/],
    ['n1]', /brackets do not match/],
    ['n[[1]]', /brackets do not match/],
    ['n[]', /must hold numbers/],
    ['n[a-b]', /must hold numbers/],
    ['n[-1]', /must hold numbers/],
    ['n[3-1]', /names no number: write the smaller one first/],
    ['n[1-3/0]', /names no number: write the smaller one first/],
    ['n[01-3]', /as many digits/],
    ['n[9-011]', /as many digits/],
    ['n[1-9999999999999999]', /15 digits at most/],
    ['n[1-999999999999999]', /more than 100,000/],
    ['n[1-1000]m[1-1000]', /more than 100,000/],
    ['n[1-75000],n[1-75000]', /more than 100,000/]
  ]
  for (const [set, reason] of table) t.throws(() => names(set), { status: 400, message: reason }, set)
  t.throws(() => names(`n${`[${'1,'.repeat(59)}1]`.repeat(4)}`), {
    status: 400,
    message: /more than 100,000/
  })
  t.throws(() => names(`n${'[1-2]'.repeat(9)}`), { status: 400, message: /more than 8 pairs of brackets/ })
  t.throws(() => names('@none'), { message: 'no group none' })
})

// rules 12.10
t.test('what is longer than any name is refused before it is made; a group is looked for once', async t => {
  const long = 'x'.repeat(100_000)
  const table: [set: string, reason: RegExp][] = [
    [`${long}[1-1000]`, /would be a name of more than 63 characters/],
    [long, /would be a name of more than 63 characters/],
    [`n[${'0'.repeat(59)}1-${'0'.repeat(59)}2]`, /a number has 15 digits at most/],
    [`${'n'.repeat(61)}[98-101]`, /n{61}100 would be a name of more than 63 characters/],
    [`@${long}`, /more than 1031 characters/],
    [`n[${'1,'.repeat(200_000)}1]`, /a part of it has more than 262,144 characters/],
    [`${' '.repeat(300_000)}n1`, /a part of it has more than 262,144 characters/],
    ['@empty,'.repeat(100_001).slice(0, -1), /more than 100,000/],
    [`n1,${'n1!'.repeat(100_000)}n1`, /more than 100,000/],
    [`@g${Array.from({ length: 101 }, (_, i) => i).join(',@g')}`, /more than 100 different groups/]
  ]
  const none = function* () {
    yield
    return []
  }
  for (const [set, reason] of table) {
    const refused = { status: 400, message: reason }
    t.throws(() => evaluate(set, none), refused, set.slice(0, 20))
    try {
      evaluate(set, none)
    } catch (error) {
      t.ok((error as Error).message.length < 700, 'the message is short')
    }
  }
  const before = looked
  t.equal(evaluate('@compute,@rack[1-2],@compute!@rack1,@compute').size, 3)
  t.equal(looked, before + 3)
})

t.test('what a set costs grows with its length', t => {
  // An exponential or a quadratic reading would take minutes.
  const cost = (text: string) => {
    const before = process.cpuUsage()
    try {
      names(text)
    } catch {
      // Refused or not, it has been read.
    }
    return process.cpuUsage(before).user / 1000
  }
  for (const text of [
    '[1-1]'.repeat(5_000),
    '[1'.repeat(100_000),
    'a,'.repeat(200_000),
    'n[1'.repeat(100_000)
  ])
    t.ok(cost(text) < 3_000, text.slice(0, 10))
  t.ok(cost(Array.from({ length: 50_000 }, (_, i) => `x${i}`).join(',')) < 3_000)
  t.end()
})

const runs = process.env.SVCD_LONG ? 10_000 : 500
const word = fc.constantFrom('n', 'node', 'r-', 'x.', 'a_1b')
const digits = fc
  .integer({ min: 0, max: 120 })
  .chain(number => fc.constantFrom(0, 0, 2, 3).map(width => String(number).padStart(width, '0')))
const range = fc
  .tuple(
    fc.integer({ min: 0, max: 110 }),
    fc.integer({ min: 0, max: 15 }),
    fc.integer({ min: 1, max: 4 }),
    fc.constantFrom(0, 3, 4)
  )
  .map(([low, more, step, width]) => {
    const [first, last] = [low, low + more].map(number => String(number).padStart(width, '0'))
    return `${first}-${last}${step > 1 ? `/${step}` : ''}`
  })
const bracket = fc
  .array(fc.oneof(digits, range), { minLength: 1, maxLength: 3 })
  .map(all => `[${all.join(',')}]`)
const number = fc.oneof(digits, bracket)
const pattern = fc.oneof(
  fc.tuple(word, number).map(parts => parts.join('')),
  fc.tuple(word, number, word).map(parts => parts.join('')),
  fc.tuple(word, number, word, number).map(parts => parts.join(''))
)
const expression = fc
  .tuple(pattern, fc.array(fc.tuple(fc.constantFrom(',', ',', '!', '&', '^'), pattern), { maxLength: 4 }))
  .map(([first, rest]) => first + rest.map(parts => parts.join('')).join(''))

/** What ClusterShell makes of sets: the names of each, one blank between them; of folded ones too. */
async function clusterShell(t: Test, sets: readonly string[]): Promise<string[][]> {
  const file = join(scratch(t), 'sets')
  writeFileSync(file, sets.join('\n'))
  const script = `
import sys
from ClusterShell.NodeSet import NodeSet
for line in open(sys.argv[1]).read().split('\\n'):
    print(' '.join(sorted(NodeSet(line))))
`
  const text = await output('/usr/bin/python3', ['-c', script, file])
  return text
    .split('\n')
    .slice(0, -1)
    .map(line => line.split(' ').filter(name => name !== ''))
}

t.test('ClusterShell unfolds and folds to the same names', async t => {
  requirePrograms('/usr/lib/python3/dist-packages/ClusterShell/NodeSet.py')
  const seed = process.env.SVCD_LONG ? undefined : 1
  const sets = fc.sample(expression, { numRuns: runs, ...(seed === undefined ? {} : { seed }) })
  const theirs = await clusterShell(t, sets)
  const ours = sets.map(set => [...evaluate(set, resolve)].sort())
  const different = sets.filter((_, i) => theirs[i]?.join() !== ours[i]?.join())
  t.strictSame(different.slice(0, 5), [], 'unfolded')
  const folded = ours.map(fold)
  const again = await clusterShell(t, folded)
  t.strictSame(folded.filter((_, i) => again[i]?.join() !== ours[i]?.join()).slice(0, 5), [], 'folded')
  t.equal(folded.length, runs)
  t.strictSame(
    folded.filter(
      (set, i) => ours[i]?.length && [...evaluate(set, resolve)].sort().join() !== ours[i]?.join()
    ),
    []
  )
})

t.test('folded as a person would', async t => {
  const table: [names: string[], set: string][] = [
    [[], ''],
    [['a'], 'a'],
    [['node002', 'node001', 'node004'], 'node[001-002,004]'],
    [['n9', 'n10', 'n8'], 'n[8-10]'],
    [['n08', 'n09', 'n10'], 'n[08-10]'],
    [['n1', 'n01', 'n2'], 'n[1-2,01]'],
    [['r1n1', 'r1n2', 'r2n1', 'r2n2'], 'r[1-2]n[1-2]'],
    [['login', 'n1', 'n1'], 'login,n1']
  ]
  for (const [all, set] of table) {
    t.equal(fold(all), set)
    t.ok(
      [...foldSliced(all)].length >= 2 * new Set(all).size || !/\d/.test(all.join()),
      'in steps: a set may be long'
    )
  }
})

t.test('a name that ends in the last number that may be folded is folded like others', t => {
  const names = ['192_168_0_0-255_255_255_0', 'n1']
  t.equal(fold(names), '192_168_0_0-255_255_255_0,n1')
  t.equal(fold(['1a1a1a1a1a1a1a1', '1a1a1a1a1a1a1a2']), '1a1a1a1a1a1a1a[1-2]')
  t.end()
})
