import { appendFileSync, cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { Controller } from '../support/controller.js'
import { difference, plainFiles } from '../support/state.js'
import { until } from '../support/until.js'
import { check, contract, keyOf, type Row, rows, type Step, send, shape } from './contract/case.js'
import { cases, refusals, routeOf, steps, succeeding, table } from './contract/cases.js'
import { FullDisk } from './contract/full-disk.js'
import { Stage } from './contract/world.js'

const byKey = (key: string) => rows.find(row => row.key === key) as Row

/** The codes that each row was seen to answer with, by its key. */
const seen = new Map(rows.map(({ key }) => [key, new Set<number>()]))
const saw = (row: Row, status: number) => seen.get(row.key)?.add(status)

/** Routes that svcd has beyond the contract's; their cases are in the tests of their rooms. */
const beyond = new RegExp(
  `^\\w+ /(${[
    'config/(file|disklayout|export|token)(/|$)',
    '(service|config|control|monitor)/(consoles?|tftp)/',
    'config/cluster/\\{controller\\}/',
    'boot/files/',
    'config/node/\\{node\\}/_render/(files|partscript)$',
    'monitor/(inventory|odd|unknown)(/|$)',
    '(config/)?trust(/|$)',
    'config/node/\\{node\\}/_(trust|distrust)$',
    'auth(/|$)'
  ].join('|')})`
)

t.test('every row has a route and cases, every route and every case a row', t => {
  t.same(
    rows.filter(row => !routeOf(row)).map(row => row.key),
    [],
    'rows without a route'
  )
  t.same(
    rows.filter(row => steps(row).length === 0).map(row => row.key),
    [],
    'rows without a case'
  )
  const shapes = new Set(rows.map(row => shape(row.key)))
  t.same(
    table.map(keyOf).filter(key => !shapes.has(shape(key)) && !beyond.test(key)),
    [],
    'routes without a row'
  )
  t.same(
    Object.keys(cases).filter(key => !seen.has(key)),
    [],
    'cases without a row'
  )
  t.equal(seen.size, rows.length, 'no row stands there twice')
  const built = Object.keys(contract.later).filter(key =>
    table.some(route => shape(keyOf(route)) === shape(key))
  )
  t.same(built, [], 'what comes later has no route yet')
  t.end()
})

// rules 2.1, 2.12
t.test('a route documents the codes of its row, and no others', t => {
  const everywhere = Object.keys(contract.everywhere).map(Number)
  const ofFiles = [206, 416]
  for (const row of rows) {
    const codes = routeOf(row)?.codes ?? []
    const listed = [...row.success, ...row.errors]
    const bare = rows.filter(other => shape(other.key) === shape(row.key)).flatMap(other => other.errors)
    t.same(
      listed.filter(code => !codes.includes(code)),
      [],
      `${row.key}: codes that its route lacks`
    )
    const more = codes.filter(code => ![...listed, ...bare, ...everywhere, ...ofFiles].includes(code))
    t.same(more, [], `${row.key}: codes of its route that the contract lacks`)
    t.equal(
      routeOf(row)?.body,
      row.body === '' || row.key === 'POST /config/osimage'
        ? 'ignored'
        : row.body === 'a table'
          ? 'text'
          : 'json',
      row.key
    )
  }
  t.end()
})

const stage = await Stage.open(t)

for (const row of rows)
  t.test(row.key, async t => {
    for (const step of [...steps(row), ...refusals(row)]) saw(row, await check(t, stage, row, step))
  })

const ofNodes = ['disklayout', 'loader', 'trust', 'root_format', 'kerneloptions', 'variables', 'files']
/** Fields that svcd has beyond the contract's. */
const additions: Readonly<Record<string, readonly string[]>> = {
  bmcsetup: ['protocol', 'cipher', 'privilege', 'port', 'verify_certificate', 'system'],
  network: ['dhcp_nodes_only'],
  group: [...ofNodes, 'netboot_once'],
  node: [...ofNodes, 'serial', 'uuid', 'netboot_once', 'rescue']
}

// rules 1.4
t.test('the single form has every field of the contract', async t => {
  const { c } = stage
  await c.post('/config/network/idle', {
    dhcp: true,
    dhcp_range_begin: '10.8.0.1',
    dhcp_range_end: '10.8.0.2'
  })
  const names = {
    group: 'idle',
    node: 'n2',
    network: 'idle',
    bmcsetup: 'idle',
    osimage: 'idle',
    switch: 'idle',
    otherdev: 'pdu'
  }
  for (const [type, name] of Object.entries(names)) {
    const shown = (await c.get(`/config/${type}/${name}`)).body.config[type][name]
    const fields = Object.keys(shown).filter(key => !key.startsWith('_'))
    t.same(fields.sort(), [...(contract.fields[type] ?? []), ...(additions[type] ?? [])].sort(), type)
    const listed = (await c.get(`/config/${type}`)).body.config[type][name]
    t.same(listed, shown, `${type}: the list shows the same`)
  }
  await stage.reset()
})

// rules 2.4
t.test('an export fails when a secret cannot be decrypted', async t => {
  const { c } = stage
  const file = join(c.directory, 'state', 'secrets', 'group.compute.json')
  const before = readFileSync(file, 'utf8')
  const ask = async (path: string) => {
    const { status, body } = await c.get(path)
    return [status, body?.message]
  }
  await c.restart(() =>
    writeFileSync(
      file,
      before.replace(/("content": ")(.)/g, (_, key, first) => key + (first === 'A' ? 'B' : 'A'))
    )
  )
  const [status, message] = await ask('/config/cluster/export')
  t.match(message, /^export failed: group compute: secret munge cannot be decrypted/)
  t.equal(status, 404)
  saw(byKey('GET /config/cluster/export'), status)
  t.match(await ask('/config/secrets/group/compute'), [503, /group compute: secret munge/])
  const again = await c.post('/config/secrets/group/compute/munge', { content: 'AAAA' })
  t.equal(again.status, 204, 'a new content can be given')
  await c.restart(() => writeFileSync(file, before))
  await stage.reset()
})

// rules 10.9
t.test('a server that svcd does not manage', async t => {
  const c = await Controller.start(t)
  for (const row of rows.filter(({ path }) => /^\/service\/d|_preview$/.test(path))) {
    const { status, body } = await c.get(row.path)
    t.match([status, body], [404, { message: /\[(dhcp|dns)\] server = none/ }], row.key)
    saw(row, status)
  }
  for (const name of ['dhcp', 'dns'])
    t.match((await c.get(`/monitor/service/${name}`)).body, {
      message: `there is no service ${name}: [${name}] server = none`
    })
})

t.test('login while the first password cannot be read', async t => {
  const c = await Controller.start(t)
  const file = join(c.directory, 'state', 'admin-password')
  rmSync(file)
  mkdirSync(file)
  const { status, body } = await c.post('/token', { username: 'admin', password: 'x' }, { token: null })
  t.equal(status, 503)
  t.notMatch(body.message, c.directory, 'no path of the controller is told')
  saw(byKey('POST /token'), status)
})

// rules 4.11, 2.7
t.test('a template that is broken while svcd runs: 503 on its routes alone', async t => {
  const { c } = stage
  const templates = join(c.directory, 'templates')
  cpSync(new URL('../../templates', import.meta.url), templates, { recursive: true })
  const { overrides } = c
  Object.assign(c, { overrides: [...overrides, `paths.templates=${templates}`] })
  await c.restart()
  await stage.reset()
  for (const directory of ['boot', 'install'])
    for (const name of readdirSync(join(templates, directory)).filter(name => name.endsWith('.cfg')))
      appendFileSync(join(templates, directory, name), '{% if %}')
  // Templates are looked at once a second at most.
  await sleep(1100)
  const scripts =
    /^\/boot$|^\/boot\/(short|disk|search|manual|install|cloud-init\/.*r-data)|^\/kickstart|\/_render\//
  for (const row of rows.filter(({ method, path }) => method === 'GET' && scripts.test(path))) {
    const step = succeeding(row) as Step
    const { status, text, body } = await send(stage, row, step, stage.as(step.by ?? 'admin', step.source))
    t.equal(status, 503, `${row.key}: ${text.slice(0, 100)}`)
    t.match(body?.message, /\.cfg:\d+/, `${row.key}: file and line`)
    saw(row, status)
  }
  t.equal((await c.get('/config/node/n1')).status, 200, 'the rest goes on')
  Object.assign(c, { overrides })
  await c.restart()
  await stage.reset()
})

// rules 2.7, 6.3
t.test('a store that cannot be written: changes are 503 and change nothing, reads go on', async t => {
  const { c } = stage
  // Why a boot script could not be made goes away with the next one that can.
  const script = byKey('GET /boot/search/mac/{macaddress}')
  await send(stage, script, succeeding(script) as Step)
  await until(async () => (await c.get('/monitor/node/n1')).body.monitor.status.n1.reason === null)
  await stage.idle()
  const full = await FullDisk.under(t, c)
  const memory = async () => [
    (await c.get('/config/cluster/export')).text,
    (await c.get('/monitor/node/n1')).text,
    (await c.get('/config/cluster')).text
  ]
  const before = { files: await plainFiles(c), memory: await memory() }
  for (const row of rows) {
    const step = succeeding(row)
    // What is being done can be followed and cancelled all the same.
    if (!step || row.path === '/token' || /^\/(config|service|control)\/status\//.test(row.path)) continue
    // Its thread takes seconds to load under the test runner, and it writes nothing.
    if (row.path.endsWith('/_preview')) continue
    // The last page of the journal has room for a short report.
    const long = { ...step, ask: [step.ask[0], { state: '🙂'.repeat(1024) }] } as const
    const sent = row.key === 'POST /monitor/node/{node}' ? long : step
    // So has that of the journal of boots, until it is full.
    if (row.path.startsWith('/boot/running'))
      for (let i = 0; i < 40; i++) await send(stage, row, sent, stage.as('nobody', step.source))
    const { status, text, body } = await send(stage, row, sent, stage.as(step.by ?? 'admin', step.source))
    if (routeOf(row)?.effect === 'changes') {
      t.equal(status, 503, `${row.key}: ${text.slice(0, 200)}`)
      t.same(Object.keys(body ?? {}), ['message', 'code'], row.key)
      saw(row, status)
    } else if (!/^\/monitor\/(service|status)/.test(row.path))
      t.equal(status, step.status, `${row.key}: ${text.slice(0, 200)}`)
  }
  t.same(await memory(), before.memory, 'nothing changed in memory')
  t.same(difference(before.files, await plainFiles(c)), {}, 'nothing changed on disk')
  const { status, body } = await c.get('/monitor/service/svcd')
  t.equal(status, 503, 'the daemon says that it is not well')
  t.match(body, { message: /svcd/, monitor: { service: { svcd: { status: 'failed', reason: /./ } } } })
  saw(byKey('GET /monitor/service/{service}'), status)
  const all = await c.get('/monitor/status')
  t.match(
    [all.status, all.body],
    [503, { message: /^service svcd: ./, monitor: { service: { svcd: { status: 'failed' } } } }]
  )
  saw(byKey('GET /monitor/status'), all.status)
  full.free()
  const on = await c.post('/config/group/idle', { comment: 'x' })
  t.equal(on.status, 204, `with room again it goes on: ${on.text}`)
  await c.restart()
  await stage.reset()
})

// rules 2.7
t.test('while it shuts down every row is 503', async t => {
  await stage.c.daemon.close(1000)
  for (const row of rows) {
    const [step] = steps(row)
    const { status, text } = await send(stage, row, step as Step)
    t.equal(status, 503, `${row.key}: ${text.slice(0, 100)}`)
    saw(row, status)
  }
})

t.test('every code of every row was seen', t => {
  for (const row of rows) {
    const wanted = [...row.success, ...row.errors].filter(code => !contract.never[`${row.key} ${code}`])
    t.same(
      wanted.filter(code => !seen.get(row.key)?.has(code)),
      [],
      row.key
    )
  }
  t.end()
})
