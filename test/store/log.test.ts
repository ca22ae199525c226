// The write-ahead log of the file medium: every damage, every failure, edits by hand, and tables.
import { execFileSync } from 'node:child_process'
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
  writeSync
} from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { problemText } from '../../lib/base/errors.js'
import { realFiles, runSteps, StepError } from '../../lib/disk/steps.js'
import { LoadError } from '../../lib/store/errors.js'
import { type Entry, encodeRecord, type LogRecord } from '../../lib/store/files/log-record.js'
import { FileMedium, type FileOptions } from '../../lib/store/files/medium.js'
import { readLog, WriteAheadLog } from '../../lib/store/files/wal.js'
import { Store as AnyStore } from '../../lib/store/store.js'
import { scratch } from '../support/scratch.js'
import { until } from '../support/until.js'
import { Store } from './file-store.js'
import {
  fastClock,
  gate,
  type MacIndex,
  node,
  openStore,
  optionsFor,
  systemError,
  TestFiles,
  type TestTypes
} from './fixtures.js'
import { openLines, openValues } from './node-values.js'

const isLong = process.env.SVCD_LONG !== undefined
const SECTOR = 512
const anywhere = { appendTo: '/dev/null', text: '' }

/** A log of these changes; each has a write of its own. Returns its segment. */
async function logOf(directory: string, changes: Iterable<readonly Entry[]>): Promise<string> {
  mkdirSync(join(directory, 'log'), { recursive: true })
  const options = { directory, files: realFiles, ownershipCheck: anywhere }
  const log = new WriteAheadLog(options, { segments: [], last: 0 })
  for (const change of changes) await log.append(change)
  await log.close()
  return join(directory, 'log', '000000000001.wal')
}

const entry = (name: string, text?: string): Entry => ({ type: 'node', name, text })
const small = (count: number) => Array.from({ length: count }, (_, i) => [entry(`n${i}`, `${i * i}`)])
/** Where each whole record of a log ends. */
const ends = (records: readonly LogRecord[]) => {
  let end = 0
  return records.map(record => {
    end += encodeRecord(record).length
    return end
  })
}

/** Each flip reads the whole log, so the work grows with the square of this. */
const flipped = isLong ? 200 : 60

t.test(`every byte of a log of ${flipped} records flipped: never a wrong state, always told`, async t => {
  const directory = scratch(t)
  const file = await logOf(directory, small(flipped))
  const { records } = readLog(directory)
  t.equal(records.length, flipped)
  const end = ends(records).at(-1) ?? 0
  // The zeros after the records are all alike.
  truncateSync(file, end + 300)
  const bytes = readFileSync(file)
  t.ok(bytes.subarray(end).every(byte => byte === 0))
  const whole = JSON.stringify(records)
  const descriptor = openSync(file, 'r+')
  const [silent, wrong, cut] = [[], [], []] as [number[], number[], number[]]
  for (const [at, byte] of bytes.entries()) {
    writeSync(descriptor, Buffer.from([byte ^ (at % 3 === 0 ? 0xff : 1 << (at % 8))]), 0, 1, at)
    const read = readLog(directory)
    if (read.torn) cut.push(at)
    else if (read.problems.length === 0) silent.push(at)
    if (!whole.startsWith(JSON.stringify(read.records).slice(0, -1))) wrong.push(at)
    writeSync(descriptor, Buffer.from([byte]), 0, 1, at)
  }
  closeSync(descriptor)
  t.comment(`${bytes.length} flips, ${cut.length} of them look like the end of an interrupted write`)
  t.same(silent, [], 'each is told')
  t.same(wrong, [], 'what is read is as it was')
  const last = ends(records).at(-2) ?? 0
  t.same(
    cut.filter(at => at < last),
    [],
    'damage before the last record stops the start'
  )
})

/** Each choice of up to `most` of so many sectors. */
function* choices(count: number, most: number, from = 0): Generator<number[]> {
  yield []
  if (most === 0) return
  for (let first = from; first < count; first++)
    for (const more of choices(count, most - 1, first + 1)) yield [first, ...more]
}

