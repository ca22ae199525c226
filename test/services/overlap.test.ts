import t, { type Test } from 'tap'
import { requirePrograms } from '../support/programs.js'
import { mac, type Objects } from './cluster.js'
import { dhcpServers } from './dhcp-servers.js'
import type { Lease } from './namespaces.js'
import { complaints, rendered } from './rendered.js'
import { runs } from './running.js'

requirePrograms('busybox', 'dhcpd', 'kea-dhcp4', 'dnsmasq')

const network = (cidr: string, gateway: string, begin: string, end: string) => ({
  ...{ network: cidr, gateway, dhcp: true },
  ...{ dhcp_range_begin: begin, dhcp_range_end: end }
})
const node = (name: string, ipaddress: string | undefined, macaddress: string) => ({
  interfaces: [{ interface: 'BOOTIF', network: name, macaddress, ...(ipaddress && { ipaddress }) }]
})
/** The server is in `here`, if it is there, and in `all`, which holds both others. */
const all = network('10.142.0.0/16', '10.142.255.1', '10.142.0.100', '10.142.5.9')
const here = network('10.142.0.0/24', '10.142.0.251', '10.142.0.50', '10.142.0.59')
const there = network('10.142.1.0/24', '10.142.1.251', '10.142.1.50', '10.142.1.59')
const nodes = {
  n1: node('all', '10.142.7.7', mac(1)),
  n3: node('there', '10.142.1.7', mac(3)),
  n4: node('all', undefined, mac(4))
}
const nested: Objects = {
  network: { all, here, there, apart: network('10.9.0.0/24', '10.9.0.251', '10.9.0.5', '10.9.0.9') },
  node: { ...nodes, n2: node('here', '10.142.0.7', mac(2)) },
  switch: { sw1: { network: 'here', ipaddress: '10.142.0.8', macaddress: mac(5) } }
}
const outer: Objects = { network: { all, there }, node: nodes }

// rules 10.3
for (const server of dhcpServers)
  t.test(`${server}: networks that overlap pass the checker`, async t => {
    t.strictSame(complaints('dhcp', server, await rendered('dhcp', server, nested)), [])
  })

/** What a machine is told: its address, netmask, router and script. */
const told = (given: Lease | undefined) => [
  ...[given?.ip, given?.subnet, given?.router],
  (given?.boot_file || given?.bootfile)?.replace(/^.*:7050/, '')
]

async function serves(t: Test, server: string): Promise<void> {
  const ask = await runs(t, { server, objects: nested })
  t.strictSame(told(await ask(1)), ['10.142.7.7', '255.255.0.0', '10.142.255.1', '/boot/short'], 'outer')
  t.strictSame(told(await ask(2)), ['10.142.0.7', '255.255.255.0', '10.142.0.251', '/boot/short'], 'inner')
  t.strictSame(told(await ask(3)), ['10.142.1.7', '255.255.255.0', '10.142.1.251', '/boot/short'], 'other')
  const at = [/^10\.142\.0\.5\d$/, '255.255.255.0', '10.142.0.251'] as const
  t.match(told(await ask(9)), [...at, '/boot'], 'an unknown machine is in the network of the server')
  t.match(told(await ask(4)), [...at, '/boot/short'], 'as is a known one without an address, with its script')
  // dnsmasq would have to name each of them in its main file, which takes a restart.
  const script = server === 'dnsmasq' ? '/boot/short' : undefined
  const device = [...['10.142.0.8', '255.255.255.0', '10.142.0.251'], script]
  t.strictSame(told(await ask(5, 'plain')), device, 'a device that boots nothing is not told to')
}

async function servesOuter(t: Test, server: string): Promise<void> {
  const ask = await runs(t, { server, objects: outer })
  t.strictSame(told(await ask(1)), ['10.142.7.7', '255.255.0.0', '10.142.255.1', '/boot/short'], 'outer')
  t.strictSame(told(await ask(3)), ['10.142.1.7', '255.255.255.0', '10.142.1.251', '/boot/short'], 'inner')
  t.match(
    told(await ask(9)),
    [/^10\.142\.(0|2|3|4|5)\.\d+$/, '255.255.0.0', '10.142.255.1', '/boot'],
    'an unknown machine is in the outer network, where the server is'
  )
}

// `make test` runs those that the overlap is written out for.
const long = process.env.SVCD_LONG === '1'
for (const server of dhcpServers.filter(name => long || name !== 'dnsmasq')) {
  // rules 10.3
  t.test(`${server} in the inner network`, t => serves(t, server))
  t.test(`${server} in the outer network`, t => servesOuter(t, server))
  if (!long || server === 'dnsmasq') continue
  t.test(`${server} in an inner network without DHCP`, async t => {
    const silent = { network: { all, there, here: { network: '10.142.0.0/24' } }, node: nodes }
    const ask = await runs(t, { server, objects: silent })
    for (const n of [1, 9]) t.equal(await ask(n), undefined, `${n} is not answered`)
  })
}
