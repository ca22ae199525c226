// Faults of the log that a review found: each was there before it was mended.
import { cpSync, existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { crc32c } from '../../lib/base/crc32c.js'
import { FileMedium, type FileOptions } from '../../lib/store/files/medium.js'
import { StoredFiles } from '../../lib/store/files/stored.js'
import { scratch } from '../support/scratch.js'
import { until } from '../support/until.js'
import { systemError, TestFiles } from './fixtures.js'
import { openValues } from './node-values.js'

async function open(directory: string, more: Partial<FileOptions> = {}) {
  const medium = new FileMedium({ directory, ...more })
  await medium.lock()
  const stored = await medium.read()
  await medium.start(['node'])
  const { values, put, records } = await openValues(medium, false)
  const seen = new Set<string>()
  const boots = await medium.openRecords<{ node: string }>('node-boots', {
    namesIn: ({ node }) => [node],
    appliesOnceStored: () => false,
    names: () => seen,
    recordsOf: node => [{ node }],
    replaceRecords: node => seen.add(node),
    reset: () => seen.clear()
  })
  const close = async () => {
    await records.close()
    await boots.close()
    await medium.close()
  }
  const set = (name: string, text: string, textBefore?: string) =>
    medium.commit([{ type: 'node', name, text, textBefore }])
  return { medium, stored, values, put, boots, set, close }
}

/** The state directory as a kill leaves it. */
function killed(directory: string): string {
  const copy = `${directory}-killed`
  cpSync(directory, copy, { recursive: true })
  t.teardown(() => rmSync(copy, { recursive: true, force: true }))
  return copy
}

const segmentOf = (directory: string) =>
  join(directory, 'log', readdirSync(join(directory, 'log')).sort()[0] ?? '')

t.test('a change that shares its records with a report is not cut before its file is written', async t => {
  const directory = scratch(t)
  const files = new TestFiles()
  const { set, put, boots, close } = await open(directory, { files })
  await put('n1', 'a')
  // The log is cut a second later.
  await sleep(1500)
  files.before = (operation, file) => {
    if (operation === 'replace' && file.includes('/node/')) throw systemError('ENOSPC')
  }
  // The two that follow wait for this append, and share the next one.
  const first = boots.append({ node: 'n1' })
  await nextTurn()
  await nextTurn()
  const report = put('n2', 'b')
  await nextTurn()
  await Promise.all([first, report, set('a', '{"name":"a"}\n')])
  // The log says what is written, and is cut, a second later.
  await sleep(1500)
  t.equal(new StoredFiles(killed(directory)).text('node', 'a'), '{"name":"a"}\n')
  await close()
  t.equal(new StoredFiles(directory).text('node', 'a'), '{"name":"a"}\n', 'after a stop too')
})

t.test('an append and then a cut that fail: the next start finds a whole log', async t => {
  const directory = scratch(t)
  const files = new TestFiles()
  const { set, close } = await open(directory, { files })
  await set('a', '{"name":"a"}\n')
  await until(() => existsSync(join(directory, 'node/a.json')))
  let broken = true
  files.before = (operation, file) => {
    if (broken && /\.wal$/.test(file) && /^(datasync|truncate|remove)$/.test(operation))
      throw systemError('EIO')
  }
  await t.rejects(set('b', '{"name":"b"}\n'))
  await sleep(1200)
  broken = false
  await set('c', '{"name":"c"}\n')
  const { log } = new StoredFiles(killed(directory))
  t.same(log.problems, [])
  t.same([...new StoredFiles(`${directory}-killed`).names('node')].sort(), ['a', 'c'])
  await close()
})

t.test(
  'an empty segment that a failed append left, and a cut that failed: nothing is lost later',
  async t => {
    const directory = scratch(t)
    const files = new TestFiles()
    const { set, put, close } = await open(directory, { files, segmentBytes: 1 })
    await set('a', '{"name":"a"}\n')
    await until(() => existsSync(join(directory, 'node/a.json')))
    let broken = true
    files.before = (operation, file) => {
      if (broken && /\.wal$/.test(file) && /^(write|remove)$/.test(operation)) throw systemError('EIO')
    }
    await t.rejects(set('b', '{"name":"b"}\n'))
    await sleep(1200)
    broken = false
    await put('n1', 'reported')
    await set('c', '{"name":"c"}\n')
    await sleep(2500)
    await put('n2', 'reported too')
    const again = await open(killed(directory))
    t.same([...again.values.keys()].sort(), ['n1', 'n2'])
    await again.close()
    await close()
  }
)

t.test('a text that looks like the head of a record makes no torn end a damaged one', async t => {
  const head = Buffer.alloc(34)
  head.write('svc', 31)
  const isPlain = (byte: number) => byte >= 0x20 && byte < 0x7f && byte !== 0x22 && byte !== 0x5c
  while (![...head.subarray(0, 4)].every(isPlain)) {
    for (let i = 4; i < 31; i++) head[i] = 0x61 + Math.floor(Math.random() * 26)
    head.writeUInt32LE(crc32c(head.subarray(4)), 0)
  }
  const directory = scratch(t)
  const { put, close } = await open(directory)
  await put('n1', `${head}${'y'.repeat(900)}`)
  const file = segmentOf(killed(directory))
  const bytes = readFileSync(file)
  const sector = Math.ceil(bytes.indexOf('yyyy') / 512) * 512
  writeFileSync(file, bytes.fill(0, sector, sector + 512))
  const { log } = new StoredFiles(`${directory}-killed`)
  t.same(log.problems, [])
  t.ok(log.torn)
  await close()
})

t.test('an edit during a long start, and one after the clock was set back, are kept', async t => {
  const directory = scratch(t)
  const first = await open(directory)
  await first.set('a', '{"name":"a"}\n')
  await first.close()
  const medium = new FileMedium({ directory })
  await medium.lock()
  await medium.read()
  await sleep(20)
  writeFileSync(join(directory, 'node/a.json'), '{"name":"a","comment":"mine"}\n')
  await sleep(20)
  await medium.start(['node'])
  const change = { type: 'node', name: 'a', text: '{"name":"a","x":1}\n', textBefore: '{"name":"a"}\n' }
  await medium.commit([change])
  await medium.close()
  const kept = (at: string) =>
    readdirSync(join(at, 'node')).filter(name => name.startsWith('a.json.') && name.endsWith('.edited~'))
  t.equal(kept(directory).length, 1)

  const now = Date.now
  t.teardown(() => {
    Date.now = now
  })
  Date.now = () => now() + 3_600_000
  const later = scratch(t)
  const ahead = await open(later)
  await ahead.set('a', '{"name":"a"}\n')
  await until(() => existsSync(join(later, 'node/a.json')))
  Date.now = now
  writeFileSync(join(later, 'node/a.json'), '{"name":"a","comment":"mine"}\n')
  await ahead.set('a', '{"name":"a","x":1}\n', '{"name":"a"}\n')
  await ahead.close()
  t.equal(kept(later).length, 1)
})

t.test('what a killed write of a table left is removed; a table without its end stops the start', async t => {
  const directory = scratch(t)
  const first = await open(directory)
  await first.put('n1', 'a')
  await first.put('n2', 'b')
  await first.close()
  const table = join(directory, 'node-status.journal')
  writeFileSync(`${table}.1234567890`, 'half')
  await (await open(directory)).close()
  t.notOk(existsSync(`${table}.1234567890`))
  const bytes = readFileSync(table)
  writeFileSync(table, bytes.subarray(0, bytes.length - 10))
  const medium = new FileMedium({ directory })
  await medium.lock()
  await medium.read()
  await t.rejects(medium.start(['node']), /node-status\.journal:3: not a JSON record/)
  await medium.close()
})

t.test('a damaged log is not taken for an empty one by a backup', async t => {
  const directory = scratch(t)
  const { put, close } = await open(directory)
  for (const name of ['n1', 'n2', 'n3']) await put(name, 'a')
  const file = segmentOf(killed(directory))
  const bytes = readFileSync(file)
  bytes[40] = (bytes[40] ?? 0) ^ 1
  writeFileSync(file, bytes)
  t.throws(() => [...new StoredFiles(`${directory}-killed`).recordFiles(() => {})], /damaged log, byte 0/)
  await close()
})
