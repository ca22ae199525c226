import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { Controller } from '../support/controller.js'
import { documents } from '../support/state.js'

const c = await Controller.start(t)
await c.cluster()
const names = ['n1', 'n2', 'n3', 'login']
for (const name of names) await c.post(`/config/node/${name}`, { group: name === 'login' ? null : 'compute' })
await c.post('/config/group/empty', {})
const of = async (path: string, status = 200) => {
  const answer = await c.get(path)
  t.equal(answer.status, status, path)
  return status === 200 ? Object.keys(answer.body.config.node) : answer.body.message
}
const enc = encodeURIComponent

// rules 12.1, 12.2, 12.3
t.test('read', async t => {
  for (const state of ['site.early: 1', 'site.check: disk']) await c.post('/monitor/node/n2', { state })
  await c.post('/monitor/node/n3', { state: 'installer.failed: unpack: no space' })
  await c.post('/monitor/node/n1', { state: 'running.degraded: ssh.service' })
  const table: [set: string, names: string[]][] = [
    ['n[1-2]', ['n1', 'n2']],
    ['n[1-3]!n2', ['n1', 'n3']],
    ['@compute', ['n1', 'n2', 'n3']],
    ['@compute,login', ['n1', 'n2', 'n3', 'login']],
    ['@all!@compute', ['login']],
    ['@empty', []],
    ['@status:installer.failed', ['n3']],
    ['@status:installer', []],
    ['@status:installer.completed', []],
    ['@status:installer.failed: bootloader', []],
    ['@status:site.check', ['n2']],
    ['@status:site.early', []],
    ['@osimage:compute&n[2-9]', ['n2', 'n3']],
    ['n*', ['n1', 'n2', 'n3']],
    ['*[2-3],l*n', ['n2', 'n3', 'login']],
    ['@failed', ['n1', 'n3']]
  ]
  for (const [set, expected] of table) {
    t.same(await of(`/config/node/${enc(set)}`), expected, set)
    t.same(await of(`/config/node?nodes=${enc(set)}`), expected, set)
  }
  t.same(await of('/config/node?nodes=n1'), ['n1'])
  t.same((await c.get('/config/node/n[1-2]?fields=name&format=csv')).text, 'name\r\nn1\r\nn2\r\n')
})

t.test('what is refused', async t => {
  const table: [set: string, status: number, says: string][] = [
    ['n[1-5]', 404, 'node set n[1-5]: there is no node n[4-5]'],
    ['n[1-30]', 404, 'node set n[1-30]: there is no node n[4-30]'],
    [
      Array.from({ length: 60 }, (_, i) => `x${i}y${i * i}`).join(','),
      404,
      `node set ${Array.from({ length: 60 }, (_, i) => `x${i}y${i * i}`)
        .join(',')
        .slice(
          0,
          200
        )}: there is no node x0y0, x1y1, x2y4, x3y9, x4y16, x5y25, x6y36, x7y49, x8y64, x9y81 and 50 more`
    ],
    ['n9*', 404, 'node set: no node has a name like n9*'],
    ['@none', 404, 'node set: there is no group none'],
    ['@osimage:none', 404, 'node set: there is no OS image none'],
    [
      '@rack:1',
      400,
      'node set: @rack: is not known; there is @GROUP, @all, @osimage:NAME, @stale:yes, @status:WORD and @trust:WORD'
    ],
    ['@stale', 404, 'node set: there is no group stale; @stale needs the value yes: @stale:yes'],
    ['@stale:maybe', 400, 'node set: @stale needs the value yes: @stale:yes'],
    ['@status:', 400, 'node set: @status: needs a word behind it, as in @status:installer.failed'],
    [
      '@status:instaler',
      400,
      'node set: @status:instaler: no node has reported such a state; those of an installation are installer.started, prescript, ' +
        'bmcsetup, partscript, download, unpack, network, secrets, files, hostkeys, postscript, roles, bootloader, labels, completed, failed'
    ],
    ['n[1', 400, 'node set n[1: its brackets do not match'],
    ['n1,', 400, 'node set n1,: a name is missing after ","']
  ]
  for (const [set, status, says] of table) {
    t.equal(await of(`/config/node/${enc(set)}`, status), says)
    const posted = await c.post(`/config/node/${enc(set)}`, { comment: 'no' })
    t.match(posted, { status, body: { message: says } })
    t.match(await c.get(`/config/node/${enc(set)}/_delete`), { status, body: { message: says } })
  }
  t.match(await c.get('/config/node?nodes='), { status: 400 })
  // Where one node alone makes sense.
  for (const path of ['n[1-2]/_clone', 'n[1-2]/_osgrab'])
    t.match(await c.post(`/config/node/${enc(path).replace('%2F', '/')}`, { osimage: 'x' }), { status: 400 })
  t.match(await c.post('/config/node/n[1-2]', { newhostname: 'x' }), {
    status: 400,
    body: { message: /cannot be renamed/ }
  })
  t.match(await c.post('/config/node/n[1-2]', { config: { node: { n1: { comment: 'x' } } } }), {
    status: 400
  })
  t.notOk(
    Object.values(await documents(c)).some(doc => (doc as { comment?: string }).comment === 'no'),
    'nothing was changed'
  )
})