t.test('a power cut keeps any of the sectors of the last write: the change is there, or is not', async t => {
  for (const [what, sizes] of [
    ['one sector', [30]],
    ['eight sectors', [4000]],
    ['the end of a sector', [SECTOR - 1]],
    ['several entries', [700, 900, 30, 1500]]
  ] as const) {
    const directory = scratch(t)
    const last = sizes.map((size, i) => entry(`last${i}`, 'x'.repeat(size)))
    const file = await logOf(directory, [...small(20), last])
    const { records } = readLog(directory)
    const [start = 0, end = 0] = ends(records).slice(-2)
    const bytes = readFileSync(file).subarray(0, end + 2 * SECTOR)
    const before = Math.floor(start / SECTOR)
    const sectors = Math.ceil(end / SECTOR) - before
    let tried = 0
    const look = (image: Buffer, how: string, isThere?: boolean) => {
      tried++
      writeFileSync(file, image)
      const read = readLog(directory)
      if (read.problems.length > 0) t.fail(`${what}, ${how}: ${problemText(read.problems[0] as never)}`)
      const { length } = read.records
      if (isThere === undefined ? length < 20 || length > 21 : length !== (isThere ? 21 : 20))
        t.fail(`${what}, ${how}: ${length} records`)
      if (JSON.stringify(read.records) !== JSON.stringify(records.slice(0, length))) t.fail(`${what}, ${how}`)
    }
    for (const lost of choices(sectors, 3)) {
      const image = Buffer.from(bytes)
      for (const sector of lost)
        image.fill(0, Math.max(start, (before + sector) * SECTOR), (before + sector + 1) * SECTOR)
      look(image, `sectors ${lost} lost`, lost.length === 0)
      // The file had its new length only where the inode was written.
      look(image.subarray(0, Math.ceil(start / SECTOR) * SECTOR), `sectors ${lost} lost, and the rest`)
    }
    for (let length = end; length >= start; length -= length % SECTOR < 2 ? 1 : 11)
      look(bytes.subarray(0, length), `cut at ${length}`, length === end)
    t.comment(`${what}: ${tried} images`)
  }
})

t.test('a log that ends anywhere has the changes before that', async t => {
  const directory = scratch(t)
  const file = await logOf(directory, small(60))
  const { records } = readLog(directory)
  const bytes = readFileSync(file)
  const all = ends(records)
  for (let length = (all.at(-1) ?? 0) + 10; length >= 0; length--) {
    truncateSync(file, length)
    const read = readLog(directory)
    if (read.problems.length > 0) t.fail(`${length}: ${problemText(read.problems[0] as never)}`)
    const count = all.filter(end => end <= length).length
    if (read.records.length !== count) t.fail(`${length}: ${read.records.length} records, not ${count}`)
    const rest = bytes.subarray(all[count - 1] ?? 0, length)
    if (rest.some(byte => byte !== 0) !== (read.torn !== undefined)) t.fail(`${length}: torn`)
  }
})

t.test('a power cut during a change of several records: all of it is there, or nothing', async t => {
  const directory = scratch(t)
  const texts = (character: string) =>
    Array.from({ length: 6 }, (_, i) => entry(`${character}${i}`, character.repeat(300_000)))
  const file = await logOf(directory, [...small(3), texts('a')])
  const { records } = readLog(directory)
  t.ok(records.length >= 6, `${records.length} records`)
  const all = ends(records)
  const [start = 0, end = 0] = [all[2], all.at(-1)]
  const bytes = readFileSync(file)
  const first = Math.ceil(start / SECTOR)
  const count = Math.floor(end / SECTOR) - first
  const random = () => first + Math.floor(Math.random() * count)
  const heads = all.slice(2, -1).map(head => Math.floor(head / SECTOR))
  const images = [
    ...heads.map(head => [head]),
    ...heads.map(head => [head, head + 1]),
    ...Array.from({ length: isLong ? 60 : 15 }, (_, i) => [random(), random(), random()].slice(i % 3))
  ]
  for (const lost of images) {
    const image = Buffer.from(bytes)
    for (const sector of lost) image.fill(0, Math.max(start, sector * SECTOR), (sector + 1) * SECTOR)
    writeFileSync(file, image)
    const read = readLog(directory)
    t.same(read.problems, [], `sectors ${lost} lost`)
    t.equal(read.records.length, 3, `sectors ${lost} lost`)
  }
  for (const piece of all.slice(3, -1)) {
    writeFileSync(file, bytes.subarray(0, piece))
    t.equal(readLog(directory).records.length, 3, `it ends after a piece, at ${piece}`)
    t.equal(readLog(directory).torn?.bytes, start)
  }
})

