import { setImmediate as turn } from 'node:timers/promises'
import t from 'tap'
import { StoreError } from '../../lib/store/errors.js'
import type { Change } from '../../lib/store/types.js'
import { node, openStore, systemError, TestFiles } from './fixtures.js'

const NAMES = Array.from({ length: 300 }, (_, i) => `n${i}`)
/** Longer than a slice, so that the event loop turns between two steps. */
const wait = (ms: number) => {
  for (const until = performance.now() + ms; performance.now() < until; );
}

// rules 12.3
t.test('a change in steps: seen by nobody before its end, then all of it; others wait', async t => {
  const store = await openStore(t.testdir())
  const told: (readonly Change[])[] = []
  store.subscribe(changes => told.push(changes))
  await store.change(tx => tx.put('node', 'n0', node('n0', 'aa')))
  const order: string[] = []
  const counts = new Set<number>()
  let ended = false
  const long = store
    .changeInSteps(function* (tx) {
      for (const name of NAMES) {
        yield tx.put('node', name, node(name, name === 'n1' ? 'aa' : null))
        if (name.endsWith('9')) wait(1)
      }
      return 'done'
    })
    .then(result => {
      order.push('long')
      return result
    })
    .finally(() => {
      ended = true
    })
  const other = store
    .change(tx => {
      const { length } = tx.names('node')
      tx.put('counter', 'c', { name: 'c', value: length })
      return length
    })
    .then(length => {
      order.push('other')
      return length
    })
  let turns = 0
  const held = store.current
  for (; !ended; turns++) {
    counts.add(store.current.names('node').length)
    await turn()
  }
  t.equal(await long, 'done')
  t.equal(await other, 300, 'it began after the long one')
  t.same(order, ['long', 'other'])
  t.ok(turns > 3, 'the event loop went on')
  t.equal(held.names('node').length, 300, 'who held the view sees what is committed')
  t.same(
    [...counts].filter(count => count !== 1 && count !== 300),
    [],
    'no reader saw a part of it'
  )
  t.equal(store.current.index.owner.get('aa'), 'n1')
  t.same(
    told.map(changes => changes.length),
    [1, 300, 1]
  )
  // Both states have it: the next change builds on it, and readers see that one too.
  await store.change(tx => tx.put('node', 'n5', node('n5', 'bb')))
  t.equal(store.current.index.owner.get('bb'), 'n5')
  t.equal(store.current.get('counter', 'c')?.value, 300)
  t.equal(await store.change(tx => tx.names('node').length), 300)
  await store.close()
})

t.test('a throw and a failing disk take all of it back', async t => {
  const directory = t.testdir()
  const files = new TestFiles()
  const store = await openStore(directory, { files })
  await store.change(tx => tx.put('node', 'n0', node('n0', 'aa')))
  const long = (end: () => void) =>
    store.changeInSteps(function* (tx) {
      tx.remove('node', 'n0')
      for (const name of NAMES.slice(1)) yield tx.put('node', name, node(name))
      end()
    })
  const waiting = (value: number) =>
    store.change(tx => {
      tx.put('counter', 'c', { name: 'c', value })
      return tx.names('node').length
    })
  const refused = long(() => {
    throw new Error('no')
  })
  const after = waiting(1)
  await t.rejects(refused, { message: 'no' })
  t.equal(await after, 1)
  files.before = operation => {
    if (operation === 'write') throw systemError('ENOSPC')
  }
  await t.rejects(
    long(() => {}),
    StoreError
  )
  files.before = () => {}
  t.equal(await waiting(2), 1, 'what came after builds on nothing of it')
  t.same(store.current.names('node'), ['n0'])
  t.equal(store.current.index.owner.get('aa'), 'n0')
  await long(() => {})
  t.equal(store.current.names('node').length, 299)
  await store.close()
  const again = await openStore(directory)
  t.equal(again.current.names('node').length, 299)
  await again.close()
})

t.test('several in steps go one after the other; closing takes the one under way back', async t => {
  const store = await openStore(t.testdir())
  const add = () =>
    store.changeInSteps(function* (tx) {
      const value = (tx.get('counter', 'c')?.value ?? 0) + 1
      yield wait(10)
      tx.put('counter', 'c', { name: 'c', value })
      return value
    })
  t.same(await Promise.all([add(), add(), add()]), [1, 2, 3])
  const last = add()
  const late = store.close().then(() => add())
  await t.rejects(last, StoreError)
  await t.rejects(late, StoreError)
  t.equal(store.current.get('counter', 'c')?.value, 3)
})
