import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { Controller } from '../support/controller.js'
import { clientHere, loggedIn } from '../support/svcctl.js'

// rules 4.37

/** A controller with a cluster, and svcctl that is logged in at it. */
async function site(t: Test, ...overrides: string[]) {
  const c = await Controller.start(t, ...overrides)
  await c.cluster()
  const env = loggedIn(t.testdir({}), c)
  const run = async (args: readonly string[], types?: string[]) => {
    const meets = types === undefined ? {} : { answers: () => types.shift() ?? '' }
    const { code, stdout: out, stderr: err } = await clientHere(args, env, meets)
    return { code, out, err }
  }
  const asks = (mac: string, query = '', source = '10.141.9.9', headers = {}) =>
    c.get(`/boot/search/mac/${mac}${query && `?${query}`}`, { token: null, source, headers })
  const nodes = async () =>
    (await c.get('/config/node')).body.config.node as Record<string, { macaddr: string }>
  return { c, run, asks, nodes }
}

const mac = (n: number) => `02:00:00:00:00:${n.toString(16).padStart(2, '0')}`

t.test('machines that ask are listed until they have a node', async t => {
  const { c, run, asks } = await site(t)
  t.equal(
    (await run(['unknown', 'list'])).out,
    'mac  maker  product  serial  address  port  bmc  count  last  conflict\n'
  )
  const said = `serial=ABC123&uuid=4c4c4544-0033-5610-8052-b4c04f4d3132&maker=Dell%20Inc.&product=R640&asset=&macs=${mac(1)},${mac(9)},`
  t.match((await asks(mac(1), said)).text, /is unknown/)
  await asks(mac(1), said)
  const shown = (await c.get('/monitor/unknown')).body.monitor.unknown[mac(1)]
  t.match(shown, {
    ...{ mac: mac(1), macs: [mac(1), mac(9)], maker: 'Dell Inc.', product: 'R640', serial: 'ABC123' },
    ...{
      asset: null,
      address: '10.141.9.9',
      network: 'cluster',
      switch: null,
      port: null,
      count: 2,
      conflict: null
    },
    ...{ first: /^20.*Z$/, last: /^20.*Z$/ }
  })
  t.equal((await c.get('/monitor/unknown', { token: null })).status, 401)
  const head = { token: null, source: '10.141.9.9', method: 'HEAD' }
  await c.get(`/boot/search/mac/${mac(2)}?serial=X99`, head)
  t.equal((await c.get('/monitor/unknown')).body.monitor.unknown[mac(2)], undefined, 'a HEAD leaves no trace')
  t.match(
    c.log.join('\n'),
    /unknown machine 02:.*:01 \(Dell Inc\. R640 serial ABC123\) asks from 10\.141\.9\.9/
  )
  await c.post('/config/node/node001', { group: 'compute', macaddr: mac(1) })
  t.strictSame((await c.get('/monitor/unknown')).body.monitor.unknown, {})
})

t.test('each boot page passes what iPXE knows', async t => {
  const { c } = await site(t)
  for (const page of ['/boot', '/boot/short'])
    t.match(
      (await c.get(page, { token: null })).text,
      'boot/search/mac/${netX/mac}?serial=${serial:uristring}&uuid=${uuid}&maker=${manufacturer:uristring}' +
        '&product=${product:uristring}&asset=${asset:uristring}&macs=${net0/mac},${net1/mac},${net2/mac},'
    )
})