type TestStore = Awaited<ReturnType<typeof openStore>>
const put = (store: TestStore, ...names: string[]) =>
  store.change(tx => {
    for (const name of names) tx.put('node', name, node(name))
  })
const setMac = (store: TestStore, name: string, mac: string) =>
  store.change(tx => tx.put('node', name, node(name, mac)))

/** Opens a store, with what it logs, and how it is killed. */
async function opened(directory: string, more: Pick<FileOptions, 'segmentBytes' | 'clock'> = {}) {
  const files = new TestFiles()
  const logged: string[] = []
  const log = (level: string, message: string) => logged.push(`${level} ${message}`)
  const store = await openStore(directory, { files, log, ...more })
  const kill = async () => {
    files.before = () => {
      throw systemError('EIO')
    }
    await store.close()
  }
  return { store, files, logged, kill }
}

/** A state whose log has these changes of one node each, a segment for each; no file is written. */
async function unwritten(directory: string, ...names: string[]): Promise<void> {
  for (const name of names) {
    const { store, files, kill } = await opened(directory)
    files.before = operation => {
      if (operation === 'replace') throw systemError('EIO')
    }
    await put(store, name)
    await kill()
  }
}

const segments = (directory: string) =>
  readdirSync(join(directory, 'log'))
    .filter(name => name.endsWith('.wal'))
    .map(name => join(directory, 'log', name))

t.test('the torn end of a log is told and cut off; the next start has no trace of it', async t => {
  const directory = scratch(t)
  await unwritten(directory, 'a')
  const [segment = ''] = segments(directory)
  const { records } = readLog(directory)
  const end = ends(records).at(-1) ?? 0
  const next = { number: 2, first: 2, time: 1, continues: false, entries: [entry('b', '{}')] }
  const half = Buffer.alloc(statSync(segment).size)
  readFileSync(segment).copy(half, 0, 0, end)
  encodeRecord(next).copy(half, end, 0, 40)
  writeFileSync(segment, half)
  const told = new RegExp(`${segment}: the last write was interrupted: what follows byte ${end}`)
  t.match((await Store.inspect(optionsFor(directory))).map(problemText), [told])
  const { store, logged, kill } = await opened(directory)
  t.match(logged, [told])
  t.same(store.current.names('node'), ['a'])
  t.equal(statSync(segment).size, end)
  await put(store, 'c')
  await kill()
  const again = await opened(directory)
  t.same(again.logged, [])
  t.same(again.store.current.names('node'), ['a', 'c'])
  await again.store.close()
  t.same(readdirSync(join(directory, 'log')), [])
})

t.test('a broken record with good ones after it stops the start: file, offset, and the way out', async t => {
  const directory = scratch(t)
  const { store, files, kill } = await opened(directory)
  files.before = operation => {
    if (operation === 'replace') throw systemError('EIO')
  }
  for (const name of ['a', 'b', 'c']) await put(store, name)
  await kill()
  const [segment = ''] = segments(directory)
  const bytes = readFileSync(segment)
  const [offset = 0] = ends(readLog(directory).records)
  bytes.writeUInt8(bytes.readUInt8(offset + 60) ^ 4, offset + 60)
  writeFileSync(segment, bytes)
  const told = new RegExp(
    `${segment}: damaged log, byte ${offset}: a record is damaged; .svcd log show. prints .*` +
      `Restore a backup \\(svcd restore\\); or, .*: truncate -s ${offset} ${segment}, and move the later`
  )
  const error = await openStore(directory).catch((error: unknown) => error)
  t.ok(error instanceof LoadError)
  t.match(error instanceof LoadError ? error.problems.map(problemText) : [], [told])
  t.match((await Store.inspect(optionsFor(directory))).map(problemText), [told])
  t.same(readFileSync(segment), bytes, 'it is left as it is')
  truncateSync(segment, offset)
  const again = await openStore(directory)
  t.same(again.current.names('node'), ['a'], 'the changes before it are kept')
  await again.close()
})

t.test('a segment that is missing is told', async t => {
  const directory = scratch(t)
  await unwritten(directory, 'a', 'b', 'c')
  const all = segments(directory)
  t.equal(all.length, 3)
  rmSync(all[1] as string)
  await t.rejects(openStore(directory), /damaged log, byte 0: records 2 to 2 are missing/)
})

