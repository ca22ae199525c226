import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import t from 'tap'
import type { DnsData } from '../../lib/services/dns/variables.js'
import { Controller } from '../support/controller.js'
import { output, requirePrograms, requireRoot } from '../support/programs.js'
import { populated } from '../support/routes.js'
import { scratch } from '../support/scratch.js'
import type { Objects } from './cluster.js'
import { complaints, dataOf, rendered } from './rendered.js'

requirePrograms('named-checkconf', 'named-checkzone', 'dnsmasq', 'dig', 'unshare')

const on = (network: string, ipaddress: string, name = 'BOOTIF') => ({ interface: name, network, ipaddress })
const objects: Objects = {
  network: {
    cluster: {
      network: '10.141.0.0/16',
      dns_records: [
        { host: 'ldap', ipaddress: '10.141.9.1' },
        { host: 'db.lab', ipaddress: '192.0.2.9' },
        { host: 'www', alias: 'n1' },
        { host: 'mirror', alias: 'deb.example.org' },
        { host: 'n1-ib0', ipaddress: '10.141.9.2' },
        { host: 'far', alias: 'key.site' }
      ]
    },
    site: {
      network: '10.142.0.0/24',
      dns: 'hosts',
      dns_records: [
        { host: 'key', ipaddress: '10.142.0.9' },
        { host: 'lock', alias: 'key' },
        { host: 'lost', alias: 'nowhere.example.org' }
      ]
    }
  },
  node: { n1: { interfaces: [on('cluster', '10.141.0.1'), on('cluster', '10.141.0.2', 'ib0')] } }
}

// Its zone would be loaded by no server. Requests are refused; a state may hold one.
t.test('a name server is no alias', async t => {
  for (const [host, more] of [
    ['ns', { ns_ip: '10.143.0.53' }],
    ['controller', {}]
  ] as const) {
    const other = { network: '10.143.0.0/24', ...more, dns_records: [{ host, alias: 'deb.example.org' }] }
    const { zones } = (await dataOf('dns', { ...objects, network: { ...objects.network, other } })) as DnsData
    const zone = zones.find(({ name }) => name === 'other')
    t.same(
      zone?.records.flatMap(({ name, type }) => (name === host ? type : [])),
      ['A']
    )
  }
})

// rules 10.15
t.test('the zones hold the records, and named and dnsmasq take them', async t => {
  const { zones, hosts, notes } = (await dataOf('dns', objects)) as DnsData
  const all = zones.flatMap(({ name: zone, records }) =>
    records.map(({ name, type, data }) => `${zone}: ${name} ${type} ${data}`)
  )
  for (const line of [
    'cluster: ldap A 10.141.9.1',
    'cluster: db.lab A 192.0.2.9',
    'cluster: www CNAME n1.cluster.',
    'cluster: mirror CNAME deb.example.org.',
    'cluster: far CNAME key.site.',
    '141.10.in-addr.arpa: 1.9 PTR ldap.cluster.',
    'key.site: @ A 10.142.0.9',
    'lock.site: @ A 10.142.0.9'
  ])
    t.ok(all.includes(line), line)
  t.notMatch(all.join('\n'), 'lost', 'a zone of one name is no alias')
  t.match(
    zones.flatMap(zone => zone.notes),
    [/^node n1: the name n1-ib0 for 10\.141\.0\.2 is that of DNS record n1-ib0$/]
  )
  const named = (address: string) => hosts.find(line => line.address === address)?.names
  t.same(named('10.141.0.1'), ['n1.cluster', 'www.cluster'])
  t.same(named('10.142.0.9'), ['key.site', 'far.cluster', 'lock.site'])
  t.match(notes, [/^mirror\.cluster: /, /^lost\.site: /])
  for (const server of ['bind', 'dnsmasq'])
    t.same(complaints('dns', server, await rendered('dns', server, objects)), [], server)
})

