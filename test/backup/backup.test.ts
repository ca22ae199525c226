import {
  chmodSync,
  cpSync,
  existsSync,
  lchownSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync
} from 'node:fs'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { gzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { Archive, infoText } from '../../lib/backup/archive.js'
import { isOwnEntry } from '../../lib/backup/state-names.js'
import { addFiles, backUpState } from '../../lib/backup/stored-files.js'
import { createLog } from '../../lib/base/log.js'
import { backup } from '../../lib/cli/backup.js'
import { checkAll } from '../../lib/cli/checks.js'
import { restore } from '../../lib/cli/restore.js'
import { exportTo } from '../../lib/cli/transfer.js'
import { loadConfig } from '../../lib/config/load.js'
import { startDaemon } from '../../lib/daemon.js'
import { migrations } from '../../lib/model/migrations.js'
import { richCluster } from '../api/contract/rich.js'
import { builtTree, svcd } from '../support/built-tree.js'
import { Controller } from '../support/controller.js'
import { adminToken } from '../support/first-start.js'
import { checkout, output, requireRoot } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { stored } from '../support/state.js'

const shippedIni = join(checkout, 'etc/svcd.ini')
const quiet = createLog('error', () => {})

/** The configuration by which a command finds the daemon of a controller. */
const configOf = ({ overrides, daemon }: Controller, ini = shippedIni) =>
  loadConfig(ini, [...overrides, `http.listen=127.0.0.1:${daemon.port}`])

/** An empty machine: places of its own for everything. */
function machine(test: Test) {
  const at = (...names: string[]) => join(directory, ...names)
  const directory = scratch(test)
  const set = [
    ...['state', 'files', 'templates', 'roles', 'scripts'].map(name => `paths.${name}=${at(name)}`),
    `image.directory=${at('images')}`,
    'http.listen=127.0.0.1:0',
    'http.url=http://10.141.255.254:7050',
    'controller.address=10.141.255.254'
  ]
  const ini = at('etc/svcd.ini')
  const run = (file: string, force = false) => restore({ file, ini, set, force })
  const own = [
    'paths.templates=',
    ...set.filter(key => !/^paths\.(templates|roles|scripts)/.test(key))
  ].slice(1)
  const start = async () => {
    const daemon = await startDaemon(
      loadConfig(ini, [...own, `paths.templates=${join(checkout, 'templates')}`]),
      quiet
    )
    test.teardown(() => daemon.close(1000))
    return daemon
  }
  return { at, ini, set, run, start }
}

/** Every file of a state that is kept, path → bytes. */
function filesIn(state: string): Record<string, string> {
  const entries = readdirSync(state, { recursive: true, withFileTypes: true }).filter(entry => entry.isFile())
  const paths = entries.map(entry => join(entry.parentPath, entry.name).slice(state.length + 1)).sort()
  const ours = paths.filter(path => !/^(holder\.json|work|backups|replaced|restore\.|intents)/.test(path))
  return Object.fromEntries(ours.map(path => [path, readFileSync(join(state, path), 'latin1')]))
}

const isLong = process.env.SVCD_LONG !== undefined
const rounds = isLong ? 10 : 2

t.test('backups while objects are made and renamed: each is whole and has all that was told', async t => {
  const c = await Controller.start(t)
  await c.cluster()
  // id → how often its node was renamed, and whether a state of it was reported, as far as the answers said.
  const told = new Map<number, { renames: number; reported: boolean }>()
  let goesOn = true
  let group = 0
  const post = async (path: string, body: unknown) => {
    const { status, text } = await c.post(path, body)
    if (status >= 300) throw new Error(`${path}: ${status} ${text}`)
  }
  const write = async () => {
    for (let id = 0; goesOn; id++) {
      const name = (renames: number) => `n${id}-${renames}`
      await post(`/config/node/${name(0)}`, {
        group: `${group === 0 ? 'compute' : `g${group}`}`,
        comment: `id ${id}`
      })
      told.set(id, { renames: 0, reported: false })
      await post(`/monitor/node/${name(0)}`, {
        monitor: { status: { [name(0)]: { state: 'installer.started' } } }
      })
      told.set(id, { renames: 0, reported: true })
      await post(`/config/node/${name(0)}`, { newnodename: name(1) })
      told.set(id, { renames: 1, reported: true })
      // Every member changes with it.
      if (id % 5 === 4)
        await post(`/config/group/${group === 0 ? 'compute' : `g${group}`}`, { newgroupname: `g${++group}` })
    }
  }
  const writing = write()
  const taken: { file: string; then: typeof told }[] = []
  let during = 0
  for (let i = 0; i < rounds || (during === 0 && i < 50); i++) {
    const from = told.size
    while (told.size < from + 3) await new Promise(resolve => setTimeout(resolve, 5))
    const file = join(c.directory, `backup${i}.tar`)
    const then = new Map(told)
    await backup(configOf(c), file, false)
    taken.push({ file, then })
    during += told.size - then.size
  }
  goesOn = false
  await writing
  t.ok(during > 0, 'it was written to meanwhile')
  for (const [i, { file, then }] of taken.entries()) {
    const { run, start } = machine(t)
    await run(file)
    const daemon = await start()
    const { view } = daemon.model
    const nodes = view.names('node').map(name => [view.get('node', name)?.comment ?? '', name] as const)
    const names = new Map(nodes)
    t.equal(names.size, nodes.length, `backup ${i}: no node is there twice`)
    const lost = [...then].filter(([id, { renames }]) => {
      const [, has = -1] = /-(\d)$/.exec(names.get(`id ${id}`) ?? '') ?? []
      return Number(has) < renames
    })
    t.strictSame(lost, [], `backup ${i}: nothing of what was told before it`)
    const states = daemon.boots && (await statesOf(daemon))
    const silent = [...then].filter(
      ([id, { reported }]) => reported && states[names.get(`id ${id}`) ?? ''] == null
    )
    t.strictSame(silent, [], `backup ${i}: states that nodes reported`)
    await daemon.close(1000)
  }
})

type Running = Awaited<ReturnType<typeof startDaemon>>

const stateOf = ({ model }: Running) => join(model.ini.imageDirectory, '../state')

/** The token that the password of the first admin gives. */
async function tokenOf(daemon: Running): Promise<string> {
  const password = readFileSync(join(stateOf(daemon), 'admin-password'), 'utf8').trim()
  const login = { method: 'POST', body: JSON.stringify({ username: 'admin', password }) }
  const answer = await fetch(`http://${daemon.address}:${daemon.port}/token`, login)
  return ((await answer.json()) as { token: string }).token
}

/** The states of all nodes, as the daemon tells them. */
async function statesOf(daemon: Running, token?: string): Promise<Record<string, string | null>> {
  const { address, port } = daemon
  const headers = { 'x-access-tokens': token ?? (await adminToken(stateOf(daemon))) }
  const answer = await fetch(`http://${address}:${port}/monitor/node`, { headers })
  const { monitor } = (await answer.json()) as {
    monitor: { status: Record<string, { state: string | null }> }
  }
  return Object.fromEntries(Object.entries(monitor.status).map(([name, { state }]) => [name, state]))
}

t.test('a rich state: the same bytes come back, and the configuration with them', async t => {
  const c = await Controller.start(t)
  await richCluster(c)
  await c.idle()
  const before = await stored(c)
  const settings = scratch(t)
  const own = (...names: string[]) => join(settings, ...names)
  cpSync(join(checkout, 'templates'), own('templates'), { recursive: true })
  mkdirSync(own('roles'))
  writeFileSync(own('roles/login'), '#!/bin/sh\n')
  writeFileSync(own('templates/boot/extra.ipxe'), 'mine')
  writeFileSync(own('key'), 'a key')
  writeFileSync(
    own('svcd.ini'),
    '# my own words\n[ssh]\nkey = key\n[paths]\ntemplates = templates\nroles = roles\n'
  )
  const config = loadConfig(own('svcd.ini'), [
    ...c.overrides.filter(key => !key.startsWith('paths.templates')),
    `http.listen=127.0.0.1:${c.daemon.port}`
  ])
  const file = join(c.directory, 'backup.tar')
  await backup(config, file, false)
  t.equal(statSync(file).mode & 0o7777, 0o600)
  const names = (await output('tar', ['-tf', file])).trimEnd().split('\n')
  t.strictSame(
    names.filter(name => name.startsWith('config/')),
    ['config/svcd.ini', 'config/named/ssh.key', 'config/templates/boot/extra.ipxe', 'config/roles/login'],
    'templates as they were shipped are not in it'
  )
  t.notMatch(names.join('\n'), /^state\/(work|holder|backups|intents)|^(files|images)/m)
  const { at, ini, run } = machine(t)
  t.match(await run(file), /^restored: .*svcd\.ini, .*state; next: svcd check/)
  const restored = filesIn(at('state'))
  for (const [path, bytes] of Object.entries(before))
    if (!/^(intents|work)/.test(path)) t.equal(restored[path], bytes, path)
  t.equal(readFileSync(ini, 'utf8'), readFileSync(own('svcd.ini'), 'utf8'))
  t.equal(readFileSync(at('templates/boot/extra.ipxe'), 'utf8'), 'mine')
  t.equal(readFileSync(at('roles/login'), 'utf8'), '#!/bin/sh\n')
  t.equal(readFileSync(at('etc/key'), 'utf8'), 'a key')
  for (const entry of readdirSync(at('state'), { recursive: true, withFileTypes: true }))
    t.equal(
      statSync(join(entry.parentPath, entry.name)).mode & 0o7777,
      entry.isDirectory() ? 0o700 : 0o600,
      entry.name
    )
})

// One backup for all that follows.
const c = await Controller.start(t)
await c.cluster()
const file = join(c.directory, 'backup.tar')
await backup(configOf(c), file, false)
const bytes = readFileSync(file)
const tree = builtTree(t.testdir())

t.test('the command: to standard output, over no other state, not under a daemon', async t => {
  const options = [...c.overrides, `http.listen=127.0.0.1:${c.daemon.port}`].flatMap(set => ['--set', set])
  const taken = await svcd(tree, ['backup', '-', '--config', join(tree, 'etc/svcd.ini'), ...options])
  t.equal(taken.code, 0, taken.stderr)
  t.match(taken.stderr, /^backed up: \S+\/state, 0 nodes and \d+ other objects, to standard output\n$/)
  t.match(taken.stdout, /^backup\.json/)
  for (const [nowhere, said] of [
    ['/nonexistent/x.tar', '/nonexistent'],
    [`${file}/x.tar`, file]
  ] as const)
    await t.rejects(backup(configOf(c), nowhere, false), { message: `there is no directory ${said}` })
  const directory = scratch(t)
  await t.rejects(backup(configOf(c), directory, false), {
    message: `${directory} is a directory: name a file in it`
  })
  const running = await svcd(tree, ['restore', file, '--config', join(scratch(t), 'svcd.ini'), ...options])
  t.equal(running.code, 1)
  t.match(running.stderr, /svcd is running on .*\/state: stop it first .*nothing is changed/)
})

// rules 11.12, 11.13
t.test(
  'a state directory without a state is not backed up, and a backup without one is not restored',
  async t => {
    const { at, ini, set, run } = machine(t)
    const none = `${at('state')}: no svcd has been started on this state directory; one that was started with --config or --set`
    const command = (...words: string[]) =>
      svcd(tree, [...words, '--config', shippedIni, ...set.flatMap(key => ['--set', key])])
    const target = at('empty.tar')
    for (const [i, prepare] of [
      () => {},
      () => mkdirSync(at('state')),
      // What a package and an admin make there is no state.
      () => mkdirSync(at('state/images')),
      () => writeFileSync(at('state/admin-password'), 'x\n'),
      () => mkdirSync(at('state/node'))
    ].entries()) {
      prepare()
      await t.rejects(backup(loadConfig(shippedIni, set), target, false), { message: none })
      await t.rejects(exportTo(loadConfig(shippedIni, set), new PassThrough()), { message: none })
      // The programs, where there is nothing and where there is the most.
      const commands = [['backup', target], ['backup', '-'], ['export']]
      for (const words of isLong || i === 0 || i === 4 ? commands : []) {
        const { code, stderr } = await command(...words)
        t.equal(code, 1, stderr)
        t.ok(stderr.includes(none), stderr)
      }
    }
    t.notOk(existsSync(target), 'no file is left')
    rmSync(at('state'), { recursive: true })

    await run(file)
    const before = filesIn(at('state'))
    const info = infoText({ version: 0, release: '0.1.0', images: false })
    const empty = await archiveOf({ 'backup.json': info, 'config/svcd.ini': readFileSync(ini, 'utf8') })
    await t.rejects(run(empty, true), {
      message: `${empty} holds no state: it was made of a state directory on which no svcd had been started; nothing is restored`
    })
    t.strictSame(filesIn(at('state')), before, 'the state that is there stays')
    t.notOk(existsSync(at('state/replaced')))
    const taken = await command('backup', target)
    t.equal(taken.code, 0, taken.stderr)
    t.match(taken.stdout, /^backed up: \S+\/state, 0 nodes and \d+ other objects, to \S+\/empty\.tar\n$/)
    mkdirSync(at('state/restore.ready'))
    t.match(
      (await command('backup', target)).stderr,
      /a restore of this state was interrupted: type the same/
    )
  }
)

t.test('what cannot be a backup is refused with the way out', async t => {
  const { at, run } = machine(t)
  const directory = scratch(t)
  const packed = join(directory, 'backup.tar.gz')
  writeFileSync(packed, gzipSync(bytes))
  await t.rejects(run(packed), {
    message: `${packed} is compressed by gzip: unpack it first (gunzip ${packed})`
  })
  const absent = join(directory, 'absent.tar')
  await t.rejects(run(absent), { message: `${absent}: there is no such file` })
  await t.rejects(run(directory), { message: `${directory} is a directory: name a file in it` })
  t.notOk(existsSync(at('state')) || existsSync(at('etc')))
})

t.test('a backup that is cut off or changed is refused, and nothing is made', async t => {
  const { at, run } = machine(t)
  const bad = join(scratch(t), 'bad.tar')
  for (const content of [
    bytes.subarray(0, -1),
    bytes.subarray(0, bytes.length / 2),
    Buffer.alloc(0),
    Buffer.from(bytes).fill('x', 5000, 5001),
    Buffer.concat([bytes, Buffer.alloc(512)])
  ]) {
    writeFileSync(bad, content)
    await t.rejects(run(bad), /bad\.tar is no whole backup of svcd: .*nothing is restored/)
  }
  t.notOk(existsSync(at('state')) || existsSync(at('etc')))
})

// rules 11.13
t.test('a template that was edited after the backup is again as it was shipped', async t => {
  const { at, ini, set, run } = machine(t)
  cpSync(join(checkout, 'templates'), at('templates'), { recursive: true })
  const [name = ''] = readdirSync(at('templates/boot')).sort()
  const edited = at('templates/boot', name)
  const shipped = readFileSync(edited, 'utf8')
  writeFileSync(edited, '{{ broken')
  writeFileSync(at('templates/boot/own.ipxe'), 'own')
  const told = await run(file)
  t.ok(told.includes(`kept aside: ${edited}.before-restore~\n`), told)
  t.equal(readFileSync(edited, 'utf8'), shipped)
  t.equal(readFileSync(`${edited}.before-restore~`, 'utf8'), '{{ broken')
  t.equal(readFileSync(at('templates/boot/own.ipxe'), 'utf8'), 'own')
  const { problems } = await checkAll(loadConfig(ini, set))
  t.notMatch(JSON.stringify(problems), /before-restore/, 'the old one is no template')
})

/** A whole archive with these entries. */
async function archiveOf(entries: Readonly<Record<string, string>>): Promise<string> {
  const parts: Buffer[] = []
  const archive = new Archive(async part => parts.push(Buffer.from(part)))
  for (const [path, content] of Object.entries(entries)) await archive.add(path, content)
  await archive.end()
  const made = join(scratch(t), 'made.tar')
  writeFileSync(made, Buffer.concat(parts))
  return made
}

t.test('a backup of a newer svcd, or with what is no state, is refused', async t => {
  const { at, run } = machine(t)
  const newer = infoText({ version: 99, release: '7.1.0', images: false })
  const known = migrations('').length
  await t.rejects(
    run(await archiveOf({ 'backup.json': newer })),
    new RegExp(
      `its state has layout version 99, made by svcd 7.1.0, and svcd \\S+ knows versions up to ${known}: install`
    )
  )
  await t.rejects(
    run(await archiveOf({ 'backup.json': '{"format":2,"version":1,"release":"7.1.0"}' })),
    /it has format 2, made by svcd "7.1.0"/
  )
  t.notOk(existsSync(at('state')))
  const info = infoText({ version: known, release: '0.1.0', images: false })
  const ini = readFileSync(shippedIni, 'utf8')
  for (const path of ['state/images/x', 'state/../../../x', 'state/work/x'])
    await t.rejects(
      run(await archiveOf({ 'backup.json': info, 'config/svcd.ini': ini, [path]: 'x' })),
      /does not belong/
    )
  t.notOk(existsSync(at('state')), 'nothing is made')
})

t.test('over another state it needs --force, which keeps that one', async t => {
  const { at, run, start } = machine(t)
  await run(file)
  const first = await start()
  await first.close(1000)
  writeFileSync(at('state/node-status.journal'), '')
  writeFileSync(at('state/admin-password'), 'another\n')
  const old = filesIn(at('state'))
  await t.rejects(
    run(file),
    /holds a state already: with --force it is kept aside, in .*replaced.*nothing is changed/
  )
  t.strictSame(filesIn(at('state')), old)
  const said = await run(file, true)
  const [, aside = ''] = /^kept aside: (.*)$/m.exec(said) ?? []
  t.strictSame(filesIn(aside), old)
  t.equal(
    readFileSync(at('state/admin-password'), 'utf8'),
    readFileSync(join(c.directory, 'state/admin-password'), 'utf8')
  )
  await start()
})

t.test('a restore that was interrupted: no daemon starts, and the same command ends it', async t => {
  const { at, ini, set, run, start } = machine(t)
  await run(file)
  const whole = filesIn(at('state'))
  const state = at('state')
  // As if killed while it filled the directory.
  mkdirSync(join(state, 'restore.part/node'), { recursive: true })
  await t.rejects(
    start(),
    /restore\.part: a restore of this state was interrupted: type the same svcd restore again/
  )
  await run(file, true)
  t.strictSame(filesIn(state), whole)
  // When everything was ready; after a part of the old state had moved; after a part of the new one had.
  for (const [step, movedOut, movedIn] of [
    ['ready', 0, 0],
    ['ready', 3, 0],
    ['clear', 99, 0],
    ['clear', 99, 3]
  ] as const) {
    const old = readdirSync(state).filter(isOwnEntry)
    const next = join(state, `restore.${step}`)
    mkdirSync(next)
    for (const name of old) cpSync(join(state, name), join(next, name), { recursive: true })
    writeFileSync(join(next, 'admin-password'), `${step} ${movedOut} ${movedIn}\n`)
    mkdirSync(join(state, 'gone'), { recursive: true })
    for (const name of old.slice(0, movedOut))
      renameSync(join(state, name), join(state, 'gone', `${movedIn}${name}${movedOut}${step}`))
    for (const name of readdirSync(next).slice(0, movedIn)) renameSync(join(next, name), join(state, name))
    await t.rejects(start(), /a restore of this state was interrupted/)
    const { problems } = await checkAll(loadConfig(ini, set))
    const told = problems.filter(problem => problem.file === state)
    t.match(told, [{ message: /a restore of this state was interrupted/ }], 'svcd check says it too')
    t.match(await run(file), /the restore that was interrupted is finished/)
    const found = filesIn(state)
    t.equal(found['admin-password'], `${step} ${movedOut} ${movedIn}\n`)
    t.equal(found['network/cluster.json'], whole['network/cluster.json'])
    t.notOk(existsSync(next))
  }
})

t.test('without a daemon the files are read', async t => {
  const { at, ini, set, run, start } = machine(t)
  await run(file)
  const again = join(scratch(t), 'again.tar')
  await backup(loadConfig(ini, set), again, false)
  const other = machine(t)
  await other.run(again)
  t.strictSame(filesIn(other.at('state')), filesIn(at('state')))
  await (await start()).close(1000)
})

// rules 11.12
t.test('a killed daemon: what only its log has is in a backup, and restored', async t => {
  const killed = await Controller.start(t)
  await killed.cluster()
  await killed.post('/config/node/n1', { group: 'compute', comment: 'first' })
  await killed.post('/monitor/node/n1', { state: 'installer.started' })
  await killed.post('/config/node/n1', { newnodename: 'n2' })
  // As a kill leaves it: files may be behind.
  const left = scratch(t)
  cpSync(join(killed.directory, 'state'), left, { recursive: true })
  t.ok(readdirSync(join(left, 'log')).length > 0)
  rmSync(join(left, 'node'), { recursive: true, force: true })
  const config = loadConfig(shippedIni, [
    ...killed.overrides.filter(key => !key.startsWith('paths.state')),
    `paths.state=${left}`
  ])
  const taken = join(scratch(t), 'killed.tar')
  t.match(await backup(config, taken, false), /, and changes that the next start completes, to /)
  const { at, run, start } = machine(t)
  await run(taken)
  const daemon = await start()
  t.match(daemon.model.view.get('node', 'n2'), { comment: 'first' })
  t.equal((await statesOf(daemon, await tokenOf(daemon))).n2, 'installer.started')
  await daemon.close(1000)
  t.strictSame(readdirSync(at('state/log')), [])

  // A log that no start would take, and one that is elsewhere.
  const [segment = ''] = readdirSync(join(left, 'log')).map(name => join(left, 'log', name))
  const bytes = readFileSync(segment)
  bytes[40] = (bytes[40] ?? 0) ^ 1
  writeFileSync(segment, bytes)
  await t.rejects(backup(config, taken, false), /no svcd starts before they are put right: .*damaged log/)
  renameSync(join(left, 'log'), `${left}-log`)
  t.teardown(() => rmSync(`${left}-log`, { recursive: true }))
  symlinkSync(`${left}-log`, join(left, 'log'))
  await t.rejects(backup(config, taken, false), /\/log is a link: put the directory or file itself/)
})

t.test('images and packed files come back whole, and through no link of user svcd', async t => {
  requireRoot()
  const { at, ini, set, run } = machine(t)
  await run(file)
  const trees = {
    'compute/etc/selinux/config': 'SELINUX=enforcing',
    'compute/usr/lib/state': 'a file of the image',
    'compute/usr/lib/sha256': 'another',
    'config/etc/hostname': 'an image of this name'
  }
  for (const [path, content] of Object.entries(trees)) {
    mkdirSync(join(at('images'), path, '..'), { recursive: true })
    writeFileSync(at('images', path), content)
  }
  mkdirSync(at('files'), { recursive: true })
  writeFileSync(at('files/compute.tar.gz'), 'packed')
  chmodSync(at('files/compute.tar.gz'), 0o640)
  const whole = join(scratch(t), 'images.tar')
  await backup(loadConfig(ini, set), whole, true)

  const empty = machine(t)
  await empty.run(whole)
  const found = filesIn(empty.at('images'))
  t.strictSame(found, trees)
  t.equal(statSync(empty.at('files')).mode & 0o7777, 0o700)
  t.strictSame(filesIn(empty.at('files')), { 'compute.tar.gz': 'packed' })
  t.equal(statSync(empty.at('files/compute.tar.gz')).mode & 0o7777, 0o640)

  const planted = machine(t)
  mkdirSync(planted.at('files'))
  writeFileSync(planted.at('victim'), 'of root')
  for (const name of ['.compute.tar.gz.restored', 'compute.tar.gz']) {
    symlinkSync(planted.at('victim'), planted.at('files', name))
    lchownSync(planted.at('files', name), 65534, 65534)
  }
  await planted.run(whole)
  t.equal(readFileSync(planted.at('victim'), 'utf8'), 'of root')
  t.equal(readFileSync(planted.at('files/compute.tar.gz'), 'utf8'), 'packed')

  const elsewhere = machine(t)
  mkdirSync(elsewhere.at('elsewhere'))
  symlinkSync(elsewhere.at('elsewhere'), elsewhere.at('files'))
  lchownSync(elsewhere.at('files'), 65534, 65534)
  await t.rejects(elsewhere.run(whole), /files is a link that belongs to user 65534: remove it, or make it/)
  t.strictSame(readdirSync(elsewhere.at('elsewhere')), [])
})

t.test(
  'a restore that fails before it changes anything leaves a state on which the daemon starts',
  async t => {
    requireRoot()
    const { at, run, start } = machine(t)
    await run(file)
    const names = readdirSync(at('state'))
    // In the place of the images' directory there is a file.
    rmSync(at('images'), { recursive: true, force: true })
    writeFileSync(at('images'), '')
    const info = infoText({ version: migrations('').length, release: '0.1.0', images: true })
    const ini = readFileSync(shippedIni, 'utf8')
    const withImages = await archiveOf({
      'backup.json': info,
      'config/svcd.ini': ini,
      'state/admin-password': 'x',
      'state/layout/version.json': '{}'
    })
    await t.rejects(run(withImages, true), /EEXIST|ENOTDIR/)
    t.strictSame(readdirSync(at('state')), names)
    rmSync(at('images'))
    await (await start()).close(1000)
  }
)

t.test('root moves nothing through names that user svcd made in the state', async t => {
  requireRoot()
  const { at, run } = machine(t)
  await run(file)
  const state = at('state')
  const old = filesIn(state)
  mkdirSync(at('elsewhere'))
  writeFileSync(at('elsewhere/passwd'), 'of root')
  for (const name of ['restore.part', 'restore.ready', 'restore.clear', 'replaced']) {
    const planted = join(state, name)
    symlinkSync(at('elsewhere'), planted)
    lchownSync(planted, 65534, 65534)
    const isPart = name === 'restore.part'
    await t.rejects(
      run(file, true),
      isPart ? /restore\.part is not removed/ : /is no directory: remove it/,
      name
    )
    rmSync(planted)
    if (isPart) continue
    mkdirSync(planted)
    writeFileSync(join(planted, 'planted'), '')
    lchownSync(planted, 65534, 65534)
    await t.rejects(run(file, true), /belongs to user 65534, who can exchange what is in it/, name)
    t.strictSame(readdirSync(planted), ['planted'])
    rmSync(planted, { recursive: true })
  }
  t.strictSame(readdirSync(at('elsewhere')), ['passwd'])
  t.strictSame(filesIn(state), old, 'and nothing is changed')
  await run(file, true)
  t.equal(statSync(join(state, 'replaced')).mode & 0o7777, 0o700)
})

t.test('files of the configuration that are links: backed up, and the links stay', async t => {
  const { at, ini, set, run } = machine(t)
  await run(file)
  renameSync(ini, at('real.ini'))
  symlinkSync('../real.ini', ini)
  mkdirSync(at('roles'), { recursive: true })
  writeFileSync(at('login.sh'), '#!/bin/sh\n')
  symlinkSync('../login.sh', at('roles/login'))
  const taken = join(scratch(t), 'links.tar')
  await backup(loadConfig(ini, set), taken, false)
  const text = readFileSync(ini, 'utf8')
  writeFileSync(at('real.ini'), '# other words')
  writeFileSync(at('login.sh'), 'other words')
  await run(taken, true)
  t.equal(lstatSync(ini).isSymbolicLink() && readFileSync(at('real.ini'), 'utf8'), text)
  t.equal(
    lstatSync(at('roles/login')).isSymbolicLink() && readFileSync(at('login.sh'), 'utf8'),
    '#!/bin/sh\n'
  )
})

t.test('a copy of the state that a full disk cuts off leaves nothing', async t => {
  requireRoot()
  const state = scratch(t)
  await output('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'none', state])
  t.teardown(() => output('umount', [state]))
  mkdirSync(join(state, 'backups'))
  writeFileSync(join(state, 'admin-password'), 'x'.repeat(40_000))
  writeFileSync(join(state, 'backups/older.tar.part'), '')
  await t.rejects(backUpState(state, 1, '0.1.0'), { code: 'ENOSPC' })
  t.strictSame(readdirSync(join(state, 'backups')), [])
})

// rules 11.12
t.test('backups to one file take turns, and what a killed one left goes', async t => {
  const directory = scratch(t)
  const file = join(directory, 'x.tar')
  const lock = join(directory, '.x.tar.lock')
  // Others of an admin, and one that is being made.
  const others = ['.x.tar.gz.0123456789ab', 'x.tar.0123456789ab', 'x.tar.1764170000', 'x.tar.20261126']
  for (const name of ['.x.tar.0123456789ab', ...others]) writeFileSync(join(directory, name), '')
  // As if killed 6 s ago.
  mkdirSync(lock)
  const then = Date.now() / 1000 - 6
  utimesSync(lock, then, then)
  const took = () => backup(configOf(c), file, false)
  for (const line of await Promise.all([took(), took()])) t.match(line, /^backed up: /)
  t.strictSame(readdirSync(directory).sort(), [...others, 'x.tar'].sort())
  const whole = readFileSync(file)
  mkdirSync(lock)
  const ahead = Date.now() / 1000 + 60
  utimesSync(lock, ahead, ahead)
  await t.rejects(took(), { message: `another svcd backup is writing ${file}` })
  t.ok(readFileSync(file).equals(whole))
  t.strictSame(readdirSync(directory).sort(), ['.x.tar.lock', ...others, 'x.tar'].sort())
})

t.test('a directory that becomes a link while a backup is made is not followed', async t => {
  const { at } = machine(t)
  for (const name of ['files/below', 'elsewhere']) mkdirSync(at(name), { recursive: true })
  writeFileSync(at('elsewhere/shadow'), 'of root')
  const parts: Buffer[] = []
  const archive = new Archive(async part => parts.push(Buffer.from(part)))
  await addFiles(archive, at('files'), 'files', () => {
    renameSync(at('files/below'), at('gone'))
    symlinkSync(at('elsewhere'), at('files/below'))
    return true
  })
  t.equal(Buffer.concat(parts).length, 0)
})