t.test('foreign files beside the segments are told, and stay', async t => {
  const directory = scratch(t)
  await unwritten(directory, 'a')
  writeFileSync(join(directory, 'log/notes.txt'), 'buy milk')
  writeFileSync(join(directory, 'log/.x.swp'), 'an editor')
  mkdirSync(join(directory, 'log/sub'))
  const { store, logged } = await opened(directory)
  t.match(logged, [/log\/notes\.txt: not a file of the store/, /log\/sub: not a file of the store/])
  t.same(store.current.names('node'), ['a'])
  await store.close()
  t.same(readdirSync(join(directory, 'log')).sort(), ['.x.swp', 'notes.txt', 'sub'])
})

// rules 11.6
t.test('a pipe, a link or a directory in the place of a segment stops the start and is named', async t => {
  const directory = scratch(t)
  await unwritten(directory, 'a')
  const [segment = ''] = segments(directory)
  renameSync(segment, `${segment}.moved`)
  for (const [put, told] of [
    [() => execFileSync('mkfifo', [segment]), /it is not a regular file/],
    [() => mkdirSync(segment), /it is not a regular file|directory/],
    [() => symlinkSync(`${segment}.moved`, segment), /it is a link/]
  ] as const) {
    put()
    await t.rejects(openStore(directory), { message: new RegExp(`${segment}: .*${told.source}`) })
    rmSync(segment, { recursive: true })
  }
  renameSync(`${segment}.moved`, segment)
  const store = await openStore(directory)
  t.same(store.current.names('node'), ['a'])
  await store.close()
})

/** Opens objects and records of nodes in one directory. */
async function openBoth(directory: string, files: TestFiles) {
  const medium = new FileMedium({
    directory,
    files,
    clock: fastClock(50),
    checkpointBytes: 300,
    segmentBytes: 600
  })
  const store = await AnyStore.open<TestTypes, MacIndex>({ ...optionsFor(directory), medium })
  return { store, ...(await openValues(medium)) }
}

t.test('whatever fails, and how: the acknowledged is there, the refused never comes back', async t => {
  let operations = 0
  const rounds = isLong ? 3 : 2
  /** Changes objects and records, and stops, with the n-th operation on the disk failing. */
  const run = async (failsAt: number, how: 'EIO' | 'ENOSPC' | 'short', lasts: number) => {
    const directory = scratch(t)
    const files = new TestFiles()
    files.isShort = how === 'short'
    let count = 0
    files.before = () => {
      const at = count++
      if (at >= failsAt && at < failsAt + lasts) throw systemError(how === 'short' ? 'ENOSPC' : how)
    }
    const done = new Map<string, boolean>()
    const tried = async (what: string, change: () => Promise<unknown>) => {
      done.set(
        what,
        await change().then(
          () => true,
          () => false
        )
      )
    }
    const both = await openBoth(directory, files).catch(() => undefined)
    if (!both) return
    const { store, put: report, records } = both
    for (let round = 0; round < rounds; round++) {
      await Promise.all([
        tried(`a${round}`, () => put(store, `a${round}`)),
        tried(`b${round}`, () =>
          put(store, `b${round}`, ...Array.from({ length: 3 }, (_, i) => `b${round}-${i}`))
        ),
        tried(`r${round}`, () => report(`r${round}`, round))
      ])
      // Files and tables are written, and the log is cut, before the last one.
      if (round === rounds - 2) await sleep(60)
    }
    await records.close()
    await store.close()
    operations = Math.max(operations, count)
    const again = await openBoth(directory, new TestFiles())
    const moment = `operation ${failsAt} and ${lasts - 1} more fail with ${how}`
    for (const [what, isDone] of done) {
      const isThere = what.startsWith('r')
        ? again.values.has(what)
        : again.store.current.get('node', what) !== undefined
      if (isDone !== isThere)
        t.fail(
          `${moment}: ${what} is ${isThere ? '' : 'not '}there, and was ${isDone ? 'acknowledged' : 'refused'}`
        )
      if (!what.startsWith('b')) continue
      const members = again.store.current.names('node').filter(name => name.startsWith(`${what}-`))
      if (members.length !== (isThere ? 3 : 0)) t.fail(`${moment}: half of ${what}`)
    }
    await again.records.close()
    await again.store.close()
  }
  await run(Number.POSITIVE_INFINITY, 'EIO', 0)
  const all = operations
  const failures = [
    ['EIO', 1],
    ['ENOSPC', 2],
    ['short', 1],
    ['short', 3]
  ] as const
  for (let at = 0; at < all; at++)
    for (const [how, lasts] of isLong ? failures : [failures[at % 4] ?? failures[0]])
      await run(at, how, lasts)
  t.comment(`${all} operations failed`)
  t.ok(all > 30)
})

