import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import t from 'tap'
import type { DnsData } from '../../lib/services/dns/variables.js'
import { output, requirePrograms, requireRoot } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { settings as cluster, type Objects } from './cluster.js'
import { complaints, dataOf, rendered } from './rendered.js'

requirePrograms('named-checkconf', 'named-checkzone', 'dnsmasq', 'dig', 'unshare')

const on = (name: string, ...interfaces: string[]) => ({
  interfaces: interfaces.map(text => {
    const [entry, ipaddress] = text.split(' ')
    return { interface: entry, network: name, ipaddress }
  })
})

/** Names in full with their addresses, as the zones have them, and the notes. */
async function zones(objects: Objects) {
  const { zones: all } = (await dataOf('dns', objects)) as DnsData
  const names = all.flatMap(({ name: zone, records }) =>
    records.map(({ name, type, data }) => `${zone}: ${name} ${type} ${data}`)
  )
  return { names, notes: all.flatMap(({ notes }) => notes) }
}

// rules 10.8
t.test('a node has its own name, and a further interface of another node has not', async t => {
  const objects: Objects = {
    network: { a: { network: '10.141.0.0/16' } },
    node: {
      n1: on('a', 'BOOTIF 10.141.0.11', 'ib0 10.141.0.12', 'ib1 10.141.0.14'),
      'n1-ib0': on('a', 'BOOTIF 10.141.0.13')
    },
    otherdev: { 'n1-ib1': { network: 'a', ipaddress: '10.141.0.15' } }
  }
  const { names, notes } = await zones(objects)
  t.match(names, new Set(['a: n1 A 10.141.0.11', 'a: n1-ib0 A 10.141.0.13', 'a: n1-ib1 A 10.141.0.15']))
  t.ok(names.includes('141.10.in-addr.arpa: 13.0 PTR n1-ib0.a.'))
  t.match(notes, [/^node n1: the name n1-ib0 .* is that of node n1-ib0$/, /is that of other device n1-ib1$/])
})

// rules 10.8
t.test('a name is in the smallest zone that it lies in', async t => {
  const objects: Objects = {
    network: { a: { network: '10.141.0.0/16', ns_hostname: 'ns.x' }, 'x.a': { network: '10.142.0.0/16' } },
    node: { x: on('a', 'BOOTIF 10.141.0.1'), w: on('x.a', 'BOOTIF 10.142.0.1') },
    otherdev: {
      'y.x': { network: 'a', ipaddress: '10.141.0.7' },
      'w.x': { network: 'a', ipaddress: '10.141.0.8' }
    }
  }
  const { names, notes } = await zones(objects)
  const inside = names.filter(text => text.startsWith('x.a: ')).sort()
  t.same(
    inside.filter(text => !text.includes('controller')),
    ['x.a: @ A 10.141.0.1', 'x.a: w A 10.142.0.1', 'x.a: y A 10.141.0.7']
  )
  t.same(
    names.filter(text => /^a: (x|y\.x|w\.x) /.test(text)),
    [],
    'and in no other'
  )
  t.match(notes, [/^other device w\.x: the name w\.x for 10\.141\.0\.8 is that of node w$/])
  t.same(complaints('dns', 'bind', await rendered('dns', 'bind', objects)), [])
})

t.test('a network that is named like a zone of addresses has no names, and stops nobody', async t => {
  const objects: Objects = {
    network: { a: { network: '10.141.0.0/16' }, '141.10.in-addr.arpa': { network: '10.142.0.0/16' } },
    node: { n1: on('141.10.in-addr.arpa', 'BOOTIF 10.142.0.1'), n2: on('a', 'BOOTIF 10.141.0.2') }
  }
  t.same(complaints('dns', 'bind', await rendered('dns', 'bind', objects)), [])
  const { names } = await zones(objects)
  t.ok(names.includes('a: n2 A 10.141.0.2'))
  t.same(
    names.filter(text => text.includes('n1')),
    []
  )
})

t.test('dnsmasq tells nobody what stands in the controller’s own /etc/hosts', async t => {
  requireRoot()
  const directory = scratch(t)
  const files = await rendered(
    'dns',
    'dnsmasq',
    { network: { cluster: { network: '10.141.0.0/16' } } },
    { config: join(directory, 'dns.conf'), directory: join(directory, 'hosts') },
    { ...cluster, controller: { name: 'controller', address: '10.141.255.254' } }
  )
  for (const { path, text } of [
    ...files,
    { path: join(directory, 'etc'), text: '127.0.1.1 controller.cluster\n' }
  ]) {
    mkdirSync(dirname(path), { recursive: true })
    writeFileSync(path, text)
  }
  const script = `mount --bind ${directory}/etc /etc/hosts && ip link set lo up
dnsmasq -k --no-resolv --conf-file=${directory}/dns.conf --pid-file= --user=root --log-facility=- 2>/dev/null &
pid=$!
ask='dig +short +time=1 +tries=1 @127.0.0.1 controller.cluster'
until $ask >/dev/null; do kill -0 $pid || exit 1; done
$ask
kill $pid`
  t.equal((await output('unshare', ['--net', '--mount', 'sh', '-c', script])).trim(), '10.141.255.254')
})
