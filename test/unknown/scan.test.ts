import type { IncomingMessage, ServerResponse } from 'node:http'
import t, { type Test } from 'tap'
import { BmcMakers, makers } from '../support/bmc-makers.js'
import { Controller } from '../support/controller.js'
import { freePort } from '../support/free-port.js'
import { output } from '../support/programs.js'
import { svcctlFor } from '../support/svcctl.js'
import { until } from '../support/until.js'

// rules 13.5

// Tests that run at the same time have networks of their own.
const net = `127.${60 + (process.pid % 150)}.${Math.floor(process.pid / 150) % 250}`
const hex = (n: number) => n.toString(16).padStart(2, '0')
const mac = (n: number, nic: number) => `02:00:00:${hex(nic)}:${hex(n >> 8)}:${hex(n & 255)}`
const machine = (n: number) => ({
  ...{
    serial: `SN${String(n).padStart(5, '0')}`,
    uuid: `11223344-5566-7788-99aa-0000000${hex(n).padStart(5, '0')}`
  },
  ...{ macs: [mac(n, 0), mac(n, 1)], bmcMac: mac(n, 255) }
})

async function site(t: Test, ...overrides: string[]) {
  const port = await freePort()
  const c = await Controller.start(t, `control.redfish_port=${port}`, ...overrides)
  await c.cluster()
  await c.post('/config/network/ipmi', { network: `${net}.0/24` })
  await c.post('/config/bmcsetup/boards', {
    username: 'admin',
    password: 'secret',
    verify_certificate: false
  })
  const scan = async (body: object = { network: 'ipmi', bmcsetupname: 'boards' }) => {
    const { status, body: answer } = await c.post('/monitor/unknown/_scan', body)
    if (status !== 200) return { status, message: String(answer.message), lines: [] as string[], state: '' }
    const record = async () =>
      (await c.get(`/monitor/request/${answer.request_id}`)).body.monitor.request[answer.request_id]
    await until(async () => ['done', 'failed'].includes((await record()).state))
    const { state, lines, message } = await record()
    return { status, state, lines: lines as string[], message: String(message) }
  }
  const unknown = async () => (await c.get('/monitor/unknown')).body.monitor.unknown
  return { c, scan, unknown, bmcs: new BmcMakers(t, port) }
}

