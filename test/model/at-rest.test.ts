import { randomBytes } from 'node:crypto'
import {
  chmodSync,
  cpSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync
} from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { checkAll } from '../../lib/cli/checks.js'
import { loadConfig } from '../../lib/config/load.js'
import { freeText } from '../../lib/model/field.js'
import { storeOptions } from '../../lib/model/model.js'
import { named } from '../../lib/model/object-type.js'
import { SecretBox } from '../../lib/model/secret-box.js'
import { kindOf } from '../../lib/model/stored.js'
import { objectTypes } from '../../lib/model/types.js'
import { Store } from '../store/file-store.js'
import { systemError, TestFiles } from '../store/fixtures.js'
import { Controller } from '../support/controller.js'
import { settings } from '../support/memory-cluster.js'
import { proof } from '../support/proof.js'
import { awkward } from '../support/specimens.js'
import { read, stored } from '../support/state.js'
import { rawFiles } from '../support/stored-texts.js'

const ini = fileURLToPath(new URL('../../etc/svcd.ini', import.meta.url))
const words = { boards: { password: 'calvin-%d-Ü"1' }, leaf1: { read: 'readable-1', rw: 'writable-1' } }

/** Every secret field that a table names. */
const secretFields = Object.entries(objectTypes).flatMap(([type, { fields }]) =>
  (fields as readonly { name: string; secret?: true }[]).flatMap(({ name, secret }) =>
    secret ? [[type, name] as const] : []
  )
)

async function withPasswords(t: Test): Promise<Controller> {
  const c = await Controller.start(t)
  t.equal((await c.post('/config/bmcsetup/boards', { username: 'root', ...words.boards })).status, 201)
  t.equal((await c.post('/config/switch/leaf1', words.leaf1)).status, 201)
  return c
}

/** The files of the state, the log too, that hold one of the words, in any usual form. */
async function holding(c: Controller, wanted: readonly string[]): Promise<string[]> {
  const forms = wanted.flatMap(word => {
    const bytes = Buffer.from(word)
    return [
      word,
      JSON.stringify(word).slice(1, -1),
      bytes.toString('base64').slice(0, -4),
      bytes.toString('hex')
    ]
  })
  await c.written()
  return [...rawFiles(join(c.directory, 'state'))]
    .filter(([path, bytes]) => path !== 'audit.log' && forms.some(form => bytes.includes(form)))
    .map(([path]) => path)
}

const all = Object.values(words).flatMap(fields => Object.values(fields))
const fileOf = (c: Controller, path: string) => join(c.directory, 'state', `${path}.json`)
const clear = (path: string, fields: object) =>
  `${JSON.stringify({ name: path.split('/')[1], ...fields }, null, 2)}\n`

/** Puts the files there as an earlier version wrote them. */
function asBefore(c: Controller): void {
  for (const [path, fields] of [
    ['bmcsetup/boards', { username: 'root', ...words.boards }],
    ['switch/leaf1', words.leaf1]
  ] as const)
    writeFileSync(fileOf(c, path), clear(path, fields), { mode: 0o600 })
}

const check = async (c: Controller) => {
  const { problems, warnings } = await checkAll(loadConfig(ini, [...c.overrides]))
  const state = (text: string) => text.includes(join(c.directory, 'state'))
  return {
    problems: problems
      .filter(({ file }) => state(file))
      .map(({ file, line, message }) => `${file}:${line}: ${message}`),
    warnings: warnings.filter(state)
  }
}

// rules 11.8
t.test('no secret field of any type is on disk in the clear, and answers show it as it came', async t => {
  const c = await Controller.start(t)
  t.ok(secretFields.length >= 3)
  for (const [type, field] of secretFields) {
    const value = `${field} of ${type}`.slice(0, 20)
    for (const name of ['one', 'two'])
      t.ok((await c.post(`/config/${type}/${name}`, { [field]: value })).status < 300, `${type}.${field}`)
    t.equal((await read(c, type, 'one'))[field], value)
    const found = await holding(c, [value])
    proof('secrets in state files', {
      tried: 2,
      note: `${type}.${field}: in the clear in ${found.length} files`
    })
    t.same(found, [], `${type}.${field}`)
    const [one, two] = ['one', 'two'].map(name =>
      JSON.parse(readFileSync(fileOf(c, `${type}/${name}`), 'utf8'))
    )
    t.match(one[field], { encrypted: /^[A-Za-z0-9+/]+=*$/ })
    t.not(one[field].encrypted, two[field].encrypted, 'two equal ones do not look equal')
    t.equal(statSync(fileOf(c, `${type}/one`)).mode & 0o777, 0o600)
  }
  const before = await stored(c)
  for (const [type] of secretFields)
    t.ok((await c.post(`/config/${type}/one`, await read(c, type, 'one'))).status < 300)
  t.same(await stored(c), before, 'read and posted again, it writes nothing')
  await c.restart()
  t.same(await stored(c), before, 'a restart writes nothing')
  for (const [type, field] of secretFields)
    t.equal((await read(c, type, 'two'))[field], `${field} of ${type}`.slice(0, 20), 'it outlives a restart')
})

