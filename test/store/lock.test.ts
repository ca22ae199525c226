import { spawn, spawnSync } from 'node:child_process'
import {
  cpSync,
  existsSync,
  lchownSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync
} from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { LockedError, StoreError } from '../../lib/store/errors.js'
import { acquireLock } from '../../lib/store/files/lock.js'
import { type Child, start } from '../support/child.js'
import { until } from '../support/until.js'
import { node, openStore } from './fixtures.js'

const states = t.testdir()
const program = join(import.meta.dirname, 'holder-program.js')

/** What it says first. */
const said = /^(open|refused.*)$/m

/** A new state directory. */
const stateDirectory = (name: string) => {
  const directory = join(states, name)
  mkdirSync(directory)
  return directory
}

/** A process that holds a store, or tries to; it ends with the test at the latest. */
function hold(t: Test, directory: string): Child {
  const held = start(process.execPath, [program, directory])
  t.teardown(() => held.kill())
  return held
}

// rules 11.3
t.test('a second start fails and says who holds the directory', async t => {
  const directory = stateDirectory('second')
  const holder = hold(t, directory)
  t.equal(await holder.says(said), 'open')
  const error = await openStore(directory).catch((error: unknown) => error)
  t.ok(error instanceof LockedError)
  t.match(error, { pid: holder.pid, message: `process ${holder.pid}` })
  await holder.kill()
  const store = await openStore(directory)
  t.match(await hold(t, directory).says(said), `in use by process ${process.pid}`)
  await t.rejects(openStore(directory), LockedError, 'within one process too')
  await store.close()
})

// rules 11.10
t.test('a state with a link that belongs to another user is refused, and nothing is written', async t => {
  const directory = stateDirectory('linked')
  const elsewhere = stateDirectory('led to')
  symlinkSync(elsewhere, join(directory, 'node'))
  await (await openStore(directory)).close()
  lchownSync(join(directory, 'node'), 65_534, 65_534)
  rmSync(join(directory, 'holder.json'))
  await t.rejects(openStore(directory), {
    message: `${join(directory, 'node')} is a link that belongs to user 65534: remove it, or make it again as root`
  })
  t.notOk(existsSync(join(directory, 'holder.json')))
})

t.test('after kill -9 the next start has the directory at once', async t => {
  const directory = stateDirectory('killed')
  for (let round = 0; round < 3; round++) {
    const holder = hold(t, directory)
    t.equal(await holder.says(said), 'open')
    await holder.kill()
  }
})

t.test('a stopped holder is alive', async t => {
  const directory = stateDirectory('stopped')
  const holder = hold(t, directory)
  await holder.says(said)
  holder.process.kill('SIGSTOP')
  await t.rejects(openStore(directory), new RegExp(`process ${holder.pid}`))
  await holder.kill()
  await (await openStore(directory)).close()
  t.notOk(existsSync(join(directory, 'lock')))
})

t.test('a zombie is dead', async t => {
  const directory = stateDirectory('zombie')
  // A parent that never asks how its child ended.
  const parent = spawn('sh', ['-c', '"$0" "$@" & exec sleep 60', process.execPath, program, directory])
  t.teardown(() => parent.kill('SIGKILL'))
  await until(() => existsSync(join(directory, 'counter')))
  const { pid } = JSON.parse(readFileSync(join(directory, 'holder.json'), 'utf8'))
  process.kill(pid, 'SIGKILL')
  await until(() => readFileSync(`/proc/${pid}/stat`, 'utf8').includes(') Z '))
  const store = await openStore(directory)
  t.ok(store.health.ok)
  await store.close()
})

t.test('holders that are not what they were', async t => {
  const directory = stateDirectory('others')
  await (await openStore(directory)).close()
  const holderFile = join(directory, 'holder.json')
  const self = JSON.parse(readFileSync(holderFile, 'utf8'))
  t.match(self, { pid: process.pid, startTime: /^\d+$/, bootId: /^[0-9a-f-]{36}$/ })
  t.equal(statSync(holderFile).mode & 0o777, 0o600)

  const stranger = hold(t, stateDirectory('stranger'))
  await stranger.says(said)
  // As an earlier version of svcd leaves it behind.
  const taken = async (holder: string | undefined) => {
    mkdirSync(join(directory, 'lock'), { recursive: true })
    if (holder === undefined) rmSync(holderFile)
    else writeFileSync(holderFile, holder)
    try {
      await (await openStore(directory)).close()
      return true
    } catch (error) {
      if (error instanceof LockedError) return false
      throw error
    }
  }
  t.equal(await taken(JSON.stringify(self)), false, 'alive')
  t.equal(await taken(JSON.stringify({ ...self, pid: 2 ** 22 + 1 })), true, 'no such process')
  t.equal(await taken(JSON.stringify({ ...self, pid: stranger.pid })), true, 'the pid is in use again')
  t.equal(
    await taken(JSON.stringify({ ...self, bootId: 'another' })),
    true,
    'before the machine started again'
  )
  t.equal(await taken('{"pid":'), true, 'the power went while it wrote its name')
  t.equal(await taken(undefined), true, 'no name')
})

