import t from 'tap'
import { Controller } from '../support/controller.js'

// rules 2.17
const on = await Controller.start(t, 'http.dialect=luna')
const off = await Controller.start(t)
const base64 = (text: string) => Buffer.from(text).toString('base64')
const ok = async (c: Controller, path: string, body: object) => {
  const { status, text } = await c.post(path, body)
  if (status >= 300) throw new Error(`${path}: ${status} ${text}`)
}
const shown = async (type: string, name: string) =>
  (await on.get(`/config/${type}/${name}`)).body.config[type][name]
const optionsOf = async (type: string, name: string, wanted: string) =>
  (await shown(type, name)).interfaces.find((one: { interface: string }) => one.interface === wanted)?.options

for (const c of [on, off]) {
  await ok(c, '/config/network/net', { network: '10.141.0.0/16' })
  await ok(c, '/config/network/ib', { network: '10.149.0.0/16' })
  await ok(c, '/config/osimage/compute', { kerneloptions: 'quiet' })
  await ok(c, '/config/group/compute', {
    osimage: 'compute',
    variables: { rack: '7', odd: ',"_variables_source":{"a":"b"}' },
    interfaces: [{ interface: 'BOOTIF', network: 'net' }]
  })
  await ok(c, '/config/node/n1', { group: 'compute', variables: { slot: '"_variables_source":{}' } })
  await ok(c, '/config/node/n2', { group: 'compute' })
}

t.test('no source of a node or a group is an object, in one and in a list, plain and pretty', async t => {
  for (const path of ['node', 'node/n1', 'group', 'group/compute', 'node?pretty=yes', 'node/n1?pretty=yes'])
    for (const c of [on, off]) {
      const { body, text } = await c.get(`/config/${path}`)
      const [type = ''] = path.split(/[/?]/)
      for (const fields of Object.values<Record<string, unknown>>(body.config[type])) {
        const sources = Object.entries(fields).filter(([key]) => key.endsWith('_source'))
        t.ok(sources.length > 10, path)
        const objects = sources.filter(([, value]) => typeof value !== 'string').map(([key]) => key)
        t.same(objects, c === on ? [] : ['_variables_source'], path)
      }
      t.match(text, /,\\"_variables_source\\":\{\\"a\\":\\"b\\"\}/, 'a text that looks like it stays')
    }
  const { body } = await on.get('/config/node/n1', { headers: { 'X-Svcd-Dialect': 'none' } })
  t.match(body.config.node.n1._variables_source, { slot: 'node' }, 'svcctl gets it')
})

t.test('yes and no are words of the client, for each boolean field', async t => {
  const range = { dhcp_range_begin: '10.141.9.1', dhcp_range_end: '10.141.9.9' }
  await ok(on, '/config/network/net', { dhcp: 'y', dhcp_nodes_only: 'yes', ...range })
  t.match(await shown('network', 'net'), { dhcp: true, dhcp_nodes_only: true })
  await ok(on, '/config/network/net', { dhcp_nodes_only: 'n' })
  t.match(await shown('network', 'net'), { dhcp: true, dhcp_nodes_only: false })
  await ok(on, '/config/network/net', { dhcp: 'No' })
  await ok(on, '/config/group/compute', { netboot: 'no', setupbmc: 'Y', localinstall: 'yes' })
  t.match(await shown('group', 'compute'), { netboot: false, setupbmc: true, localinstall: true })
  await ok(on, '/config/group/compute', { netboot: '', setupbmc: '', localinstall: '' })
  t.match(await shown('group', 'compute'), { netboot: true, setupbmc: false })
  for (const [c, value] of [
    [on, 'maybe'],
    [off, 'y'],
    [off, 'yes']
  ] as const)
    t.match(await c.post('/config/node/n1', { service: value }), {
      status: 400,
      body: { message: /"service"/ }
    })
})

t.test('what luna calls otherwise: shared, non_authoritative', async t => {
  await ok(on, '/config/network/ib', { shared: 'net', non_authoritative: 'y' })
  t.match(await shown('network', 'ib'), { shared_with: 'net', dns: 'hosts' })
  await ok(on, '/config/network/ib', { shared: '', non_authoritative: 'n' })
  const { shared_with, dns } = await shown('network', 'ib')
  t.same([shared_with, dns], [undefined, undefined])
  t.match(await on.post('/config/network/ib', { shared: 'none' }), {
    status: 400,
    body: { message: /network none does not exist/ }
  })
  t.match(await on.post('/config/network/ib', { non_authoritative: 'maybe' }), { status: 400 })
  t.equal((await off.post('/config/network/ib', { shared: 'net' })).status, 400)
})

t.test('osrelease, type and zone are kept, with and without the dialect', async t => {
  for (const c of [on, off]) {
    await ok(c, '/config/network/ib', { type: 'infiniband', zone: 'internal' })
    await ok(c, '/config/osimage/compute', { osrelease: '9.4 (Blue Onyx)' })
    const { body } = await c.get('/config/cluster/export')
    t.match(body.config.network.ib, { type: 'infiniband', zone: 'internal' })
    t.match(body.config.osimage.compute, { osrelease: '9.4 (Blue Onyx)' })
    await ok(c, '/config/network/ib', { type: '', zone: null })
    const { type, zone } = (await c.get('/config/network/ib')).body.config.network.ib
    t.same([type, zone], [undefined, undefined])
  }
})

