import t from 'tap'
import { objectTypes } from '../../lib/model/types.js'
import { scriptToken } from '../support/callers.js'
import { proof } from '../support/proof.js'
import { populated } from '../support/routes.js'
import { row } from '../support/rows.js'
import { read } from '../support/state.js'

const c = await populated(t)

const bmc = { interface: 'BMC', network: 'cluster', ipaddress: '10.141.0.9' }
const envelope = (fields: object) => ({ config: { node: { n1: fields } } })

// rules 4.8, 3.8
t.test(
  'a node may report its inventory, its address and its status, in the forms of the installer',
  async t => {
    await c.post('/config/network/dynamic', {
      network: '10.150.0.0/24',
      dhcp: true,
      dhcp_range_begin: '10.150.0.100',
      dhcp_range_end: '10.150.0.200'
    })
    await c.post('/config/node/n1', { interfaces: [bmc] })
    await c.post('/config/node/n2', { group: 'compute' })
    const by = { token: await scriptToken(c, 'n1') }
    const post = (what: string, body: object, status: number, says?: RegExp) =>
      row(t, c, {
        what,
        ask: ['POST', '/config/node/n1', body],
        by,
        status,
        ...(says ? { says } : {}),
        ...(status === 204 ? { files } : {})
      })
    const stay = { name: 'n1', group: 'compute', bmcsetupname: 'boards', roles: 'web', files: ['motd'] }
    const boot = {
      interface: 'BOOTIF',
      network: 'cluster',
      ipaddress: '10.141.0.1',
      macaddress: '52:54:00:00:00:01'
    }
    const own = { ...bmc, own: true }
    let files: Record<string, object> = {
      'node/n1.json': { ...stay, vendor: 'ACME "1"', assettag: '7', interfaces: [boot, own] }
    }
    await post('inventory', envelope({ vendor: 'ACME "1"', assettag: '7' }), 204)
    files = {
      'node/n1.json': { ...stay, vendor: 'x', interfaces: [{ ...boot, ipaddress: '10.141.7.7' }, own] }
    }
    const address = (ipaddress: string, name = 'BOOTIF') => ({ interface: name, force: true, ipaddress })
    await post(
      'all at once',
      envelope({ name: 'n1', vendor: 'x', assettag: null, interfaces: [address('10.141.7.7')] }),
      204
    )
    await post(
      "another node's address",
      envelope({ interfaces: [address('10.141.0.2')] }),
      400,
      /10\.141\.0\.2 belongs to node n2/
    )
    await post("the controller's", envelope({ interfaces: [address('10.141.255.254')] }), 400, /controller/)
    await post('the gateway', envelope({ interfaces: [address('10.141.255.253')] }), 400, /gateway/)
    await post('outside the network', envelope({ interfaces: [address('10.150.0.9')] }), 400, /outside/)
    t.match(await read(c, 'node', 'n2'), { interfaces: [{ ipaddress: '10.141.0.2' }] })
    await c.post('/config/node/n1', {
      interfaces: [{ interface: 'BOOTIF', network: 'dynamic', ipaddress: null }]
    })
    files = {
      'node/n1.json': {
        ...stay,
        vendor: 'x',
        interfaces: [{ ...boot, network: 'dynamic', ipaddress: '10.150.0.150' }, own]
      }
    }
    await post('the dynamic address it has', envelope({ interfaces: [address('10.150.0.150')] }), 204)
    t.equal((await c.post('/monitor/node/n1', { state: 'installer.image' }, by)).status, 204)
    t.equal((await read(c, 'node', 'n1')).status, 'installer.image')
    for (const path of ['/boot/roles/web', '/boot/scripts/setup'])
      t.equal((await c.get(path, by)).status, 200)
    t.equal((await c.get('/files/compute.tar.gz', { ...by, source: '192.0.2.1' })).status, 200)
  }
)

