import {
  existsSync,
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
import { Audit, lastLines } from '../../lib/monitor/audit.js'
import { hostile, richCluster } from '../api/contract/rich.js'
import { base64 } from '../api/contract/world.js'
import { cheapHash } from '../support/callers.js'
import { Controller } from '../support/controller.js'
import { proof } from '../support/proof.js'

type Line = Readonly<Record<string, unknown>> & { readonly time: string }

const fileOf = (c: Controller) => join(c.directory, 'state', 'audit.log')
const filesOf = (c: Controller) => [fileOf(c), join(c.directory, 'state', 'audit-machines.log')]
const text = (file: string) => (existsSync(file) ? readFileSync(file, 'utf8') : '')
const lines = (file: string): Line[] =>
  text(file)
    .split('\n')
    .filter(line => line !== '')
    .map(line => JSON.parse(line))

/** Makes a change, and returns the lines it left, without when and the mark of the change. */
async function left(c: Controller, change: () => Promise<unknown>): Promise<Omit<Line, 'time'>[]> {
  const before = filesOf(c).map(file => lines(file).length)
  await change()
  const found = filesOf(c).flatMap((file, i) => lines(file).slice(before[i]))
  t.ok(found.every(line => /^[0-9a-f]{12}$/.test(String(line.change))))
  return found.map(({ time: _, change: __, ...line }) => line)
}
const admin = { who: 'user admin', from: '127.0.0.1' }

// A first start makes keys and hashes a password. Each test on these has nodes and groups of its own.
const c = await Controller.start(t)
await c.cluster()
/** Its logs are short. */
const small = await Controller.start(t, 'log.audit_size=64k', 'log.audit_keep=1')

// rules 11.4
t.test('a line for each object that a change touched: who, from where, what before and after', async t => {
  const started = Date.now()
  t.same(
    await left(c, () =>
      c.post('/config/group/g', { comment: hostile, netboot: false }, { source: '192.0.2.7' })
    ),
    [
      {
        who: 'user admin',
        from: '192.0.2.7',
        action: 'create',
        type: 'group',
        name: 'g',
        before: undefined,
        after: { name: 'g', comment: hostile, netboot: false }
      }
    ].map(({ before: _, ...line }) => line)
  )
  const [{ time } = { time: '' }] = lines(fileOf(c)).slice(-1)
  t.match(time, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
  t.ok(Date.parse(time) >= started && Date.parse(time) <= Date.now(), 'the time of the change')
  t.equal(statSync(fileOf(c)).mode & 0o777, 0o600)

  t.same(
    await left(c, () => c.post('/config/group/g', { comment: 'new', netboot: null, domain: 'example.org' })),
    [
      {
        ...admin,
        action: 'update',
        type: 'group',
        name: 'g',
        before: { comment: hostile, netboot: false },
        after: { comment: 'new', domain: 'example.org' }
      }
    ],
    'the fields that differ, and no others'
  )
  await c.post('/config/node/n0', { group: 'g' })
  const renamed = await left(c, () => c.post('/config/group/g', { newgroupname: 'h' }))
  t.same(
    renamed.map(({ action, type, name }) => [action, type, name]).sort(),
    [
      ['create', 'group', 'h'],
      ['delete', 'group', 'g'],
      ['update', 'node', 'n0']
    ],
    'whoever follows has a line'
  )
  t.match(
    renamed.find(({ type }) => type === 'node'),
    { before: { group: 'g' }, after: { group: 'h' } }
  )
  t.same(
    await left(c, () => c.get('/config/node/n0/_delete')),
    [{ ...admin, action: 'delete', type: 'node', name: 'n0', before: { name: 'n0', group: 'h' } }],
    'which tokens are void is no object of the admin'
  )
  t.match(await left(c, () => c.post('/config/cluster', { debug: true })), [
    {
      ...admin,
      action: 'create',
      type: 'cluster',
      after: { settings: { debug: { value: true, ini: false } } }
    }
  ])
  t.match(await left(c, () => c.post('/config/osimage/compute/tag', { tag: 'v1' })), [
    { ...admin, action: 'create', type: 'osimagetag', name: 'compute:v1' }
  ])
})

t.test('who else changes something', async t => {
  await c.post('/config/node/n1', { group: 'compute' })
  const mac = '52:54:00:00:00:01'
  const console = await left(c, () =>
    c.get(`/boot/manual/hostname/n1/${mac}`, { token: null, source: '10.141.3.3' })
  )
  t.match(console, [{ who: 'console', from: '10.141.3.3', action: 'update', type: 'node', name: 'n1' }])
  const { text: script } = await c.get('/boot/install/n1', { token: null, source: '10.141.0.1' })
  const token = /^SVC_TOKEN='([^']+)'$/m.exec(script)?.[1] as string
  const node = await left(c, () =>
    c.post('/config/node/n1', { vendor: 'ACME' }, { token, source: '10.141.0.1' })
  )
  t.same(node, [
    {
      who: 'node n1',
      from: '10.141.0.1',
      action: 'update',
      type: 'node',
      name: 'n1',
      before: {},
      after: { vendor: 'ACME' }
    }
  ])
  t.notMatch(text(fileOf(c)), token, 'never a token')
  t.notMatch(text(fileOf(c)), c.token)
})