t.test('adopt shows a table, asks, and makes all nodes in one change', async t => {
  const { c, run, asks, nodes } = await site(t)
  for (const [n, serial] of [
    [3, 'S10'],
    [1, 'S9'],
    [2, 'S100']
  ] as const)
    await asks(mac(n), `serial=${serial}&maker=ACME&asset=A${n}`)
  const adopt = ['unknown', 'adopt', 'all', 'as', 'node[001-003]', '--group', 'compute']
  t.match(await run([...adopt, '--order', 'serial']), { code: 2, err: /no terminal to ask on, use --yes/ })
  const refused = await run([...adopt, '--order', 'serial'], ['n'])
  t.match(refused, { code: 1, err: /nothing was changed/ })
  t.match(
    refused.err,
    /^node +mac +serial.*\nnode001 +02:00:00:00:00:01 +S9 +ACME.*\nnode002 +\S+:03 +S10 .*\nnode003 +\S+:02 +S100 /
  )
  t.strictSame(Object.keys(await nodes()), [])
  const dry = await run([...adopt, '--dryrun'])
  t.match(dry, { code: 0, out: /3 would be created/ })
  const done = await run([...adopt, '--order', 'serial'], ['y'])
  t.match(done, { code: 0, out: /3 nodes created, 0 changed/ })
  const made = await nodes()
  t.strictSame(
    Object.values(made).map(({ macaddr }) => macaddr),
    [mac(1), mac(3), mac(2)]
  )
  t.match(made.node002, { group: 'compute', vendor: 'ACME', assettag: 'A3' })
  t.match((await asks(mac(3))).text, /svc\.node=node002 /)
  const audit = readFileSync(join(c.directory, 'state', 'audit.log'), 'utf8')
    .trim()
    .split('\n')
    .slice(-3)
  const ids = new Set(audit.map(line => JSON.parse(line).change))
  t.equal(ids.size, 1, 'one change')
  t.match((await run(['unknown', 'adopt', 'all', 'as', 'n1'])).err, /all selects no unknown machine/)
})

t.test('the orders, and what selects machines', async t => {
  const { run, asks, nodes } = await site(t)
  await asks(mac(3), 'serial=CZ1&maker=HPE')
  await asks(mac(2), 'serial=CZ2&maker=HPE', '192.0.2.1')
  await asks(mac(1), 'serial=7X&maker=Dell')
  const planned = async (...args: string[]) => {
    const { err, code } = await run(['unknown', 'adopt', ...args], ['n'])
    t.equal(code, 1, args.join(' '))
    return [...err.matchAll(/^n(\d) +02:00:00:00:00:0(\d)/gm)].map(([, , last]) => Number(last))
  }
  t.same(await planned('all', 'as', 'n[1-3]'), [3, 2, 1], 'by the time of the first request')
  t.same(await planned('all', 'as', 'n[1-3]', '--order', 'mac'), [1, 2, 3])
  t.same(await planned('cz*', 'as', 'n[1-2]', '--order=serial'), [3, 2])
  t.same(await planned('network=cluster', 'as', 'n1,n2'), [3, 1])
  t.same(await planned(`CZ2,${mac(1).replaceAll(':', '-')}`, 'as', 'n[1-2]', '--order', 'mac'), [1, 2])
  for (const [args, why] of [
    [['all', 'as', 'n[1-2]'], /selects 3 machines, and n\[1-2\] names 2 nodes/],
    [['all', 'as', 'n[1-3]', '--order', 'port'], /--order port: machine .* has no port/],
    [['all', 'as', 'n[1-3]', '--order', 'size'], /--order must be one of time, serial, port, mac/],
    [['all', 'for', 'n[1-3]'], /usage: svcctl unknown adopt/],
    [['all', 'as', '@compute'], /names such as node\[001-050\]/],
    [['all', 'as', 'n*'], /names such as node\[001-050\]/],
    [['X*', 'as', 'n1'], /X\* selects no unknown machine/],
    [['all', 'as', 'n[1-3]', '--group', 'nobody'], /group nobody does not exist/]
  ] as const)
    t.match((await run(['unknown', 'adopt', ...args], ['y'])).err, why)
  t.strictSame(await nodes(), {})
})

t.test('a node that exists gets the machine, unless it has one', async t => {
  const { c, run, asks, nodes } = await site(t)
  await c.post('/config/node/n1', { group: 'compute' })
  await c.post('/config/node/n2', { group: 'compute', macaddr: mac(9) })
  await asks(mac(1))
  await asks(mac(2))
  t.match(
    (await run(['unknown', 'adopt', 'all', 'as', 'n[1-2]', '--yes'])).err,
    /node n2 has a machine already, .*:09/
  )
  t.equal((await nodes()).n1?.macaddr, null)
  t.match(await run(['unknown', 'adopt', mac(1), 'as', 'n1', '--yes']), {
    code: 0,
    out: /0 nodes created, 1 changed/
  })
  t.equal((await nodes()).n1?.macaddr, mac(1))
})

