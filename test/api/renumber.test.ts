import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { Controller } from '../support/controller.js'
import { scratch } from '../support/scratch.js'
import { stored } from '../support/state.js'
import { svcctlFor } from '../support/svcctl.js'
import { longestTurn, usage } from '../support/turns.js'
import { until } from '../support/until.js'

const directory = t.testdir({})
const conf = join(directory, 'dhcpd.conf')
const c = await Controller.start(
  t,
  ...['dhcp.server=isc', `dhcp.config=${conf}`, 'dhcp.check=true', 'dhcp.control=true', 'dhcp.gather=1s'],
  ...['controller.address=10.141.255.254', 'http.url=http://10.141.255.254:7050']
)
await c.cluster()
const url = '/config/network/cluster/_renumber'
await c.post('/config/network/cluster', {
  ...{ gateway: '10.141.255.253', ns_ip: '10.141.3.3', ntp_server: 'time.example.org,10.141.3.4' },
  ...{ dhcp: true, dhcp_range_begin: '10.141.200.1', dhcp_range_end: '10.141.200.9' }
})
await c.post('/config/network/other', {
  ...{ network: '10.7.0.0/24', shared_with: 'cluster', ns_ip: '10.141.3.3', ntp_server: '10.141.9.9' }
})
await c.post('/config/otherdev/ns', { network: 'cluster', ipaddress: '10.141.3.3' })
await c.post('/config/switch/sw', {
  network: 'cluster',
  ipaddress: '10.141.4.4',
  macaddress: '52:54:00:00:00:09'
})
await c.post('/config/node/n1', {
  macaddr: '52:54:00:00:00:01',
  interfaces: [
    { interface: 'BOOTIF', network: 'cluster', ipaddress: '10.141.0.1' },
    { interface: 'BMC', network: 'cluster', ipaddress: '10.141.1.1' },
    { interface: 'ib0', network: 'other', ipaddress: '10.7.0.1' },
    { interface: 'eth1', network: 'cluster', ipaddress: null }
  ]
})
const shown = async (path: string) => {
  const [, type = '', name = ''] = /^(\w+)\/(.*)$/.exec(path) ?? []
  return (await c.get(`/config/${path}`)).body.config[type][name]
}
const addresses = async (node: string) =>
  Object.fromEntries(
    (await shown(`node/${node}`)).interfaces.map((entry: { interface: string; ipaddress: string | null }) => [
      entry.interface,
      entry.ipaddress
    ])
  )
const objects = async () =>
  Object.fromEntries(Object.entries(await stored(c)).filter(([file]) => !file.startsWith('services/')))

// rules 3.19
t.test('a direct change of a prefix in use names the way', async t => {
  const way = / lies outside .*; to move .*: svcctl network renumber cluster 10\.150\.0\.0\/16, or POST /
  const none = { gateway: null, dhcp: false, dhcp_range_begin: null, dhcp_range_end: null }
  for (const more of [{}, { gateway: null }, none]) {
    const { status, body } = await c.post('/config/network/cluster', { network: '10.150.0.0/16', ...more })
    t.equal(status, 400)
    t.match(body.message, way)
  }
  const { body } = await c.post('/config/network/cluster', { gateway: '10.9.9.9' })
  t.match(body.message, /lies outside 10\.141\.0\.0\/16$/, 'a wrong gateway is no wish to move')
})

// rules 3.19, 12.7
t.test('a dry run tells all of it, with what is to be done by hand, and changes nothing', async t => {
  const before = await objects()
  const { status, body, headers } = await c.post(`${url}?dryrun=yes`, { network: '10.150.0.0/16' })
  t.equal(status, 200)
  t.match(body.message, /nothing was changed: .*2 networks would be changed/)
  t.match(headers['x-svcd-warning'], /controller controller has 10\.141\.255\.254: .*10\.150\.255\.254/)
  t.match(headers['x-svcd-warning'], /1 of the addresses are of BMCs/)
  t.match(body.addresses.map((one: { ipaddress: string }) => one.ipaddress).sort(), [
    '10.150.0.1',
    '10.150.1.1',
    '10.150.3.3',
    '10.150.4.4'
  ])
  t.same(await objects(), before)
})

// rules 3.19
t.test('the card is not asked for again where it has an address in the new prefix', async t => {
  const { headers } = await c.post(`${url}?dryrun=yes`, {
    network: '127.0.0.0/16',
    ...{ gateway: null, dhcp: false, dhcp_range_begin: null, dhcp_range_end: null, routes: null }
  })
  t.match(headers['x-svcd-warning'], /has 10\.141\.255\.254: change \[controller\] address and \[http\] url/)
})

