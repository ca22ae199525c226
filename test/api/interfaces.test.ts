import t from 'tap'
import { Controller } from '../support/controller.js'

/** Interface → address (null: none) of a node, as its GET shows them. */
async function addresses(c: Controller, node: string): Promise<Record<string, string | null>> {
  const reply = await c.get(`/config/node/${node}/interfaces`)
  const entries = reply.body.interfaces as { interface: string; ipaddress: string | null }[]
  return Object.fromEntries(entries.map(entry => [entry.interface, entry.ipaddress]))
}

/** Two networks and a group with an interface in each. */
async function twoNetworks(...overrides: string[]) {
  const c = await Controller.start(t, ...overrides)
  await c.post('/config/network/cluster', { network: '10.141.0.0/24', gateway: '10.141.0.1' })
  await c.post('/config/network/ipmi', { network: '10.148.0.0/24' })
  await c.post('/config/group/compute', {
    interfaces: [
      { interface: 'BOOTIF', network: 'cluster' },
      { interface: 'BMC', network: 'ipmi' }
    ]
  })
  return c
}

// rules 3.5
t.test('a node created in a group has its interfaces, each with the next free address', async t => {
  const c = await twoNetworks()
  t.equal((await c.post('/config/node/node001', { group: 'compute' })).status, 201)
  t.equal((await c.post('/config/node/node002', { group: 'compute' })).status, 201)
  t.same(await addresses(c, 'node001'), { BOOTIF: '10.141.0.2', BMC: '10.148.0.1' })
  t.same(await addresses(c, 'node002'), { BOOTIF: '10.141.0.3', BMC: '10.148.0.2' })
  t.equal((await c.get('/config/network/cluster/_nextfreeip')).body.nextip, '10.141.0.4')
})

// rules 2.4, 3.5
t.test('no free address: 404 naming the network, and nothing is created', async t => {
  const c = await twoNetworks()
  await c.post('/config/network/tiny', { network: '10.9.0.0/30', gateway: '10.9.0.1' })
  await c.post('/config/group/small', { interfaces: [{ interface: 'BOOTIF', network: 'tiny' }] })
  t.equal((await c.post('/config/node/a', { group: 'small' })).status, 201)
  const before = c.state()
  const refused = await c.post('/config/node/b', { group: 'small' })
  t.equal(refused.status, 404)
  t.match(refused.body.message, /network tiny/)
  t.same(c.state(), before)
  t.equal((await c.get('/config/network/tiny/_nextfreeip')).status, 404)
})

// rules 3.5, 1.9
t.test('an interface added to a group comes to its members, one removed goes', async t => {
  const c = await twoNetworks()
  await c.post('/config/node/node001', { group: 'compute' })
  await c.post('/config/node/other', {})
  const added = await c.post('/config/group/compute/interfaces', {
    interfaces: [{ interface: 'eth1', network: 'cluster' }]
  })
  t.equal(added.status, 201)
  t.same(await addresses(c, 'node001'), { BOOTIF: '10.141.0.2', BMC: '10.148.0.1', eth1: '10.141.0.3' })
  t.same(await addresses(c, 'other'), {})
  const changed = await c.post('/config/group/compute/interfaces', {
    interfaces: [{ interface: 'eth1', options: 'mtu=9000' }]
  })
  t.equal(changed.status, 204)
  t.equal((await c.get('/config/node/node001/interfaces/eth1')).body.interfaces[0].options, 'mtu=9000')
  t.equal((await c.get('/config/group/compute/interfaces/eth1/_delete')).status, 204)
  t.same(await addresses(c, 'node001'), { BOOTIF: '10.141.0.2', BMC: '10.148.0.1' })
  t.equal((await c.get('/config/group/compute/interfaces/eth1/_delete')).status, 404)
})

// rules 3.5
t.test('a group interface moved to another network gives the members new addresses there', async t => {
  const c = await twoNetworks()
  await c.post('/config/node/node001', { group: 'compute', macaddr: '52:54:00:00:00:01' })
  await c.post('/config/network/data', { network: '10.150.0.0/24' })
  const moved = await c.post('/config/group/compute/interfaces', {
    interfaces: [{ interface: 'BOOTIF', network: 'data' }]
  })
  t.equal(moved.status, 204)
  t.same(await addresses(c, 'node001'), { BOOTIF: '10.150.0.1', BMC: '10.148.0.1' })
  t.equal((await c.get('/config/node/node001')).body.config.node.node001.macaddr, '52:54:00:00:00:01')
})

