import { randomInt } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { Controller } from '../support/controller.js'
import { proof } from '../support/proof.js'
import { read, stored } from '../support/state.js'

const hour = 3_600_000
const mine = '52:54:00:00:00:01'
const third = '52:54:00:00:00:77'
const stranger = '52:54:00:00:00:66'
const none = { token: null, source: '10.141.9.9' }
let tried = 0

/** Nodes n1, which has a machine, and n2, which has none. */
async function cluster(t: Test, ...overrides: string[]): Promise<Controller> {
  const c = await Controller.start(t, ...overrides)
  await c.cluster()
  await c.post('/config/group/other', {
    ...{ osimage: 'compute', interfaces: [{ interface: 'BOOTIF', network: 'cluster' }] }
  })
  for (const name of ['n1', 'n2']) await c.post(`/config/node/${name}`, { group: 'compute' })
  await c.post('/config/node/n1', { macaddr: mine })
  await c.post('/monitor/node/n1', { state: 'installer.completed' })
  c.log.length = 0
  return c
}

/** What a machine reads at its console. */
async function asks(c: Controller, path: string, from = none): Promise<string> {
  tried++
  const { status, text } = await c.get(`/boot/${path}`, from)
  t.equal(status, 200, path)
  return text
}
const macOf = async (c: Controller, node: string) => (await read(c, 'node', node)).macaddr
const boot = async (c: Controller) => (await c.get('/monitor/status')).body.monitor.service.boot

// rules 4.23
t.test(
  'yes: any machine takes a node over; the log warns, and the status tells it until an admin has seen it',
  async t => {
    const c = await cluster(t)
    t.equal(await boot(c), undefined, 'nothing to tell')
    t.equal((await c.get('/monitor/service/boot')).status, 404)
    t.match(await asks(c, `manual/hostname/n1/${stranger}`), /svc\.node=n1 /)
    const told = new RegExp(
      `node n1 was taken over by machine ${stranger}, asked for from 10\\.141\\.9\\.9 at 20`
    )
    t.match(c.log.join('\n'), told)
    t.match(await boot(c), { status: 'ok', reason: told })
    t.equal((await c.get('/monitor/status')).status, 200, 'the service itself is well')
    t.same((await c.get('/monitor/status', { token: null })).body.monitor.service.boot, { status: 'ok' })
    await c.restart()
    t.match((await boot(c)).reason, /_seen$/, 'kept over a restart, with the way out')
    t.match(await asks(c, `manual/group/other/${stranger}`), /svc\.node=other001 /)
    t.match((await boot(c)).reason, new RegExp(`node n1 lost its machine ${stranger} to node other001, `))
    t.equal((await c.get('/config/node/n1/_seen')).status, 200)
    t.equal(await boot(c), undefined)
    t.match(await asks(c, `manual/hostname/n2/${mine}`), /svc\.node=n2 /, 'a node without a machine')
    t.equal(await boot(c), undefined, 'is nobody’s loss')
  }
)

// rules 4.23
t.test(
  'released: a node that has a machine is handed over once, within an hour after its release',
  async t => {
    const c = await cluster(t, 'boot.takeover=released')
    const refused =
      /node n1 has a machine\. An admin has to release it first, .*GET \/config\/node\/n1\/_release/
    const before = await stored(c)
    for (const path of [
      `manual/hostname/n1/${stranger}`,
      // Without its machine it would be free for the next one.
      `manual/hostname/n2/${mine}`,
      `manual/group/other/${mine}`
    ])
      t.match(await asks(c, path), refused, path)
    t.match(await asks(c, 'manual/hostname/n1'), /node n1 has a machine\. Ask with the MAC of yours/)
    t.same(await stored(c), before, 'nothing is stored, and nothing is made')
    t.match(await asks(c, `search/${mine}`), /svc\.node=n1 /, 'its own machine boots')
    t.match(await asks(c, `manual/hostname/n1/${mine}`), /svc\.node=n1 /, 'and may choose itself')
    t.match(await asks(c, `manual/group/compute/${mine}`), /svc\.node=n1 /)
    t.match(await asks(c, 'manual/hostname/n2'), /svc\.node=n2 /, 'a node without a machine is free')

    t.equal((await c.get('/config/node/n1/_release', { token: null })).status, 401)
    const release = await c.get('/config/node/n1/_release')
    t.match(release, {
      status: 200,
      body: { message: /^node n1 can be taken over by one machine until 20.*Z$/ }
    })
    const audit = readFileSync(join(c.directory, 'state', 'audit.log'), 'utf8')
      .trim()
      .split('\n')
    t.match(JSON.parse(audit.at(-1) ?? ''), {
      who: 'user admin',
      action: 'create',
      type: 'handover',
      name: 'n1'
    })
    await c.restart()
    for (const ms of [-60_000, hour + 60_000]) {
      c.clockMs = ms
      t.match(await asks(c, `manual/hostname/n1/${stranger}`), refused, `${ms} ms after the release`)
    }
    c.clockMs = hour - 60_000
    t.match(await asks(c, `manual/hostname/n1/${stranger}`), /svc\.node=n1 /, 'kept over a restart')
    c.clockMs = 0
    t.equal(await macOf(c, 'n1'), stranger)
    t.match((await boot(c)).reason, /n1 was taken over/)
    t.match(await asks(c, `manual/hostname/n1/${mine}`), refused, 'one machine uses it up')
    await c.get('/config/node/n1/_seen')

    await c.get('/config/node/n1/_release')
    t.match(
      await asks(c, `manual/group/other/${stranger}`),
      /svc\.node=other001 /,
      'its machine may go elsewhere'
    )
    t.equal(await macOf(c, 'n1'), null)
    t.match(await asks(c, `manual/hostname/n1/${mine}`), /svc\.node=n1 /, 'it has none now')

    await c.get('/config/node/n1/_release')
    await c.get('/config/node/n1/_delete')
    await c.post('/config/node/n1', { group: 'compute', macaddr: mine })
    t.match(await asks(c, `manual/hostname/n1/${third}`), refused, 'a release goes with the node')
    await c.get('/config/node/n1/_release')
    await c.post('/config/node/n1', { newhostname: 'm1' })
    t.match(await asks(c, `manual/hostname/m1/${third}`), /svc\.node=m1 /, 'and follows it to a new name')
    await c.post('/config/node/m1', { macaddr: mine })
    t.equal(await macOf(c, 'm1'), mine, 'an admin gives machines as ever')
  }
)