// rules 11.4
t.test('a node pushes no line of an admin out; long texts are clipped', async t => {
  const c = small
  await c.cluster()
  const vendor = (i: number) => String(i).padEnd(256, 'v')
  // A node has a pace.
  for (const n of [1, 2, 3, 4]) {
    const node = `n${n}`
    await c.post(`/config/node/${node}`, { group: 'compute', comment: 'by an admin' })
    const { text: script } = await c.get(`/boot/install/${node}`, { token: null, source: `10.141.0.${n}` })
    const token = /^SVC_TOKEN='([^']+)'$/m.exec(script)?.[1] as string
    for (let i = 0; i < 50; i++) {
      const own = { vendor: vendor(i), assettag: vendor(i) }
      t.equal((await c.post(`/config/node/${node}`, own, { token })).status, 204)
    }
  }
  const [users = '', machines = ''] = filesOf(c)
  const isKept = lines(users).some(line => JSON.stringify(line).includes('by an admin'))
  proof('long texts by the token of a node', { tried: 200, lost: isKept ? 0 : 1 })
  t.ok(isKept, "the admin's line is there")
  t.ok(lines(machines).every(({ who }) => /^node n[1-4]$/.test(String(who))))
  t.strictSame(
    readdirSync(join(c.directory, 'state'))
      .filter(name => name.startsWith('audit'))
      .sort(),
    ['audit-machines.log', 'audit-machines.log.1', 'audit.log']
  )
  const comment = 'x'.repeat(5000)
  await c.post('/config/node/n1', { comment })
  t.match(lines(users).at(-1), { after: { comment: `${comment.slice(0, 4096)}… (5000 characters)` } })
})

t.test('what is refused, reads, or changes nothing leaves no line', async t => {
  await c.post('/config/node/n2', { group: 'compute' })
  const { text: node } = await c.get('/config/node/n2')
  const none = await left(c, async () => {
    const asked: [Promise<{ status: number }>, number][] = [
      [c.post('/config/group/compute', { color: 1 }), 400],
      [c.post('/config/group/compute', { osimage: 'none' }), 400],
      [c.post('/config/group/compute', { comment: 'x' }, { token: null }), 401],
      [c.get('/config/group/compute/_delete'), 400],
      [c.get('/config/group/none/_delete'), 404],
      [c.post('/config/cluster/import', { node: { n2: { group: 'none' } } }), 404],
      [c.get('/config/node/n2'), 200],
      [c.post('/config/node/n2', node), 204],
      [c.post('/config/node/n2', { vendor: null }), 204],
      [c.post('/monitor/node/n2', { state: 'installer.x' }), 204]
    ]
    for (const [reply, status] of asked) t.equal((await reply).status, status)
  })
  t.same(none, [])
})

