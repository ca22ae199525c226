import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { checkAll } from '../../lib/cli/checks.js'
import { loadConfig } from '../../lib/config/load.js'
import { Controller } from '../support/controller.js'
import { difference, plainFiles, stored } from '../support/state.js'

const shipped = fileURLToPath(new URL('../../etc/svcd.ini', import.meta.url))
const settings = {
  ntp_server: '',
  debug: false,
  technical_contacts: '',
  provision_method: 'torrent',
  provision_fallback: 'http'
}
const changed = {
  ntp_server: 'ntp.example.org, 192.0.2.1',
  debug: true,
  technical_contacts: 'Zoë "the boss"\n<z@example.org>; # 🙂',
  provision_method: 'http',
  provision_fallback: 'torrent'
}

const read = async (c: Controller) => (await c.get('/config/cluster')).body.config.cluster
const post = (c: Controller, body: unknown) => c.post('/config/cluster', body)
/** What `svcd check` says of the settings. */
const notes = async (c: Controller) => (await checkAll(loadConfig(shipped, [...c.overrides]))).changedSettings

/** The same state, with another ini. */
async function withIni(c: Controller, ...overrides: string[]): Promise<void> {
  const kept = c.overrides.filter(line => !line.startsWith('cluster.'))
  Object.assign(c, { overrides: [...kept, ...overrides] })
  await c.restart()
}

// rules 1.1, 6.4
t.test('the cluster as the ini has it, and its controller', async t => {
  const c = await Controller.start(t, 'controller.name=head', 'cluster.name=blue', 'cluster.debug=yes')
  t.same(await read(c), {
    name: 'blue',
    head: {
      status: 'primary',
      ipaddr: '10.141.255.254',
      serverport: 0,
      svc_config: shipped
    },
    ...settings,
    debug: true
  })
})

// rules 1.8, 3.15
t.test('exactly five settings can be changed', async t => {
  const c = await Controller.start(t)
  for (const [name, value] of Object.entries(changed)) {
    const before = await plainFiles(c)
    const { status, text } = await post(c, { config: { cluster: { [name]: value } } })
    t.equal(status, 204, `${name}: ${text}`)
    t.same((await read(c))[name], value, name)
    t.same(Object.keys(difference(before, await plainFiles(c))), ['cluster/cluster.json'])
  }
  const before = await stored(c)
  const { controller } = await read(c)
  const refused: [unknown, RegExp][] = [
    [{ controller: { ...controller, status: 'standby' } }, /"controller" cannot be changed/],
    [{ controller: { ...controller, ipaddr: '10.0.0.1' } }, /"controller"/],
    [{ controller: { status: 'primary' } }, /"controller"/],
    [{ controller: { ...controller, more: 1 } }, /"controller"/],
    [{ controller: null }, /"controller"/],
    [{ other: controller }, /"other"/],
    [{ name: 'green' }, /"name"/],
    [{ ntp_server: 'ok', color: 1 }, /"color"/],
    [{ ntp_server: 'not a host!' }, /"ntp_server"/],
    [{ ntp_server: 5 }, /"ntp_server"/],
    [{ debug: 'true' }, /"debug".*must be true or false/],
    [{ technical_contacts: ['a'] }, /"technical_contacts".*string/],
    [{ provision_method: 'ftp' }, /"provision_method".*torrent, http/],
    [{ provision_fallback: true }, /"provision_fallback"/],
    [[], /object/],
    ['', /./]
  ]
  for (const [body, says] of refused) {
    const reply = await post(c, body)
    t.equal(reply.status, 400, `${JSON.stringify(body)}: ${reply.text}`)
    t.match(reply.body.message, says)
  }
  t.same(await stored(c), before, 'what is refused changes nothing')
  t.equal((await post(c, { ntp_server: 'x', debug: 5 })).status, 400)
  t.same(await stored(c), before, 'nor the half of it')
})

// rules 1.8
t.test('what was read can be posted, and changes nothing', async t => {
  const c = await Controller.start(t, 'cluster.ntp_server=ini.example.org')
  for (const change of [{}, changed]) {
    if (Object.keys(change).length > 0) await post(c, change)
    const before = await stored(c)
    const { text } = await c.get('/config/cluster')
    const reply = await c.post('/config/cluster', text)
    t.equal(reply.status, 204, reply.text)
    t.same(await stored(c), before)
  }
})

