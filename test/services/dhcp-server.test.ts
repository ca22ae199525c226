import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { Leases } from '../../lib/services/dhcp/leases.js'
import { Daemon } from '../support/daemon.js'
import { follow, inForce } from '../support/follow.js'
import { requirePrograms } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { dhcpServers, dhcpSettings } from './dhcp-servers.js'
import { type Lease, lease, wire } from './namespaces.js'

requirePrograms('busybox')

const url = 'http://10.142.0.1:7050'

const mac = (n: number) => `52:54:00:00:00:0${n}`

async function configure(c: Daemon): Promise<void> {
  const post = async (path: string, body: object) => {
    const { status, body: answer } = await c.request('POST', path, body)
    if (status >= 300) throw new Error(`${path}: ${JSON.stringify(answer)}`)
  }
  await post('/config/cluster', { ntp_server: '10.142.0.7' })
  await post('/config/network/cluster', {
    network: '10.142.0.0/24',
    gateway: '10.142.0.254',
    ns_ip: '10.142.0.8,10.142.0.9',
    routes: ['10.9.0.0/16 via 10.142.0.253'],
    dhcp: true,
    dhcp_range_begin: '10.142.0.100',
    dhcp_range_end: '10.142.0.110'
  })
  await post('/config/group/compute', { interfaces: [{ interface: 'BOOTIF', network: 'cluster' }] })
  for (const [n, flags] of [{}, { bootmenu: true }, { netboot: false }].entries())
    await post(`/config/node/node00${n + 1}`, {
      group: 'compute',
      ...flags,
      interfaces: [
        { interface: 'BOOTIF', network: 'cluster', ipaddress: `10.142.0.1${n + 1}`, macaddress: mac(n + 1) },
        ...(n === 0
          ? [{ interface: 'BMC', network: 'cluster', ipaddress: '10.142.0.51', macaddress: mac(5) }]
          : [])
      ]
    })
}

const bootFile = (given: Lease | undefined) => given?.boot_file || given?.bootfile