t.test('a node keeps its serial number, its UUID and the MAC of its BMC', async t => {
  const { c, run, asks, nodes } = await site(t)
  const uuid = '4c4c4544-0033-5610-8052-b4c04f4d3132'
  await c.post('/config/node/n1', { group: 'compute', serial: 'AAA111', vendor: 'ACME' })
  await c.post('/config/node/n2', { group: 'compute', uuid })
  await asks(mac(1), 'serial=BBB999')
  await asks(mac(2), `uuid=${uuid.replace('4c4c', '4c4d')}&serial=CCC999`)
  await asks(mac(3), 'serial=aaa111&maker=HPE')
  const before = await nodes()
  t.match(await run(['unknown', 'adopt', mac(1), 'as', 'n1'], ['y']), {
    code: 1,
    err: /node n1 has serial AAA111, and the machine BBB999: .*svcctl node set n1 serial=.*nothing was changed/s
  })
  const { err } = await run(['unknown', 'adopt', mac(2), 'as', 'n2', '--yes'])
  t.match(err, /node n2 has uuid 4c4c4544-\S+, and the machine 4c4d4544-\S+: .*svcctl node set n2 uuid=/)
  t.strictSame(await nodes(), before)
  const asked = await run(['unknown', 'adopt', mac(3), 'as', 'n1'], ['y'])
  t.match(
    asked,
    { code: 0, err: /vendor: ACME → HPE|vendor.*ACME.*HPE/ },
    'case does not count; old values are shown'
  )
  t.match(asked.err, /Change this node\?/)
  t.match((await run(['unknown', 'adopt', mac(1), 'as', 'n3'], ['n'])).err, /Create this node\?/)
})

t.test('a serial number of 12 digits is no MAC', async t => {
  const { run, asks, nodes } = await site(t)
  await asks(mac(1), 'serial=202601010001')
  t.match(await run(['unknown', 'adopt', '202601010001', 'as', 'n1', '--yes']), { code: 0 })
  t.equal((await nodes()).n1?.macaddr, mac(1))
})

t.test('machines that contradict each other, or themselves, are left out of "all"', async t => {
  const { c, run, asks } = await site(t)
  await asks(mac(1), 'serial=SAME1')
  await asks(mac(2), 'serial=same1')
  await asks(mac(3), 'serial=FIRST')
  await asks(mac(3), 'serial=SECOND')
  await c.post('/config/node/n9', { group: 'compute', macaddr: mac(9) })
  await asks(mac(4), `macs=${mac(4)},${mac(9)}`)
  await asks(mac(5), 'serial=None')
  await asks(mac(6), 'serial=None')
  const { unknown } = (await c.get('/monitor/unknown')).body.monitor
  t.equal(unknown[mac(1)].conflict, `MAC ${mac(2)} gives the same serial`)
  t.equal(unknown[mac(3)].conflict, 'it gave FIRST before')
  t.equal(unknown[mac(4)].conflict, `its MAC ${mac(9)} is that of node n9`)
  t.equal(unknown[mac(5)].conflict, null, 'a serial number of many machines is none')
  const said = await run(['unknown', 'adopt', 'all', 'as', 'n[1-2]'], ['n'])
  t.match(said.err, /left out: 02:00:00:00:00:03: it gave FIRST before; name its MAC to take it\n/)
  t.match(said.err, /^n1 +02:00:00:00:00:05/m)
  t.match(await run(['unknown', 'adopt', mac(3), 'as', 'n3', '--yes']), { code: 0 })
})

