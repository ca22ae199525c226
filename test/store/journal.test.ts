import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync
} from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { identityIn } from '../../lib/disk/steps.js'
import { LoadError, StoreError } from '../../lib/store/errors.js'
import { Journal, type JournalOptions } from '../../lib/store/journal.js'
import { output } from '../support/programs.js'
import { until } from '../support/until.js'
import { gate, systemError, TestFiles } from './fixtures.js'

interface Report {
  node: string
  state: number
}

/** The last state of each node, as a user of a journal keeps it. */
async function openStates(file: string, more: Partial<JournalOptions<Report>> = {}) {
  const states = new Map<string, number>()
  const read: Report[] = []
  const journal = await Journal.open<Report>({
    file,
    read: record => {
      read.push(record)
      states.set(record.node, record.state)
    },
    snapshot: function* () {
      for (const [node, state] of states) yield { node, state }
    },
    ...more
  })
  const report = async (node: string, state: number) => {
    await journal.append({ node, state })
    states.set(node, state)
  }
  return { journal, states, read, report }
}

// rules 11.6
t.test('a pipe in the place of the file is named', async t => {
  const file = join(t.testdir(), 'journal')
  await output('mkfifo', [file])
  await t.rejects(openStates(file), { message: new RegExp(`^${file}: it is not a regular file`) })
})

t.test('what was appended is read again, in order', async t => {
  const file = join(t.testdir(), 'journal')
  const first = await openStates(file)
  for (const [node, state] of [
    ['a', 1],
    ['b', 1],
    ['a', 2]
  ] as const)
    await first.report(node, state)
  await first.journal.close()
  await t.rejects(first.journal.append({ node: 'a', state: 3 }), StoreError)
  t.equal(statSync(file).mode & 0o777, 0o600)
  t.equal(
    readFileSync(file, 'utf8'),
    '{"node":"a","state":1}\n{"node":"b","state":1}\n{"node":"a","state":2}\n'
  )
  const again = await openStates(file)
  t.same(
    again.read.map(({ node, state }) => `${node}${state}`),
    ['a1', 'b1', 'a2']
  )
  await again.journal.close()
})

t.test('appends that wait together share one fsync, and none is answered before it', async t => {
  const file = join(t.testdir(), 'journal')
  const files = new TestFiles()
  const { journal, report } = await openStates(file, { files })
  const disk = gate()
  files.before = operation => (operation === 'datasync' ? disk.wait() : undefined)
  let answered = 0
  const appends = [report('first', 0).then(() => answered++)]
  await disk.arrived
  for (let i = 0; i < 1000; i++) appends.push(report(`n${i}`, i).then(() => answered++))
  await new Promise(setImmediate)
  t.equal(answered, 0)
  disk.open()
  await Promise.all(appends)
  t.equal(answered, 1001)
  t.equal(files.count('datasync'), 2, 'one for the first, one for the thousand that came meanwhile')
  await journal.close()
})

t.test('a last line that a crash left unfinished is cut off', async t => {
  const whole = '{"node":"a","state":1}\n'
  for (const torn of [
    '{"node":"b","st',
    '{"node":"b","state":2}',
    '\0\0\0\0',
    '{"node":"b\n',
    '\0\0\n',
    '\xff\n'
  ]) {
    const file = join(t.testdir(), 'journal')
    writeFileSync(file, Buffer.from(whole + torn, 'latin1'))
    const { journal, read, report } = await openStates(file)
    t.same(read, [{ node: 'a', state: 1 }])
    t.equal(readFileSync(file, 'utf8'), whole)
    await report('c', 3)
    await journal.close()
    const again = await openStates(file)
    t.same(again.read, [
      { node: 'a', state: 1 },
      { node: 'c', state: 3 }
    ])
    await again.journal.close()
  }
})

t.test('damage before the end is an error that names the line, and the file is left alone', async t => {
  const file = join(t.testdir(), 'journal')
  const damaged = '{"node":"a","state":1}\n{"node":\n{"node":"c","state":1}\n'
  writeFileSync(file, damaged)
  const error = await openStates(file).catch((error: unknown) => error)
  t.ok(error instanceof LoadError)
  t.match(error, { problems: [{ file, line: 2 }] })
  t.equal(readFileSync(file, 'utf8'), damaged)
  writeFileSync(file, '{"node":"a","state":1}\n')
  const read = () => {
    throw new Error('no such state')
  }
  await t.rejects(
    openStates(file, { read }),
    /journal:1: no such state/,
    'a whole record that is refused, though the last'
  )
})

