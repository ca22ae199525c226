import { readFileSync, writeFileSync } from 'node:fs'
import { createServer as createPlain, type ServerResponse } from 'node:http'
import { createServer } from 'node:https'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { login } from '../../lib/control/redfish/connection.js'
import { addNode, ask, bmcCluster, follow } from '../support/bmc-cluster.js'
import { expire, makeCertificate } from '../support/certificate.js'
import { Controller } from '../support/controller.js'
import { freePort } from '../support/free-port.js'
import { type RedfishOptions, RedfishService } from '../support/redfish-service.js'
import { scratch } from '../support/scratch.js'

const port = await freePort()
const [one, two] = [
  await RedfishService.start(t, '127.7.0.1', port),
  await RedfishService.start(t, '127.7.0.2', port)
]
const credentials = { username: 'admin', password: 'secret', protocol: 'redfish' }

const c = await Controller.start(
  t,
  `control.redfish_port=${port}`,
  'control.time_limit=2s',
  'control.soft_limit=3s',
  'control.delay=0s'
)
await bmcCluster(c, { ...credentials, verify_certificate: false })
for (const i of [1, 2]) await addNode(c, `n${i}`, `127.7.0.${i}`)

const act = (part: string, node: string, action: string) =>
  c.get(`/control/action/${part}/${node}/_${action}`)
const done = async (t: Test, part: string, node: string, action: string) => {
  const { status, text } = await act(part, node, action)
  t.same([status, text], [204, ''], `${part} ${action}`)
}
const why = async (node: string, part = 'power', action = 'status') =>
  (await act(part, node, action)).body.message

let nodes = 10
/** A node whose BMC differs from the mock-up. */
async function other(t: Test, options: RedfishOptions): Promise<{ node: string; service: RedfishService }> {
  const [node, address] = [`n${++nodes}`, `127.7.0.${nodes}`]
  await addNode(c, node, address)
  return { node, service: await RedfishService.start(t, address, port, options) }
}

// rules 13.4
t.test('one node at once', async t => {
  const { body, status } = await act('power', 'n1', 'status')
  t.same([status, body], [200, { control: { power: 'off' } }])
  t.same(
    one.asked.map(asked => asked.replace(/[\da-f]{16}$/, '…')),
    [
      'GET /redfish/v1',
      'POST /redfish/v1/SessionService/Sessions',
      'GET /redfish/v1/Systems',
      'GET /redfish/v1/Systems/437XR1138R2',
      'DELETE /redfish/v1/SessionService/Sessions/…'
    ]
  )
  await done(t, 'power', 'n1', 'on')
  await done(t, 'power', 'n1', 'on')
  t.same((await act('power', 'n1', 'status')).body, { control: { power: 'on' } })
  await done(t, 'power', 'n1', 'reset')
  await done(t, 'power', 'n1', 'cycle')
  await done(t, 'power', 'n1', 'off')
  await done(t, 'power', 'n1', 'off')
  t.same(
    one.resets,
    ['On', 'ForceRestart', 'ForceRestart', 'ForceOff'],
    'what is on is not switched on again'
  )
  one.power.set('437XR1138R2', 'PoweringOff')
  t.same((await act('power', 'n1', 'status')).body, { control: { power: 'on' } }, 'it still draws power')
  one.power.set('437XR1138R2', 'Off')
  for (const action of ['reset', 'cycle'])
    t.match(await why('n1', 'power', action), /: is off: switch it on with "on" or "boot"$/)
  await done(t, 'power', 'n1', 'soft')
  for (const reset of ['On', 'ForceRestart']) {
    await done(t, 'power', 'n1', 'boot')
    t.equal(one.resets.at(-1), reset)
  }
  await done(t, 'chassis', 'n1', 'netboot')
  t.same(one.boot, { BootSourceOverrideEnabled: 'Once', BootSourceOverrideTarget: 'Pxe' })
  await done(t, 'chassis', 'n1', 'diskboot')
  t.same(one.boot, { BootSourceOverrideEnabled: 'Once', BootSourceOverrideTarget: 'Hdd' })
  await done(t, 'power', 'n1', 'soft')
  t.same(one.resets.slice(-1), ['GracefulShutdown'])

  await done(t, 'chassis', 'n1', 'identify')
  t.ok(one.lit)
  await done(t, 'chassis', 'n1', 'noidentify')
  t.notOk(one.lit)
  t.same((await act('sel', 'n1', 'list')).body, {
    control: {
      sel: '1 | 2012-03-07T14:41:00Z | Critical | Temperature threshold exceeded\n2 | 2012-03-07T14:42:00Z | Critical | Temperature threshold exceeded'
    }
  })
  await done(t, 'sel', 'n1', 'clear')
  t.same((await act('sel', 'n1', 'list')).body, { control: { sel: '' } })
  t.equal(one.sessions.size, 0, 'every session was ended')
  t.ok(one.logins > 10)
})

