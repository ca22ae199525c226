import t from 'tap'
import { compareNames, Sorted, SortedNames } from '../../lib/store/order.js'

// rules 1.12
t.test('names in natural order', async t => {
  const inOrder = [
    '',
    '-1',
    '10.0.0.2',
    '10.0.0.10',
    'Node1',
    'node',
    'node-1',
    'node0',
    'node00',
    'node01',
    'node1',
    'node1a2',
    'node1a10',
    'node2',
    'node002b',
    'node10',
    'node99999999999999999998',
    'node99999999999999999999',
    'node100000000000000000000',
    'nodes'
  ]
  for (const [i, a] of inOrder.entries()) {
    for (const [j, b] of inOrder.entries()) {
      t.equal(Math.sign(compareNames(a, b)), Math.sign(i - j), `${a} against ${b}`)
    }
  }
  t.ok(compareNames('node2', 'node10') < 0, 'numbers, not digits')
  t.ok(
    compareNames('node99999999999999999998', 'node99999999999999999999') < 0,
    'beyond what a double can tell apart'
  )
  t.ok(compareNames('node9', 'node10a') < 0)
  t.ok(compareNames('n1b', 'n01c') < 0, 'leading zeros decide only between names that are equal otherwise')
  t.ok(compareNames('n01b', 'n1b') < 0)
  t.ok(compareNames('node', 'node0') < 0, 'the shorter first')
})

t.test('the list is what a sort would give, after any adds and removes', async t => {
  const list = new SortedNames()
  const model = new Set<string>()
  let seed = 1
  const random = (below: number) => {
    seed = (seed * 48271) % 2147483647
    return seed % below
  }
  for (let step = 0; step < 5000; step++) {
    const name = `n${random(300)}${['', 'a', '-x'][random(3)]}`
    if (list.has(name) !== model.has(name)) t.fail(`has ${name}`)
    if (random(3) > 0) {
      if (list.add(name) === model.has(name)) t.fail(`add ${name}`)
      model.add(name)
    } else if (list.remove(name) !== model.delete(name)) t.fail(`remove ${name}`)
  }
  t.same(list.values, [...model].sort(compareNames))
})

t.test('any order', async t => {
  const numbers = new Sorted<number>((a, b) => b - a)
  for (const n of [3, 1, 2, 0]) numbers.add(n)
  t.same(numbers.values, [3, 2, 1, 0])
  t.notOk(numbers.add(0), 'a second time')
  t.ok(numbers.remove(0))
  t.notOk(numbers.remove(0))
  t.equal(numbers.position(2), 1)
  t.equal(numbers.position(-5), 3)
})