// rules 10.15
t.test('an alias is never a zone itself', async t => {
  const nested: Objects = {
    network: {
      cluster: {
        network: '10.141.0.0/16',
        dns_records: [
          { host: 'lab', alias: 'n1' },
          { host: 'x', ipaddress: '10.141.0.9' }
        ]
      },
      'lab.cluster': { network: '10.143.0.0/24' }
    },
    node: { n1: { interfaces: [on('cluster', '10.141.0.1')] } }
  }
  t.same(complaints('dns', 'bind', await rendered('dns', 'bind', nested)), [])
  const { zones } = (await dataOf('dns', nested)) as DnsData
  t.match(
    zones.flatMap(zone => zone.notes),
    [/^DNS record lab: the name is that of zone lab\.cluster$/]
  )
})

t.test('dnsmasq answers for them', async t => {
  requireRoot()
  const directory = scratch(t)
  const more = { config: join(directory, 'dns.conf'), directory: join(directory, 'hosts') }
  for (const { path, text } of await rendered('dns', 'dnsmasq', objects, more)) {
    mkdirSync(dirname(path), { recursive: true })
    writeFileSync(path, text)
  }
  const script = `ip link set lo up
dnsmasq -k --no-resolv --conf-file=${directory}/dns.conf --pid-file= --user=root --log-facility=- 2>/dev/null &
pid=$!
ask='dig +short +time=1 +tries=1 @127.0.0.1'
until $ask ldap.cluster >/dev/null; do kill -0 $pid || exit 1; done
for name in ldap.cluster www.cluster db.lab.cluster lock.site far.cluster; do echo $($ask $name); done
echo $($ask -x 10.141.9.1)
kill $pid`
  t.same((await output('unshare', ['--net', 'sh', '-c', script])).trim().split('\n'), [
    ...['10.141.9.1', '10.141.0.1', '192.0.2.9', '10.142.0.9', '10.142.0.9', 'ldap.cluster.']
  ])
})

