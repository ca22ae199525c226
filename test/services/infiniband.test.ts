import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { requirePrograms } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { mac, type Objects } from './cluster.js'
import { dhcpServers } from './dhcp-servers.js'
import type { Wire } from './namespaces.js'
import { complaints, rendered } from './rendered.js'
import { runs } from './running.js'

requirePrograms('busybox', 'dhcpd', 'kea-dhcp4', 'dnsmasq')

const guid = (n: number) => `00:02:c9:03:00:1a:2b:0${n}`
const identifier = (n: number) => `ff000000000002000002c900${guid(n).replaceAll(':', '')}`
const entry = (name: string, macaddress: string, ipaddress?: string) => ({
  interfaces: [{ interface: name, network: 'ib', macaddress, ...(ipaddress && { ipaddress }) }]
})
const objects: Objects = {
  network: {
    ib: {
      ...{ network: '10.142.0.0/24', gateway: '10.142.0.251', dhcp: true },
      ...{ dhcp_range_begin: '10.142.0.50', dhcp_range_end: '10.142.0.59' }
    }
  },
  node: {
    n1: entry('ib0', guid(1), '10.142.0.11'),
    n2: { ...entry('ib0', guid(2), '10.142.0.12'), netboot: false, provision_interface: 'ib0' },
    n3: entry('BOOTIF', mac(3), '10.142.0.13')
  }
}

/**
 * Sends DHCPDISCOVER as a port of InfiniBand does: type 32, no hardware address (RFC 4390). Prints the
 * address that is offered.
 */
const discover = (id: string) => `
  const socket = require('node:dgram').createSocket({ type: 'udp4', reuseAddr: true })
  const packet = Buffer.alloc(300)
  packet.set([1, 32, 0, 0, 1, 2, 3, ${Number.parseInt(id.slice(-2), 16)}, 0, 0, 0x80, 0])
  packet.set([0x63, 0x82, 0x53, 0x63, 53, 1, 1, 61, ${id.length / 2}, ...Buffer.from('${id}', 'hex'), 255], 236)
  socket.on('message', reply => { console.log([...reply.subarray(16, 20)].join('.')); socket.close(); clearInterval(again) })
  socket.bind(68, () => socket.setBroadcast(true))
  let tries = 0
  const again = setInterval(() => {
    if (++tries > 20) { socket.close(); clearInterval(again); return }
    socket.send(packet, 67, '255.255.255.255')
  }, 250)`

async function serves(t: Test, server: string): Promise<void> {
  let between: Wire | undefined
  const ask = await runs(t, { server, objects, wired: made => (between = made) })
  const as = (n: number, id: string) => ask(n, 'ipxe', '-x', `0x3d:${id}`)
  const one = await as(61, identifier(1))
  t.match(one, { ip: '10.142.0.11' }, 'the address of the port, whatever the hardware address is')
  t.match(one?.boot_file || one?.bootfile, /\/boot\/short$/)
  const two = await as(62, identifier(2))
  t.match(two, { ip: '10.142.0.12' })
  t.match(two?.boot_file || two?.bootfile, /\/boot\/disk$/, 'and its script')
  t.match(await as(63, identifier(9)), { ip: /^10\.142\.0\.5\d$/ }, 'an unknown port')
  t.match(await ask(3, 'ipxe'), { ip: '10.142.0.13' }, 'a card beside it')
  const file = join(scratch(t), 'discover.cjs')
  await between?.run('ip', 'address', 'add', '10.142.0.200/24', 'dev', 'c0')
  await between?.run('ip', 'route', 'add', '255.255.255.255', 'dev', 'c0')
  for (const n of [1, 2]) {
    writeFileSync(file, discover(identifier(n)))
    t.equal(await between?.run(process.execPath, file), `10.142.0.1${n}\n`, 'as a port sends it')
  }
}

// rules 10.13
for (const server of dhcpServers) {
  t.test(`${server}: a port of InfiniBand is known by its client identifier`, t => serves(t, server))
  t.test(`${server}: the checker takes it`, async t => {
    t.strictSame(complaints('dhcp', server, await rendered('dhcp', server, objects)), [])
  })
}
