import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync
} from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { LoadError, StoreError } from '../../lib/store/errors.js'
import { readLog } from '../../lib/store/files/wal.js'
import { onDisk } from '../support/scratch.js'
import { until } from '../support/until.js'
import type { Store } from './file-store.js'
import {
  gate,
  kinds,
  type MacIndex,
  type Node,
  node,
  openStore,
  systemError,
  TestFiles,
  type TestTypes
} from './fixtures.js'

type TestStore = Store<TestTypes, MacIndex>

const put = (store: TestStore, ...names: string[]) =>
  store.change(tx => {
    for (const name of names) tx.put('node', name, node(name))
  })

const nodesOnDisk = (directory: string) =>
  readdirSync(join(directory, 'node')).map(file => file.replace('.json', ''))
const intentsOnDisk = (directory: string) => readdirSync(join(directory, 'intents'))
/** The objects that the log changes, as a start would find it. */
const inLog = (directory: string) =>
  readLog(directory).records.flatMap(({ entries }) =>
    entries.flatMap(({ type, name }) => (type === 'written' ? [] : [name]))
  )
const isCut = (directory: string) => readdirSync(join(directory, 'log')).length === 0

t.test('a change is in the log first, the files are written behind it', async t => {
  const directory = onDisk(t)
  const files = new TestFiles()
  const store = await openStore(directory, { files })
  const objects = gate()
  files.before = (operation, file) =>
    operation === 'replace' && file.includes('/node/') ? objects.wait() : undefined
  await put(store, 'single')
  await put(store, 'pair1', 'pair2')
  t.ok(store.current.get('node', 'pair2'), 'committed by the log')
  t.same(nodesOnDisk(directory), [])
  t.same(inLog(directory), ['single', 'pair1', 'pair2'])
  await objects.arrived
  await put(store, 'later')
  t.same(nodesOnDisk(directory), [], 'no change waits for files')
  t.equal(inLog(directory).at(-1), 'later')
  objects.open()
  await until(() => isCut(directory))
  t.same(nodesOnDisk(directory), ['later', 'pair1', 'pair2', 'single'])
  await put(store, 'last')
  await store.close()
  t.same(nodesOnDisk(directory), ['last', 'later', 'pair1', 'pair2', 'single'])
  t.ok(isCut(directory), 'a clean stop leaves nothing in the log')
  t.equal(statSync(join(directory, 'node/pair1.json')).mode & 0o777, 0o600)
  for (const type of ['node', 'log']) t.equal(statSync(join(directory, type)).mode & 0o777, 0o700)
})

t.test('the log, and the name of a new segment, are synced before the answer', async t => {
  const directory = onDisk(t)
  const files = new TestFiles()
  const store = await openStore(directory, { files })
  const done: string[] = []
  files.before = (operation, file) => {
    const name = file.slice(directory.length + 1).replace(/\d{5,}/, 'N')
    if (name.startsWith('log')) done.push(`${operation} ${name}`)
  }
  const steps = async (change: Promise<unknown>) => {
    done.length = 0
    await change
    return [...done]
  }
  const append = ['write log/N.wal', 'datasync log/N.wal']
  t.same(await steps(put(store, 'a')), ['openLog log/N.wal', 'syncDirectory log', ...append])
  t.same(await steps(store.change(tx => tx.remove('node', 'a'))), append)
  t.same(await steps(put(store, 'a', 'b')), append)
  await store.close()
})

t.test('changes that wait together share one sync, and none is answered before it', async t => {
  const files = new TestFiles()
  const store = await openStore(onDisk(t), { files })
  await put(store, 'first')
  const disk = gate()
  files.before = operation => (operation === 'datasync' ? disk.wait() : undefined)
  const syncs = files.count('datasync')
  let answered = 0
  const changes = [put(store, 'n').then(() => answered++)]
  await disk.arrived
  for (let i = 0; i < 1000; i++) changes.push(put(store, `n${i}`).then(() => answered++))
  await new Promise(setImmediate)
  t.equal(answered, 0)
  disk.open()
  await Promise.all(changes)
  t.equal(answered, 1001)
  t.equal(files.count('datasync') - syncs, 2, 'one for the first, one for the thousand that came meanwhile')
  await store.close()
})