t.test('a machine of a delivery list is adopted as its own node', async t => {
  const { c, run, asks, nodes } = await site(t)
  for (const n of [1, 2]) await c.post(`/config/node/n${n}`, { group: 'compute', serial: `SN${n}` })
  await asks(mac(2), 'serial=SN2')
  await asks(mac(3), 'serial=SN3')
  await asks(mac(1), 'serial=SN1')
  const other = await run(['unknown', 'adopt', 'sn1', 'as', 'n9', '--yes'])
  t.match(other, {
    code: 1,
    err: /as n1, or set \[boot\] by_serial = yes\nsvcctl: sn1 selects no machine without/
  })
  const dry = await run(['unknown', 'adopt', mac(3), 'as', 'n9', '--dryrun'])
  t.match(dry.out, /BOOTIF\.macaddress: /)
  t.notMatch(dry.out, /\.own/)
  const few = await run(['unknown', 'adopt', 'sn1', 'as', 'n[1-2]', '--yes'])
  t.match(few.err, /sn1 selects 1 machine, and n\[1-2\] names 2 nodes: /)
  t.match(await run(['unknown', 'adopt', 'all', 'as', 'n[1-3]', '--yes']), {
    ...{ code: 0, out: /1 node created, 2 changed/, err: '' }
  })
  t.strictSame(
    Object.values(await nodes()).map(({ macaddr }) => macaddr),
    [mac(1), mac(2), mac(3)]
  )
})

t.test('texts of a stranger reach no terminal, csv, page or log as they came', async t => {
  const { c, run, asks } = await site(t)
  const evil = encodeURIComponent('=cmd|"/c calc"!A1\u001b]0;x\u0007\r\n<script>\u202e')
  const query = ['serial', 'maker', 'product', 'asset', 'uuid'].map(name => `${name}=${evil}`).join('&')
  await asks(mac(1), query)
  const texts = [c.log.join('\n')]
  for (const format of ['text', 'csv', 'json', 'yaml'])
    texts.push((await run(['unknown', 'list', '-o', format])).out)
  for (const text of texts) {
    t.notMatch(text.replaceAll('\n', '').replaceAll('\r', ''), /[\u0000-\u001f\u007f-\u009f\u202e<>]/)
    t.match(text, /=cmd\?/)
  }
  t.match(texts[2], /,"'=cmd/, 'no formula')
  const answer = await c.get('/monitor/unknown')
  t.notMatch(answer.text, /[<>\u001b]/)
  t.match(await run(['unknown', 'adopt', mac(1), 'as', 'n1', '--yes']), { code: 0 })
  t.match((await c.get('/config/node/n1')).body.config.node.n1, { vendor: /^=cmd\?\?\/c calc\?!A1\?/ })
})

t.test('thousands of false machines: the real ones stay, and boots go on', async t => {
  const { c, asks } = await site(t)
  await c.post('/config/node/node001', { group: 'compute', macaddr: mac(1) })
  await asks(mac(2), 'serial=REAL1')
  const began = performance.now()
  for (let i = 0; i < 3000; i += 50)
    await Promise.all(
      Array.from({ length: 50 }, (_, k) => {
        const n = i + k
        return asks(
          `06:00:00:00:${(n >> 8).toString(16).padStart(2, '0')}:${(n & 255).toString(16).padStart(2, '0')}`,
          `serial=${n}`,
          '10.141.66.6'
        )
      })
    )
  t.comment(`3,000 requests in ${Math.round(performance.now() - began)} ms`)
  const { unknown } = (await c.get('/monitor/unknown')).body.monitor
  t.equal(Object.keys(unknown).length, 257)
  t.ok(unknown[mac(2)])
  t.match((await asks(mac(1))).text, /svc\.node=node001 /)
  t.ok(c.log.filter(line => line.includes('unknown machine')).length < 150, 'the log is no copy of it')
})

t.test('a new machine is an event', async t => {
  const { c, asks } = await site(t)
  const id = (await c.get('/monitor/overview')).body.monitor.overview.mark
  await asks(mac(1), 'maker=ACME')
  await new Promise(resolve => setTimeout(resolve, 300))
  const next = await c.get('/monitor/events?follow=no', { headers: { 'last-event-id': id } })
  t.match(
    next.text,
    /event: unknown\ndata: \{"mac":"02:00:00:00:00:01","macs":\["02:00:00:00:00:01"\],"maker":"ACME"/
  )
})