const edited = (name: string) => `{"name":"${name}","mac":"by hand","tags":[]}\n`
const keptIn = (directory: string) =>
  readdirSync(join(directory, 'node'))
    .filter(name => name.endsWith('.edited~'))
    .map(name => readFileSync(join(directory, 'node', name), 'utf8'))

t.test('a file that is edited while svcd runs: told by name, kept beside it', async t => {
  const directory = scratch(t)
  const { store, logged } = await opened(directory)
  await put(store, 'a', 'b', 'c')
  const file = (name: string) => join(directory, 'node', `${name}.json`)
  await until(() => existsSync(file('c')))
  writeFileSync(file('a'), edited('a'))
  // A file that is copied in its place keeps an old time.
  writeFileSync(file('b'), edited('b'))
  utimesSync(file('b'), 1, 1)
  await store.change(tx => {
    for (const name of ['a', 'b', 'c']) tx.put('node', name, node(name, 'by svcd'))
  })
  await until(() => logged.length === 2)
  t.match(
    logged,
    ['a', 'b'].map(name => new RegExp(`^warn ${file(name)}\\..*edited~: this file was edited while`))
  )
  t.same(keptIn(directory), [edited('a'), edited('b')])
  for (const name of ['a', 'b']) t.match(readFileSync(file(name), 'utf8'), 'by svcd')
  writeFileSync(file('c'), edited('c'))
  await store.change(tx => tx.remove('node', 'c'))
  await until(() => logged.length === 3)
  t.notOk(existsSync(file('c')))
  t.equal(keptIn(directory).length, 3)
  await store.close()
})

t.test('an edit is told though the disk then fails', async t => {
  const directory = scratch(t)
  const { store, files, logged } = await opened(directory)
  await put(store, 'a', 'z')
  const file = join(directory, 'node/a.json')
  await until(() => existsSync(file))
  writeFileSync(file, edited('a'))
  let failures = 0
  files.before = (operation, file) => {
    if (operation === 'replace' && file.endsWith('z.json') && failures++ < 2) throw systemError('EIO')
  }
  await store.change(tx => {
    for (const name of ['a', 'z']) tx.put('node', name, node(name, 'by svcd'))
  })
  await until(() => failures > 2)
  t.equal(logged.filter(line => /a\.json\..*edited/.test(line)).length, 1)
  t.same(keptIn(directory), [edited('a')])
  await store.close()
})

t.test('the steps of a disk that fails tell the edited files that they have kept', async t => {
  const directory = scratch(t)
  const file = join(directory, 'a.json')
  writeFileSync(file, 'by hand')
  const unedited = { known: [1] }
  const steps = [
    { replace: file, text: 'by svcd', unedited },
    { replace: join(directory, 'missing/b.json'), text: '' }
  ]
  for (const run of [() => runSteps(steps), () => realFiles.runSteps(steps, 'behind')]) {
    writeFileSync(file, 'by hand')
    const error = await (async () => run())().catch((error: unknown) => error)
    t.ok(error instanceof StepError)
    const { kept = [] } = error as Partial<StepError>
    t.equal(kept.length, 1)
    t.equal(readFileSync(kept[0] ?? '', 'utf8'), 'by hand')
  }
})

t.test('a file that is edited under a log that is not empty: told, and kept beside it', async t => {
  const directory = scratch(t)
  await unwritten(directory, 'a')
  const file = join(directory, 'node/a.json')
  // The times of files are some milliseconds behind.
  await sleep(20)
  writeFileSync(file, edited('a'))
  const told = new RegExp(`${file}: it was edited after svcd had logged a change of the object`)
  t.match((await Store.inspect(optionsFor(directory))).map(problemText), [told])
  t.equal(readFileSync(file, 'utf8'), edited('a'), 'a look changes nothing')
  const { store, logged } = await opened(directory)
  t.match(logged, [told])
  t.equal(store.current.get('node', 'a')?.mac, null, 'the change counts')
  await store.close()
  t.same(keptIn(directory), [edited('a')])
  t.same(await Store.inspect(optionsFor(directory)), [])
})