t.test('a start finishes the intents that it finds, in their order', async t => {
  const directory = t.testdir({
    node: {
      'a.json': '{"name":"a","mac":null,"tags":["old"]}',
      'gone.json': '{"name":"gone","mac":null,"tags":[]}'
    },
    intents: {
      '000000000002.json': JSON.stringify({
        writes: [
          { type: 'node', name: 'a', text: JSON.stringify({ name: 'a', mac: null, tags: ['second'] }) },
          { type: 'node', name: 'gone', text: null }
        ]
      }),
      '000000000010.json': JSON.stringify({
        writes: [{ type: 'node', name: 'a', text: JSON.stringify({ name: 'a', mac: null, tags: ['tenth'] }) }]
      }),
      '000000000011.json.123456': '{"writes": [',
      '.hidden': 'x'
    }
  })
  const store = await openStore(directory)
  t.same(store.current.get('node', 'a')?.tags, ['tenth'])
  t.same(store.current.names('node'), ['a'])
  t.same(intentsOnDisk(directory), ['.hidden'])
  await until(() => nodesOnDisk(directory).length === 1)
  t.same(nodesOnDisk(directory), ['a'])
  t.match(readFileSync(join(directory, 'node/a.json'), 'utf8'), 'tenth')
  await store.close()
})

t.test('a damaged intent stops the start: what it promised is unknown', async t => {
  const text = JSON.stringify({ writes: [{ type: 'node', name: 'a', text: JSON.stringify(node('a')) }] })
  for (const damaged of [
    '',
    '{}',
    'null',
    text.slice(0, -3),
    text.replace('"node"', '"other"'),
    text.replace('"name"', '"nome"'),
    '{"writes":[{"type":"node","name":"../../x","text":"{}"}]}'
  ]) {
    const directory = t.testdir({ intents: { '000000000007.json': damaged } })
    await t.rejects(openStore(directory), LoadError, damaged)
    t.equal(readFileSync(join(directory, 'intents/000000000007.json'), 'utf8'), damaged, 'left as it is')
  }
})

t.test('files that cannot be written behind the log: kept, tried again, nothing lost', async t => {
  const directory = onDisk(t)
  const files = new TestFiles()
  const store = await openStore(directory, { files })
  let broken = true
  files.before = (operation, file) => {
    if (broken && operation === 'replace' && file.includes('/node/')) throw systemError('EIO')
  }
  await put(store, 'a', 'b')
  await until(() => !store.health.ok)
  t.same(store.health, { ok: false, reason: 'input/output error (EIO)'.replace('input/output', 'i/o') })
  await put(store, 'c')
  await store.change(tx => tx.put('node', 'a', node('a', 'aa')))
  t.same(nodesOnDisk(directory), [])
  broken = false
  await until(() => store.health.ok)
  await until(() => isCut(directory))
  t.same(nodesOnDisk(directory), ['a', 'b', 'c'])
  t.match(readFileSync(join(directory, 'node/a.json'), 'utf8'), '"aa"', 'the latest content')
  await store.close()
})

t.test('closing while the files fail leaves the log to the next start', async t => {
  const directory = onDisk(t)
  const files = new TestFiles()
  const store = await openStore(directory, { files })
  files.before = (operation, file) => {
    if (operation === 'replace' && file.includes('/node/')) throw systemError('ENOSPC')
  }
  await put(store, 'a', 'b')
  await put(store, 'c')
  await store.close()
  t.same(nodesOnDisk(directory), [])
  t.same(inLog(directory), ['a', 'b', 'c'])
  const again = await openStore(directory)
  t.same(again.current.names('node'), ['a', 'b', 'c'])
  await put(again, 'd', 'e')
  await again.close()
  t.same(nodesOnDisk(directory), ['a', 'b', 'c', 'd', 'e'])
  t.ok(isCut(directory))
})