t.test('flags of interfaces become words of its options', async t => {
  const post = (path: string, entry: object) =>
    ok(on, path, { interfaces: [{ interface: 'eth1', ...entry }] })
  await post('/config/group/compute', { network: 'ib', mtu: '9000', vlanid: '20', vlan_parent: 'eth0' })
  t.equal(await optionsOf('group', 'compute', 'eth1'), 'mtu=9000 vlan=20 link=eth0')
  await post('/config/group/compute/interfaces', { vlanid: '', vlan_parent: '', dhcp: true })
  t.equal(await optionsOf('group', 'compute', 'eth1'), 'mtu=9000 dhcp=yes')
  await post('/config/group/compute/interfaces', {
    dhcp: 'n',
    mtu: 1500,
    options: base64('defaultroute=no mtu=1')
  })
  t.equal(await optionsOf('group', 'compute', 'eth1'), 'defaultroute=no mtu=1500')
  t.equal(await optionsOf('node', 'n1', 'eth1'), 'defaultroute=no mtu=1500', 'nodes have those of the group')
  await post('/config/node/n1', { mtu: '9216' })
  t.equal(await optionsOf('node', 'n1', 'eth1'), 'defaultroute=no mtu=9216', "with the group's others")
  t.equal(await optionsOf('node', 'n2', 'eth1'), 'defaultroute=no mtu=1500')
  await ok(on, '/config/group/compute/interfaces', {
    interfaces: [{ interface: 'bond0', network: 'ib', bond_mode: '802.3ad', bond_slaves: 'eth2, eth3  eth4' }]
  })
  t.equal(await optionsOf('group', 'compute', 'bond0'), 'mode=802.3ad bond=eth2,eth3,eth4')
  await ok(on, '/config/group/compute/_clone', {
    newgroupname: 'gpu',
    interfaces: [{ interface: 'eth1', mtu: '1400' }]
  })
  t.equal(await optionsOf('group', 'gpu', 'eth1'), 'defaultroute=no mtu=1400')
  const before = on.state()
  for (const type of ['group/compute', 'node/n1'])
    await ok(on, `/config/${type}`, JSON.parse((await on.get(`/config/${type}`)).text))
  t.same(on.state(), before, 'what was read is posted back')
  for (const wrong of [{ mtu: {} }, { vlanid: [4] }]) {
    const body = { interfaces: [{ interface: 'eth1', ...wrong }] }
    t.match(await on.post('/config/group/compute', body), { status: 400, body: { message: /no field/ } })
  }
  t.equal(
    (await off.post('/config/group/compute', { interfaces: [{ interface: 'BOOTIF', mtu: '1' }] })).status,
    400
  )
})

