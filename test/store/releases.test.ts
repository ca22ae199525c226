import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync
} from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { isBackedUp } from '../../lib/backup/state-names.js'
import { backUpState } from '../../lib/backup/stored-files.js'
import { createLog } from '../../lib/base/log.js'
import { restore } from '../../lib/cli/restore.js'
import { loadConfig } from '../../lib/config/load.js'
import { startDaemon } from '../../lib/daemon.js'
import { migrations } from '../../lib/model/migrations.js'
import { attachedTypes, typeNames } from '../../lib/model/types.js'
import { version } from '../../lib/version.js'
import { Controller } from '../support/controller.js'
import { Daemon } from '../support/daemon.js'
import { checkout, output } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { TestFiles } from './fixtures.js'
import { counter, layoutOf, openCounters } from './layout.js'

const releases = join(checkout, 'test/store/releases')
// File systems list a directory in orders of their own.
const names = readdirSync(releases, { withFileTypes: true })
  .flatMap(entry => (entry.isDirectory() ? entry.name : []))
  .sort()
const [oldest = '', newest = ''] = [names.at(0), names.filter(name => !name.endsWith('-killed')).at(-1)]
/**
 * When a state was made, by the first line of its audit log: its records of requests are younger than a week
 * then.
 */
const madeAt = (release: string) =>
  Date.parse(/"time":"([^"]*)"/.exec(readFileSync(join(releases, release, 'audit.log'), 'utf8'))?.[1] ?? '')

/** Whether today's layout is another one: 0.1.0 wrote no version. */
const isOutdated = (release: string) => {
  const file = join(releases, release, 'layout/version.json')
  return !existsSync(file) || JSON.parse(readFileSync(file, 'utf8')).version < migrations('').length
}

/** Puts the state of a release there, with the modes that a daemon gives. */
function place(release: string, state: string): void {
  rmSync(state, { recursive: true, force: true })
  cpSync(join(releases, release), state, { recursive: true })
  chmodSync(state, 0o700)
  for (const entry of readdirSync(state, { recursive: true, withFileTypes: true }))
    chmodSync(join(entry.parentPath, entry.name), entry.isDirectory() ? 0o700 : 0o600)
}

/** Path → bytes of all files. */
function filesIn(directory: string): Record<string, string> {
  const files = readdirSync(directory, { recursive: true, withFileTypes: true }).filter(entry =>
    entry.isFile()
  )
  const paths = files.map(entry => join(entry.parentPath, entry.name)).sort()
  return Object.fromEntries(
    paths.map(path => [path.slice(directory.length + 1), readFileSync(path, 'latin1')])
  )
}

t.test('the state of the newest release in test/store/releases holds every type', async t => {
  const types = [...typeNames, ...Object.keys(attachedTypes)]
  t.strictSame(
    types.filter(type => !existsSync(join(releases, newest, type))),
    [],
    'a type was added: make a state with it (test/store/make-release.ts)'
  )
})

// rules 11.11
for (const release of names)
  t.test(`the state of release ${release}: nothing is lost, a migration keeps a copy`, async t => {
    const c = await Controller.start(t)
    const state = join(c.directory, 'state')
    c.clockMs = madeAt(release) - Date.now()
    await c.restart(() => place(release, state))
    c.token = await c.login()
    const read = async (path: string) => (await c.get(path)).body
    const all = (await read('/config/cluster/export')).config
    const golden = join(releases, `${release}.export.json`)
    if (process.env.SVC_GOLDEN) writeFileSync(golden, `${JSON.stringify(all, null, 2)}\n`)
    t.strictSame(all, JSON.parse(readFileSync(golden, 'utf8')), 'every object, secrets in the clear')
    t.match((await read('/monitor/node/node001')).monitor.status.node001, { state: 'installer.completed' })
    t.match(JSON.stringify(await read('/monitor/node/node001/_boots')), /10\.141\.0\.1/)
    t.equal(c.daemon.jobs.records().length, 2, 'records of requests')
    t.match(readFileSync(join(state, 'layout/version.json'), 'utf8'), `"version": ${migrations('').length}`)
    const backups = () => (existsSync(join(state, 'backups')) ? readdirSync(join(state, 'backups')) : [])
    const [kept, ...more] = backups()
    t.equal(kept !== undefined, isOutdated(release))
    t.strictSame(more, [])
    if (kept !== undefined) {
      const file = join(state, 'backups', kept)
      t.equal(statSync(file).mode & 0o7777, 0o600)
      const unpacked = t.testdir()
      await output('tar', ['-xf', file, '-C', unpacked])
      t.strictSame(
        filesIn(join(unpacked, 'state')),
        filesIn(join(releases, release)),
        'the copy is the state as it was'
      )
    }
    if (kept !== undefined) {
      const back = scratch(t)
      const set = ['state', 'files', 'templates', 'roles', 'scripts'].map(
        name => `paths.${name}=${back}/${name}`
      )
      await restore({
        file: join(state, 'backups', kept),
        ini: join(checkout, 'etc/svcd.ini'),
        set,
        force: false
      })
      t.strictSame(filesIn(join(back, 'state')), filesIn(join(releases, release)), 'the way back')
    }
    t.notOk(existsSync(join(state, 'intents')) && readdirSync(join(state, 'intents')).length > 0)
    await c.restart()
    t.strictSame(backups(), kept === undefined ? [] : [kept], 'the second start has nothing to do')
    t.strictSame((await read('/config/cluster/export')).config, all)
  })