t.test('closing leaves a large change to the next start', async t => {
  const directory = onDisk(t)
  const files = new TestFiles()
  const store = await openStore(directory, { files })
  const disk = gate()
  files.before = (operation, file) =>
    operation === 'replace' && file.includes('/node/') ? disk.wait() : undefined
  const names = Array.from({ length: 40 }, (_, i) => `n${i}`)
  await put(store, ...names)
  await disk.arrived
  const closed = store.close()
  await new Promise(setImmediate)
  const now = performance.now.bind(performance)
  t.teardown(() => {
    performance.now = now
  })
  performance.now = () => now() + 6000
  disk.open()
  await closed
  t.ok(nodesOnDisk(directory).length < 40)
  t.equal(inLog(directory).length, 40)
  const again = await openStore(directory)
  t.same(again.current.names('node'), names)
  performance.now = now
  await again.close()
  t.equal(nodesOnDisk(directory).length, 40)
  t.ok(isCut(directory))
})

t.test('what a newer change replaces is not written first', async t => {
  const directory = onDisk(t)
  const files = new TestFiles()
  const store = await openStore(directory, { files })
  const disk = gate()
  const written: string[] = []
  files.before = async (operation, file) => {
    if (operation !== 'replace' || !file.includes('/node/')) return
    await disk.wait()
    written.push(file)
  }
  const many = Array.from({ length: 500 }, (_, i) => `n${i}`)
  await put(store, ...many)
  await disk.arrived
  await store.change(tx => {
    for (const name of many.slice(1)) tx.put('node', name, node(name, 'aa'))
  })
  t.equal(inLog(directory).length, 999)
  disk.open()
  await until(() => isCut(directory))
  t.ok(written.length < 600, `${written.length} files written for 500`)
  await store.close()
  t.notMatch(readFileSync(join(directory, 'node/n0.json'), 'utf8'), '"aa"')
  for (const name of many.slice(1))
    if (!readFileSync(join(directory, `node/${name}.json`), 'utf8').includes('"aa"')) t.fail(name)
})

t.test('the files of large changes are made a few in each turn of the event loop', async t => {
  const files = new TestFiles()
  let made = 0
  const encode = (doc: Node) => {
    made++
    return `${JSON.stringify(doc)}\n`
  }
  const directory = onDisk(t)
  const store = await openStore(directory, {
    files,
    kinds: { ...kinds, node: { ...kinds.node, encode } }
  })
  const disk = gate()
  files.before = async (operation, file) => {
    if (operation === 'replace' && file.includes('/node/')) await disk.wait()
  }
  const many = Array.from({ length: 1000 }, (_, i) => `n${i}`)
  const change = (mac: string) =>
    store.changeInSteps(function* (tx) {
      for (const name of many) yield tx.put('node', name, node(name, mac))
    })
  await change('aa')
  await disk.arrived
  await change('bb')
  let most = 0
  for (disk.open(); !isCut(directory); ) {
    const before = made
    await new Promise(setImmediate)
    most = Math.max(most, made - before)
  }
  t.ok(made > 2000, `${made} texts`)
  t.ok(most <= 64, `${most} texts in a turn`)
  await store.close()
})

t.test('names that a failed flush did not make durable are synced before the log is cut', async t => {
  const directory = onDisk(t)
  const files = new TestFiles()
  const store = await openStore(directory, { files })
  const synced: boolean[] = []
  files.before = (operation, file) => {
    if (operation !== 'syncDirectory' || !file.endsWith('/node')) return
    synced.push(existsSync(join(directory, 'node/a.json')) && inLog(directory).length === 2)
    if (synced.length < 3) throw systemError('EIO')
  }
  await put(store, 'a', 'b')
  await until(() => isCut(directory))
  t.same(synced, [true, true, true])
  await store.close()
})