t.test('a growing file is compacted, and appends meanwhile are not lost', async t => {
  const file = join(t.testdir(), 'journal')
  const files = new TestFiles()
  const { journal, report, states } = await openStates(file, { files, compactBytes: 2000 })
  let compacting = 0
  const late: Promise<void>[] = []
  files.before = async (operation, at) => {
    if (operation === 'rename') {
      compacting++
      late.push(report(`late${compacting}`, compacting))
      await new Promise(resolve => setTimeout(resolve, 5))
      late.push(report(`later${compacting}`, compacting))
    }
    if (operation === 'openLog') t.equal(at, `${file}.new`)
  }
  const node = async (name: string) => {
    for (let state = 1; state <= 200; state++) await report(name, state)
  }
  await Promise.all(['a', 'b', 'c'].map(node))
  await Promise.all(late)
  t.ok(compacting > 2, `compacted ${compacting} times`)
  const expected = new Map(states)
  await journal.close()
  t.ok(statSync(file).size < 10_000, 'smaller than the 15,000 bytes that were written')
  t.equal(statSync(file).mode & 0o777, 0o600)
  t.notOk(existsSync(`${file}.new`))
  const again = await openStates(file)
  t.same(again.states, expected)
  t.equal(again.states.get('c'), 200)
  await again.journal.close()
})

t.test('a compaction that fails keeps the file; one that a crash interrupted is forgotten', async t => {
  const file = join(t.testdir(), 'journal')
  for (const broken of ['openLog', 'appendFile', 'datasync', 'rename'] as const) {
    const files = new TestFiles()
    const logged: string[] = []
    const { journal, report, states } = await openStates(file, {
      files,
      compactBytes: 500,
      log: (_, message) => logged.push(message)
    })
    files.before = (operation, at) => {
      if (operation === broken && at.endsWith('.new')) throw systemError('ENOSPC')
    }
    for (let i = 0; i < 50; i++) await report(broken, i)
    await until(() => logged.length > 0)
    t.match(logged[0], /cannot be compacted: no space left/)
    t.notOk(existsSync(`${file}.new`))
    const expected = new Map(states)
    await journal.close()
    writeFileSync(`${file}.new`, '{"node":"half')
    const again = await openStates(file)
    t.same(again.states, expected)
    await again.journal.close()
    t.notOk(existsSync(`${file}.new`))
  }
})

t.test('a compaction whose new name may not be durable holds the appends back until it is', async t => {
  const directory = t.testdir()
  const file = join(directory, 'journal')
  const files = new TestFiles()
  const { journal, report } = await openStates(file, { files, compactBytes: 300 })
  let broken = true
  files.before = operation => {
    if (broken && operation === 'syncDirectory') throw systemError('EIO')
  }
  let refused: unknown
  for (let i = 0; i < 50 && refused === undefined; i++) {
    await report('a', i).catch((error: unknown) => {
      refused = error
    })
  }
  t.match(refused, new StoreError('i/o error (EIO)'))
  broken = false
  await report('a', 99)
  await journal.close()
  const again = await openStates(file)
  t.equal(again.states.get('a'), 99)
  await again.journal.close()
})

t.test('a failed append leaves no half line, even when it cannot be taken back at once', async t => {
  const file = join(t.testdir(), 'journal')
  const files = new TestFiles()
  const { journal, report } = await openStates(file, { files })
  await report('a', 1)
  let broken = true
  files.before = operation => {
    if (!broken) return
    if (operation === 'appendFile') appendFileSync(file, '{"node":"half')
    if (operation === 'datasync' || operation === 'truncate' || operation === 'appendFile')
      throw systemError('EIO')
  }
  await t.rejects(report('b', 2), StoreError)
  t.match(readFileSync(file, 'utf8'), /half$/)
  await t.rejects(report('b', 2), StoreError)
  broken = false
  await report('c', 3)
  t.equal(readFileSync(file, 'utf8'), '{"node":"a","state":1}\n{"node":"c","state":3}\n')
  broken = true
  await t.rejects(report('d', 4), StoreError)
  await journal.close()
  const again = await openStates(file)
  t.same([...again.states.keys()], ['a', 'c'])
  await again.journal.close()
})

// rules 11.3
t.test('what a failed append left is not put right in another directory of that name', async t => {
  const directory = join(t.testdir({ state: {} }), 'state')
  const file = join(directory, 'journal')
  const files = new TestFiles()
  const identity = identityIn(statSync(directory, { bigint: true }))
  const ours = { same: directory, identity, otherwise: 'another directory' }
  const { journal, report } = await openStates(file, { files, ownershipCheck: ours, compactBytes: 100 })
  const syncs = () => files.count('syncDirectory')
  let broken = true
  files.before = operation => {
    if (broken && operation === 'syncDirectory') throw systemError('EIO')
  }
  // The file is compacted, and its new name may not be durable.
  const isRefused = (state: number) =>
    report('a', state).then(
      () => false,
      () => true
    )
  for (let state = 0; !(await isRefused(state)); ) state++
  broken = false
  renameSync(directory, `${directory}-away`)
  mkdirSync(directory)
  await t.rejects(report('b', 1), /another directory/)
  rmSync(directory, { recursive: true })
  renameSync(`${directory}-away`, directory)
  const back = syncs()
  await report('b', 2)
  t.equal(syncs(), back + 1, 'the right directory is synced before the next answer')
  await journal.close()
})