// rules 10.15
t.test('over http: added, changed, deleted, all of a request or none', async t => {
  const c = await populated(t)
  const url = '/config/dns/cluster'
  const records = async () => (await c.get(url)).body.config.dns.cluster
  const put = async (body: unknown) => {
    const { status, body: told } = await c.post(url, body)
    return [status, told?.message]
  }
  await c.post('/config/switch/SW9', { network: 'cluster', ipaddress: '10.141.9.5' })
  const enveloped = (list: object) => ({ config: { dns: { cluster: list } } })
  t.equal((await c.get(`${url}/www/_delete`)).status, 204)
  t.same(await records(), [])
  t.match(
    await put(
      enveloped([
        { host: 'LDAP.', ipaddress: '10.141.9.1' },
        { host: 'www', alias: 'n1' }
      ])
    ),
    [201, /created/]
  )
  t.same(await put({ host: 'www', alias: 'Mirror.Example.org.' }), [204, undefined])
  t.same(await put((await c.get(url)).body), [204, undefined], 'what was read changes nothing')
  const kept = [
    { host: 'ldap', ipaddress: '10.141.9.1' },
    { host: 'www', alias: 'mirror.example.org' }
  ]
  t.same(await records(), kept)
  for (const [body, says] of [
    [{ host: 'n1', ipaddress: '10.141.9.3' }, /DNS record n1: that is the name of node n1/],
    [
      { host: 'controller', ipaddress: '10.141.9.3' },
      /DNS record controller: that is the name of a controller/
    ],
    [{ host: 'ns', alias: 'n1' }, /DNS record ns: a name server has that name, and cannot be an alias/],
    [{ host: 'x' }, /DNS record x: give it field "ipaddress" or field "alias"/],
    [{ host: 'x', ipaddress: '10.1.1.1', alias: 'n1' }, /one of them/],
    [{ host: 'x', alias: 'x' }, /field "alias": x is an alias/],
    [{ host: 'x', alias: 'www' }, /field "alias": www is an alias/],
    [{ host: 'x', alias: 'x.cluster' }, /field "alias": x\.cluster is an alias/],
    [{ host: 'x', alias: 'WWW.cluster.' }, /field "alias": www\.cluster is an alias/],
    [
      [
        { host: 'x', alias: 'y.cluster' },
        { host: 'y', alias: 'x.cluster' }
      ],
      /is an alias/
    ],
    [
      [
        { host: 'x', ipaddress: '10.1.1.1' },
        { host: 'X.', alias: 'n1' }
      ],
      /DNS record x is given twice/
    ],
    [{ host: 'sw9', ipaddress: '10.141.9.3' }, /DNS record sw9: that is the name of switch SW9/],
    [{ host: 'a b', ipaddress: '10.1.1.1' }, /field "host" must be a name of letters/],
    [{ host: '10.1.1.1', ipaddress: '10.1.1.1' }, /field "host" must be/],
    [{ host: 'x', ipaddress: '10.1.1' }, /field "ipaddress" must be an IPv4 address/],
    [{ host: 'x', adress: '10.1.1.1' }, /there is no field "adress"/],
    [{ ipaddress: '10.1.1.1' }, /field "host" is missing/],
    [[{ host: 'good', ipaddress: '10.1.1.1' }, 7], /a list of objects/],
    [Array.from({ length: 1001 }, (_, i) => ({ host: `h${i}`, ipaddress: '10.1.1.1' })), /give 1 to 1000/]
  ] as const) {
    const [status, message] = await put(body)
    t.equal(status, 400, JSON.stringify(body).slice(0, 80))
    t.match(message, says)
    t.same(await records(), kept, 'nothing is changed')
  }
  const lost = await c.post(url, { host: 'www', alias: 'n9' })
  t.match(lost.headers['x-svcd-warning'], /DNS record www is an alias of n9, and there is no such name/)
  const found = await c.post(url, { host: 'www', alias: 'sw9' })
  t.equal(found.headers['x-svcd-warning'], undefined, 'SW9 is the same name')
  t.same(await put(kept), [204, undefined])
  const capital = await c.post('/config/otherdev/LDAP', { network: 'cluster', ipaddress: '10.141.9.4' })
  t.match([capital.status, capital.body.message], [400, /LDAP is a DNS record of network cluster/])
  const taken = await c.post('/config/node/ldap', { group: 'compute' })
  t.match([taken.status, taken.body.message], [400, /ldap is a DNS record of network cluster: delete that/])
  t.equal((await c.post('/config/node/www', {})).status, 201, 'without an address there it takes no name')
  t.match(
    (await c.post(`${url}?dryrun=yes`, { host: 'y', ipaddress: '10.1.1.1' })).body.message,
    /1 network would be changed/
  )
  t.match((await c.get('/config/cluster/export')).text, '"host":"ldap"')
  t.equal((await c.post('/config/network/cluster', { newnetname: 'other' })).status, 200)
  t.equal((await c.get(url)).status, 404)
  t.equal((await c.get('/config/dns/other/nosuch/_delete')).status, 404)
  t.equal((await c.get('/config/dns/other/LDAP/_delete')).status, 204)
  t.same((await c.get('/config/dns/other')).body.config.dns.other, kept.slice(1))
  const moved = await c.post('/config/dns/other', { host: 'in', ipaddress: '10.141.9.9' })
  t.equal(moved.status, 201)
  t.equal((await c.post('/config/network/other/_renumber', { network: '10.155.0.0/16' })).status, 200)
  t.match((await c.get('/config/dns/other')).text, '10.155.9.9', 'a record of the network follows it')
})

t.test('the dialect of the luna client', async t => {
  const c = await Controller.start(t, 'http.dialect=luna')
  await c.cluster()
  const { status } = await c.post('/config/dns/cluster', {
    config: { dns: { cluster: [{ host: 'ldap', ipaddress: '10.141.9.1' }] } }
  })
  t.equal(status, 204)
  t.match((await c.get('/config/dns/cluster')).text, '"ldap"')
  t.equal((await c.get('/config/dns/cluster/ldap/_delete')).status, 204)
})
