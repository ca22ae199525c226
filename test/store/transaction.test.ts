import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { StoreError } from '../../lib/store/errors.js'
import type { Change } from '../../lib/store/types.js'
import { gate, node, openStore, systemError, TestFiles } from './fixtures.js'

// rules 11.1
t.test('a change is durable, visible and told when its promise resolves', async t => {
  const directory = t.testdir()
  const store = await openStore(directory)
  const told: Change[] = []
  store.subscribe(changes => told.push(...changes))
  const result = await store.change(tx => {
    tx.put('node', 'n1', node('n1', 'aa'))
    tx.put('node', 'n10', node('n10'))
    tx.put('node', 'n2', node('n2'))
    return tx.changes().length
  })
  t.equal(result, 3)
  t.same(store.current.names('node'), ['n1', 'n2', 'n10'])
  t.equal(store.current.index.owner.get('aa'), 'n1')
  t.same(
    told.map(({ type, name, before }) => [type, name, before]),
    ['n1', 'n10', 'n2'].map(name => ['node', name, undefined])
  )
  t.ok(Object.isFrozen(store.current.get('node', 'n1')?.tags), 'frozen to the bottom')
  await store.close()
  t.equal(
    readFileSync(join(directory, 'node/n1.json'), 'utf8'),
    `${JSON.stringify(node('n1', 'aa'), null, 2)}\n`
  )

  const again = await openStore(directory)
  t.same(again.current.names('node'), ['n1', 'n2', 'n10'])
  t.equal(again.current.index.owner.get('aa'), 'n1')
  await again.change(tx => tx.remove('node', 'n2'))
  t.equal(again.current.get('node', 'n2'), undefined)
  await again.close()
  const third = await openStore(directory)
  t.same(third.current.names('node'), ['n1', 'n10'])
  await third.close()
})

t.test('a throw takes everything back, the index too', async t => {
  const directory = t.testdir()
  const store = await openStore(directory)
  await store.change(tx => {
    tx.put('node', 'a', node('a', 'aa'))
    tx.put('node', 'b', node('b'))
  })
  const refusal = new Error('no')
  await t.rejects(
    store.change(tx => {
      tx.put('node', 'a', node('a', 'cc'))
      tx.put('node', 'b', node('b', 'aa'))
      tx.put('node', 'c', node('c', 'dd'))
      tx.put('node', 'b', node('b'))
      tx.remove('node', 'a')
      tx.put('node', 'a', node('a', 'ee'))
      tx.put('node', 'b', node('b', 'aa'))
      throw refusal
    }),
    refusal
  )
  await store.change(tx => {
    t.same(tx.names('node'), ['a', 'b'])
    t.same([...tx.index.owner], [['aa', 'a']])
    t.same(tx.get('node', 'a'), node('a', 'aa'))
  })
  await t.rejects(
    store.change(async () => {}),
    /cannot wait/
  )
  await t.rejects(
    store.change(() => store.change(() => {})),
    /within a change/
  )
  await store.close()
})

t.test('a MAC that moves within one change: both indexes see every step in order', async t => {
  const store = await openStore(t.testdir())
  await store.change(tx => {
    tx.put('node', 'a', node('a', null))
    tx.put('node', 'b', node('b', 'aa'))
  })
  await store.change(tx => {
    tx.put('node', 'a', { ...node('a'), tags: ['x'] })
    tx.put('node', 'b', node('b', null))
    tx.put('node', 'a', node('a', 'aa'))
  })
  t.same([...store.current.index.owner], [['aa', 'a']])
  await store.close()
})

// rules 11.1
t.test('transactions see changes on their way to disk, readers do not', async t => {
  const files = new TestFiles()
  const store = await openStore(t.testdir(), { files })
  const disk = gate()
  files.before = operation => (operation === 'write' ? disk.wait() : undefined)
  const first = store.change(tx => tx.put('node', 'n1', node('n1', 'aa')))
  await disk.arrived
  const seen = store.change(tx => tx.index.owner.get('aa'))
  const refused = store.change(tx => {
    if (tx.get('node', 'n1')) throw new Error('taken')
  })
  let answered = 0
  for (const answer of [first, seen, refused]) answer.catch(() => {}).finally(() => answered++)
  await new Promise(setImmediate)
  t.equal(store.current.get('node', 'n1'), undefined)
  t.equal(answered, 0, 'nobody is told of what is not durable')
  disk.open()
  await first
  t.equal(await seen, 'n1')
  await t.rejects(refused, /taken/)
  t.ok(store.current.get('node', 'n1'))
  await store.close()
})