// rules 11.4
t.test('passwords and secrets are masked, that they changed is told', async t => {
  const secret = base64('hush hush')
  await c.post('/config/node/n3', {})
  const found = await left(c, async () => {
    await c.post('/config/bmcsetup/b', { username: 'root', password: 'calvin-one' })
    await c.post('/config/bmcsetup/b', { password: 'calvin-two' })
    await c.post('/config/switch/s', { read: 'community-r', rw: 'community-w', vendor: 'ACME' })
    await c.post('/config/secrets/node/n3/key', { path: '/key', content: secret })
    await c.post('/config/secrets/node/n3/key', { content: base64('another') })
    await c.get('/config/secrets/node/n3/key/_delete')
  })
  const hidden = '********'
  t.match(found, [
    { action: 'create', type: 'bmcsetup', after: { username: 'root', password: hidden } },
    { action: 'update', type: 'bmcsetup', before: { password: hidden }, after: { password: hidden } },
    { action: 'create', type: 'switch', after: { read: hidden, rw: hidden, vendor: 'ACME' } },
    {
      action: 'create',
      type: 'secrets',
      name: 'node.n3',
      after: { secrets: [{ name: 'key', path: '/key', content: hidden }] }
    },
    {
      action: 'update',
      type: 'secrets',
      before: { secrets: [{ content: hidden }] },
      after: { secrets: [{ content: hidden }] }
    },
    { action: 'delete', type: 'secrets', before: { secrets: [{ name: 'key', content: hidden }] } }
  ])
  const log = text(fileOf(c))
  for (const plain of ['calvin', 'community', 'hush', secret, base64('another')]) t.notMatch(log, plain)
  const sealed = JSON.stringify(found.map(line => [line.before, line.after]))
  t.notMatch(sealed, /"content":"(?!\*{8}")/, 'nor the ciphertext')
})

t.test('an import is one line with counts, and one for each object with its name alone', async t => {
  const c = await Controller.start(t)
  await richCluster(c)
  const { body } = await c.get('/config/cluster/export')
  const { config } = body
  delete config.otherdev.pdu
  delete config.node.alone
  config.switch.sw1.comment = 'changed'
  config.switch.sw2 = {}
  config.secrets.node.n9[0].content = base64('changed')
  const found = await left(c, () => c.post('/config/cluster/import', { config }, { source: '192.0.2.7' }))
  const head = { who: 'user admin', from: '192.0.2.7' }
  t.same(found, [
    {
      ...head,
      action: 'import',
      counts: {
        node: { created: 0, changed: 0, deleted: 1 },
        switch: { created: 1, changed: 1, deleted: 0 },
        otherdev: { created: 0, changed: 0, deleted: 1 },
        secrets: { created: 0, changed: 1, deleted: 0 }
      }
    },
    { ...head, action: 'delete', type: 'node', name: 'alone' },
    { ...head, action: 'update', type: 'switch', name: 'sw1' },
    { ...head, action: 'create', type: 'switch', name: 'sw2' },
    { ...head, action: 'delete', type: 'otherdev', name: 'pdu' },
    { ...head, action: 'update', type: 'secrets', name: 'node.n9' }
  ])
})

t.test('there after a restart and a kill; a viewer cannot read it over http', async t => {
  const c = await Controller.start(t)
  await c.post('/config/group/g', {})
  const before = text(fileOf(c))
  Object.assign(c, { overrides: [...c.overrides, `users.root=admin ${cheapHash('x')}`] })
  await c.restart()
  c.token = await c.login('root', 'x')
  await c.post('/config/group/h', {})
  t.ok(text(fileOf(c)).startsWith(before), 'it goes on where it was')
  t.match(lines(fileOf(c)).at(-1), { who: 'user root', name: 'h' })
})