t.test('too many files behind: changes wait for room, or are refused when none is to be had', async t => {
  const directory = onDisk(t)
  const files = new TestFiles()
  const store = await openStore(directory, { files, outstandingFiles: 1024 })
  const disk = gate()
  let broken = false
  files.before = async (operation, file) => {
    if (operation !== 'replace' || !file.includes('/node/')) return
    await disk.wait()
    if (broken) throw systemError('EIO')
  }
  const many = Array.from({ length: 1024 }, (_, i) => `n${i}`)
  await put(store, ...many)
  let answered = false
  const waiting = put(store, 'one', 'more').finally(() => {
    answered = true
  })
  await new Promise(resolve => setTimeout(resolve, 30))
  t.notOk(answered, 'waits')
  broken = true
  const refused = t.rejects(waiting, StoreError)
  disk.open()
  await refused
  t.equal(store.current.get('node', 'more'), undefined)
  broken = false
  await until(() => store.health.ok)
  await put(store, 'one', 'more')
  await store.close()
  t.equal(nodesOnDisk(directory).length, 1026)
})

t.test('a commit that failed after it reached the disk is taken off it again', async t => {
  const directory = onDisk(t)
  const files = new TestFiles()
  const store = await openStore(directory, { files })
  await put(store, 'kept')
  let failing = 0
  files.before = operation => {
    if (operation === 'datasync' && failing-- > 0) throw systemError('EIO')
  }
  for (const change of [
    () => put(store, 'new'),
    () => store.change(tx => tx.put('node', 'kept', node('kept', 'aa'))),
    () => store.change(tx => tx.remove('node', 'kept')),
    () => put(store, 'x', 'y')
  ]) {
    for (const times of [1, 2, 3]) {
      failing = times
      await t.rejects(change(), StoreError)
      t.same(store.current.names('node'), ['kept'])
      if (times === 3)
        await t.rejects(put(store, 'other'), StoreError, 'nothing is written over an unknown state')
      else await put(store, 'kept')
      failing = 0
      await store.change(tx => tx.put('counter', 'c', { name: 'c', value: Math.random() }))
      t.strictSame(new Set([...inLog(directory), 'kept', 'c']), new Set(['kept', 'c']))
      t.notMatch(JSON.stringify(readLog(directory).records), 'aa')
    }
  }
  await store.close()
  t.same(nodesOnDisk(directory), ['kept'])
  t.notMatch(readFileSync(join(directory, 'node/kept.json'), 'utf8'), 'aa')
})

t.test('health tells when the disk is well again, though nobody writes', async t => {
  const directory = onDisk(t)
  const files = new TestFiles()
  const store = await openStore(directory, { files })
  files.before = () => {
    throw systemError('ENOSPC')
  }
  await t.rejects(put(store, 'a'), StoreError)
  t.notOk(store.health.ok)
  files.before = () => {}
  await until(() => store.health.ok)
  await store.close()
  t.ok(isCut(directory))
  t.notOk(existsSync(join(directory, 'node/a.json')))
})

t.test('a change that comes while the disk is probed has its own try', async t => {
  const files = new TestFiles()
  const store = await openStore(onDisk(t), { files })
  files.before = () => {
    throw systemError('ENOSPC')
  }
  await t.rejects(put(store, 'a'), StoreError)
  const { wait, open, arrived } = gate()
  // The probe waits, and fails at last; the disk has become well meanwhile.
  files.before = async () => {
    await wait()
    files.before = () => {}
    throw systemError('ENOSPC')
  }
  await arrived
  const change = put(store, 'b')
  open()
  await t.resolves(change)
  await store.close()
})