t.test('a copy of the directory starts beside its original (rules 11.3)', async t => {
  const directory = stateDirectory('original')
  const holder = hold(t, directory)
  t.equal(await holder.says(said), 'open')
  const copy = `${directory}-copy`
  cpSync(directory, copy, { recursive: true, preserveTimestamps: true })
  t.ok(existsSync(join(copy, 'holder.json')), 'the name of its holder is copied along')
  const store = await openStore(copy)
  t.ok(store.health.ok)
  await t.rejects(openStore(copy), { name: 'LockedError', pid: process.pid }, 'the copy has one daemon too')
  await t.rejects(openStore(directory), { name: 'LockedError', pid: holder.pid }, 'and so has the original')
  await store.close()
})

// rules 11.6
t.test('a pipe in the place of the holder is replaced', { timeout: 20_000 }, async t => {
  const directory = stateDirectory('pipe')
  spawnSync('mkfifo', [join(directory, 'holder.json')])
  const lock = await acquireLock(directory)
  t.match(JSON.parse(readFileSync(join(directory, 'holder.json'), 'utf8')), { pid: process.pid })
  await lock.release()
})

t.test('the same directory under another name is refused', async t => {
  const directory = stateDirectory('names')
  const holder = hold(t, directory)
  t.equal(await holder.says(said), 'open')
  const refused = { name: 'LockedError', pid: holder.pid }
  symlinkSync(directory, `${directory}-link`)
  await t.rejects(openStore(`${directory}-link`), refused, 'by a symbolic link')
  const mounted = stateDirectory('mounted')
  const script = 'mount --bind "$1" "$2" && exec "$3" "$4" "$2"'
  const words = ['--mount', '--map-root-user', 'sh', '-c', script, 'sh']
  const { stdout, stderr } = spawnSync('unshare', [...words, directory, mounted, process.execPath, program], {
    encoding: 'utf8',
    timeout: 60_000
  })
  t.match(stdout, `in use by process ${holder.pid}`, `by a bind mount ${stderr}`)
})

t.test("of many starts that race for a dead one's lock exactly one wins", async t => {
  const directory = stateDirectory('race')
  for (let round = 0; round < 2; round++) {
    const dead = hold(t, directory)
    await dead.says(said)
    await dead.kill()
    const racers = Array.from({ length: 5 }, () => hold(t, directory))
    const lines = await Promise.all(racers.map(racer => racer.says(said)))
    const winner = racers[lines.indexOf('open')]
    const refused = `refused LockedError: the state directory ${directory} is in use by process ${winner?.pid}`
    t.same(lines.toSorted(), ['open', ...Array(4).fill(refused)])
    await Promise.all(racers.map(racer => racer.kill()))
  }
})

t.test('starts that interleave at every step: exactly one wins', async t => {
  const directory = stateDirectory('interleave')
  for (let round = 0; round < 3; round++) {
    writeFileSync(join(directory, 'holder.json'), '{"pid":0}')
    const starts = await Promise.allSettled(Array.from({ length: 8 }, () => acquireLock(directory)))
    const locks = starts.flatMap(start => (start.status === 'fulfilled' ? [start.value] : []))
    t.equal(locks.length, 1)
    for (const start of starts) if (start.status === 'rejected') t.type(start.reason, LockedError)
    await locks[0]?.release()
  }
})

// rules 11.3
t.test('a state directory that is put aside while running: changes are refused until it is back', async t => {
  const directory = stateDirectory('aside')
  const logged: string[] = []
  const store = await openStore(directory, { log: (level, message) => logged.push(`${level} ${message}`) })
  const put = (name: string) => store.change(tx => tx.put('node', name, node(name)))
  await put('a')
  // No file is behind the log.
  await until(() => readdirSync(join(directory, 'log')).length === 0)
  renameSync(directory, `${directory}-away`)
  await t.rejects(put('b'), StoreError)
  mkdirSync(directory)
  await t.rejects(put('b'), { name: 'StoreError', message: /is another directory than at the start/ })
  t.notOk(store.health.ok)
  t.same(store.current.names('node'), ['a'])
  const other = hold(t, directory)
  t.equal(await other.says(said), 'open', 'another may have what is there now')
  await other.kill()
  rmSync(directory, { recursive: true })
  renameSync(`${directory}-away`, directory)
  await until(() => store.health.ok)
  await put('b')
  t.match(logged, [/^error the store cannot be changed/, /^info the store can be changed again/])
  await store.close()
})

// rules 11.3
t.test('one that an earlier version holds is refused', async t => {
  const directory = stateDirectory('earlier')
  const holder = hold(t, stateDirectory('elsewhere'))
  await holder.says(said)
  const { dev, ino } = statSync(directory)
  const { directory: _, ...name } = JSON.parse(readFileSync(join(states, 'elsewhere', 'holder.json'), 'utf8'))
  mkdirSync(join(directory, 'lock'))
  for (const more of [{}, { directory: `${dev}:${ino}` }]) {
    writeFileSync(join(directory, 'holder.json'), JSON.stringify({ ...name, ...more }))
    await t.rejects(openStore(directory), { name: 'LockedError', pid: holder.pid })
  }
  await holder.kill()
  await (await openStore(directory)).close()
  t.notOk(existsSync(join(directory, 'lock')))
})