t.test('an interface gets another name, with its address and wherever it is named', async t => {
  const entry = (name: string, to: string, more = {}) => ({
    interfaces: [{ interface: name, newinterfacename: to, ...more }]
  })
  const one = async (c: Controller, name: string, wanted: string) =>
    (await c.get(`/config/node/${name}/interfaces/${wanted}`)).body?.interfaces?.[0]
  for (const c of [on, off]) {
    const groups = '/config/group/compute/interfaces'
    await ok(c, groups, { interfaces: [{ interface: 'eth5', network: 'ib' }] })
    await ok(c, groups, { interfaces: [{ interface: 'vlan5', network: 'ib', options: 'vlan=5 link=eth5' }] })
    await ok(c, groups, {
      interfaces: [{ interface: 'br0', network: 'ib', options: 'bridge=eth4,eth5,eth55' }]
    })
    await ok(c, '/config/node/n1', {
      provision_interface: 'eth5',
      interfaces: [{ interface: 'eth5', macaddress: '52:54:00:00:00:05', options: 'mtu=9000' }]
    })
    await c.post('/config/node/n2/interfaces/eth5/_delete', {})
    const { ipaddress } = await one(c, 'n1', 'eth5')
    await ok(c, groups, entry('eth5', 'port5'))
    t.match(await one(c, 'n1', 'port5'), { ipaddress, macaddress: '52:54:00:00:00:05', options: 'mtu=9000' })
    t.match((await c.get('/config/node/n1')).body.config.node.n1, { provision_interface: 'port5' })
    t.equal(await one(c, 'n1', 'eth5'), undefined)
    t.same(
      [await one(c, 'n2', 'port5'), await one(c, 'n2', 'eth5')],
      [undefined, undefined],
      'deleted there stays so'
    )
    t.equal((await one(c, 'n1', 'vlan5')).options, 'vlan=5 link=port5')
    t.equal((await one(c, 'n2', 'br0')).options, 'bridge=eth4,port5,eth55')
    // On one node alone, it is no longer that of the group.
    await ok(c, '/config/node/n1', entry('vlan5', 'mine', { network: 'net' }))
    t.match(await one(c, 'n1', 'mine'), {
      network: 'net',
      ipaddress: /^10\.141\./,
      options: 'vlan=5 link=port5'
    })
    t.equal(await one(c, 'n1', 'vlan5'), undefined)
    t.equal((await one(c, 'n2', 'vlan5')).network, 'ib')
    // Options that are the group's become the node's own where they name it, and where it has them itself.
    t.equal((await one(c, 'n2', 'vlan5')).options, 'vlan=5 link=port5')
    await ok(c, groups, {
      interfaces: [
        { interface: 'bond0', network: 'ib', options: 'bond=m1,m2' },
        { interface: 'm1', network: 'ib' },
        { interface: 'further', network: 'ib', options: 'on=m1' }
      ]
    })
    await ok(c, '/config/node/n1', {
      interfaces: [...entry('m1', 'm9').interfaces, ...entry('further', 'more').interfaces]
    })
    t.equal((await one(c, 'n1', 'bond0')).options, 'bond=m9,m2')
    t.equal((await one(c, 'n1', 'more')).options, 'on=m9')
    t.equal((await one(c, 'n2', 'bond0')).options, 'bond=m1,m2', 'other nodes have those of the group')
    for (const name of ['bond0', 'm1', 'further'])
      t.equal((await c.post(`${groups}/${name}/_delete`, {})).status, 204)
    for (const name of ['m9', 'more', 'bond0']) await c.post(`/config/node/n1/interfaces/${name}/_delete`, {})
    // The interface that a group is provisioned over by default has another name: the group says so.
    await ok(c, '/config/group/own', { interfaces: [{ interface: 'BOOTIF', network: 'net' }] })
    await ok(c, '/config/node/n3', { group: 'own' })
    await ok(c, '/config/group/own/interfaces', entry('BOOTIF', 'eno1'))
    t.match((await c.get('/config/node/n3')).body.config.node.n3, {
      provision_interface: 'eno1',
      _provision_interface_source: 'group'
    })
    const before = c.state()
    for (const [path, body, status, said] of [
      [groups, entry('none', 'eth6'), 404, 'group compute has no interface none'],
      [groups, entry('port5', 'br0'), 400, 'group compute: interface port5: the new name br0 is taken'],
      [groups, entry('port5', 'a b'), 400, '"newinterfacename" must be'],
      ['/config/node/n2', entry('none', 'eth6'), 404, 'node n2 has no interface none'],
      ['/config/node/n9', entry('BOOTIF', 'eth6'), 404, 'node n9 has no interface BOOTIF'],
      [
        groups,
        { interfaces: [...entry('br0', 'x').interfaces, ...entry('port5', 'x').interfaces] },
        400,
        'the new name x is taken'
      ],
      ...[groups, '/config/node/n2'].flatMap(path =>
        [{ interface: 'x', network: 'net' }, entry('x', 'x').interfaces[0]].map(
          twice =>
            [path, { interfaces: [...entry('br0', 'x').interfaces, twice] }, 400, 'x is given twice'] as const
        )
      )
    ] as const) {
      const answer = await c.post(path, body)
      t.equal(answer.status, status, said)
      t.ok(answer.body.message.includes(said), `${answer.body.message}: ${said}`)
    }
    await ok(c, '/config/node/n1', { interfaces: [{ interface: 'taken', network: 'net' }] })
    t.match(await c.post(groups, entry('br0', 'taken')), {
      status: 400,
      body: { message: /^node n1: interface br0/ }
    })
    await c.post('/config/node/n1/interfaces/taken/_delete', {})
    t.same(c.state(), before)
  }
})

// rules 1.2
t.test('a tag keeps the kernel options of its image', async t => {
  const command = async (name: string) => (await off.get(`/config/node/${name}`)).body.config.node[name]
  await ok(off, '/config/osimage/compute', { kerneloptions: 'quiet' })
  await ok(off, '/config/osimage/compute/tag', { tag: 'v1' })
  await ok(off, '/config/node/n1', { osimagetag: 'v1', kerneloptions: 'own' })
  await ok(off, '/config/osimage/compute', { kerneloptions: 'debug' })
  t.match(await command('n1'), { _kerneloptions: 'quiet own', _kerneloptions_source: 'image+node' })
  t.match(await command('n2'), { _kerneloptions: 'debug' })
  t.match((await off.get('/config/osimagetag')).body.config.osimagetag.v1, { kerneloptions: 'quiet' })
  const { text } = await off.get('/config/cluster/export')
  t.equal((await off.post('/config/cluster/import', text)).status, 201)
  t.equal((await off.get('/config/cluster/export')).text, text)
  // A tag that has none, as those of an earlier version, goes by the image.
  const document = JSON.parse(text)
  delete document.config.osimagetag.v1.kerneloptions
  await off.post('/config/cluster/import', document)
  t.match(await command('n1'), { _kerneloptions: 'debug own', _kerneloptions_source: 'image+node' })
})