t.test('100 BMCs of five makers: some are slow, some lie, some never end', async t => {
  const { c, scan, unknown, bmcs } = await site(t, 'control.time_limit=2s')
  const names = Object.keys(makers)
  const endless = (end: number) => (request: IncomingMessage, response: ServerResponse) => {
    if (!request.url?.includes('/Systems')) return false
    response.writeHead(200, { 'Content-Type': 'application/json' })
    const send = () => response.write(`{"Members":[${' '.repeat(end)}`)
    response.on('error', () => undefined)
    const timer = setInterval(send, 20)
    response.on('close', () => clearInterval(timer))
    return true
  }
  const slow = (_: IncomingMessage, response: ServerResponse) => {
    const end = response.end.bind(response)
    Object.assign(response, { end: (text: string) => setTimeout(() => end(text), 100) })
    return false
  }
  const lies: Record<number, object> = {
    // Another machine's serial number and MACs, texts that control a terminal, and links that lead elsewhere.
    80: { ...machine(1), bmcMac: mac(80, 255) },
    81: { ...machine(81), serial: '\u001b[2J=cmd|\r\n', macs: ['no mac', 'x'.repeat(10_000), mac(81, 0)] }
  }
  for (let n = 1; n <= 100; n++) {
    const maker = names[n % names.length] ?? ''
    const instead = n > 95 ? endless(65_536) : n > 92 ? endless(0) : n > 85 && n <= 92 ? slow : undefined
    await bmcs.start(`${net}.${n}`, maker, { ...machine(n), ...lies[n] }, instead)
  }
  const began = performance.now()
  const { state, lines } = await scan()
  t.comment(
    `${Math.round((performance.now() - began) / 1000)} s, ${bmcs.asked.length} requests, ${bmcs.atOnce} at once`
  )
  t.equal(state, 'done', lines.at(-1) ?? 'no line')
  t.match(lines.at(-1), '92 machines at 254 addresses of network ipmi')
  t.ok(bmcs.atOnce <= 64, `${bmcs.atOnce} at once`)
  t.equal(bmcs.sessions.size, 0, 'no session is left')
  const found = Object.values(await unknown()) as Record<string, unknown>[]
  t.equal(found.length, 92)
  const by = new Map(found.map(one => [one.bmc, one]))
  for (let n = 1; n <= 79; n++) {
    const { serial, uuid, bmcMac, macs } = machine(n)
    const isOpen = names[n % names.length] === 'openbmc'
    t.match(by.get(`${net}.${n}`), {
      ...{ serial, uuid: uuid.toLowerCase(), bmc_mac: bmcMac, count: 0, address: null, network: 'ipmi' },
      ...{
        maker: makers[names[n % names.length] ?? '']?.maker,
        mac: isOpen ? null : macs[0],
        macs: isOpen ? [] : macs
      }
    })
  }
  t.equal(by.get(`${net}.80`)?.conflict, `BMC ${net}.1 gives the same serial`)
  t.equal(by.get(`${net}.1`)?.conflict, `BMC ${net}.80 gives the same serial`)
  t.match(by.get(`${net}.81`), { serial: '?[2J=cmd???', macs: [mac(81, 0)] })
  t.notMatch(
    `${JSON.stringify(found)}${lines.join('')}${c.log.join('')}`,
    /secret|[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/
  )
  t.equal((await c.get('/monitor/status')).status, 200)
})

t.test('what the BMC says is joined to the machine when it boots', async t => {
  const { c, scan, unknown, bmcs } = await site(t)
  await bmcs.start(`${net}.1`, 'hpe', machine(1))
  await bmcs.start(`${net}.2`, 'openbmc', machine(2))
  await bmcs.start(`${net}.3`, 'dell', machine(3))
  await bmcs.start(`${net}.4`, 'lenovo', machine(4))
  await c.post('/config/node/n3', { group: 'compute', macaddr: mac(3, 0) })
  await c.post('/config/node/n4', {
    interfaces: [{ interface: 'BMC', network: 'ipmi', ipaddress: `${net}.4` }]
  })
  await scan()
  t.strictSame(Object.keys(await unknown()).sort(), [`${net}.1`, `${net}.2`], 'not those of nodes')
  t.notOk(
    bmcs.asked.some(line => line.startsWith(`${net}.4 `)),
    'an address of a node is not asked'
  )
  const asks = (n: number, query: string) =>
    c.get(`/boot/search/mac/${mac(n, 1)}?${query}`, { token: null, source: '10.141.9.9' })
  await asks(1, 'product=X')
  await asks(2, `serial=${machine(2).serial}`)
  const all = await unknown()
  t.match(all[mac(1, 1)], {
    bmc: `${net}.1`,
    serial: 'SN00001',
    product: 'X',
    macs: [mac(1, 1), mac(1, 0)],
    count: 1
  })
  t.match(all[mac(2, 1)], { bmc: `${net}.2`, bmc_mac: mac(2, 255), conflict: null })
  t.equal(Object.keys(all).length, 2)
  const stranger = '06:00:00:00:00:99'
  await c.get(`/boot/search/mac/${stranger}?serial=SN00001`, { token: null, source: '10.141.9.9' })
  t.equal((await unknown())[stranger].conflict, `its BMC ${net}.1 reports other MACs`)
})

t.test('adopt replaces no MAC of a BMC, and gives no machine without a MAC to a node with one', async t => {
  const { c, scan, bmcs } = await site(t)
  await bmcs.start(`${net}.1`, 'hpe', machine(1))
  await bmcs.start(`${net}.2`, 'openbmc', machine(2))
  const bmc = { interface: 'BMC', network: 'ipmi', ipaddress: `${net}.9`, macaddress: mac(9, 255) }
  await c.post('/config/node/n1', { group: 'compute', interfaces: [bmc] })
  await c.post('/config/node/n2', { group: 'compute', macaddr: mac(8, 0) })
  await scan()
  const before = c.state()
  const env = Object.entries(svcctlFor(t.testdir(), c)).map(([name, value]) => `${name}=${value}`)
  const adopt = (n: number) =>
    output('env', [...env, 'sh', '-c', `svcctl unknown adopt ${net}.${n} as n${n} --yes 2>&1 || true`])
  t.match(await adopt(1), /node n1 has BMC\.macaddress \S+:09, and the machine \S+:01: /)
  t.match(await adopt(2), /node n2 has a machine already, \S+:08/)
  t.strictSame(c.state(), before)
})

t.test('a scan stays in its network, and needs a user and an admin', async t => {
  const { c, scan, bmcs } = await site(t)
  const outside = `127.${60 + (process.pid % 150)}.${(Math.floor(process.pid / 150) % 250) + 1}.9`
  await bmcs.start(outside, 'hpe', machine(9))
  await bmcs.start(`${net}.1`, 'hpe', machine(1), (request, response) => {
    if (!request.url?.endsWith('/Systems')) return false
    response.writeHead(302, { Location: `https://${outside}/redfish/v1/Systems` }).end()
    return true
  })
  await bmcs.start(`${net}.2`, 'hpe', machine(2), (request, response) => {
    if (!request.url?.endsWith('/Systems')) return false
    response.end(
      JSON.stringify({
        Members: [{ '@odata.id': `https://${outside}/redfish/v1/Systems/1` }, { '@odata.id': '//x/y' }]
      })
    )
    return true
  })
  const { lines } = await scan()
  t.match(lines.join('\n'), /\.1: .*redirected to .*which is not followed/)
  t.notOk(
    bmcs.asked.some(line => line.startsWith(outside)),
    'no request left the network'
  )
  const wrong = async (body: object) => (await scan({ bmcsetupname: 'boards', ...body })).message
  t.match(await wrong({ network: 'nowhere' }), /network nowhere does not exist/)
  t.match(await wrong({ network: `${net}.0/24` }), /network/)
  t.match(await wrong({ network: 'ipmi', bmcsetupname: 'none' }), /BMC set-up none does not exist/)
  await c.post('/config/network/wide', { network: '10.0.0.0/10' })
  t.match(await wrong({ network: 'wide' }), /has 4194304 addresses, and a scan takes 65536 at most/)
  await c.post('/config/bmcsetup/more', { username: 'x' })
  t.match((await scan({ network: 'ipmi' })).message, /scan: field "bmcsetupname" is missing/)
  t.match(await wrong({ network: 'ipmi', bmcsetupname: 'more' }), /BMC set-up more has no "password"/)
  t.equal((await c.post('/monitor/unknown/_scan', { network: 'ipmi' }, { token: null })).status, 401)
})

t.test('addresses with the same fault are one line', async t => {
  const { c, scan, bmcs } = await site(t)
  await c.post('/config/network/few', { network: `${net}.0/28` })
  const few = { network: 'few', bmcsetupname: 'boards' }
  t.strictSame((await scan(few)).lines, ['no BMC answered at 14 addresses of network few'])
  const broken = (_: IncomingMessage, response: ServerResponse) => Boolean(response.writeHead(500).end())
  for (const n of [1, 2, 3, 4, 5, 6]) await bmcs.start(`${net}.${n}`, 'hpe', machine(n), broken)
  const { lines } = await scan(few)
  t.equal(lines.length, 2)
  t.match(lines[0], new RegExp(`^(?:${net}\\.\\d, ){3}${net}\\.\\d and 2 more: .*500`))
  t.match(lines[1], /^0 machines at 14 addresses/)
})

t.test('a wrong password and a certificate that nobody vouches for are told', async t => {
  const { c, scan, unknown, bmcs } = await site(t)
  await bmcs.start(`${net}.1`, 'hpe', machine(1))
  await c.post('/config/bmcsetup/boards', { password: 'wrong' })
  t.match((await scan()).lines.join('\n'), /\.1: refuses the user name or the password of BMC set-up boards/)
  await c.post('/config/bmcsetup/boards', { password: 'secret', verify_certificate: true })
  const before = bmcs.asked.length
  t.match((await scan()).lines.join('\n'), /\.1: .*certificate/)
  t.equal(bmcs.asked.length, before, 'it got no password')
  t.strictSame(await unknown(), {})
})