t.test('a newer state is refused: both versions and the way out are named, nothing is changed', async t => {
  const state = join(scratch(t), 'state')
  place(newest, state)
  mkdirSync(join(state, 'layout'), { recursive: true })
  writeFileSync(
    join(state, 'layout/version.json'),
    `${JSON.stringify({ name: 'version', version: 99, release: '7.1.0' })}\n`
  )
  // What only the newer one knows is no other problem.
  mkdirSync(join(state, 'intents'), { recursive: true })
  const promised = { writes: [{ type: 'rack', name: 'r1', text: '{}\n' }] }
  writeFileSync(join(state, 'intents/000000000001.json'), `${JSON.stringify(promised)}\n`)
  const before = filesIn(state)
  const config = loadConfig('etc/svcd.ini', [`paths.state=${state}`, 'http.listen=127.0.0.1:0'])
  const told = new RegExp(
    `layout/version.json: this state has layout version 99, written by svcd 7.1.0; svcd ${version.service} knows versions ` +
      `up to ${migrations('').length}: install svcd 7.1.0 or a later one, or restore a backup`
  )
  await t.rejects(
    startDaemon(
      config,
      createLog('error', () => {})
    ),
    told
  )
  const after = filesIn(state)
  delete after['holder.json']
  t.strictSame(after, before)
})

t.test('a version that is none is refused with its file', async t => {
  const directory = t.testdir({ layout: { 'version.json': '{"name":"version","version":"one"}\n' } })
  await t.rejects(openCounters(directory), /layout\/version\.json: field "version" must be a number from 0/)
  t.strictSame(readdirSync(directory), ['holder.json', 'layout'])
})

const many = 12
const old = Object.fromEntries(
  Array.from({ length: many }, (_, i) => [`c${i}.json`, `{"name":"c${i}","count":${i}}\n`])
)

t.test('a migration that is broken off anywhere: the next start finishes it or begins anew', async t => {
  // As if the power went before each write in turn, and at none.
  for (let ends = 0; ; ends++) {
    const directory = t.testdir({ counter: old })
    const files = new TestFiles()
    let left = ends
    files.before = () => {
      if (left-- <= 0) throw new Error('the power is gone')
    }
    const store = await openCounters(directory, { files, backUp: async () => 'a file' }).catch(
      () => undefined
    )
    await store?.close().catch(() => {})
    const again = await openCounters(directory)
    const values = again.current.names('counter').map(name => again.current.get('counter', name)?.value)
    await again.close()
    const expected = Array.from({ length: many }, (_, i) => i * 10)
    t.strictSame(values, expected, `power gone at write ${ends}`)
    if (left >= 0) break
  }
})

t.test('no backup, no migration: the reason is told', async t => {
  const directory = t.testdir({ counter: old })
  const noRoom = Object.assign(new Error('x'), { errno: -28, code: 'ENOSPC' })
  await t.rejects(
    openCounters(directory, { backUp: () => Promise.reject(noRoom) }),
    /layout version 0, and is not brought to version 2, because its backup cannot be written: no space left/
  )
  t.strictSame(readdirSync(directory).sort(), ['counter', 'holder.json'])
})

