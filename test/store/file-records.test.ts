// Records in files: the log, the tables that are written from memory, and what earlier releases have left.
import { mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { LoadError, StoreError } from '../../lib/store/errors.js'
import { FileMedium, type FileOptions } from '../../lib/store/files/medium.js'
import { output } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { until } from '../support/until.js'
import { gate, systemError, TestFiles } from './fixtures.js'
import { openOthers, openValues } from './node-values.js'
import { type RecordsPlace, testRecords } from './records-suite.js'

/** Opens a directory with the values of nodes. */
async function openStates(directory: string, more: Partial<FileOptions> = {}) {
  const medium = new FileMedium({ directory, ...more })
  try {
    await medium.lock()
    await medium.read()
    await medium.start([])
    const { values: states, records, put: report } = await openValues(medium)
    const close = async () => {
      await records.close()
      await medium.close()
    }
    return { states, report, close }
  } catch (error) {
    await medium.close()
    throw error
  }
}

const table = (directory: string) => join(directory, 'node-status.journal')
/** The lines of the table that are records. */
const recordsIn = (directory: string) =>
  readFileSync(table(directory), 'utf8')
    .split('\n')
    .filter(line => line.includes('"node"'))
    .sort()

class Directory implements RecordsPlace {
  answer: RecordsPlace['answer'] = 'stored'
  readonly #directory: string
  #end: (how: 'stop' | 'kill') => Promise<void> = async () => {}

  constructor(t: Test) {
    this.#directory = scratch(t)
    t.teardown(() => this.#end('stop'))
  }

  readonly open: RecordsPlace['open'] = async memory => {
    const files = new TestFiles()
    let isKilled = false
    files.before = operation => {
      const fails = this.answer === 'lost' ? /^(datasync|truncate)$/ : /^(write|openLog|replace)$/
      if (isKilled || (this.answer !== 'stored' && fails.test(operation))) throw systemError('EIO')
    }
    // Tables are written again and again.
    const medium = new FileMedium({ directory: this.#directory, files, checkpointBytes: 500 })
    await medium.lock()
    await medium.read()
    await medium.start([])
    const records = await medium.openRecords('node-status', memory)
    await openOthers(medium, 'node-status')
    this.#end = async how => {
      if (how === 'stop') await records.close()
      isKilled = how === 'kill'
      // The kernel lock goes with it, as it does with a process.
      await medium.close()
    }
    return records
  }

  end(how: 'stop' | 'kill'): Promise<void> {
    return this.#end(how)
  }
}

testRecords(t, async t => new Directory(t))

// rules 11.6
t.test('a pipe in the place of a table is named', async t => {
  const directory = scratch(t)
  await output('mkfifo', [table(directory)])
  await t.rejects(openStates(directory), {
    message: new RegExp(`${table(directory)}: it is not a regular file`)
  })
})

t.test('after a stop the table has all, for its owner alone', async t => {
  const directory = scratch(t)
  const { report, close } = await openStates(directory)
  await report('a', 1)
  await report('b', 1)
  await report('a', 2)
  await close()
  t.equal(statSync(table(directory)).mode & 0o777, 0o600)
  t.same(recordsIn(directory), ['{"node":"a","value":2}', '{"node":"b","value":1}'])
})

t.test('records that wait together share one sync, and none is answered before it', async t => {
  const files = new TestFiles()
  const { report, close } = await openStates(scratch(t), { files })
  const disk = gate()
  files.before = operation => (operation === 'datasync' ? disk.wait() : undefined)
  let answered = 0
  const reports = [report('first', 0).then(() => answered++)]
  await disk.arrived
  for (let i = 0; i < 1000; i++) reports.push(report(`n${i}`, i).then(() => answered++))
  await new Promise(setImmediate)
  t.equal(answered, 0)
  disk.open()
  await Promise.all(reports)
  t.equal(answered, 1001)
  t.equal(files.count('datasync'), 2, 'one for the first, one for the thousand that came meanwhile')
  await close()
})

t.test('a last line that an earlier release left unfinished is left out', async t => {
  for (const torn of [
    '{"node":"b","st',
    '{"node":"b","value":2}',
    '\0\0\0\0',
    '{"node":"b\n',
    '\0\0\n',
    '\xff\n'
  ]) {
    const directory = scratch(t)
    writeFileSync(table(directory), Buffer.from(`{"node":"a","value":1}\n${torn}`, 'latin1'))
    const { states, report, close } = await openStates(directory)
    t.same([...states], [['a', 1]])
    await report('c', 3)
    await close()
    t.same(recordsIn(directory), ['{"node":"a","value":1}', '{"node":"c","value":3}'])
  }
})

t.test('damage before the end is an error that names the line, and the file is left alone', async t => {
  const directory = scratch(t)
  const damaged = '{"node":"a","value":1}\n{"node":\n{"node":"c","value":1}\n'
  writeFileSync(table(directory), damaged)
  const error = await openStates(directory).catch((error: unknown) => error)
  t.ok(error instanceof LoadError)
  t.match(error, { problems: [{ file: table(directory), line: 2 }] })
  t.equal(readFileSync(table(directory), 'utf8'), damaged)
  writeFileSync(table(directory), '{"node":"a","val":"x"}\n')
  await t.rejects(openStates(directory), /journal: a: no value/, 'a record that is refused, though the last')
})

t.test('moves and removals of an earlier release count', async t => {
  const directory = scratch(t)
  const lines = [
    '{"node":"a","value":1}',
    '{"node":"b","value":1}',
    '{"node":"a","renamed":"c"}',
    '{"node":"b","dropped":true}',
    '{"probe":true}',
    '{"node":"c","value":2}',
    '{"node":"b","value":3}'
  ]
  writeFileSync(table(directory), lines.map(line => `${line}\n`).join(''))
  const { states, close } = await openStates(directory)
  t.same([...states].sort(), [
    ['b', 3],
    ['c', 2]
  ])
  await close()
})

t.test('a growing log becomes tables, and records meanwhile are not lost', async t => {
  const directory = scratch(t)
  const files = new TestFiles()
  const { report, states, close } = await openStates(directory, { files, checkpointBytes: 2000 })
  let written = 0
  const late: Promise<void>[] = []
  files.before = async (operation, at) => {
    if (operation !== 'replace' || at !== table(directory)) return
    written++
    late.push(report(`late${written}`, written))
    await new Promise(resolve => setTimeout(resolve, 5))
    late.push(report(`later${written}`, written))
  }
  for (let state = 1; written < 2; state++)
    await Promise.all(['a', 'b', 'c'].map(node => report(node, state)))
  await until(() => late.length >= 2 * written)
  await Promise.all(late)
  const expected = new Map(states)
  files.before = () => {
    throw systemError('EIO')
  }
  await close()
  const again = await openStates(directory)
  t.same([...again.states].sort(), [...expected].sort())
  await again.close()
})

t.test('a table that cannot be written is told, and nothing is lost', async t => {
  const directory = scratch(t)
  const files = new TestFiles()
  const told: string[] = []
  const { report, states, close } = await openStates(directory, {
    files,
    checkpointBytes: 500,
    log: (_, message) => told.push(message)
  })
  files.before = (operation, at) => {
    if (operation === 'replace' && at === table(directory)) throw systemError('ENOSPC')
  }
  for (let i = 0; told.length === 0; i++) await report('a', i)
  t.match(told[0], /ENOSPC/)
  await report('b', 1)
  await close()
  const again = await openStates(directory)
  t.same(again.states, states)
  await again.close()
})

t.test('a failed write leaves nothing, even when it cannot be taken back at once', async t => {
  const directory = scratch(t)
  const files = new TestFiles()
  const { report, close } = await openStates(directory, { files })
  await report('a', 1)
  let broken = true
  files.before = operation => {
    if (broken && /^(datasync|truncate)$/.test(operation)) throw systemError('EIO')
  }
  await t.rejects(report('b', 2), new StoreError('i/o error (EIO)'))
  await t.rejects(report('b', 2), StoreError)
  broken = false
  await report('c', 3)
  broken = true
  await t.rejects(report('d', 4), StoreError)
  await close()
  const again = await openStates(directory)
  t.same([...again.states.keys()], ['a', 'c'])
  await again.close()
})

// rules 11.3
t.test('in another directory of that name nothing is written', async t => {
  const directory = join(scratch(t), 'state')
  const { report, close } = await openStates(directory)
  await report('a', 1)
  renameSync(directory, `${directory}-away`)
  mkdirSync(directory)
  await t.rejects(report('b', 1), /another directory/)
  rmSync(directory, { recursive: true })
  renameSync(`${directory}-away`, directory)
  await report('c', 2)
  await close()
  const again = await openStates(directory)
  t.same([...again.states.keys()].sort(), ['a', 'c'])
  await again.close()
})