async function serves(t: Test, server: (typeof dhcpServers)[number]): Promise<void> {
  const between = await wire(t)
  const directory = scratch(t)
  const c = await Daemon.start({
    directory,
    set: [
      ...dhcpSettings(server, { directory, namespace: between.server, device: 'v0' }),
      ...['controller.address=10.142.0.1', `http.url=${url}`]
    ]
  })
  t.teardown(() => c.stop())
  await configure(c)
  const settled = () => inForce(c, 'dhcp')
  await inForce(c, 'dhcp', false)
  t.match(await follow(c, '/service/dhcp/start'), { state: 'done' })
  await settled()
  const asked = () => {
    const words = readFileSync(join(directory, 'asked'), 'utf8').trim().split('\n')
    writeFileSync(join(directory, 'asked'), '')
    return words.filter(word => word !== 'status')
  }
  asked()
  const { status, body } = await c.request('GET', '/service/dhcp/status')
  t.match(
    [status, body],
    [200, { monitor: { service: { dhcp: { server, state: 'running', status: 'ok' } } } }]
  )

  const ask = (n: number, face: Parameters<typeof lease>[3]) => lease(between, directory, mac(n), face)
  const common = {
    router: '10.142.0.254',
    dns: '10.142.0.8 10.142.0.9',
    staticroutes: '10.9.0.0/16 10.142.0.253 0.0.0.0/0 10.142.0.254',
    ntpsrv: '10.142.0.7',
    domain: 'cluster',
    search: 'cluster',
    siaddr: '10.142.0.1'
  }
  const cases = { 1: '/boot/short', 2: '/boot', 3: '/boot/disk' }
  for (const [n, path] of Object.entries(cases)) {
    const given = await ask(Number(n), 'ipxe')
    t.match(
      given,
      { ...common, ip: `10.142.0.1${n}`, subnet: '255.255.255.0' },
      `case ${n}: address and options`
    )
    t.equal(bootFile(given), `${url}${path}`, `case ${n}: boot file`)
  }
  const unknown = await ask(9, 'ipxe')
  t.match(unknown, { ...common, ip: /^10\.142\.0\.1(0\d|10)$/ }, 'case 4: one of the range')
  t.equal(bootFile(unknown), `${url}/boot`, 'case 4: boot file')
  const leases = new Leases(server, join(directory, 'leases'))
  const leased = await leases.has(mac(9), unknown?.ip ?? '', Date.now())
  t.ok(leased, 'which the lease file says too')
  t.match(await ask(5, 'plain'), { ip: '10.142.0.51' }, 'the BMC has its address')
  const binaries = {
    bios: 'undionly.kpxe',
    efi: 'ipxe.efi',
    arm: 'ipxe-arm64.efi',
    http: `${url}/boot/ipxe.efi`
  } as const
  for (const [face, file] of Object.entries(binaries)) {
    const given = await ask(1, face as keyof typeof binaries)
    t.match(given, { ip: '10.142.0.11', siaddr: '10.142.0.1' }, face)
    t.equal(bootFile(given), file, `${face}: the iPXE for its architecture`)
    if (face === 'http')
      t.match(Object.values(given ?? {}).join(' '), /HTTPClient|48545450436c69656e74/, 'and who it is for')
  }

  await c.request('POST', '/config/node/node001', {
    interfaces: [{ interface: 'BOOTIF', ipaddress: '10.142.0.21' }]
  })
  await settled()
  t.same(
    asked(),
    server === 'isc' ? ['restart'] : server === 'kea' ? [] : ['reload'],
    'a change is one reload'
  )
  t.match(await ask(1, 'ipxe'), { ip: '10.142.0.21' }, 'another address')
  await c.request('POST', '/config/node/node002', { bootmenu: false })
  await settled()
  const moved = await ask(2, 'ipxe')
  t.match([moved?.ip, bootFile(moved)], ['10.142.0.12', `${url}/boot/short`], 'another boot case')
  if (server === 'kea') {
    asked()
    rmSync(join(directory, 'kea.sock'))
    t.match(await follow(c, '/service/dhcp/reload'), { state: 'done' })
    t.same(asked(), ['restart'], 'without its socket it is restarted')
  }
  await c.request('POST', '/config/network/cluster', { dhcp_nodes_only: true })
  await c.request('POST', '/config/node/node003', {
    interfaces: [{ interface: 'BOOTIF', ipaddress: null }]
  })
  await settled()
  t.equal(await ask(7, 'ipxe'), undefined, 'known machines only: an unknown one gets no address')
  t.match(await ask(1, 'ipxe'), { ip: '10.142.0.21' }, 'a node gets its own')
  t.match(await ask(3, 'ipxe'), { ip: /^10\.142\.0\.1(0\d|10)$/ }, 'a node without one gets one of the range')
  await c.request('POST', '/config/network/cluster', { dhcp_nodes_only: false })
  await c.request('GET', '/config/node/node003/_delete')
  await settled()
  t.match(
    await ask(3, 'ipxe'),
    { ip: /^10\.142\.0\.1(0\d|10)$/ },
    'a node that is gone is an unknown machine'
  )
  await c.request('POST', '/config/network/cluster', { dhcp: false })
  await settled()
  t.equal((await c.request('GET', '/monitor/service/dhcp')).status, 200)
  t.equal(await ask(1, 'ipxe'), undefined, 'nobody is answered in a network without DHCP')
  t.equal(await ask(9, 'ipxe'), undefined)
}

// Three servers take minutes: `make test` runs one.
const long = process.env.SVCD_LONG === '1'
// rules 10.2, 10.5, 10.6, 10.7
for (const server of dhcpServers.filter(name => long || name === 'isc'))
  t.test(`a real client of ${server} gets what the objects say`, t => serves(t, server))