t.test('what a failed write takes with it, and what comes after', async t => {
  const directory = t.testdir()
  const files = new TestFiles()
  const store = await openStore(directory, { files })
  await store.change(tx => tx.put('counter', 'c', { name: 'c', value: 1 }))
  const told: Change[] = []
  store.subscribe(changes => told.push(...changes))
  const disk = gate()
  files.before = async operation => {
    if (operation !== 'write') return
    await disk.wait()
    throw systemError('ENOSPC')
  }
  const add = () =>
    store.change(tx => {
      const value = (tx.get('counter', 'c')?.value ?? 0) + 1
      tx.put('counter', 'c', { name: 'c', value })
      return value
    })
  const first = add()
  await disk.arrived
  const pending = [first, add(), add(), store.change(tx => tx.get('counter', 'c')?.value)]
  const refused = store.change(tx => {
    tx.put('node', 'n', node('n', 'aa'))
    throw new Error('not above 3')
  })
  const answers = Promise.allSettled([...pending, refused])
  disk.open()
  await answers
  for (const answer of [...pending, refused]) {
    await t.rejects(
      answer,
      new StoreError('no space left on device (ENOSPC)'),
      'whoever built on it fails alike'
    )
  }
  t.equal(store.current.get('counter', 'c')?.value, 1)
  t.same(store.health, { ok: false, reason: 'no space left on device (ENOSPC)' })
  t.same(told, [])
  files.before = () => {}
  t.equal(await add(), 2, 'no restart is needed')
  t.same(store.health, { ok: true, reason: '' })
  t.equal(told.length, 1)
  await store.close()
  const again = await openStore(directory)
  t.equal(again.current.get('counter', 'c')?.value, 2)
  t.equal(again.current.get('node', 'n'), undefined)
  await again.close()
})

t.test('500 changes of one counter at once', async t => {
  const directory = t.testdir()
  const files = new TestFiles()
  const store = await openStore(directory, { files })
  const values = await Promise.all(
    Array.from({ length: 500 }, async (_, i) => {
      if (i % 7 === 0) await new Promise(setImmediate)
      return store.change(tx => {
        const value = (tx.get('counter', 'c')?.value ?? 0) + 1
        tx.put('counter', 'c', { name: 'c', value })
        return value
      })
    })
  )
  t.equal(new Set(values).size, 500)
  t.equal(store.current.get('counter', 'c')?.value, 500)
  t.ok(files.count('write') < 50, `written together: ${files.count('write')} writes`)
  await store.close()
  t.equal(JSON.parse(readFileSync(join(directory, 'counter/c.json'), 'utf8')).value, 500)
})

t.test('no change, no write', async t => {
  const files = new TestFiles()
  const store = await openStore(t.testdir(), { files })
  await store.change(tx => tx.put('node', 'a', node('a', 'aa')))
  const before = store.current.get('node', 'a')
  const writes = files.count('write')
  let told = 0
  const unsubscribe = store.subscribe(() => told++)
  await store.change(tx => {
    tx.put('node', 'a', node('a', 'aa'))
    t.same(tx.changes(), [])
    tx.put('node', 'a', node('a', 'bb'))
    tx.put('node', 'b', node('b', 'cc'))
    t.equal(tx.changes().length, 2)
    tx.remove('node', 'b')
    tx.put('node', 'a', node('a', 'aa'))
    t.same(tx.changes(), [])
    tx.remove('node', 'absent')
  })
  t.equal(files.count('write'), writes)
  t.equal(told, 0)
  t.equal(store.current.get('node', 'a'), before)
  unsubscribe()
  await store.change(tx => tx.remove('node', 'a'))
  t.equal(told, 0, 'unsubscribed')
  await store.close()
})

t.test('names that cannot be files, types that are none, a transaction kept for later', async t => {
  const store = await openStore(t.testdir())
  for (const name of ['', '.', '..', '.x', '../x', 'a/b', 'a\0b', 'é'.repeat(101)]) {
    await t.rejects(
      store.change(tx => tx.put('node', name, node(name))),
      TypeError,
      JSON.stringify(name)
    )
  }
  await t.rejects(
    store.change(tx => tx.put('nothing' as 'node', 'a', node('a'))),
    TypeError
  )
  const kept = await store.change(tx => tx)
  t.throws(() => kept.put('node', 'a', node('a')), /over/)
  t.same(store.current.names('node'), [])
  await store.close()
})

t.test('a listener that throws does no harm', async t => {
  const logged: string[] = []
  const store = await openStore(t.testdir(), { log: (level, message) => logged.push(`${level} ${message}`) })
  let told = 0
  store.subscribe(() => {
    throw new Error('listener broke')
  })
  store.subscribe(() => told++)
  await store.change(tx => tx.put('node', 'a', node('a')))
  t.equal(told, 1)
  t.match(logged, [/error .*listener broke/])
  await store.close()
})

t.test('closing finishes what is under way and refuses the rest', async t => {
  const directory = t.testdir()
  const store = await openStore(directory)
  const under = Array.from({ length: 20 }, (_, i) =>
    store.change(tx => tx.put('node', `n${i}`, node(`n${i}`)))
  )
  const closed = store.close()
  await t.rejects(
    store.change(() => {}),
    StoreError
  )
  await Promise.all(under)
  await closed
  await store.close()
  const again = await openStore(directory)
  t.equal(again.current.names('node').length, 20)
  await again.close()
})