// rules 3.5
t.test('a change of group keeps what still fits, gives what is new, drops what is lacking', async t => {
  const c = await twoNetworks()
  await c.post('/config/network/data', { network: '10.150.0.0/24' })
  await c.post('/config/group/storage', {
    interfaces: [
      { interface: 'BOOTIF', network: 'cluster' },
      { interface: 'BMC', network: 'data' },
      { interface: 'eth1', network: 'data' }
    ]
  })
  await c.post('/config/node/first', { group: 'compute' })
  await c.post('/config/node/node001', { group: 'compute' })
  await c.post('/config/node/node001/interfaces', {
    interfaces: [{ interface: 'own', network: 'cluster' }]
  })
  t.same(await addresses(c, 'node001'), { BOOTIF: '10.141.0.3', BMC: '10.148.0.2', own: '10.141.0.4' })

  t.equal((await c.post('/config/node/node001', { group: 'storage' })).status, 204)
  t.same(await addresses(c, 'node001'), {
    BOOTIF: '10.141.0.3',
    BMC: '10.150.0.1',
    eth1: '10.150.0.2',
    own: '10.141.0.4'
  })
  t.equal((await c.post('/config/node/node001', { group: 'compute' })).status, 204)
  t.same(await addresses(c, 'node001'), { BOOTIF: '10.141.0.3', BMC: '10.148.0.2', own: '10.141.0.4' })
  t.equal((await c.post('/config/node/node001', { group: null })).status, 204)
  t.same(await addresses(c, 'node001'), { own: '10.141.0.4' })
})

// rules 1.11
t.test('a whole body read back with another group moves the node as the group alone would', async t => {
  const c = await twoNetworks()
  await c.post('/config/group/storage', { interfaces: [{ interface: 'BOOTIF', network: 'ipmi' }] })
  await c.post('/config/osimage/big', {})
  await c.post('/config/group/compute', { osimage: 'big' })
  await c.post('/config/node/node001', { group: 'compute', macaddr: '52:54:00:00:00:01' })
  const read = (await c.get('/config/node/node001')).body
  read.config.node.node001.group = 'storage'
  t.equal((await c.post('/config/node/node001', read)).status, 204)
  const { node001 } = (await c.get('/config/node/node001')).body.config.node
  t.same(await addresses(c, 'node001'), { BOOTIF: '10.148.0.2' })
  t.equal(node001.osimage, null, 'the image of the old group is not kept as its own')
  t.equal(node001.macaddr, '52:54:00:00:00:01')
  t.equal(node001._override, false)
})

// rules 3.5
t.test(
  'a group interface deleted on one node stays away until it is posted or the group changes',
  async t => {
    const c = await twoNetworks()
    await c.post('/config/node/node001', { group: 'compute' })
    t.equal((await c.get('/config/node/node001/interfaces/BMC/_delete')).status, 204)
    t.same(await addresses(c, 'node001'), { BOOTIF: '10.141.0.2' })
    await c.post('/config/group/compute/interfaces', { interfaces: [{ interface: 'BMC', options: 'x' }] })
    t.same(await addresses(c, 'node001'), { BOOTIF: '10.141.0.2' }, 'remembered over a change of the group')
    await c.restart()
    c.token = await c.login()
    await c.post('/config/node/node001/interfaces', { interfaces: [{ interface: 'BMC' }] })
    t.same(await addresses(c, 'node001'), { BOOTIF: '10.141.0.2', BMC: '10.148.0.1' })
    t.equal((await c.get('/config/node/node001/interfaces/eth7/_delete')).status, 404)
  }
)

// rules 1.9
t.test('interfaces in a POST are merged: others stay, absent fields stay, all or none', async t => {
  const c = await twoNetworks()
  await c.post('/config/node/node001', { group: 'compute' })
  await c.post('/config/node/node001', {
    interfaces: [{ interface: 'BOOTIF', macaddress: '5254.0000.0001', ipaddress: '10.141.0.77' }]
  })
  await c.post('/config/node/node001', { interfaces: [{ interface: 'BOOTIF', options: 'a' }] })
  const [bootif] = (await c.get('/config/node/node001/interfaces/BOOTIF')).body.interfaces
  t.same(bootif, {
    interface: 'BOOTIF',
    network: 'cluster',
    ipaddress: '10.141.0.77',
    macaddress: '52:54:00:00:00:01',
    options: 'a'
  })
  const before = c.state()
  const refused = await c.post('/config/node/node001/interfaces', {
    interfaces: [
      { interface: 'BOOTIF', ipaddress: '10.141.0.78' },
      { interface: 'BMC', ipaddress: '10.141.0.79' }
    ]
  })
  t.equal(refused.status, 400)
  t.match(refused.body.message, /node node001.*BMC.*10\.141\.0\.79.*outside.*ipmi/)
  t.same(c.state(), before)
  t.equal((await c.post('/config/node/absent/interfaces', { interfaces: [] })).status, 404)
  t.equal((await c.post('/config/group/absent/interfaces', { interfaces: [] })).status, 404)
})