// rules 3.19, 14.7
t.test('svcctl network renumber', async t => {
  const env = svcctlFor(scratch(t), c)
  const typed = (...words: string[]) =>
    promisify(execFile)('svcctl', ['network', 'renumber', ...words], { env })
  const { stdout, stderr } = await typed('cluster', '10.150.0.0/16', 'gateway=10.150.9.9', '--dryrun')
  t.match(stdout, /gateway: 10\.141\.255\.253 -> 10\.150\.9\.9/)
  t.match(stderr, /^warning: controller controller has 10\.141\.255\.254: /)
  await t.rejects(typed('cluster', '10.150.0.0/24'), /cannot become 10\.150\.0\.0\/24, nothing was changed/)
})

// rules 3.19
t.test('what does not fit, or is taken, refuses all of it by name', async t => {
  const before = await objects()
  const refused = async (body: object, ...says: RegExp[]) => {
    const answer = await c.post(url, body)
    t.equal(answer.status, 400, JSON.stringify(body))
    for (const one of says) t.match(answer.body.message, one)
    t.same(await objects(), before)
  }
  await refused(
    { network: '10.150.0.0/24' },
    /^network cluster cannot become 10\.150\.0\.0\/24, nothing was changed: .*gateway/,
    /node n1: interface BMC: 10\.150\.1\.1 lies outside network cluster/,
    /switch sw/
  )
  await refused(
    { network: '10.7.0.0/16' },
    /node n1: interface BOOTIF: 10\.7\.0\.1 belongs to node n1 \(ib0\)/
  )
  await refused(
    { network: '10.150.0.0/16', gateway: '10.150.0.1' },
    /field "gateway": 10\.150\.0\.1 belongs to node n1/
  )
  await refused(
    { network: '10.150.0.0/16', gateway: '10.99.0.1' },
    /field "gateway": 10\.99\.0\.1 lies outside/
  )
  await refused({ gateway: '10.141.0.9' }, /field "network" is missing/)
  await refused({ network: null }, /field "network" is missing/)
  await refused({ network: '10.150.0.0/16', newnetname: 'new' }, /newnetname/)
  await refused({ network: '10.150.0.1/16' }, /has host bits set/)
  t.equal((await c.post('/config/network/nosuch/_renumber', { network: '10.150.0.0/16' })).status, 404)
})

// rules 3.19
t.test('many that do not fit: the first by name, and how many more', async t => {
  const lines = Array.from({ length: 300 }, (_, i) => `k${i},compute\n`).join('')
  t.equal((await c.post('/config/node?format=csv', `name,group\n${lines}`)).status, 200)
  const { status, body } = await c.post(url, {
    ...{ network: '10.150.0.0/28', gateway: null, dhcp: false },
    ...{ dhcp_range_begin: null, dhcp_range_end: null }
  })
  t.equal(status, 400)
  t.match(body.message, /(?:node k\d+: interface BOOTIF: [\d.]+ (?:lies outside|is the)[^;]*; ){2}/)
  t.match(body.message, /; and \d+ more$/)
  t.ok(body.message.length < 1000)
  t.equal((await c.post('/config/node/_delete', { nodes: 'k[0-299]' })).status, 200)
})

// rules 3.19, 10.1
t.test('every address keeps its host part; DHCP follows', async t => {
  const { status, body, headers } = await c.post(url, {
    network: '10.150.0.0/16',
    ntp_server: 'a.example.org'
  })
  t.same([status, body.message], [200, 'network cluster renumbered: 4 addresses of nodes and devices moved'])
  t.match(headers['x-svcd-warning'], /controller controller has 10\.141\.255\.254/)
  t.match(await shown('network/cluster'), {
    ...{
      network: '10.150.0.0/16',
      gateway: '10.150.255.253',
      ns_ip: '10.150.3.3',
      ntp_server: 'a.example.org'
    },
    ...{ dhcp_range_begin: '10.150.200.1', dhcp_range_end: '10.150.200.9' }
  })
  t.same(await addresses('n1'), { BOOTIF: '10.150.0.1', BMC: '10.150.1.1', ib0: '10.7.0.1', eth1: null })
  t.match(await shown('switch/sw'), { ipaddress: '10.150.4.4' })
  t.match(await shown('otherdev/ns'), { ipaddress: '10.150.3.3' })
  t.match(
    await shown('network/other'),
    { ns_ip: '10.150.3.3', ntp_server: '10.141.9.9', shared_with: 'cluster' },
    'a machine that moved is followed, another address is not'
  )
  await until(() => readFileSync(conf, 'utf8').includes('subnet 10.150.0.0 netmask 255.255.0.0'))
  const text = readFileSync(conf, 'utf8')
  for (const line of [
    'fixed-address 10.150.0.1;',
    'range 10.150.200.1 10.150.200.9;',
    'option routers 10.150.255.253;'
  ])
    t.match(text, line)
  t.notMatch(
    text.replaceAll('10.141.255.254', ''),
    '10.141.',
    "the controller's own address alone is an old one"
  )
  t.match(
    (await c.post(url, { network: '10.150.0.0/16' })).body,
    { message: /renumbered/ },
    'again: nothing to do'
  )
})

