import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { Controller } from '../support/controller.js'

// rules 4.38

const uuid = '4c4c4544-0033-5610-8052-b4c04f4d3132'
const other = '11223344-5566-7788-99aa-bbccddeeff00'
const mac = (n: number) => `02:00:00:00:00:${n.toString(16).padStart(2, '0')}`

async function site(t: Test, ...overrides: string[]) {
  const c = await Controller.start(t, ...overrides)
  await c.cluster()
  const asks = async (n: number, query = '', source = '10.141.9.9', method = 'GET') =>
    (await c.get(`/boot/search/mac/${mac(n)}?${query}`, { token: null, source, method })).text
  const macOf = async (name: string) => (await c.get(`/config/node/${name}`)).body.config.node[name].macaddr
  const conflict = async (n: number) =>
    (await c.get('/monitor/unknown')).body.monitor.unknown[mac(n)]?.conflict
  const add = async (name: string, fields: object) => {
    const { status, text } = await c.post(`/config/node/${name}`, { group: 'compute', ...fields })
    t.equal(status, 201, text)
  }
  return { c, asks, macOf, conflict, add }
}

t.test('a delivery list in CSV is enough: each machine is its node at its first request', async t => {
  const { c, asks, macOf } = await site(t, 'boot.by_serial=yes')
  const table = `name,group,Serial Number,UUID\nn1,compute,ABC123,\nn2,compute,,${uuid.toUpperCase()}\n`
  const headers = { 'Content-Type': 'text/csv' }
  const sent = await c.post('/config/node?format=csv', table, { headers })
  t.match(sent.body.message, /2 nodes created/)
  const again = await c.post('/config/node?format=csv', 'name,serial\nn3,abc123\n', { headers })
  t.match(again.headers['x-svcd-warning'], /its serial number or UUID is that of node n1 too/)
  t.equal((await c.get('/config/node/n3/_delete')).status, 204)
  t.equal(await asks(1, 'serial=%20abc123', '10.141.9.9', 'HEAD'), '')
  t.equal(await macOf('n1'), null, 'a HEAD gives no MAC')
  t.match(await asks(1, 'serial=%20abc123'), /svc\.node=n1 /)
  t.match(
    await asks(2, 'uuid=44454c4c-3300-1056-8052-b4c04f4d3132'),
    /svc\.node=n2 /,
    'in either order of bytes'
  )
  t.equal(await macOf('n1'), mac(1))
  t.equal(await macOf('n2'), mac(2))
  t.match(await asks(1), /svc\.node=n1 /, 'known from now on')
  t.match(
    c.log.join('\n'),
    /MAC 02:00:00:00:00:01 given to node n1: it is the machine with its serial number or UUID/
  )
  const audit = readFileSync(join(c.directory, 'state', 'audit-machines.log'), 'utf8')
    .trim()
    .split('\n')
  t.equal(audit.length, 2)
  t.match(JSON.parse(audit[0] ?? ''), { who: 'svcd', from: '10.141.9.9', type: 'node', name: 'n1' })
  t.strictSame((await c.get('/monitor/unknown')).body.monitor.unknown, {})
})

t.test('two machines with one serial number at once: one gets the node', async t => {
  const { c, asks, add, macOf, conflict } = await site(t, 'boot.by_serial=yes')
  await add('n1', { serial: 'ABC123' })
  const texts = await Promise.all([1, 2, 3, 4].map(n => asks(n, 'serial=ABC123')))
  t.equal(texts.filter(text => /svc\.node=n1 /.test(text)).length, 1)
  const [winner, ...losers] = [1, 2, 3, 4].sort((_, n) => (/svc\.node=/.test(texts[n - 1] ?? '') ? 1 : -1))
  t.equal(await macOf('n1'), mac(winner ?? 0))
  for (const n of losers)
    t.equal(await conflict(n), `node n1 has its serial number or UUID, and the machine ${mac(winner ?? 0)}`)
  t.match(
    c.log.join('\n'),
    /unknown machine \S+ \(serial ABC123\) asks from 10\.141\.9\.9, and stays unknown: node n1 /
  )
})