// rules 3.14
t.test('an interface without an address: null removes it, absent means the next free one', async t => {
  const c = await twoNetworks()
  await c.post('/config/node/node001', { group: 'compute' })
  await c.post('/config/node/node001', { interfaces: [{ interface: 'BOOTIF', ipaddress: null }] })
  t.same(await addresses(c, 'node001'), { BOOTIF: null, BMC: '10.148.0.1' })
  await c.post('/config/node/lone', {
    interfaces: [
      { interface: 'eth0', network: 'cluster', ipaddress: null },
      { interface: 'eth1', network: 'cluster' }
    ]
  })
  t.same(await addresses(c, 'lone'), { eth0: null, eth1: '10.141.0.2' })
})

// rules 2.4, 3.8
t.test('who may have an address', async t => {
  const c = await twoNetworks('controller.address=10.141.0.254')
  await c.post('/config/network/cluster', {
    dhcp: true,
    dhcp_begin: '10.141.0.100',
    dhcp_end: '10.141.0.120'
  })
  await c.post('/config/node/node001', { group: 'compute' })
  await c.post('/config/node/node002', { group: 'compute' })
  const claim = (ipaddress: string, more: object = {}, node = 'node002') =>
    c.post(`/config/node/${node}`, { interfaces: [{ interface: 'BOOTIF', ipaddress, ...more }] })
  const before = c.state()
  for (const [address, why] of [
    ['10.141.0.0', /network address of network cluster/],
    ['10.141.0.255', /broadcast address of network cluster/],
    ['10.141.0.1', /gateway of network cluster/],
    ['10.141.0.2', /belongs to node node001 \(BOOTIF\)/],
    ['10.141.0.254', /belongs to controller controller/],
    ['10.142.0.1', /outside network cluster/],
    ['10.141.0.110', /dynamic range of network cluster/]
  ] as const) {
    const refused = await claim(address)
    t.equal(refused.status, 400, address)
    t.match(refused.body.message, why)
    t.same(c.state(), before)
  }
  t.equal((await claim('10.141.0.110', { force: true })).status, 204, 'force allows the dynamic range')
  t.equal((await claim('10.141.0.2', { force: true })).status, 204, 'force takes an address from a node')
  t.same(await addresses(c, 'node001'), { BOOTIF: null, BMC: '10.148.0.1' })
  t.same(await addresses(c, 'node002'), { BOOTIF: '10.141.0.2', BMC: '10.148.0.2' })
  t.equal((await c.get('/config/network/10.141.0.254')).body['10.141.0.254'].status, 'taken')
  t.same((await c.get('/config/network/cluster/_list')).body.taken, [
    { ipaddress: '10.141.0.2', device: 'node002' },
    { ipaddress: '10.141.0.254', device: 'controller' }
  ])
})

// rules 3.7
t.test('an address of [http] url is given to nobody by itself, and to a device by an admin', async t => {
  const c = await twoNetworks('http.url=http://10.141.0.2:7050,http://controller.example:7050')
  t.equal((await c.get('/config/network/cluster/_nextfreeip')).body.nextip, '10.141.0.3')
  await c.post('/config/node/node001', { group: 'compute' })
  t.match(await addresses(c, 'node001'), { BOOTIF: '10.141.0.3' })
  const proxy = { network: 'cluster', ipaddress: '10.141.0.2' }
  t.equal((await c.post('/config/otherdev/proxy', proxy)).status, 201)
})

// rules 3.9
t.test('a MAC belongs to one interface of one node, in any notation', async t => {
  const c = await twoNetworks()
  for (const [i, mac] of [
    '52-54-00-00-00-0A',
    '5254.0000.000b',
    '52540000000C',
    '52:54:00:00:00:0d'
  ].entries())
    t.equal((await c.post(`/config/node/n${i}`, { group: 'compute', macaddr: mac })).status, 201)
  t.equal((await c.get('/config/node/n0')).body.config.node.n0.macaddr, '52:54:00:00:00:0a')
  const before = c.state()
  const taken = await c.post('/config/node/n1', { macaddr: '52:54:00:00:00:0A' })
  t.equal(taken.status, 400)
  t.match(taken.body.message, /52:54:00:00:00:0a belongs to node n0 \(BOOTIF\)/)
  t.same(c.state(), before)
  t.equal((await c.post('/config/node/n0', { macaddr: null })).status, 204)
  t.equal((await c.post('/config/node/n1', { macaddr: '52:54:00:00:00:0A' })).status, 204)
})