t.test('a table alone decides: a secret field of a new type needs no further line', t => {
  const rack = {
    ...{ type: 'rack' as never, title: 'rack', newName: ['newrackname'] as const, ...named },
    fields: [
      { name: 'room', type: freeText, meaning: '' },
      { name: 'code', type: freeText, secret: true, meaning: '' }
    ] as const
  }
  const kind = kindOf<{ name: string }>(rack, { box: new SecretBox(randomBytes(32)), type: 'rack' })
  for (const code of [awkward, '', '{"encrypted":"x"}', '********']) {
    const doc = { name: 'r', room: 'R1', code }
    const text = kind.encode(doc)
    t.match(JSON.parse(text), { room: 'R1', code: { encrypted: String } })
    t.same(kind.decode('r', JSON.parse(text)), doc)
    t.equal(kind.encode(doc), text, 'the same value has the same file')
    t.equal(kind.outdated?.(JSON.parse(text)), undefined)
    t.equal(kind.outdated?.(doc), 'field "code" is in the clear')
    t.not(kind.encode({ ...doc, name: 's' }), text.replace('"r"', '"s"'), 'elsewhere it looks different')
  }
  t.end()
})

// rules 3.11, 11.8
t.test('files of an earlier version are encrypted at the start, once, and no answer changes', async t => {
  const c = await withPasswords(t)
  const before = await stored(c)
  const exported = (await c.get('/config/cluster/export')).text
  await c.daemon.close(1000)
  asBefore(c)
  const found = await check(c)
  t.same(found.problems, [])
  t.match(found.warnings, [
    /bmcsetup\/boards\.json: field "password" is in the clear; the next start writes the file anew$/,
    /switch\/leaf1\.json: field "read", "rw" is in the clear; the next start writes the file anew$/
  ])
  c.log.length = 0
  await c.restart()
  t.match(
    c.log.join('\n'),
    /boards\.json: field "password" is in the clear \(and 1 more files? like it\): written anew/
  )
  t.same(await holding(c, all), [])
  t.equal((await c.get('/config/cluster/export')).text, exported)
  t.match(await read(c, 'switch', 'leaf1'), words.leaf1)
  t.same(await stored(c), before, 'the same bytes as if this version had written them')
  t.equal(statSync(fileOf(c, 'switch/leaf1')).mode & 0o777, 0o600)
  c.log.length = 0
  await c.restart()
  t.notMatch(c.log.join('\n'), /written anew/, 'the next start has nothing to do')
  t.same((await check(c)).warnings, [])
  t.equal((await c.post('/config/cluster/import', exported)).status, 201)
  t.same(await stored(c), before, 'an import of the export writes nothing')
})

// Whatever a kill leaves between two operations on files: a copy of the directory is taken before each of
// them.
t.test('a start that is killed while it encrypts is completed by the next one', async t => {
  const box = new SecretBox(randomBytes(32))
  const directory = join(t.testdir(), 'state')
  const fields = { read: 'readable-1', rw: 'writable-1' }
  const options = (at: string) => storeOptions(at, settings, box, '0.1.0')
  await (await Store.open(options(directory))).close()
  const names = ['leaf1', 'leaf2', 'leaf3']
  for (const name of names)
    writeFileSync(join(directory, 'switch', `${name}.json`), clear(`switch/${name}`, fields))
  const files = new TestFiles()
  const copies: string[] = []
  files.before = () => {
    copies.push(`${directory}.${copies.length}`)
    cpSync(directory, copies.at(-1) as string, { recursive: true })
  }
  await (await Store.open({ ...options(directory), files })).close()
  t.ok(copies.length >= 8, `${copies.length} moments`)
  for (const copy of [...copies, directory]) {
    const store = await Store.open(options(copy))
    for (const name of names) t.same(store.current.get('switch', name), { name, ...fields })
    await store.close()
    const kept = [...readdirSync(join(copy, 'switch')), ...readdirSync(join(copy, 'log'))].sort()
    t.same(kept, ['leaf1.json', 'leaf2.json', 'leaf3.json'])
    for (const name of names)
      t.notMatch(readFileSync(join(copy, 'switch', `${name}.json`), 'utf8'), /(read|writ)able-1/, copy)
  }
})