t.test('a start that fails for another reason keeps no copy: it may be tried again for ever', async t => {
  const directory = t.testdir({ counter: old })
  const opened = () => Promise.reject(new Error('no key'))
  await t.rejects(
    openCounters(directory, { beforeFirstWrite: opened, backUp: async () => t.fail('a backup') as never }),
    /no key/
  )
})

t.test('a state that the new layout refuses stays as it was', async t => {
  const directory = t.testdir({ counter: { ...old, 'c1.json': '{"name":"c1"}\n' } })
  await t.rejects(openCounters(directory, { backUp: async () => t.fail('a backup') as never }), /c1\.json/)
  t.strictSame(readFileSync(join(directory, 'counter/c0.json'), 'utf8'), old['c0.json'])
})

// An earlier release, which does not read the log, has to be refused before it could miss a change.
t.test('the version of a new layout is in its file before anything else is changed', async t => {
  const directory = t.testdir({ counter: old })
  const store = await openCounters(directory, { backUp: async () => 'a file' })
  t.match(JSON.parse(readFileSync(join(directory, 'layout/version.json'), 'utf8')), { version: 2 })
  await store.close()
})

t.test('a new state gets its version, and no backup', async t => {
  const directory = t.testdir()
  const store = await openCounters(directory, { backUp: async () => t.fail('a backup') as never })
  await store.change(tx => tx.put('counter', 'a', counter('a', 1)))
  await store.close()
  t.match(
    readFileSync(join(directory, 'layout/version.json'), 'utf8'),
    `"version": ${layoutOf('x').steps.length}`
  )
})

t.test('three backups are kept, and no half one', async t => {
  const state = join(
    t.testdir({ state: { node: { 'n1.json': '{}\n' }, work: { x: 'y' }, own: { x: 'y' } } }),
    'state'
  )
  mkdirSync(join(state, 'backups'))
  writeFileSync(join(state, 'backups/x.tar.part'), 'half')
  for (const from of [0, 1, 2, 3, 4]) await backUpState(state, from, '0.1.0')
  const kept = readdirSync(join(state, 'backups')).sort()
  t.match(kept, [/-version-2\.tar$/, /-version-3\.tar$/, /-version-4\.tar$/])
  t.equal(kept.length, 3)
  const listed = await output('tar', ['-tf', join(state, 'backups', kept[2] as string)])
  t.equal(listed, 'backup.json\nstate/node/n1.json\nsha256\n')
  t.notOk(isBackedUp('work') || isBackedUp('own') || isBackedUp('images'))
})

async function killedWhileItMigrates(t: Test): Promise<void> {
  const daemon = new Daemon({ directory: scratch(t) })
  t.teardown(() => daemon.kill())
  const state = daemon.path('state')
  const golden = JSON.parse(readFileSync(join(releases, `${oldest}.export.json`), 'utf8'))
  for (let round = 0; round < 20; round++) {
    place(oldest, state)
    // Enough to be hit in the middle.
    for (let i = 0; i < 3000; i++)
      writeFileSync(
        join(state, 'osimage', `slashed${i}.json`),
        `${JSON.stringify({ name: `slashed${i}`, path: `${daemon.path('images')}/tree${i}/` })}\n`
      )
    const starting = daemon.launch()
    await delay(Math.random() * 2500)
    await starting.kill()
    const fresh = new Daemon({ directory: daemon.path() })
    await fresh.start()
    const { body } = await fresh.request('GET', '/config/cluster/export')
    const { config } = body as { config: Record<string, Record<string, { path?: string }>> }
    const images = Object.entries(config.osimage ?? {}).filter(([name]) => name.startsWith('slashed'))
    t.equal(images.length, 3000)
    t.notOk(
      images.some(([, { path }]) => path?.endsWith('/')),
      `round ${round}: all of them, or the next start did it`
    )
    for (const [name] of images) delete config.osimage?.[name]
    t.strictSame(config, golden)
    await fresh.stop()
  }
}

if (process.env.SVCD_LONG) t.test('kill -9 while a start migrates: nothing lost', killedWhileItMigrates)
