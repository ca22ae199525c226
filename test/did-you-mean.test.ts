import t from 'tap'
import { didYouMean, distanceWithin } from '../lib/base/did-you-mean.js'

// rules 1.13
t.test('the nearest name is told, and none that is far', async t => {
  const known = ['name', 'group', 'netboot', 'macaddr', 'osimage', 'osimagetag', 'comment', 'ip', 'BOOTIF']
  const table: [given: string, meant: string | undefined][] = [
    ['netbot', 'netboot'],
    ['netboto', 'netboot'],
    ['Group', 'group'],
    ['gruop', 'group'],
    ['nam', 'name'],
    ['mac', 'macaddr'],
    ['osimages', 'osimage'],
    ['bootf', 'BOOTIF'],
    ['coment', 'comment'],
    ['switch', undefined],
    ['xy', undefined],
    ['', undefined],
    ['netboot'.repeat(20), undefined],
    ['a"\u0001', undefined]
  ]
  for (const [given, meant] of table)
    t.equal(
      didYouMean(given, known),
      meant === undefined ? '' : ` (did you mean "${meant}"?)`,
      JSON.stringify(given)
    )
})

/** Optimal string alignment as the books have it: the whole table. */
function wholeDistance(a: string, b: string): number {
  const table = Array.from({ length: a.length + 1 }, (_, i) => [i])
  const at = (i: number, j: number) => table[i]?.[j] ?? Number.NaN
  for (let j = 1; j <= b.length; j++) (table[0] as number[])[j] = j
  for (let i = 1; i <= a.length; i++)
    for (let j = 1; j <= b.length; j++) {
      const isSwapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]
      ;(table[i] as number[])[j] = Math.min(
        at(i - 1, j) + 1,
        at(i, j - 1) + 1,
        at(i - 1, j - 1) + (a[i - 1] === b[j - 1] ? 0 : 1),
        isSwapped ? at(i - 2, j - 2) + 1 : Number.POSITIVE_INFINITY
      )
    }
  return at(a.length, b.length)
}

t.test('a distance that counts is that of the whole table', async t => {
  let seed = 1
  const random = (below: number) => {
    seed = (seed * 48_271) % 2_147_483_647
    return seed % below
  }
  const word = () => Array.from({ length: random(9) }, () => 'abc'[random(3)]).join('')
  let near = 0
  for (let i = 0; i < 20_000; i++) {
    const [a, b, most] = [word(), word(), random(3)]
    const distance = wholeDistance(a, b)
    if (distance <= most) near++
    const found = distanceWithin(a, b, most)
    if (found !== (distance <= most ? distance : undefined))
      t.fail(`${a} ${b} ${most}: ${found}, ${distance}`)
  }
  t.ok(near > 2000, `${near} were near`)
})

// rules 1.13: it is done while a request is refused, and other requests wait.
t.test('long names cost a part of what the whole table does', async t => {
  const word = `x${'rack-and-node-'.repeat(4)}y`
  // The dearest ones: the words part at the end.
  const known = Array.from({ length: 1500 }, (_, i) =>
    `z${'rack-and-node-'.repeat(4)}${i % 10}${i}`.slice(0, 60)
  )
  const timed = (work: () => unknown) => {
    const began = performance.now()
    work()
    return performance.now() - began
  }
  const times = Array.from({ length: 3 }, () => [
    timed(() => t.equal(didYouMean(word, known), '')),
    timed(() => known.map(name => wholeDistance(word, name)))
  ])
  const [mine, whole] = [0, 1].map(i => Math.min(...times.map(time => time[i] ?? 0))) as [number, number]
  t.ok(mine < whole / 4, `${mine.toFixed(2)} ms, ${whole.toFixed(2)} ms for whole tables`)
})