t.test('what an interrupted write left is removed at start', async t => {
  const directory = t.testdir({
    node: {
      'a.json.4294967295': '{"na',
      '.a.json.0123456789ab': '{"na',
      'b.json': '{"name":"b","mac":null,"tags":[]}'
    }
  })
  writeFileSync(join(directory, 'node', 'c~'), 'an editor was here')
  const store = await openStore(directory)
  t.same(readdirSync(join(directory, 'node')), ['b.json', 'c~'])
  t.same(store.current.names('node'), ['b'])
  await store.close()
})

t.test('what is committed while failed files are tried again is written too', async t => {
  const directory = onDisk(t)
  const files = new TestFiles()
  const logged: string[] = []
  const store = await openStore(directory, {
    files,
    log: (level, message) => logged.push(`${level} ${message}`)
  })
  const retry = gate()
  let isFull = true
  let isTried = false
  files.before = async (operation, file) => {
    if (operation !== 'replace' || !file.endsWith('a1.json')) return
    if (isFull) throw systemError('ENOSPC')
    isTried = true
    await retry.wait()
  }
  await put(store, 'a1', 'a2')
  await until(() => !store.health.ok)
  isFull = false
  await until(() => isTried)
  await put(store, 'b1', 'b2')
  retry.open()
  await until(() => isCut(directory))
  t.same(nodesOnDisk(directory), ['a1', 'a2', 'b1', 'b2'])
  t.same(logged, [
    "warn the store's files are behind: no space left on device (ENOSPC)",
    "info the store's files are written again"
  ])
  await store.close()
})

// rules 11.3
t.test('another directory that takes the place of ours gets nothing; what is refused stays away', async t => {
  const directory = join(t.testdir({ state: {} }), 'state')
  const files = new TestFiles()
  const store = await openStore(directory, { files })
  await put(store, 'n0')
  const exchange = () => {
    renameSync(directory, `${directory}-away`)
    mkdirSync(directory)
  }
  const putBack = () => {
    t.same(readdirSync(directory), [])
    rmSync(directory, { recursive: true })
    renameSync(`${directory}-away`, directory)
  }
  const many = Array.from({ length: 65 }, (_, i) => `n${i}`)
  exchange()
  await t.rejects(put(store, ...many, 'mark'), StoreError)
  putBack()
  await until(() => store.health.ok)
  // The check of the directory has passed; its log is open.
  files.before = operation => {
    if (operation !== 'datasync') return
    files.before = () => {}
    exchange()
  }
  await put(store, 'during')
  await t.rejects(put(store, 'refused'), /is another directory than at the start/)
  putBack()
  await until(() => store.health.ok)
  await put(store, 'later')
  await store.close()
  const again = await openStore(directory)
  t.same(again.current.names('node'), ['during', 'later', 'n0'])
  await again.close()
})

// rules 11.3
t.test('the log of another directory that took the place of ours stays', async t => {
  const directory = join(t.testdir({ state: {} }), 'state')
  const files = new TestFiles()
  const store = await openStore(directory, { files })
  let hits = 0
  files.before = (operation, file) => {
    // The objects of the change are written and about to be durable: now the directory is exchanged for a
    // copy of it.
    if (operation !== 'syncDirectory' || !file.endsWith('/node') || hits++ > 0) return
    cpSync(directory, `${directory}-copy`, { recursive: true })
    renameSync(directory, `${directory}-away`)
    renameSync(`${directory}-copy`, directory)
  }
  await put(store, 'a', 'b')
  await until(() => !store.health.ok)
  t.match(store.health.reason, /is another directory than at the start/)
  t.same(inLog(directory), ['a', 'b'], 'the copy still has what its next start will finish')
  rmSync(directory, { recursive: true })
  renameSync(`${directory}-away`, directory)
  await until(() => isCut(directory))
  t.same(nodesOnDisk(directory), ['a', 'b'])
  await store.close()
})
