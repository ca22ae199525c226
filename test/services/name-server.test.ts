import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { Controller } from '../support/controller.js'
import { scratch } from '../support/scratch.js'

const mac = '52:54:00:00:00:01'

// rules 10.7
for (const [what, dns, network, expected] of [
  ['the network’s own', 'bind', { ns_ip: '10.141.255.253' }, '10.141.255.253'],
  ['the controller, where svcd drives the DNS server', 'bind', {}, '10.141.255.254'],
  ['the network’s own, where it drives none', 'none', { ns_ip: '10.141.255.253' }, '10.141.255.253'],
  ['none, where it drives none', 'none', {}, undefined]
] as const)
  t.test(`DHCP and the installation offer one name server: ${what}`, async t => {
    const directory = scratch(t)
    mkdirSync(join(directory, 'zones'))
    const c = await Controller.start(
      t,
      ...['dhcp.server=isc', `dhcp.config=${directory}/dhcpd.conf`, 'dhcp.control=true', 'dhcp.check=true'],
      ...[`dns.server=${dns}`, `dns.config=${directory}/named.conf`, `dns.directory=${directory}/zones`],
      ...['dns.control=true', 'dns.check=true']
    )
    await c.cluster()
    const range = { dhcp: true, dhcp_range_begin: '10.141.9.1', dhcp_range_end: '10.141.9.9' }
    await c.post('/config/network/cluster', { ...range, ...network })
    await c.post('/config/node/node001', { group: 'compute', macaddr: mac })
    const offered = (await c.get('/config/dhcp/_preview')).text
    t.equal(/option domain-name-servers ([\d.]+);/.exec(offered)?.[1], expected, 'by DHCP')
    const script = (await c.get('/config/node/node001/_render/install')).text
    t.match(script, `IF_NAMESERVER='${expected ?? ''}'\n`, 'by the install script')
    const kickstart = (await c.get('/config/node/node001/_render/kickstart')).text
    const encoded = /IF_NAMESERVER=\$\(value '([^']*)'\)/.exec(kickstart)?.[1] ?? '-'
    t.equal(Buffer.from(encoded, 'base64').toString(), expected ?? '', 'by the kickstart')
  })