t.test('conflicts are told, and change nothing', async t => {
  const { c, asks, add, conflict } = await site(t, 'boot.by_serial=yes')
  await add('a1', { serial: 'TWICE' })
  await add('a2', { serial: 'TWICE' })
  await add('b1', { serial: 'SERIAL1' })
  await add('b2', { uuid })
  await add('c1', { serial: 'BOTH1', uuid: other })
  await add('d1', { serial: 'TAKEN', macaddr: mac(200) })
  const before = c.state()
  const cases: [number, string, string][] = [
    [1, 'serial=TWICE', 'nodes a1, a2 have its serial number or UUID'],
    [2, `serial=SERIAL1&uuid=${uuid}`, 'nodes b1, b2 have its serial number or UUID'],
    [
      3,
      `serial=BOTH1&uuid=99223344-5566-7788-99aa-bbccddeeff00`,
      'node c1 has its serial number or UUID, but not both'
    ],
    [4, 'serial=TAKEN', `node d1 has its serial number or UUID, and the machine ${mac(200)}`]
  ]
  for (const [n, query, why] of cases) {
    t.match(await asks(n, query), /is unknown/, query)
    t.equal(await conflict(n), why)
    t.ok(c.log.some(line => line.includes(mac(n)) && line.includes(`stays unknown: ${why}`)))
  }
  const told = () => c.log.filter(line => line.includes('stays unknown')).length
  const lines = told()
  for (const [n, query] of cases) await asks(n, query)
  t.equal(told(), lines, 'each is logged once')
  t.match(await asks(200, 'serial=SERIAL1'), /svc\.node=d1 /, 'a known MAC stays with its node')
  t.strictSame(c.state(), before)
})

t.test('what names no machine, and machines outside of all networks, get no node', async t => {
  const { c, asks, add, macOf } = await site(t, 'boot.by_serial=yes')
  for (const [i, junk] of ['To be filled by O.E.M.', 'None', '0000000000', 'Default string'].entries())
    await add(`n${i}`, { serial: junk })
  for (const [i, junk] of ['To be filled by O.E.M.', 'None', '0000000000', 'Default string'].entries())
    t.match(await asks(i + 1, `serial=${encodeURIComponent(junk)}`), /is unknown/, junk)
  await add('x1', { serial: 'OUTSIDE1' })
  t.match(await asks(9, 'serial=OUTSIDE1', '192.0.2.7'), /is unknown/)
  t.equal(await macOf('x1'), null)
  t.match(await asks(9, 'serial=OUTSIDE1'), /svc\.node=x1 /)
  t.equal((await c.post('/config/node/x1', { uuid: 'no-uuid' })).status, 400)
  t.equal((await c.post('/config/node/x1', { serial: 'x'.repeat(65) })).status, 400)
})

t.test('a machine asks from the network of the provision interface, or stays unknown', async t => {
  const { c, asks, add, macOf } = await site(t, 'boot.by_serial=yes')
  await c.post('/config/network/ipmi', { network: '10.142.0.0/16' })
  await add('n1', { serial: 'ABC123' })
  t.match(await asks(1, 'serial=ABC123', '10.142.0.66'), /is unknown/)
  t.equal(await macOf('n1'), null)
  t.match(await asks(2, 'serial=ABC123'), /svc\.node=n1 /)
})

t.test('without the key a machine only shows whose serial number it has', async t => {
  const { c, asks, add, macOf, conflict } = await site(t)
  await add('n1', { serial: 'ABC123' })
  t.match(await asks(1, 'serial=ABC123'), /is unknown/)
  t.equal(await macOf('n1'), null)
  const why = `node n1 has its serial number or UUID, and no machine: type svcctl unknown adopt ${mac(1)} as n1`
  t.equal(await conflict(1), `${why}, or set [boot] by_serial = yes`)
  t.notOk(c.log.some(line => line.includes('stays unknown')))
})