t.test('changes made at once have their lines, in the order of their commits', async t => {
  const count = 200
  await Promise.all(
    Array.from({ length: count }, (_, i) => c.post('/config/group/race', { comment: String(i) }))
  )
  const found = lines(fileOf(c)).filter(({ name }) => name === 'race')
  t.equal(found.length, count)
  let last: unknown
  for (const { before, after } of found as unknown as {
    before?: { comment?: string }
    after: { comment: string }
  }[]) {
    if (before) t.equal(before.comment, last)
    last = after.comment
  }
  t.equal((await c.get('/config/group/race')).body.config.group.race.comment, last)
})

/** Bytes of the line for an object whose name has one letter. */
async function lineBytes(test: Test): Promise<number> {
  const { file, record } = log(test, 10_000, 1)
  await record('a')
  const { size } = statSync(file)
  rmSync(file)
  return size
}

/** An audit log of its own, and what a change of one object is to it. */
function log(test: Test, maxBytes: number, keep: number, directory = test.testdir()) {
  const file = join(directory, 'audit.log')
  let now = 0
  const machinesFile = join(directory, 'audit-machines.log')
  const audit = new Audit({ file, machinesFile, maxBytes, keep, now: () => now++ })
  const record = (name: string) =>
    audit.record(
      { ...admin, mayTakeAddresses: true },
      [{ type: 'group', name, before: undefined, after: { name } }],
      'change'
    )
  const names = (rotated = '') => lines(file + rotated).map(({ name }) => name)
  return { directory, file, audit, record, names }
}

// rules 11.4
t.test('a machine that changes one object without end leaves few lines, a user all', async t => {
  const { directory, file, audit } = log(t, 10_000_000, 1)
  const machines = join(directory, 'audit-machines.log')
  const comment = 'x'.repeat(4000)
  const change = (who: string, name: string, i: number) =>
    audit.record(
      { who, from: '10.141.0.1', mayTakeAddresses: false },
      [
        {
          type: 'node',
          name,
          before: { name, vendor: `${i}${comment}` },
          after: { name, vendor: `${i + 1}${comment}` }
        }
      ],
      'change'
    )
  for (let i = 0; i < 1000; i++) await change('node n1', 'n1', i)
  await change('node n2', 'n2', 0)
  await change('console', 'n1', 0)
  for (let i = 0; i < 200; i++) await change('user admin', 'n1', i)
  t.equal(lines(file).length, 200)
  await audit.close()
  const left = lines(machines)
  const omitted = left.at(-1)
  // A busy machine may take some seconds for all: one line more in 5 s.
  const first = left.filter(({ name }) => name === 'n1').length
  t.ok(first >= 60 && first < 100, `${first} lines`)
  t.equal(left.filter(({ name }) => name === 'n2').length, 1)
  t.match(omitted, { who: 'svcd', from: '-', action: 'omit', count: 1001 - first, names: 'n1' })
  t.equal(left.length, first + 2, 'one line tells what was left out')
  t.ok(statSync(machines).size < 1_000_000)
})

// rules 11.4
t.test('what is not seen is escaped in the file, and is read back as it was', async t => {
  const { file, record } = log(t, 10_000, 1)
  const name = 'a\u202eb\u200b\u0085\u{e0041}\u2028'
  await record(name)
  t.notMatch(text(file), /[\p{Cf}\p{Zl}\u0080-\u009f]/u)
  t.match(text(file), /a\\u202eb\\u200b\\u0085\\udb40\\udc41\\u2028/)
  t.match(lines(file), [{ name }])
})