// rules 13.2
t.test('many nodes by a request', async t => {
  await addNode(c, 'n3', '127.7.9.9')
  two.power.set('437XR1138R2', 'On')
  const { body } = await ask(c, 'power', 'status', 'n1,n2,n3')
  t.match(await follow(c, 'power', body.request_id), {
    on: { n2: 'on' },
    failed: {
      n3: `127.7.9.9: refuses connections on port ${port}: turn Redfish on in it, or set "protocol"`
    },
    state: 'failed'
  })
  const on = (await ask(c, 'power', 'on', 'n1,n2')).body.request_id
  t.match(await follow(c, 'power', on), { ok: { n1: 'power on', n2: 'power on' }, state: 'done' })
  t.same([one.sessions.size, two.sessions.size], [0, 0])
})

// rules 13.4
t.test('services that differ', async t => {
  await t.test('the reset types are told by an ActionInfo; a cycle is one', async t => {
    const { node, service } = await other(t, {
      actionInfo: true,
      resetTypes: ['ForceOn', 'PowerCycle', 'GracefulShutdown']
    })
    for (const action of ['on', 'cycle', 'reset', 'off']) await done(t, 'power', node, action)
    t.same(service.resets, ['ForceOn', 'PowerCycle', 'PowerCycle', 'GracefulShutdown'])
  })
  await t.test('none that fits', async t => {
    const { node, service } = await other(t, { resetTypes: ['Nmi', 'PushPowerButton'] })
    t.match(await why(node, 'power', 'on'), /: cannot do power on: its system takes Nmi, PushPowerButton$/)
    t.equal(service.sessions.size, 0)
  })
  for (const sessions of ['untold', 'refused'] as const)
    await t.test(`sessions ${sessions}: basic authentication`, async t => {
      const { node, service } = await other(t, { sessions })
      t.same((await act('power', node, 'status')).body, { control: { power: 'off' } })
      t.equal(service.logins, 0)
    })
  await t.test('all sessions are taken: basic authentication, and never a wrong password', async t => {
    const { node, service } = await other(t, { mostSessions: 0 })
    t.same((await act('power', node, 'status')).body, { control: { power: 'off' } })
    t.equal(service.logins, 0)
    const strict = await other(t, { mostSessions: 0, basic: false })
    t.match(
      await why(strict.node),
      /: gives no session \(503 the limit of sessions is exceeded\), and takes no basic authentication: end a session/
    )
  })
  const error = (status: number, message: string) => (response: ServerResponse) =>
    response.writeHead(status).end(JSON.stringify({ error: { message } }))
  const login = 'POST /redfish/v1/SessionService/Sessions'
  for (const [what, status, message] of [
    ['400', 400, 'The maximum number of user sessions is reached'],
    ['too many requests', 429, ''],
    ['500', 500, 'internal error']
  ] as const)
    await t.test(`no session for now (${what})`, async t => {
      const { node } = await other(t, { instead: { [login]: error(status, message) } })
      t.same((await act('power', node, 'status')).body, { control: { power: 'off' } })
    })
  await t.test('busy', async t => {
    const { node } = await other(t, { instead: { 'GET /redfish/v1': error(503, 'booting') } })
    t.match(
      await why(node),
      /: is busy \(GET \/redfish\/v1\/ is answered 503: booting\): try again in a minute$/
    )
  })
  await t.test('a wrong password stays one', async t => {
    for (const sessions of ['yes', 'untold'] as const) {
      const { node } = await other(t, { sessions, password: 'another' })
      t.match(await why(node), /: refuses the user name or the password of BMC set-up boards \(/)
    }
  })
  for (const etags of ['strong', 'moving'] as const)
    await t.test(`ETags: ${etags}`, async t => {
      const { node, service } = await other(t, { etags })
      await done(t, 'chassis', node, 'identify')
      t.ok(service.lit)
      await done(t, 'chassis', node, 'netboot')
      t.match(service.boot, { BootSourceOverrideTarget: 'Pxe' })
    })
  await t.test('a system that takes its time to end, and one that does not', async t => {
    const slow = await other(t, { endsAfterMs: 500 })
    const never = await other(t, { endsAfterMs: 60_000 })
    for (const { node } of [slow, never]) await done(t, 'power', node, 'on')
    const { body } = await ask(c, 'power', 'soft', `${slow.node},${never.node}`)
    t.match(await follow(c, 'power', body.request_id), {
      ok: { [slow.node]: 'power soft' },
      failed: { [never.node]: /is still on 3 s after its system was asked to end .*"off" switches it off$/ }
    })
  })
  await t.test('a port of its own', async t => {
    const at = await freePort()
    await c.post('/config/bmcsetup/elsewhere', { ...credentials, verify_certificate: false, port: at })
    await addNode(c, 'ported', '127.7.0.200', { bmcsetupname: 'elsewhere' })
    await RedfishService.start(t, '127.7.0.200', at)
    t.same((await act('power', 'ported', 'status')).body, { control: { power: 'off' } })
  })
  await t.test('https that is too old', async t => {
    const address = '127.7.0.201'
    await addNode(c, 'ancient', address)
    const { key, certificate } = await makeCertificate(scratch(t), 'old', 90, '/CN=old', [address])
    const server = createServer({
      ...{ key: readFileSync(key), cert: readFileSync(certificate) },
      ...{ minVersion: 'TLSv1', maxVersion: 'TLSv1.1', ciphers: 'DEFAULT@SECLEVEL=0' }
    })
    await new Promise<void>(resolve => server.listen(port, address, resolve))
    t.teardown(() => server.close())
    t.match(
      await why('ancient'),
      /: its https is too old \(protocol version\): update the firmware of the BMC, or set "protocol"/
    )
  })
  await t.test('no https', async t => {
    const address = '127.7.0.202'
    await addNode(c, 'plain', address)
    const server = createPlain()
    await new Promise<void>(resolve => server.listen(port, address, resolve))
    t.teardown(() => server.close())
    t.match(
      await why('plain'),
      new RegExp(`: speaks no https on port ${port}: correct "port" of BMC set-up boards`)
    )
  })
  for (const light of ['led', 'chassis'] as const)
    await t.test(`the light is the ${light}`, async t => {
      const { node, service } = await other(t, { light })
      await done(t, 'chassis', node, 'identify')
      t.ok(service.lit)
      await done(t, 'chassis', node, 'noidentify')
      t.notOk(service.lit)
    })
  await t.test('there is no light', async t => {
    const { node } = await other(t, { light: 'none' })
    t.match(await why(node, 'chassis', 'identify'), /neither its system nor its chassis has a light/)
  })
  await t.test("the log is the manager's", async t => {
    const { node, service } = await other(t, { managersLog: true })
    t.match((await act('sel', node, 'list')).body.control.sel, /^1 \| .*\n2 \| /)
    await done(t, 'sel', node, 'clear')
    t.same(service.entries, [])
  })
  await t.test('several systems: never one by chance', async t => {
    const { node, service } = await other(t, { others: ['Blade2'] })
    const several = /has several systems: set "system" of BMC set-up boards to one of 437XR1138R2, Blade2$/
    t.match(await why(node, 'power', 'on'), several)
    t.same(service.resets, [])
    await c.post('/config/bmcsetup/blade', { ...credentials, verify_certificate: false, system: 'Blade2' })
    await c.post(`/config/node/${node}`, { bmcsetupname: 'blade' })
    await done(t, 'power', node, 'on')
    t.same(
      [...service.power],
      [
        ['437XR1138R2', 'Off'],
        ['Blade2', 'On']
      ]
    )
    await c.post('/config/bmcsetup/blade', { system: 'Blade3' })
    t.match(
      await why(node),
      /has no system Blade3: set "system" of BMC set-up blade to one of 437XR1138R2, Blade2$/
    )
  })
})

t.test('the named system alone is read: another one that does not answer does not matter', async t => {
  const busy = (response: ServerResponse) => response.writeHead(503).end()
  const { node, service } = await other(t, {
    others: ['Blade2'],
    instead: { 'GET /redfish/v1/Systems/437XR1138R2': busy }
  })
  t.match(await why(node), /: is busy \(GET \/redfish\/v1\/Systems\/437XR1138R2 /, 'none is taken by chance')
  await c.post('/config/bmcsetup/second', { ...credentials, verify_certificate: false, system: 'Blade2' })
  await c.post(`/config/node/${node}`, { bmcsetupname: 'second' })
  await done(t, 'power', node, 'on')
  t.equal(service.power.get('Blade2'), 'On')
  await c.post('/config/bmcsetup/second', { system: 'Blade3' })
  t.match(await why(node), /: is busy \(/, 'the one that is named may be the one that does not answer')
})

// rules 13.3
t.test('certificates', async t => {
  await c.post('/config/bmcsetup/checked', { ...credentials })
  await c.post('/config/node/n2', { bmcsetupname: 'checked' })
  const before = two.asked.length
  t.match(
    await why('n2'),
    /^node n2: BMC 127\.7\.0\.2: its certificate is not trusted \(\w+\): name its CA in \[control\] ca_file, or type: svcctl bmcsetup set checked verify_certificate=no$/
  )
  t.equal(two.asked.length, before, 'nothing was sent, no password above all')
  const file = join(c.directory, 'ca.pem')
  writeFileSync(file, two.certificate)
  Object.assign(c, { overrides: [...c.overrides, `control.ca_file=${file}`] })
  await c.restart()
  t.same((await act('power', 'n2', 'status')).body, { control: { power: 'on' } })
  writeFileSync(file, one.certificate)
  t.match(await why('n2'), /certificate is not trusted/, 'that of another CA')
  await addNode(c, 'n4', '127.7.0.4', { bmcsetupname: 'checked' })
  const elsewhere = await RedfishService.start(t, '127.7.0.4', port, {}, '127.7.0.5')
  writeFileSync(file, elsewhere.certificate)
  t.match(
    await why('n4'),
    /: its certificate is for another name \(ERR_TLS_CERT_ALTNAME_INVALID\): install one that names this address in the BMC, or type: svcctl bmcsetup set checked verify_certificate=no$/,
    'that of another address'
  )
  const old = await makeCertificate(c.directory, 'old')
  await expire(old)
  two.server.setSecureContext({ cert: readFileSync(old.certificate), key: readFileSync(old.key) })
  writeFileSync(file, readFileSync(old.certificate))
  t.match(
    await why('n2'),
    /: its certificate has expired, or is not valid yet \(CERT_HAS_EXPIRED\): install a new one in the BMC, or set the clock of the controller, or type: svcctl bmcsetup set checked verify_certificate=no$/
  )
  t.same(elsewhere.asked, [])
  await c.post('/config/node/n2', { bmcsetupname: null })
})

// rules 13.3
t.test('a service that is hostile, slow or broken', async t => {
  const system = 'GET /redfish/v1/Systems/437XR1138R2'
  const rows: [what: string, options: RedfishOptions, why: RegExp][] = [
    [
      'a wrong password',
      { password: 'other' },
      /: refuses the user name or the password of BMC set-up boards \(401: invalid credentials\)$/
    ],
    [
      'its refusal holds control characters',
      {
        instead: {
          [system]: r =>
            r
              .writeHead(500)
              .end('{"error":{"@Message.ExtendedInfo":[{"Message":"\\u001b[2J\\u202egone\\n"}]}}')
        }
      },
      /: GET \/redfish\/v1\/Systems\/437XR1138R2 is answered 500: \\u001b\[2Jgone$/
    ],
    [
      'it redirects',
      {
        instead: {
          'GET /redfish/v1/Systems': r => r.writeHead(308, { Location: 'https://127.7.0.1/x' }).end()
        }
      },
      /: GET \/redfish\/v1\/Systems is redirected to https:\/\/127\.7\.0\.1\/x, which is not followed$/
    ],
    [
      'its answer has no end',
      { instead: { [system]: r => flood(r) } },
      /: an answer of it is larger than 1048576 bytes$/
    ],
    [
      'no JSON',
      { instead: { [system]: r => r.writeHead(200).end('<html>') } },
      /is answered with what is no JSON: <html>$/
    ],
    [
      'a list for an object',
      { instead: { [system]: r => r.writeHead(200).end('[1]') } },
      /none of its systems tells a state of the power$/
    ],
    [
      'it leads elsewhere',
      {
        instead: {
          'GET /redfish/v1/Systems': r =>
            r
              .writeHead(200)
              .end(
                '{"Members":[{"@odata.id":"//127.7.0.1/x"},{"@odata.id":"https://x/"},{"@odata.id":"/a b"}]}'
              )
        }
      },
      /none of its systems tells a state of the power$/
    ],
    [
      'an unknown state',
      { instead: { [system]: r => r.writeHead(200).end('{"PowerState":"Burning\\u0007"}') } },
      /is none: Burning\\u0007$/
    ],
    ['it hangs up', { instead: { [system]: r => r.destroy() } }, /: socket hang up$/],
    ['it never answers', { instead: { [system]: () => {} } }, /: no answer within 2 s$/]
  ]
  for (const [what, options, expected] of rows) {
    const { node, service } = await other(t, options)
    const { status, body } = await act('power', node, 'status')
    t.equal(status, 503, what)
    t.match(body.message, expected, what)
    t.equal(service.sessions.size, 0, `${what}: no session is left`)
  }
  t.notOk(c.log.some(line => /[\u0000-\u001f\u202e]/.test(line.slice(0, -1))))
  t.notMatch(c.log.join(), /secret/)
})

/** An answer that goes on for ever, or as long as somebody reads it. */
function flood(response: import('node:http').ServerResponse): void {
  const piece = Buffer.alloc(65_536, 'x')
  response.writeHead(200)
  const more = () => {
    while (response.write(piece));
  }
  response.on('drain', more)
  more()
}

// rules 13.1, 13.2, 11.4
t.test('what changes a machine is in the audit log, what reads is not', async t => {
  const file = join(c.directory, 'state', 'audit.log')
  const lines = () => readFileSync(file, 'utf8').trimEnd().split('\n')
  const before = lines().length
  await act('power', 'n1', 'status')
  await act('power', 'n1', 'on')
  await act('power', 'n1', 'nonsense')
  await act('power', 'nobody', 'off')
  await act('chassis', 'n2', 'identify')
  for (const action of ['off', 'status'])
    await follow(c, 'power', (await ask(c, 'power', action, 'n[1-2]')).body.request_id)
  await act('sel', 'n1', 'clear')
  const { audit } = (await c.get('/monitor/audit')).body.monitor
  const told = lines()
    .slice(before)
    .map(line => JSON.parse(line))
  t.same(audit.slice(0, 4), [...told].reverse())
  t.match(told, [
    {
      who: 'user admin',
      from: '127.0.0.1',
      action: 'power',
      type: 'node',
      name: 'n1',
      after: { power: 'on' }
    },
    { action: 'chassis', name: 'n2', after: { chassis: 'identify' } },
    { action: 'power', type: 'node', count: 2, names: 'n[1-2]', after: { power: 'off' } },
    { action: 'sel', name: 'n1', after: { sel: 'clear' } }
  ])
  t.equal(told.length, 4)
})

t.test('only the begin of a long refusal is searched for a full session table', async t => {
  const answer = (body: object) => ({ status: 400, headers: {}, body })
  const asked: string[] = []
  const connection = (body: object) =>
    ({
      get: async (path: string) => asked.push(path) && { Links: { Sessions: { '@odata.id': '/sessions' } } },
      send: async () => answer(body)
    }) as never
  const bmc = { username: 'admin', password: 'secret' } as never
  await t.rejects(login(connection({ x: `${'x'.repeat(5000)} SessionLimitExceeded` }), bmc))
  t.same(asked, ['/redfish/v1/'], 'no second way is tried')
})