// rules 3.19
t.test('old and new may overlap, and the prefix may grow or shrink', async t => {
  const move = async (network: string) => {
    const answer = await c.post(url, { network })
    t.equal(answer.status, 200, `${network} ${answer.text}`)
    return (await addresses('n1')).BOOTIF
  }
  t.equal(await move('10.144.0.0/12'), '10.144.0.1')
  t.equal(await move('10.144.0.0/16'), '10.144.0.1')
  t.equal((await c.post('/config/network/slim', { network: '10.9.0.16/28' })).status, 201)
  for (let i = 1; i < 15; i++)
    await c.post(`/config/node/s${i}`, {
      interfaces: [{ interface: 'BOOTIF', network: 'slim', ipaddress: `10.9.0.${16 + i}` }]
    })
  t.equal((await c.post('/config/network/slim/_renumber', { network: '10.9.0.24/29' })).status, 400)
  const { status } = await c.post('/config/network/slim/_renumber', { network: '10.9.0.0/26' })
  t.equal(status, 200)
  t.equal((await addresses('s14')).BOOTIF, '10.9.0.14')
})

// rules 3.19
t.test('what another network has inside itself stays; the time server of the cluster is told', async t => {
  await c.post('/config/network/lab', { network: '10.20.0.0/24' })
  const near = {
    ...{ network: '10.20.0.0/25', routes: ['10.99.0.0/16 via 10.20.0.1'], ntp_server: '10.20.0.1' },
    ...{ dhcp: true, dhcp_range_begin: '10.20.0.2', dhcp_range_end: '10.20.0.9' }
  }
  await c.post('/config/network/near', near)
  await c.post('/config/dns/near', { host: 'router', ipaddress: '10.20.0.1' })
  const on = (name: string, ipaddress: string) => ({
    interface: name,
    network: 'lab',
    ipaddress,
    force: true
  })
  const interfaces = [on('BOOTIF', '10.20.0.1'), on('eth2', '10.20.0.2')]
  t.equal((await c.post('/config/node/r1', { interfaces })).status, 201)
  await c.post('/config/cluster', { ntp_server: 'time.example.org,10.20.0.7' })
  const { status, headers, text } = await c.post('/config/network/lab/_renumber', { network: '10.21.0.0/24' })
  t.equal(status, 200, text)
  t.match(headers['x-svcd-warning'], /cluster: field "ntp_server" has 10\.20\.0\.7: .*10\.21\.0\.7/)
  t.match(await shown('network/near'), { ...near, ntp_server: '10.21.0.1' })
  t.match((await c.get('/config/dns/near')).text, '10.21.0.1')
  const again = await c.post('/config/network/lab/_renumber', { network: '10.21.0.0/24' })
  t.match(again.body.message, / 0 addresses of nodes and devices moved$/)
  t.notMatch(again.headers['x-svcd-warning'], /ntp_server|BMC/)
  await c.post('/config/node/r1/_delete', {})
  for (const name of ['near', 'lab']) await c.post(`/config/network/${name}/_delete`, {})
  await c.post('/config/cluster', { ntp_server: null })
})

// rules 3.19
t.test('another method, and nobody', async t => {
  t.equal((await c.get(url)).status, 405)
  t.equal((await c.post(url, { network: '10.150.0.0/16' }, { token: null })).status, 401)
})

// rules 12.10
t.test('thousands of nodes do not hold the event loop', { timeout: 600_000 }, async t => {
  const count = process.env.SVCD_LONG === '1' ? 10_000 : 2000
  const lines = Array.from({ length: count }, (_, i) => `m${i},compute\n`).join('')
  t.equal((await c.post('/config/node?format=csv', `name,group\n${lines}`)).status, 200)
  const used = usage()
  const before = used()
  const names = new Set<string>()
  for (let i = 0; i < 100_000; i++) names.add(`m${i}`)
  const yardstick = used() - before
  for (const query of ['?dryrun=yes', '']) {
    let status = 0
    const longest = await longestTurn(async () => {
      ;({ status } = await c.post(`${url}${query}`, { network: '10.151.0.0/16' }))
    })
    t.equal(status, 200)
    t.comment(
      `${count} nodes${query}: ${longest.toFixed(1)} ms in one turn, yardstick ${yardstick.toFixed(1)} ms`
    )
    t.ok(longest < 50 + yardstick, `${query}: ${longest.toFixed(1)} ms in one turn`)
  }
  t.equal((await addresses('n1')).BOOTIF, '10.151.0.1')
})