// rules 11.4
t.test('rotated by size, kept by count', async t => {
  const { directory, record, names } = log(t, 2.5 * (await lineBytes(t)), 2)
  for (const name of ['a', 'b', 'c']) await record(name)
  t.same(readdirSync(directory), ['audit.log'], 'the third line takes it over the size')
  await record('d')
  t.same([names(), names('.1')], [['d'], ['a', 'b', 'c']], 'the next one begins a new file')
  for (const name of ['e', 'f', 'g', 'h', 'i', 'j']) await record(name)
  t.same([names(), names('.1'), names('.2')], [['j'], ['g', 'h', 'i'], ['d', 'e', 'f']], 'the oldest went')
  t.same(readdirSync(directory).sort(), ['audit.log', 'audit.log.1', 'audit.log.2'])
  for (const name of readdirSync(directory)) t.equal(statSync(join(directory, name)).mode & 0o777, 0o600)
})

// rules 11.4
t.test(
  'a change that touches more objects than a call takes arguments has one line for those of a type',
  async t => {
    const { file, audit } = log(t, 10_000, 1)
    // By its default stack Node takes some 125,000 arguments.
    const count = 200_000
    t.throws(() => Math.max(...new Array<number>(count).fill(0)), RangeError)
    const changes = Array.from({ length: count }, (_, i) => {
      const doc = { name: String(i) }
      return { type: 'group', name: doc.name, before: doc, after: doc }
    })
    await audit.record({ ...admin, mayTakeAddresses: true }, changes, 'change')
    t.equal(text(file).split('\n').length, 2, 'one line, and what follows it')
    const names = `[0-${count - 1}]`
    t.match(JSON.parse(text(file)), { action: 'update', type: 'group', count, names })
  }
)

t.test('with none kept, the old one goes; the size of a file that was there counts', async t => {
  const { directory, file, record, names } = log(t, 250, 0)
  writeFileSync(file, `${JSON.stringify({ name: 'old', fill: 'x'.repeat(300) })}\n`)
  await record('a')
  t.same(names(), ['a'])
  t.same(readdirSync(directory), ['audit.log'])
})

t.test('the keys of the ini say when', async t => {
  const c = small
  const comment = 'x'.repeat(4096)
  for (let i = 0; i < 36; i++) await c.post(`/config/group/g${i}`, { comment })
  const state = join(c.directory, 'state')
  const found = readdirSync(state).filter(name => name.startsWith('audit.log'))
  t.same(found.sort(), ['audit.log', 'audit.log.1'])
  for (const name of found) t.ok(statSync(join(state, name)).size < 80_000)
  t.equal(lines(fileOf(c)).at(-1)?.name, 'g35')
})

// rules 11.4
t.test('a log that cannot be written is told by the health, and loses no later line', async t => {
  const { file, audit, record, names } = log(t, 10_000, 1)
  t.same(audit.health, { ok: true, reason: '' })
  mkdirSync(file)
  await t.resolves(record('a'), 'the change itself is done')
  t.notOk(audit.health.ok)
  t.match(audit.health.reason, /audit log cannot be written/)
  rmSync(file, { recursive: true })
  await record('b')
  t.same(audit.health, { ok: true, reason: '' })
  t.same(names().slice(-1), ['b'])

  const c = await Controller.start(t)
  mkdirSync(fileOf(c))
  t.equal((await c.post('/config/group/g', {})).status, 201, 'the change stands')
  t.match(await c.get('/monitor/service/svcd'), { status: 503, body: { message: /audit log/ } })
  rmSync(fileOf(c), { recursive: true })
  await c.post('/config/group/g', { comment: 'x' })
  t.equal((await c.get('/monitor/service/svcd')).status, 200)
})

// rules 6.11
t.test('half a line, which a power cut left, spoils neither the next line nor what is read', async t => {
  const { directory, file, audit, record } = log(t, 10_000_000, 1)
  const found = async () => (await audit.last('users')).lines.map(line => (line as Line).name)
  await record('a')
  const [whole = ''] = text(file).split('\n')
  await audit.close()
  writeFileSync(file, `${whole}\n\0\0\0\nnull\n${whole.slice(0, 40)}`)
  const next = log(t, 10_000_000, 1, directory)
  await next.record('b')
  await next.record('c')
  t.same(
    text(file)
      .split('\n')
      .map(line => line.slice(0, 7)),
    ['{"time"', '\0\0\0', 'null', '{"time"', '{"time"', '{"time"', ''],
    'the half line has an end, once'
  )
  t.same(await found(), ['c', 'b', 'a'], 'what is damaged is left out')
})