t.test('a change of many is one change', async t => {
  const before = auditLines()
  t.match(await c.post('/config/node/n[1-3]', { comment: 'all' }), {
    status: 200,
    body: { message: '3 nodes updated' }
  })
  t.match(await c.post('/config/node/@empty', { comment: 'none' }), {
    status: 200,
    body: { message: '0 nodes updated' }
  })
  t.match(await c.post('/config/node/n[1-2]', { config: { node: { 'n[1-2]': { service: true } } } }), {
    status: 200
  })
  const { body } = await c.get('/config/node?fields=comment,service')
  t.same(body.config.node, {
    login: { comment: null, service: false },
    n1: { comment: 'all', service: true },
    n2: { comment: 'all', service: true },
    n3: { comment: 'all', service: false }
  })
  const [entry, more, ...rest] = auditLines().slice(before.length)
  t.match(entry, {
    who: 'user admin',
    ...{ action: 'update', type: 'node', count: 3, names: 'n[1-3]' },
    ...{ before: {}, after: { comment: 'all' } }
  })
  t.match(more, { names: 'n[1-2]' })
  t.same(rest, [])
})

// rules 12.3
t.test('one MAC, or one address, for several nodes is refused as what it is', async t => {
  const before = await documents(c)
  const mac = '52:54:00:00:0e:01'
  const rest = '; give each its own, alone or by a table (svcctl import FILE)'
  const nic = (fields: object) => ({ interfaces: [{ interface: 'BOOTIF', ...fields }] })
  for (const [fields, says] of [
    [{ macaddr: mac }, `field "macaddr": 3 nodes cannot have one MAC, ${mac}`],
    [nic({ macaddress: mac }), `interface BOOTIF: 3 nodes cannot have one MAC, ${mac}`],
    [nic({ ipaddress: '10.141.0.77' }), 'interface BOOTIF: 3 nodes cannot have one address, 10.141.0.77'],
    [
      nic({ ipaddress: '10.141.0.1', force: true }),
      'interface BOOTIF: 3 nodes cannot have one address, 10.141.0.1'
    ]
  ] as const) {
    const refused = { status: 400, body: { message: `node set: ${says}${rest}` } }
    t.match(await c.post('/config/node/n[1-3]', fields), refused)
    t.match(await c.post('/config/node/_set', { nodes: 'n[1-3]', fields }), refused)
  }
  t.same(await documents(c), before)
  t.match(await c.post('/config/node/n[1-3]', { macaddr: null }), { status: 200 }, 'none is no fault')
  t.match(await c.post('/config/node/n[1]', { macaddr: mac }), { status: 200 }, 'a set of one node')
  t.match(await c.post('/config/node/n1', { macaddr: null }), { status: 204 })
})

t.test('all or none', async t => {
  // The third of them gets no address.
  t.equal((await c.post('/config/network/tiny', { network: '10.150.0.0/30' })).status, 201)
  const before = await documents(c)
  const answer = await c.post('/config/node/n[1-3]', {
    comment: 'no',
    interfaces: [{ interface: 'ib9', network: 'tiny' }]
  })
  t.equal(answer.status, 404)
  t.match(answer.body.message, /network tiny has no free address/)
  t.same(await documents(c), before)
  t.equal((await c.get('/config/network/tiny/_delete')).status, 201)
  const added = await c.post('/config/node/n[1-3]', {
    interfaces: [{ interface: 'ib0', network: 'cluster' }]
  })
  t.equal(added.status, 200)
  const addresses = (await c.get('/config/node/n[1-3]?fields=ib0.ipaddress')).body.config.node
  t.equal(new Set(Object.values(addresses).map(one => JSON.stringify(one))).size, 3, 'each has its own')
})

// rules 12.9
t.test('a set in the body: one that is too long for a path', async t => {
  const odd = Array.from({ length: 1000 }, (_, i) => `odd-${(i * 7919) % 9973}-unit${i}`)
  const set = odd.join(',')
  const table = ['name,group', ...odd.map(name => `${name},compute`), ''].join('\n')
  t.match(await c.post('/config/node?format=csv', table), { status: 200 })
  t.match(await c.post(`/config/node/${enc(set)}`, { comment: 'x' }), { status: 431 })
  const before = auditLines().length
  const told = await c.post('/config/node/_set?dryrun=yes', { nodes: set, fields: { comment: 'x' } })
  t.equal(told.body.changes.length, 1000)
  for (const fields of [{ comment: 'x' }, { comment: 'no', newhostname: 'y' }, { nothing: 1 }])
    t.match(await c.post('/config/node/_set', { nodes: set, fields }), {
      status: 'nothing' in fields || 'newhostname' in fields ? 400 : 200,
      body: { message: /^(?:1000 nodes updated$|node set odd-.{196}…: )/ }
    })
  t.equal((await c.get(`/config/node/${odd[999]}`)).body.config.node[odd[999] as string].comment, 'x')
  const unknown = await c.post('/config/node/_delete', { nodes: `${set},n99` })
  t.match(unknown, { status: 404, body: { message: /there is no node n99/ } })
  t.match(await c.post('/config/node/_delete', { nodes: set }), {
    status: 200,
    body: { message: '1000 nodes deleted' }
  })
  t.match(auditLines().slice(before), [{ action: 'update', count: 1000 }, { action: 'delete' }])
  t.equal((await c.get(`/config/node/${odd[0]}`)).status, 404)
})

t.test('delete', async t => {
  t.match(await c.get('/config/node/n[1-2],login/_delete'), {
    status: 200,
    body: { message: '3 nodes deleted' }
  })
  t.same(await of('/config/node'), ['n3'])
})

function auditLines(): Record<string, unknown>[] {
  const text = readFileSync(join(c.directory, 'state', 'audit.log'), 'utf8')
  return text
    .trim()
    .split('\n')
    .map(line => JSON.parse(line))
}
