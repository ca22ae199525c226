import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { logOutput } from '../lib/base/log.js'
import { Daemon } from './support/daemon.js'
import { proof } from './support/proof.js'
import { scratch } from './support/scratch.js'
import { fillDisk, smallDisk } from './support/small-disk.js'
import { until } from './support/until.js'

/** An output on a disk that takes `room` bytes. */
function onDisk(room: number) {
  const disk = { room, text: '' }
  const told: [reason: string, lost: number][] = []
  const output = logOutput({
    write: bytes => {
      const taken = bytes.subarray(0, disk.room)
      if (taken.length === 0) throw Object.assign(new Error('full'), { code: 'ENOSPC' })
      disk.room -= taken.length
      disk.text += taken
      return taken.length
    },
    recovered: (...what) => told.push(what),
    retryMs: 1
  })
  return { disk, told, output }
}

// rules 11.7
t.test('lines wait for room on the disk, and not one is written in part', async t => {
  const { disk, told, output } = onDisk(7)
  for (const line of ['first\n', 'second\n', 'third\n']) output.write(line)
  await until(() => disk.room === 0)
  output.write('fourth\n')
  t.equal(disk.text, 'first\ns')
  disk.room = 1000
  await until(() => told.length > 0)
  t.equal(disk.text, 'first\nsecond\nthird\nfourth\n')
  t.strictSame(told, [['ENOSPC', 0]])
  output.write('fifth\n')
  await until(() => disk.text.endsWith('fifth\n'))
  t.equal(told.length, 1, 'told once')
})

t.test('a line that is longer than all that may wait is cut, and not lost', async t => {
  const { disk, output } = onDisk(1e9)
  output.write(`${'x'.repeat(2 << 20)}\n`)
  output.write('after\n')
  await until(() => disk.text.endsWith('after\n'))
  t.match(disk.text, /^x{65536}…\nafter\n$/)
})

t.test('what waits has a bound; what is lost is counted', async t => {
  const { disk, told, output } = onDisk(0)
  const line = `${'x'.repeat(1023)}\n`
  for (let i = 0; i < 3000; i++) output.write(line)
  await new Promise(setImmediate)
  for (let i = 0; i < 10; i++) output.write(line)
  disk.room = Number.POSITIVE_INFINITY
  await until(() => told.length > 0)
  t.strictSame(told, [['ENOSPC', 3010 - 1024]])
  t.equal(disk.text.length, 1024 * 1024)
})

/** A daemon whose standard error bash redirects so. */
async function withLogTo(t: Test, redirection: string): Promise<Daemon> {
  const enter = ['bash', '-c', `exec "$@" ${redirection}`, 'bash']
  const daemon = await Daemon.start({ directory: scratch(t), enter })
  t.teardown(() => daemon.stop())
  return daemon
}

/** Requests whose lines have more bytes than a page of a disk, or than a pipe, and a change. */
const overPage = 200
const overPipe = 1500
async function use(t: Test, daemon: Daemon, name: string, requests: number): Promise<void> {
  const client = daemon.client()
  for (let i = 0; i < requests; i++) await client.read('/config/group')
  t.equal((await client.post(`/config/group/${name}`, {})).status, 201)
}

// rules 11.7
t.test('a full disk under the log ends nothing, and the log says so once', async t => {
  const file = join(smallDisk(t), 'log')
  writeFileSync(file, '')
  const daemon = await withLogTo(t, `2>>${file}`)
  const free = fillDisk(join(file, '..'))
  await use(t, daemon, 'full', overPage)
  free()
  await until(() => readFileSync(file, 'utf8').includes('the log could not be written'))
  await use(t, daemon, 'again', overPage)
  await daemon.stop()
  const told = readFileSync(file, 'utf8').match(/ warn the log could not be written.*/g)
  proof('log on a full disk', { tried: 1, crashes: 0, note: `the log says so ${told?.length ?? 0} times` })
  t.strictSame(told, [' warn the log could not be written (ENOSPC); 0 lines are lost'])
})

t.test('a reader of the log that has gone, or that does not read, ends and delays nothing', async t => {
  await use(t, await withLogTo(t, '2> >(exec true)'), 'gone', overPage)
  const daemon = await withLogTo(t, '2> >(exec sleep 600 >/dev/null 2>&1)')
  await use(t, daemon, 'asleep', overPipe)
  proof('log whose pipe is closed', { tried: 2, crashes: 0, note: 'its reader has gone, or does not read' })
})