// rules 3.3
t.test('groups and nodes inherit them at once', async t => {
  const c = await Controller.start(t)
  await c.post('/config/group/g', {})
  await c.post('/config/node/n', { group: 'g' })
  const shown = async () => {
    const { config } = (await c.get('/config/node/n')).body
    return [config.node.n.provision_method, config.node.n._provision_method_source]
  }
  t.same(await shown(), ['torrent', 'cluster'])
  await post(c, { provision_method: 'http' })
  t.same(await shown(), ['http', 'cluster'])
})

// rules 3.15
t.test('they outlive a restart, and win until the value of the ini is another one', async t => {
  const c = await Controller.start(t, 'cluster.ntp_server=one.example.org')
  t.same(await notes(c), [], 'check: all is as the ini says')
  await post(c, { ...changed, ntp_server: 'changed.example.org' })
  await c.restart()
  t.match(await read(c), { ...changed, ntp_server: 'changed.example.org' }, 'after a restart')
  t.match(await notes(c), [
    /ntp_server: "changed\.example\.org" is in force, .* the ini says "one\.example\.org"/,
    /debug: true is in force/,
    /technical_contacts/,
    /provision_method: "http" .* "torrent"/,
    /provision_fallback/
  ])
  await withIni(c, 'cluster.ntp_server=two.example.org')
  t.match(
    await read(c),
    { ...changed, ntp_server: 'two.example.org' },
    'the ini was changed: it wins, here alone'
  )
  t.notMatch((await notes(c)).join(), /ntp_server/)
  await withIni(c, 'cluster.ntp_server=one.example.org')
  t.match(
    await read(c),
    { ...changed, ntp_server: 'one.example.org' },
    'changed back: the old change is over'
  )
  await post(c, { ntp_server: 'again.example.org' })
  await c.restart()
  t.equal((await read(c)).ntp_server, 'again.example.org', 'changed anew, it wins again')
})

// rules 3.15
t.test('null gives a setting back to the ini, an empty text is a value', async t => {
  const c = await Controller.start(t, 'cluster.ntp_server=ini.example.org', 'cluster.technical_contacts=ini')
  await post(c, { ntp_server: '', technical_contacts: '', debug: true })
  t.match(await read(c), { ntp_server: '', technical_contacts: '', debug: true })
  await c.restart()
  t.match(await read(c), { ntp_server: '', technical_contacts: '', debug: true })
  await post(c, { ntp_server: null, technical_contacts: null, debug: null })
  t.match(await read(c), { ntp_server: 'ini.example.org', technical_contacts: 'ini', debug: false })
  t.notOk(Object.hasOwn(await plainFiles(c), 'cluster/cluster.json'), 'no file is left')
})

t.test('debug acts at once, and again after a restart', async t => {
  const c = await Controller.start(t, 'log.level=error')
  const isLogged = async () => {
    const from = c.log.length
    await c.get('/version')
    return c.log.length > from
  }
  t.notOk(await isLogged(), 'the level of the ini')
  await post(c, { debug: true })
  t.ok(await isLogged(), 'at once')
  await c.restart()
  t.ok(await isLogged(), 'after a restart')
  await post(c, { debug: false })
  t.notOk(await isLogged(), 'off again')
  await withIni(c, 'cluster.debug=yes')
  t.ok(await isLogged(), 'the ini has it too')
})

t.test('a file of settings that was changed by hand is refused with its name', async t => {
  const c = await Controller.start(t)
  await post(c, { debug: true })
  await c.daemon.close(1000)
  const file = join(c.directory, 'state', 'cluster', 'cluster.json')
  const text = readFileSync(file, 'utf8')
  for (const [from, to] of [
    ['"debug"', '"color"'],
    ['"value": true', '"value": "yes"']
  ] as const) {
    writeFileSync(file, text.replace(from, to))
    await t.rejects(c.restart(), /cluster/, to)
  }
  writeFileSync(file, text)
  await c.restart()
  t.equal((await read(c)).debug, true)
})
