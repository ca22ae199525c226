import { execFileSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { parseAddress } from '../../lib/model/address.js'
import { requirePrograms } from '../support/programs.js'
import { mac, type Objects } from './cluster.js'
import { dhcpServers } from './dhcp-servers.js'
import { type Lease, wire } from './namespaces.js'
import { complaints, rendered } from './rendered.js'
import { runs } from './running.js'

requirePrograms('busybox', 'dhcpd', 'kea-dhcp4', 'dnsmasq')

const network = (third: number, more: object = {}) => ({
  ...{ network: `10.142.${third}.0/24`, gateway: `10.142.${third}.251`, dhcp: true },
  ...{ dhcp_range_begin: `10.142.${third}.50`, dhcp_range_end: `10.142.${third}.51` },
  ...more
})
const node = (name: string, ipaddress: string | undefined, macaddress: string, on = 'BOOTIF') => ({
  interfaces: [{ interface: on, network: name, macaddress, ...(ipaddress && { ipaddress }) }]
})
const nodes = {
  n1: node('cluster', '10.142.0.7', mac(1)),
  n2: node('second', '10.142.7.7', mac(2)),
  n3: node('ipmi', '10.142.3.7', mac(3), 'BMC')
}
/** What a machine is told: its address, netmask and router. */
const told = (given: Lease | undefined) => [given?.ip, given?.subnet, given?.router]
const of = (third: number, last: number | string) => [
  ...[typeof last === 'number' ? `10.142.${third}.${last}` : new RegExp(`^10\\.142\\.${third}\\.${last}$`)],
  ...['255.255.255.0', `10.142.${third}.251`]
]

async function serves(t: Test, server: string, objects: Objects, further?: readonly string[]): Promise<void> {
  const ask = await runs(t, { server, objects, ...(further && { further }) })
  t.strictSame(told(await ask(1)), of(0, 7), 'a node of the first network')
  t.strictSame(told(await ask(2)), of(7, 7), 'a node of the second one')
  t.strictSame(told(await ask(3, 'plain')), of(3, 7), 'a BMC of the third one')
  t.match(told(await ask(11)), of(0, '5[01]'), 'an unknown machine: the network of the controller')
  t.match(told(await ask(12)), of(0, '5[01]'))
  t.match(told(await ask(13)), of(7, '5[01]'), 'and the second one when that is full')
  t.strictSame(told(await ask(1)), of(0, 7), 'and nothing changes what a node has')
}

const second = network(7, { shared_with: 'cluster' })
const ipmi = network(3, { shared_with: 'second', dhcp_nodes_only: true })
const chained: Objects = {
  network: { cluster: network(0), second, ipmi, apart: network(9) },
  node: nodes
}
/** The same without a word about it: the controller's card tells. */
const silent = { network: '10.142.200.0/24', dhcp: false }
const byCard: Objects = {
  network: { cluster: network(0), second: network(7), ipmi: network(3, { dhcp_nodes_only: true }), silent },
  node: nodes
}
const cards = ['10.142.7.1/24', '10.142.3.1/24', '10.142.200.1/24']

// rules 10.12
for (const server of dhcpServers) {
  t.test(`${server}: networks that share a wire by their field`, t => serves(t, server, chained))
  t.test(`${server}: networks in which the controller's card has addresses`, t =>
    serves(t, server, byCard, cards)
  )
  t.test(`${server}: the card's first address is in a network without DHCP`, async t => {
    const quiet = { ...network(0), dhcp: false }
    const objects = { network: { cluster: quiet, second: network(7) }, node: { n2: nodes.n2 } }
    const ask = await runs(t, { server, objects, further: ['10.142.7.1/24'] })
    t.strictSame(told(await ask(2)), of(7, 7))
    t.match(told(await ask(11)), of(7, '5[01]'))
  })
  t.test(`${server}: the checker takes networks on the wire of a relay`, async t => {
    const networks = { far: network(20), farther: network(21, { shared_with: 'far' }), silent }
    const objects = { network: { ...networks, silent: { ...silent, shared_with: 'farther' } } }
    const files = await rendered('dhcp', server, objects)
    t.strictSame(complaints('dhcp', server, files), [])
    const text = files[0]?.text ?? ''
    const shared = /shared-network svcd-\d+ \{.*10\.142\.20\.0.*10\.142\.21\.0.*10\.142\.200\.0/s
    if (server === 'isc') t.match(text, shared)
    if (server === 'dnsmasq') {
      t.match(text, /^shared-network=10\.142\.20\.251,10\.142\.21\.0$/m)
      t.match(text, /^shared-network=10\.142\.21\.251,10\.142\.20\.0$/m)
    }
  })
}

t.test('svcd sees which addresses are on one card, with labels too, and leaves loopback out', async t => {
  const { server, client } = await wire(t)
  const ip = (...words: string[]) => execFileSync('ip', ['-n', server, ...words])
  ip('address', 'add', '10.142.7.1/24', 'dev', 'v0')
  ip('address', 'add', '10.142.8.1/24', 'dev', 'v0', 'label', 'v0:1')
  ip('link', 'add', 'v1', 'type', 'veth', 'peer', 'name', 'c1', 'netns', client)
  ip('address', 'add', '10.9.0.1/24', 'dev', 'v1')
  ip('link', 'set', 'v1', 'up')
  execFileSync('ip', ['-n', client, 'link', 'set', 'c1', 'up'])
  const file = fileURLToPath(new URL('../../lib/services/services.js', import.meta.url))
  const code = `import('${file}').then(({ ownCards }) => console.log(JSON.stringify(ownCards())))`
  const found: number[][] = JSON.parse(
    execFileSync('ip', ['netns', 'exec', server, process.execPath, '-e', code], { encoding: 'utf8' })
  )
  const addresses = (...all: string[]) => all.map(parseAddress)
  t.strictSame(
    found.filter(card => card.length > 0).sort((a, b) => b.length - a.length),
    [addresses('10.142.0.1', '10.142.7.1', '10.142.8.1'), addresses('10.9.0.1')]
  )
})