// rules 6.11
t.test('a line of any length hides no other one', async t => {
  const { file, audit, record } = log(t, 100_000_000, 1)
  await record('a')
  const [whole = ''] = text(file).split('\n')
  const names = 'n'.repeat(700_000)
  const long = whole.replace('"name":"a"', `"count":9,"names":${JSON.stringify(names)}`)
  writeFileSync(file, `${whole}\n${long}\n`)
  const found = (await audit.last('users')).lines
  t.match(found, [{ who: admin.who, action: 'create', type: 'group', bytes: long.length }, { name: 'a' }])
  t.notOk(JSON.stringify(found).includes('nn'), 'its names are in the file alone')
  writeFileSync(file, `${whole}\n${whole.replace('"name":"a"', `"name":"${'n'.repeat(262_000)}"`)}\n`)
  t.match((await audit.last('users')).lines, [{ action: 'create', bytes: Number }, { name: 'a' }])
  // Lines of every length around that of a block.
  const lengths = [1, 262_000, 3, 262_143, 262_144, 262_145, 500, 524_288, 2]
  writeFileSync(file, lengths.map(length => `${'x'.repeat(length)}\n`).join(''))
  const came: number[] = []
  for await (const line of lastLines(file)) {
    came.push(line.bytes)
    t.equal(line.text, 'x'.repeat(Math.min(line.bytes, 262_144)))
  }
  t.same(came, lengths.reverse())
})

t.test('the lines of one change carry one mark, those of two changes two', async t => {
  await c.post('/config/group/marked', {})
  await c.post('/config/node/n4', { group: 'marked' })
  const before = lines(fileOf(c)).length
  await c.post('/config/group/marked', { newgroupname: 'work' })
  const renamed = lines(fileOf(c)).slice(before)
  t.same(renamed.map(({ action, type, name }) => [action, type, name]).sort(), [
    ['create', 'group', 'work'],
    ['delete', 'group', 'marked'],
    ['update', 'node', 'n4']
  ])
  t.equal(new Set(renamed.map(line => line.change)).size, 1)
  await c.post('/config/node/n4', { comment: 'x' })
  t.not(lines(fileOf(c)).at(-1)?.change, renamed[0]?.change)
})

// rules 11.10
t.test(
  'a link in the place of the log is not followed: what it leads to is not written, and not cut',
  async t => {
    const directory = t.testdir({ other: 'of somebody else' })
    const file = join(directory, 'audit.log')
    const log: string[] = []
    const audit = new Audit({
      ...{ file, machinesFile: join(directory, 'machines.log'), maxBytes: 1e6, keep: 1, now: Date.now },
      log: { error: line => log.push(line), info: line => log.push(line) }
    })
    const group = (comment: string) => ({ type: 'group', name: 'g', before: undefined, after: { comment } })
    const record = (comment: string) =>
      audit.record(
        { who: 'user admin', from: '-', mayTakeAddresses: false },
        [group(comment)] as never,
        'change'
      )
    await record('1')
    // While it runs: the size is known, and nothing is looked up.
    renameSync(file, join(directory, 'mine'))
    symlinkSync('other', file)
    await record('2')
    t.match(audit.health, { ok: false, reason: /is a link, and svcd follows none here/ })
    await record('3')
    t.equal(readFileSync(join(directory, 'other'), 'utf8'), 'of somebody else')
    rmSync(file)
    renameSync(join(directory, 'mine'), file)
    await record('4')
    t.equal(audit.health.ok, true)
    t.same(
      lines(file).map(({ after }) => (after as { comment: string }).comment),
      ['1', '2', '3', '4']
    )
    await audit.close()
  }
)