t.test('an edit after a clean stop counts, and is no alarm', async t => {
  const directory = scratch(t)
  const { store } = await opened(directory)
  await put(store, 'a')
  await store.close()
  writeFileSync(join(directory, 'node/a.json'), edited('a'))
  const again = await opened(directory)
  t.equal(again.store.current.get('node', 'a')?.mac, 'by hand')
  await setMac(again.store, 'a', 'by svcd')
  await again.store.close()
  t.same(again.logged, [])
  t.same(keptIn(directory), [])
})

t.test('no false alarm: own writes in quick succession, a failing disk, files formatted by hand', async t => {
  const directory = scratch(t)
  mkdirSync(join(directory, 'node'), { recursive: true })
  for (const name of ['hand1', 'hand2']) writeFileSync(join(directory, 'node', `${name}.json`), edited(name))
  const isAlarm = (line: string) => line.includes('edited')
  let run = await opened(directory)
  await setMac(run.store, 'hand1', 'by svcd')
  for (let i = 0; i < 60; i++) {
    await setMac(run.store, 'quick', `${i}`)
    if (i % 3 === 0) await sleep(12)
  }
  // Each try fails in another moment.
  let tries = 0
  run.files.before = (operation, file) => {
    if (/^(replace|syncDirectory)$/.test(operation) && file.includes('/node') && tries++ % 7 < 6)
      throw systemError('EIO')
  }
  for (let i = 0; i < 40; i++) {
    await setMac(run.store, 'quick', `x${i}`)
    await setMac(run.store, 'other', `x${i}`)
    await sleep(25)
  }
  t.ok(tries > 3)
  await run.kill()
  t.same(run.logged.filter(isAlarm), [])
  run = await opened(directory)
  await setMac(run.store, 'hand2', 'by svcd')
  await run.kill()
  t.same(run.logged.filter(isAlarm), [])
  run = await opened(directory)
  await run.store.close()
  t.same(run.logged.filter(isAlarm), [])
  t.same(keptIn(directory), [])
  t.match(readFileSync(join(directory, 'node/hand2.json'), 'utf8'), 'by svcd')
  t.match(readFileSync(join(directory, 'node/quick.json'), 'utf8'), 'x39')
})

t.test('more contents than a file can have had: a disk that fails for long is no alarm', async t => {
  const directory = scratch(t)
  const { store, files, logged } = await opened(directory)
  await setMac(store, 'a', 'first')
  await until(() => existsSync(join(directory, 'node/a.json')))
  let tries = 0
  files.before = (operation, file) => {
    if (operation !== 'replace' || !file.includes('/node/')) return
    tries++
    throw systemError('EIO')
  }
  for (let i = 1; i <= 4; i++) {
    await setMac(store, 'a', `${i}`)
    await until(() => tries >= i)
  }
  files.before = () => {}
  await store.close()
  t.same(
    logged.filter(line => line.includes('edited')),
    []
  )
})

t.test('a check while svcd writes is no alarm', async t => {
  const directory = scratch(t)
  const { store } = await opened(directory, { segmentBytes: 2000, clock: fastClock(20) })
  let isOver = false
  const writing = (async () => {
    for (let i = 0; !isOver; i++) {
      await setMac(store, `n${i % 5}`, `${i}`)
      await sleep(1)
    }
  })()
  // A log whose first segment is another one was cut.
  const firsts = new Set<string>()
  const least = isLong ? 1000 : 200
  for (let looks = 0; looks < least || (firsts.size < 4 && looks < 20 * least); looks++) {
    t.same(await Store.inspect(optionsFor(directory)), [])
    firsts.add(segments(directory)[0] ?? '')
    await sleep(2)
  }
  firsts.delete('')
  t.ok(firsts.size >= 3, 'the log was cut meanwhile')
  isOver = true
  await writing
  await store.close()
})

const table = (directory: string) => join(directory, 'node-status.journal')

