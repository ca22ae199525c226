import t from 'tap'
import { populated } from '../support/routes.js'
import { complaints, rendered } from './rendered.js'

const network = {
  ...{ network: '10.141.0.0/16', gateway: '10.141.255.253', dhcp: true },
  ...{ dhcp_range_begin: '10.141.9.1', dhcp_range_end: '10.141.9.9' },
  ns_ip: '10.141.9.2,192.0.2.1,10.141.0.8',
  ntp_server: '10.141.0.9, 192.0.2.2',
  routes: ['10.9.0.0/16 via 10.141.0.254', '192.168.7.128/25 via 10.141.0.253', '10.0.0.0/8 via 10.141.0.254']
}
const { routes: _, ...withoutRoutes } = network
const bytes = '10:0a:09:0a:8d:00:fe:19:c0:a8:07:80:0a:8d:00:fd:08:0a:0a:8d:00:fe:00:0a:8d:ff:fd'
const expected: Readonly<Record<string, readonly string[]>> = {
  isc: [
    'option domain-name-servers 10.141.9.2, 192.0.2.1, 10.141.0.8;',
    'option ntp-servers 10.141.0.9, 192.0.2.2;',
    `option svcd-routes ${bytes};`,
    'range 10.141.9.1 10.141.9.1;'
  ],
  kea: [
    '"data": "10.141.9.2, 192.0.2.1, 10.141.0.8"',
    '"data": "10.141.0.9, 192.0.2.2"',
    `"code": 121, "csv-format": false, "data": "${bytes.replaceAll(':', '').toUpperCase()}"`
  ],
  dnsmasq: [
    'option:dns-server,10.141.9.2,192.0.2.1,10.141.0.8',
    'option:ntp-server,10.141.0.9,192.0.2.2',
    `,121,${bytes}`
  ]
}

// rules 3.20, 10.7
for (const [server, lines] of Object.entries(expected))
  t.test(`several name servers, time servers and routes by DHCP: ${server}`, async t => {
    const files = await rendered('dhcp', server, { network: { cluster: network } })
    const text = files.map(file => file.text).join('')
    for (const line of lines) t.match(text, line)
    t.same(complaints('dhcp', server, files), [])
    const bare = await rendered('dhcp', server, { network: { cluster: withoutRoutes } })
    t.notMatch(bare.map(file => file.text).join(''), /option svcd-routes \d|"code": 121|,121,/)
  })

// rules 3.20, 1.6
t.test('a list, commas and blanks; shown as a text', async t => {
  const c = await populated(t)
  const set = (body: object) => c.post('/config/network/cluster', body)
  const shown = async () => (await c.get('/config/network/cluster')).body.config.network.cluster
  for (const [given, stored] of [
    [{ ns_ip: '10.141.0.7' }, { ns_ip: '10.141.0.7' }],
    [{ nameserver_ip: '10.141.0.7, 10.141.0.8  10.141.0.7' }, { ns_ip: '10.141.0.7,10.141.0.8' }],
    [{ ns_ip: ['10.141.0.7', '192.0.2.1'] }, { ns_ip: '10.141.0.7,192.0.2.1' }],
    [{ ntp_server: ['a.example.org', '10.141.0.9'] }, { ntp_server: 'a.example.org,10.141.0.9' }],
    [
      { routes: '10.9.0.0/16 via 10.141.0.254,10.8.0.0/16  via 10.141.0.254' },
      { routes: ['10.9.0.0/16 via 10.141.0.254', '10.8.0.0/16 via 10.141.0.254'] }
    ]
  ] as const) {
    t.equal((await set(given)).status, 200, JSON.stringify(given))
    t.match(await shown(), stored)
  }
  t.equal((await set((await c.get('/config/network/cluster')).body)).status, 200)
  for (const [given, says] of [
    [{ ns_ip: '10.141.0.7,nine' }, /field "ns_ip" must be up to 8 IPv4 addresses, separated by commas/],
    [{ ns_ip: [] }, /field "ns_ip" must be/],
    [{ ns_ip: [7] }, /field "ns_ip" must be/],
    [{ ns_ip: Array.from({ length: 9 }, (_, i) => `10.0.0.${i}`) }, /up to 8/],
    [{ routes: ['10.9.0.0/16'] }, /field "routes" must be up to 24 routes such as/],
    [{ routes: ['10.9.0.1/16 via 10.141.0.254'] }, /has host bits set: the network of 10\.9\.0\.1\/16 is/],
    [
      { routes: ['10.9.0.0/16 via 10.7.0.1'] },
      /field "routes": .*10\.7\.0\.1 is no address of a machine in 10\.141/
    ],
    [{ routes: ['10.9.0.0/16 via 10.141.255.255'] }, /is no address of a machine/],
    [{ routes: ['0.0.0.0/0 via 10.141.0.254'] }, /set the default route in field "gateway"/],
    [
      { routes: ['10.9.0.0/16 via 10.141.0.254', '10.9.0.0/16 via 10.141.0.253'] },
      /there is another route to/
    ]
  ] as const) {
    const { status, body } = await set(given)
    t.equal(status, 400, JSON.stringify(given))
    t.match(body.message, says)
  }
  const free = (await c.get('/config/network/cluster/10.141.0.7')).text
  t.match(free, 'taken', 'each name server is taken')
  t.equal((await set({ ns_ip: '10.141.0.77,10.141.0.2' })).status, 200)
  const { body } = await c.post('/config/node/n2', { group: 'compute' })
  t.equal(body?.message, 'node n2 created')
  t.notMatch(
    (await c.get('/config/node/n2')).text,
    '"10.141.0.2"',
    'a name server of several is nobody’s next address'
  )
  t.match((await c.get('/config/node/n2/_render/install')).text, "IF_NAMESERVER='10.141.0.77 10.141.0.2'")
  t.equal((await c.post('/config/network/cluster/_renumber', { network: '10.155.0.0/16' })).status, 200)
  t.match(await shown(), {
    ns_ip: '10.155.0.77,10.155.0.2',
    routes: ['10.9.0.0/16 via 10.155.0.254', '10.8.0.0/16 via 10.155.0.254']
  })
  t.equal((await set({ routes: null, ns_ip: null })).status, 200)
  t.notOk('routes' in (await shown()), 'shown where there are some')
})

// rules 3.17
t.test('options of interfaces: metric, and a further address', async t => {
  const c = await populated(t)
  const add = (options: string) =>
    c.post('/config/node/n1', { interfaces: [{ interface: 'more', network: 'cluster', options }] })
  for (const options of ['on=BOOTIF', 'metric=100']) {
    const well = await add(options)
    t.same([well.status, well.headers['x-svcd-warning']], [204, undefined], options)
  }
  t.match(
    (await add('on=BOOTIF metric=100')).headers['x-svcd-warning'],
    /interface more: its option "metric=100" is not used: beside on= there is no other/
  )
  t.match(
    (await add('on=BOOTF')).headers['x-svcd-warning'],
    /interface more: its option "on=BOOTF" names no interface/
  )
})