// rules 2.7
t.test('a disk that does not take the encrypted files is no reason not to serve', async t => {
  const box = new SecretBox(randomBytes(32))
  const directory = join(t.testdir(), 'state')
  const options = storeOptions(directory, settings, box, '0.1.0')
  await (await Store.open(options)).close()
  const file = join(directory, 'switch', 'leaf1.json')
  writeFileSync(file, clear('switch/leaf1', { read: 'readable-1' }))
  const files = new TestFiles()
  files.before = operation => {
    if (operation === 'write') throw systemError('ENOSPC')
  }
  const log: string[] = []
  const full = await Store.open({
    ...options,
    files,
    log: (level, message) => log.push(`${level} ${message}`)
  })
  t.match(full.current.get('switch', 'leaf1'), { read: 'readable-1' })
  await full.close()
  t.match(log, [
    /^error .*leaf1\.json: field "read" is in the clear: it cannot be written anew: no space left/
  ])
  await (await Store.open(options)).close()
  t.notMatch(readFileSync(file, 'utf8'), 'readable-1', 'the next start does it')
})

t.test('a value that a hand wrote in the clear is taken, and encrypted', async t => {
  const c = await withPasswords(t)
  await c.restart(() => {
    const file = fileOf(c, 'switch/leaf1')
    const doc = JSON.parse(readFileSync(file, 'utf8'))
    writeFileSync(file, JSON.stringify({ ...doc, rw: 'typed by hand' }))
  })
  t.match(await read(c, 'switch', 'leaf1'), { read: words.leaf1.read, rw: 'typed by hand' })
  t.same(await holding(c, [...all, 'typed by hand']), [])
})

t.test('an object whose file was copied to another name by hand is read', async t => {
  const c = await withPasswords(t)
  await c.restart(() => {
    const doc = JSON.parse(readFileSync(fileOf(c, 'switch/leaf1'), 'utf8'))
    writeFileSync(fileOf(c, 'switch/leaf2'), clear('switch/leaf2', { ...doc, name: 'leaf2' }))
  })
  t.match(await read(c, 'switch', 'leaf2'), words.leaf1)
})

t.test('with another key no start: it names each object and the way out', async t => {
  const c = await withPasswords(t)
  await c.post('/config/node/n1', {})
  await c.post('/config/secrets/node/n1/host', { path: '/etc/key', content: 'AAAA' })
  await c.daemon.close(1000)
  const key = join(c.directory, 'state', 'secret.key')
  renameSync(key, `${key}.away`)
  const before = c.state()
  const wayOut =
    /restore the secret\.key that belongs to it from a backup, or put the value in quotes in the place of the whole/
  writeFileSync(key, randomBytes(32), { mode: 0o600 })
  const refused = await c.restart().then(
    () => undefined,
    (error: Error) => error.message
  )
  t.match(refused, /bmcsetup\/boards\.json:4: BMC set-up boards: field "password" cannot be decrypted/)
  t.match(refused, /switch\/leaf1\.json:3: switch leaf1: field "read" cannot be decrypted/)
  t.match(refused, wayOut)
  const { problems } = await check(c)
  t.match(problems.join('\n'), /boards\.json:4: .*"password" cannot be decrypted/)
  t.match(
    problems.join('\n'),
    /secrets\/node\.n1\.json:.* node n1: secret host cannot be decrypted: .*restore/
  )

  rmSync(key)
  await t.rejects(c.restart(), { message: /field "password" cannot be decrypted without its secret\.key/ })
  const told = (await check(c)).problems.join('\n')
  t.match(told, /leaf1\.json:3: .*without its secret\.key/)
  t.notMatch(told, /is null/, 'nobody is told to leave it out')
  t.notOk(readdirSync(join(c.directory, 'state')).includes('secret.key'), 'no new key is made')
  t.same(c.state(), before, 'and nothing is written')

  writeFileSync(key, randomBytes(32), { mode: 0o600 })
  chmodSync(key, 0o644)
  t.match((await check(c)).problems.join('\n'), /secret\.key:.*mode 0644/)

  renameSync(`${key}.away`, key)
  await c.restart()
  t.match(await read(c, 'bmcsetup', 'boards'), words.boards, 'the key was restored')

  await c.restart(() => {
    rmSync(key)
    rmSync(join(c.directory, 'state', 'secrets'), { recursive: true })
    asBefore(c)
  })
  t.match(await read(c, 'bmcsetup', 'boards'), words.boards, 'the values were typed again')
  t.same(await holding(c, all), [])
})

t.test('secrets of nodes under another key: the start says whose', async t => {
  const c = await Controller.start(t)
  await c.post('/config/node/n1', {})
  await c.post('/config/secrets/node/n1/host', { path: '/etc/key', content: 'AAAA' })
  await c.restart(() => {
    writeFileSync(join(c.directory, 'state', 'secret.key'), randomBytes(32), { mode: 0o600 })
  })
  t.match(
    c.log.join('\n'),
    /node n1: secret host cannot be decrypted: .* restore .* or give its content again \(POST \/config\/secrets\/node\/n1\/host\)/
  )
})