// rules 3.6, 3.13
t.test('a change of the network keeps to its devices', async t => {
  const c = await twoNetworks()
  await c.post('/config/node/node001', {
    group: 'compute',
    interfaces: [{ interface: 'BOOTIF', ipaddress: '10.141.0.200' }]
  })
  const before = c.state()
  for (const [body, why] of [
    [{ network: '10.141.0.0/25' }, /node node001.*10\.141\.0\.200/],
    [{ gateway: '10.141.0.200' }, /10\.141\.0\.200 belongs to node node001/],
    [{ gateway: '10.142.0.1' }, /outside 10\.141\.0\.0\/24/],
    [{ network: '10.141.0.7/24' }, /host bits.*10\.141\.0\.0\/24/],
    [{ dhcp: true }, /dhcp_range_begin/],
    [{ dhcp: true, dhcp_begin: '10.141.0.9', dhcp_end: '10.141.0.3' }, /after the end/]
  ] as const) {
    const refused = await c.post('/config/network/cluster', body)
    t.equal(refused.status, 400)
    t.match(refused.body.message, why)
    t.same(c.state(), before)
  }
  t.equal((await c.post('/config/network/cluster', { network: '10.141.0.0/16' })).status, 200)
  const used = await c.get('/config/network/cluster/_delete')
  t.equal(used.status, 400)
  t.match(used.body.message, /in use by 2: .*node node001/)
  t.equal((await c.post('/config/network/cluster', { newnetname: 'internal' })).status, 200)
  t.equal((await c.get('/config/node/node001')).body.config.node.node001.interfaces[0].network, 'internal')
  t.equal((await c.get('/config/group/compute')).body.config.group.compute.interfaces[0].network, 'internal')
})

// rules 3.2
t.test('a clone is another machine: next free addresses, no MAC, nothing of the hardware', async t => {
  const c = await twoNetworks()
  await c.post('/config/node/node001', {
    group: 'compute',
    macaddr: '52:54:00:00:00:01',
    vendor: 'ACME',
    assettag: '7',
    switch: 'sw1',
    switchport: 3,
    comment: 'first',
    netboot: false
  })
  t.equal((await c.post('/config/node/node001/_clone', { newhostname: 'node002' })).status, 201)
  const { node002 } = (await c.get('/config/node/node002')).body.config.node
  t.same(await addresses(c, 'node002'), { BOOTIF: '10.141.0.3', BMC: '10.148.0.2' })
  t.match(node002, {
    macaddr: null,
    vendor: null,
    assettag: null,
    switch: null,
    switchport: null,
    comment: 'first',
    netboot: false,
    _netboot_source: 'node'
  })
  t.equal((await c.post('/config/node/node001/_clone', { newhostname: 'node002' })).status, 400)
  t.equal((await c.post('/config/node/node001/_clone', {})).status, 400)
})

// rules 3.5, 3.14
t.test(
  'a move gives an address where there is none, and an address that is asked for is not lost',
  async t => {
    const c = await twoNetworks()
    await c.post('/config/network/data', { network: '10.150.0.0/24' })
    await c.post('/config/group/same', { interfaces: [{ interface: 'BOOTIF', network: 'cluster' }] })
    await c.post('/config/group/other', { interfaces: [{ interface: 'BOOTIF', network: 'data' }] })
    await c.post('/config/node/a', {
      group: 'compute',
      interfaces: [{ interface: 'BOOTIF', ipaddress: null }]
    })
    await c.post('/config/node/a', { group: 'same' })
    t.same(await addresses(c, 'a'), { BOOTIF: '10.141.0.2' })
    await c.post('/config/node/b', { group: 'compute' })
    const asked = { interface: 'BOOTIF', network: 'cluster', ipaddress: '10.141.0.3' }
    t.equal((await c.post('/config/node/b', { group: 'other', interfaces: [asked] })).status, 204)
    t.same(await addresses(c, 'b'), { BOOTIF: '10.141.0.3' }, 'what it had, asked for by name')
  }
)

// rules 3.9, 1.11
t.test('a node read and posted back with another provision interface keeps its MAC where it is', async t => {
  const c = await twoNetworks()
  await c.post('/config/node/a', { group: 'compute', macaddr: '52:54:00:00:00:01' })
  const read = (await c.get('/config/node/a')).body
  read.config.node.a.provision_interface = 'eth1'
  t.equal((await c.post('/config/node/a', read)).status, 204)
  const { a } = (await c.get('/config/node/a')).body.config.node
  t.equal(a.macaddr, null)
  t.equal(a.interfaces[0].macaddress, '52:54:00:00:00:01')
})

// rules 6.5
t.test('images come by torrent or http, by nothing else', async t => {
  const c = await twoNetworks()
  for (const path of ['/config/group/compute', '/config/node/a']) {
    const refused = await c.post(path, { provision_method: 'foo' })
    t.equal(refused.status, 400)
    t.match(refused.body.message, /provision_method.*one of torrent, http/)
  }
})