// rules 4.8
t.test('and nothing else', async t => {
  await c.post('/config/node/n1', {
    interfaces: [{ interface: 'BOOTIF', network: 'cluster', ipaddress: '10.141.0.1' }]
  })
  const by = { token: await scriptToken(c, 'n1') }
  const refused = (path: string, body: object) =>
    row(t, c, {
      what: `${path} ${JSON.stringify(body)}`,
      ask: ['POST', path, body],
      by,
      status: 403,
      says: /n1/
    })
  const { fields } = objectTypes.node
  for (const { name } of fields)
    if (name !== 'vendor' && name !== 'assettag')
      await refused('/config/node/n1', { vendor: 'x', [name]: null })
  await refused('/config/node/n1', { bmcsetup: null })
  await refused('/config/node/n1', { newhostname: 'n9' })
  await refused('/config/node/n1', { newnodename: 'n9' })
  for (const more of [{ network: 'cluster' }, { options: 'x' }, { macaddress: null }])
    await refused('/config/node/n1', {
      interfaces: [{ interface: 'BOOTIF', ipaddress: '10.141.0.3', ...more }]
    })
  // Its BMC, and any other interface that it is not provisioned over, stays where the admin put it.
  await refused('/config/node/n1', { interfaces: [{ interface: 'BMC', ipaddress: '10.141.0.10' }] })
  await refused('/config/node/n1', { interfaces: [{ interface: 'BMC', ipaddress: bmc.ipaddress }] })
  await c.post('/config/node/n1', { provision_interface: 'eth1' })
  await refused('/config/node/n1', { interfaces: [{ interface: 'BOOTIF', ipaddress: '10.141.0.3' }] })
  await refused('/config/node/n1', { interfaces: [{ interface: 'eth1', ipaddress: '10.141.0.3' }] })
  await c.post('/config/node/n1', { provision_interface: null })
  await refused('/config/node/n1', { interfaces: [{ interface: 'new' }] })
  await refused('/config/node/n1', { interfaces: [{ interface: 'new', ipaddress: '10.141.0.3' }] })
  await refused('/config/node/n1/interfaces', {
    interfaces: [{ interface: 'BOOTIF', ipaddress: '10.141.0.3' }]
  })
  await refused('/config/node/n2', { vendor: 'x' })
  await refused('/config/node/none', { vendor: 'x' })
  await refused('/monitor/node/n2', { state: 'x' })
  await refused('/config/group/compute', { comment: 'x' })
  await refused('/config/node/n1/_clone', { newhostname: 'n9' })
  await refused('/config/node/n1/_delete', {})
  await refused('/config/osimage', {})
  for (const path of [
    '/config/node/n1',
    '/config/node',
    '/config/osimage',
    '/monitor/node/n1',
    '/config/network/10.141.0.1'
  ])
    t.equal((await c.get(path, by)).status, 403, path)
  await row(t, c, {
    what: 'wrong type',
    ask: ['POST', '/config/node/n1', { vendor: 5 }],
    by,
    status: 400,
    says: /"vendor"/
  })
})

// rules 4.8
t.test('it is void when its node is deleted or renamed, for a later node of the name too', async t => {
  const report = async (token: string, node = 'n1') =>
    (await c.post(`/monitor/node/${node}`, { state: 'x' }, { token })).status
  const old = await scriptToken(c, 'n1')
  t.equal(await report(old), 204)
  await c.get('/config/node/n1/_delete')
  t.equal(await report(old), 401)
  await c.post('/config/node/n1', { group: 'compute' })
  t.equal(await report(old), 401, 'created again')
  const second = await scriptToken(c, 'n1')
  t.equal(await report(second), 204)
  await c.restart()
  t.equal(await report(old), 401, 'after a restart')
  t.equal(await report(second), 204, 'after a restart')
  await c.post('/config/node/n1', { newhostname: 'n8' })
  t.equal(await report(second), 401, 'renamed')
  t.equal(await report(second, 'n8'), 401, 'renamed')
  await c.post('/config/node/n8', { newhostname: 'n1' })
  t.equal(await report(second), 401, 'and back')
  t.equal(await report(await scriptToken(c, 'n1')), 204)
})

// rules 2.11
t.test('a node posts 64 KiB at most, who logs in 8 KiB', async t => {
  const by = { token: await scriptToken(c, 'n1') }
  const padded = (body: object, bytes: number) => {
    const text = JSON.stringify(body)
    return text + ' '.repeat(bytes - text.length)
  }
  const requests: [string, object, { token: string | null }, number, number][] = [
    ['/config/node/n1', { vendor: 'x' }, by, 65_536, 204],
    ['/monitor/node/n1', { state: 'x' }, by, 65_536, 204],
    ['/token', { username: 'nobody', password: 'x' }, { token: null }, 8192, 401]
  ]
  for (const [path, body, who, most, status] of requests) {
    t.equal((await c.post(path, padded(body, most), who)).status, status, path)
    t.equal((await c.post(path, padded(body, most + 1), who)).status, 413, path)
  }
  proof('large bodies to POST /token', { tried: 1, crashes: 0, note: 'over 8 KiB it is 413' })
  t.equal(
    (await c.post('/config/node/n1', padded({ vendor: 'x' }, 65_537))).status,
    204,
    'an admin posts more'
  )
})