/** Opens records that are lines of each node, in memory before they are stored. */
async function openTable(directory: string, files: TestFiles, more: Partial<FileOptions> = {}) {
  const medium = new FileMedium({ directory, files, checkpointBytes: 200, ...more })
  await medium.lock()
  await medium.read()
  await medium.start([])
  const kill = async () => {
    files.before = () => {
      throw systemError('EIO')
    }
    await medium.close()
  }
  return { medium, kill, ...(await openLines(medium)) }
}

t.test('tables: a record that comes while the table is written is there once', async t => {
  for (const kept of ['memory first', 'stored first'] as const) {
    const directory = scratch(t)
    const files = new TestFiles()
    const one = await openTable(directory, files)
    for (let i = 0; i < 20; i++) await one.add('n1', `${i}`, kept)
    let pending: Promise<unknown> = Promise.resolve()
    let isWritten = false
    const disk = gate()
    // The log takes its time: the record is in memory, and the table has it before the log.
    files.before = async (operation, file) => {
      if (operation === 'replace' && file === table(directory) && !isWritten) {
        isWritten = true
        pending = Promise.all([one.add('n1', 'meanwhile', kept), one.add('n2', 'new', kept)])
      }
      if (operation === 'write' && isWritten) await disk.wait()
    }
    await disk.arrived
    await until(() => existsSync(table(directory)))
    disk.open()
    await pending
    await one.add('n1', 'after', kept)
    t.ok(existsSync(table(directory)))
    await one.kill()
    for (let again = 0; again < 2; again++) {
      const next = await openTable(directory, new TestFiles())
      t.same([...next.lines], [...one.lines], kept)
      await next.kill()
    }
  }
})

t.test('tables: moves and removals around a checkpoint; a second crash during the start', async t => {
  const directory = scratch(t)
  const files = new TestFiles()
  const one = await openTable(directory, files)
  for (let i = 0; i < 30; i++) await one.add(`n${i % 5}`, `${i}`)
  let begun = 0
  const work: Promise<unknown>[] = []
  files.before = (operation, file) => {
    if (operation !== 'replace' || file !== table(directory)) return
    begun++
    work.push(one.move('n0', `moved${begun}`), one.remove(`n${begun}`), one.add('n4', `during${begun}`))
    work.push(one.add(`moved${begun}`, 'more'))
  }
  await until(() => begun > 0)
  await Promise.all(work)
  for (let i = 0; begun < 2; i++) {
    await one.add('n4', `later${i}`)
    await sleep(1)
  }
  await Promise.all(work)
  await one.move('n4', 'n9')
  await one.kill()
  const expected = [...one.lines].sort()
  for (let crash = 0; crash < 6; crash++) {
    const broken = new TestFiles()
    let left = crash
    broken.before = () => {
      if (left-- <= 0) throw systemError('EIO')
    }
    const next = await openTable(directory, broken).catch(() => undefined)
    if (!next) continue
    t.same([...next.lines].sort(), expected, `crash ${crash}`)
    await next.kill()
  }
  const last = await openTable(directory, new TestFiles())
  t.same([...last.lines].sort(), expected)
  await last.medium.close()
  t.same(readdirSync(join(directory, 'log')), [], 'a clean stop leaves it in the table alone')
  const next = await openTable(directory, new TestFiles())
  t.same([...next.lines].sort(), expected)
  await next.medium.close()
})

t.test('a change in pieces that is killed at any of them: all or none', async t => {
  const count = isLong ? 2500 : 800
  let writes = 0
  for (let ends = 1; ; ends++) {
    const directory = scratch(t)
    const { store, files, kill } = await opened(directory)
    let left = ends
    files.before = operation => {
      if (operation === 'write' && left-- === 0) files.before = () => Promise.reject(systemError('EIO'))
      if (left < 0) throw systemError('EIO')
    }
    const isDone = await store
      .changeInSteps(function* (tx) {
        for (let i = 0; i < count; i++)
          yield tx.put('node', `n${i}`, { ...node(`n${i}`), tags: ['x'.repeat(800)] })
      })
      .then(
        () => true,
        () => false
      )
    await kill()
    const again = await opened(directory)
    t.equal(again.store.current.names('node').length, isDone ? count : 0, `${ends} writes done`)
    await again.store.close()
    if (isDone) {
      writes = ends
      break
    }
  }
  t.ok(writes >= 4, `${writes} pieces`)
})