t.test('of many machines that ask at once, one uses the release', async t => {
  const c = await cluster(t, 'boot.takeover=released')
  await c.get('/config/node/n1/_release')
  const macs = Array.from({ length: 20 }, (_, i) => `52:54:00:00:01:${String(i + 10)}`)
  const texts = await Promise.all(macs.map(mac => asks(c, `manual/hostname/n1/${mac}`)))
  const winners = macs.filter((_, i) => /svc\.node=n1 /.test(texts[i] ?? ''))
  t.equal(winners.length, 1)
  t.equal(await macOf(c, 'n1'), winners[0])
})

// rules 4.6, 4.23
t.test('released: nobody gets the grant of a dynamic node by asking without a MAC', async t => {
  const c = await cluster(t, 'boot.takeover=released', 'boot.dynamic_nodes=yes')
  await c.post('/config/network/cluster', {
    ...{ dhcp: true, dhcp_range_begin: '10.141.9.1', dhcp_range_end: '10.141.9.99' }
  })
  await c.post('/config/node/n1', { interfaces: [{ interface: 'BOOTIF', ipaddress: null }] })
  await asks(c, 'manual/hostname/n1')
  t.equal((await c.get('/boot/install/n1', none)).status, 401)
  const own = { ...none, source: '10.141.9.10' }
  t.match(await asks(c, `search/${mine}`, own), /svc\.node=n1 /)
  t.equal((await c.get('/boot/install/n1', own)).status, 200)
})

// rules 4.24
t.test('consoles make so many nodes in a minute, and say when to try again', async t => {
  const c = await cluster(t, 'boot.new_nodes=3')
  const mac = () => `52:54:01:${[1, 2, 3].map(() => randomInt(16, 256).toString(16)).join(':')}`
  const made = () => c.get('/config/node').then(({ body }) => Object.keys(body.config.node).length)
  const before = await made()
  t.match(await asks(c, `manual/group/compute/${mac()}`), /svc\.node=n2 /, 'a free node is not made')
  const texts = await Promise.all(Array.from({ length: 30 }, () => asks(c, `manual/group/compute/${mac()}`)))
  t.equal(texts.filter(text => /svc\.node=/.test(text)).length, 3)
  const [refusal = ''] = texts.filter(text => !/svc\.node=/.test(text))
  t.match(refusal, /new_nodes = 3 lets consoles make no more nodes in a minute\. Try again in \d\d? s/)
  t.equal(await made(), before + 3)
  t.equal(c.log.filter(line => /created in group compute/.test(line)).length, 3, 'each is logged')
  t.equal(c.log.filter(line => /machines that ask for a new node are told to wait/.test(line)).length, 1)
  t.equal((await c.post('/config/node/n99', { group: 'compute' })).status, 201, 'an admin makes more')
})

t.teardown(() => proof('a node taken over at the console', { tried, crashes: 0 }))

// rules 4.23
t.test('machines that take a node from each other without end are told at a pace', async t => {
  const c = await cluster(t)
  const lines = (node: string) => c.log.filter(line => line.includes(`node ${node} was taken over`)).length
  for (let n = 0; n < 100; n++) await asks(c, `manual/hostname/n1/52:54:00:00:01:${(n + 16).toString(16)}`)
  t.ok(lines('n1') >= 60 && lines('n1') < 80, `${lines('n1')} lines`)
  t.match((await boot(c)).reason, /node n1 was taken over by machine 52:54:00:00:01:73/, 'the last is kept')
  await asks(c, `manual/hostname/n2/52:54:00:00:02:01`)
  await asks(c, `manual/hostname/n2/52:54:00:00:02:02`)
  t.equal(lines('n2'), 1, 'another node is told')
})

// rules 4.23
t.test('a machine that goes to and fro between two nodes without end is told at a pace', async t => {
  const c = await cluster(t)
  const moves = () => c.log.filter(line => /MAC \S+ moved from node/.test(line)).length
  for (let n = 0; n < 200; n++) await asks(c, `manual/hostname/n${(n % 2) + 1}/52:54:00:00:03:01`)
  t.ok(moves() >= 120 && moves() < 150, `${moves()} lines`)
})

t.test('a node that asks over IPv6 is told that nodes boot over IPv4', async t => {
  const c = await cluster(t)
  const { status, body } = await c.get('/boot/install/n1', { token: null, source: 'fd00::141' })
  t.equal(status, 401)
  t.match(
    body.message,
    /fd00::141 is not the address .*\. Nodes boot over IPv4 alone: turn IPv6 off in the firmware/
  )
  t.notMatch((await c.get('/boot/install/n1', none)).body.message, /IPv6/)
})
