import { cpSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { changeCounts, hasDryRun } from '../../lib/api/dry-run.js'
import { templates as shipped } from '../services/rendered.js'
import { Controller } from '../support/controller.js'
import { table } from '../support/routes.js'
import { stored } from '../support/state.js'

const directory = t.testdir({})
const conf = join(directory, 'dhcpd.conf')
const c = await Controller.start(
  t,
  ...['dhcp.server=isc', `dhcp.config=${conf}`, 'dhcp.check=true', 'dhcp.control=true', 'dhcp.gather=1s']
)
await c.cluster()
await c.post('/config/network/cluster', {
  dhcp: true,
  dhcp_range_begin: '10.141.200.1',
  dhcp_range_end: '10.141.200.9'
})
await c.post('/config/node/n1', { group: 'compute' })
await c.post('/config/bmcsetup/b', { username: 'root', password: 'calvin' })
/** What svcd notes of a server that it configures may still follow the changes before. */
const objects = async () =>
  Object.fromEntries(Object.entries(await stored(c)).filter(([file]) => !file.startsWith('services/')))
const audit = () => readFileSync(join(c.directory, 'state', 'audit.log'), 'utf8')

/** What a dry run tells; nothing is another one after it. */
async function dry(t: Test, path: string, body?: unknown) {
  const [before, told] = [await objects(), audit()]
  const answer = body === undefined ? await c.get(path) : await c.post(path, body)
  t.same(await objects(), before, `${path}: nothing is stored`)
  t.equal(audit(), told, `${path}: nothing is in the audit log`)
  return answer
}

// rules 12.7
t.test('a change, with the addresses that would be given', async t => {
  const { status, body } = await dry(t, '/config/node/n1?dryrun=yes', {
    comment: 'x',
    interfaces: [{ interface: 'ib0', network: 'cluster' }]
  })
  t.equal(status, 200)
  t.equal(body.message, 'dry run, nothing was changed: 1 node would be changed')
  t.match(body.changes, [{ type: 'node', name: 'n1', action: 'update' }])
  t.match(body.changes[0].fields, [
    { field: 'comment', before: null, after: 'x' },
    { field: 'ib0.network', before: null, after: 'cluster' },
    { field: 'ib0.ipaddress', before: null, after: /^10\.141\./ }
  ])
  t.match(body.addresses, [{ type: 'node', name: 'n1', interface: 'ib0', ipaddress: /^10\.141\./ }])
})

// rules 12.7
t.test('a change is bound to its dry run', async t => {
  const bound = async (path: string, body: object) => {
    const { mark } = (await dry(t, `${path}?dryrun=yes`, body)).body
    return () => c.post(`${path}?expect=${mark}`, body)
  }
  await c.post('/config/node/m1', { group: 'compute' })
  await c.post('/config/node/m2', { group: 'compute' })
  const bodies: [path: string, body: object][] = [
    ['/config/node/m1', { comment: 'a' }],
    ['/config/node/m[1-2]', { comment: 'b' }],
    ['/config/node/_set', { nodes: 'm1,m2', fields: { comment: 'c' } }],
    ['/config/group/compute', { comment: 'd' }]
  ]
  for (const [i, [path, body]] of bodies.entries()) {
    const late = await bound(path, body)
    await c.post(path.includes('group') ? '/config/group/compute' : '/config/node/m1', { domain: `d${i}` })
    const refused = await late()
    t.match(refused, {
      status: 400,
      body: {
        message: 'change refused: something has changed since the dry run; make it again',
        code: 'outdated-dry-run'
      }
    })
    t.ok((await (await bound(path, body))()).status < 300, path)
    t.equal((await (await bound(path, body))()).status < 300, true, `${path}: nothing differs`)
  }
  t.match((await c.get('/config/node/m2')).body.config.node.m2, { comment: 'c' })
  t.match((await c.get('/config/group/compute')).body.config.group.compute, { comment: 'd', domain: 'd3' })
  for (const path of ['node/m1', 'node/m2']) await c.get(`/config/${path}/_delete`)
  await c.post('/config/group/compute', { domain: null, comment: null })
})

// rules 12.7
t.test('what nodes will feel of a change of something else', async t => {
  await c.post('/config/node/own', { group: 'compute', osimage: 'compute', variables: { rack: '9' } })
  const felt = async (path: string, body: object) => (await dry(t, `${path}?dryrun=yes`, body)).body
  const group = await felt('/config/group/compute', {
    provision_method: 'http',
    domain: 'lab',
    variables: { rack: '7' },
    comment: 'x'
  })
  t.equal(
    group.message,
    'dry run, nothing was changed: 1 group would be changed; 2 nodes would get other values'
  )
  const common = [
    { field: 'domain', before: null, after: 'lab' },
    { field: 'provision_method', before: 'torrent', after: 'http' }
  ]
  const fieldsOf = (answer: { nodes: { first: { name: string; fields: { field: string }[] }[] } }) =>
    Object.fromEntries(
      answer.nodes.first.map(({ name, fields }) => [name, fields.filter(({ field }) => field !== 'hostname')])
    )
  t.same(fieldsOf(group), {
    n1: [...common, { field: 'variables.rack', before: null, after: '7' }],
    own: common
  })
  const network = await felt('/config/network/cluster', { gateway: '10.141.255.252' })
  t.match(network.nodes, { count: 2 })
  t.same(fieldsOf(network).n1, [
    { field: 'network cluster: gateway', before: '10.141.255.253', after: '10.141.255.252' }
  ])
  const image = await felt('/config/osimage/compute', { kerneloptions: 'quiet' })
  t.same(fieldsOf(image).own, [{ field: '_kerneloptions', before: '', after: 'quiet' }])
  t.equal((await felt('/config/osimage/compute', { comment: 'x' })).nodes.count, 0)
  for (const body of [{ comment: 'x' }, { type: 'ethernet' }, { zone: 'internal' }])
    t.equal((await felt('/config/network/cluster', body)).nodes.count, 0)
  const dns = await felt('/config/dns/cluster', [{ host: 'git', ipaddress: '10.141.0.77' }])
  t.same([dns.changes?.length, dns.nodes?.count], [1, 0], JSON.stringify(dns))
  t.equal((await felt('/config/bmcsetup/b', { userid: 3 })).nodes.count, 0)
  t.same((await felt('/config/cluster', { provision_fallback: 'torrent' })).nodes.count, 2)
  // A node's own file takes the place of its group's (rules 4.25): it feels nothing of that one.
  for (const [file, template] of [
    ['all', 'a\n'],
    ['new', 'n\n'],
    ['one', 'o\n']
  ])
    await c.post(`/config/file/${file}`, { path: '/etc/motd', template })
  await c.post('/config/group/compute', { files: ['all'] })
  await c.post('/config/node/own', { files: ['one'] })
  const file = await felt('/config/file/all', { template: 'b\n' })
  t.same(Object.keys(fieldsOf(file)), ['n1'])
  const other = await felt('/config/group/compute', { files: ['new'] })
  t.same(fieldsOf(other), { n1: [{ field: 'files', before: 'all', after: 'new' }] })
  await c.get('/config/node/own/_delete')
  await c.post('/config/group/compute', { files: null })
  for (const name of ['all', 'new', 'one']) await c.get(`/config/file/${name}/_delete`)
})

t.test('what is created, copied, renamed, deleted', async t => {
  const created = await dry(t, '/config/node/n2?dryrun=yes', { group: 'compute' })
  t.match(created.body, { changes: [{ name: 'n2', action: 'create' }], addresses: [{ interface: 'BOOTIF' }] })
  const cloned = await dry(t, '/config/node/n1/_clone?dryrun=yes', { newhostname: 'n3' })
  t.match(cloned, { status: 200, body: { changes: [{ name: 'n3', action: 'create' }] } })
  const renamed = await dry(t, '/config/group/compute?dryrun=yes', { newgroupname: 'other' })
  t.equal(
    renamed.body.message,
    'dry run, nothing was changed: 1 group would be renamed, 1 node would be changed'
  )
  t.same(
    renamed.body.changes
      .map(({ type, name, action }: Record<string, string>) => `${action} ${type} ${name}`)
      .sort(),
    ['create group other', 'delete group compute', 'update node n1']
  )
  await c.post('/config/secrets/node/n1', [{ name: 'k', path: '/k', content: 'UFJJVkFURQ==' }])
  const withSecrets = await dry(t, '/config/node/n1?dryrun=yes', { newhostname: 'n2' })
  t.equal(withSecrets.body.message, 'dry run, nothing was changed: 1 node would be renamed')
  await c.get('/config/secrets/node/n1/k/_delete')
  const node = (name: string) => ({ name })
  t.equal(
    changeCounts([
      ...['a', 'b', 'c'].map(name => ({ type: 'node', name, before: undefined, after: node(name) }) as const),
      { type: 'node', name: 'd', before: node('d'), after: undefined }
    ]),
    'dry run, nothing was changed: 2 nodes would be created, 1 node would be renamed'
  )
  const deleted = await dry(t, '/config/node/n1/_delete?dryrun=yes')
  t.match(deleted, { status: 200, body: { changes: [{ type: 'node', name: 'n1', action: 'delete' }] } })
  const set = await dry(t, '/config/node/@all?dryrun=yes', { comment: 'all' })
  t.equal(set.body.message, 'dry run, nothing was changed: 1 node would be changed')
  const same = await dry(t, '/config/node/n1?dryrun=yes', { comment: null })
  t.match(same.body, { message: /nothing differs$/, changes: [] })
})

t.test('settings, interfaces, secrets, tags', async t => {
  const table: [path: string, body: unknown, change: { readonly type: string; readonly says: string }][] = [
    [
      '/config/cluster',
      { ntp_server: '10.141.0.1' },
      { type: 'cluster', says: 'the settings of the cluster would be changed' }
    ],
    [
      '/config/group/compute/interfaces',
      { interfaces: [{ interface: 'ib1', network: 'cluster' }] },
      { type: 'group', says: '1 group would be changed, 1 node would be changed' }
    ],
    [
      '/config/secrets/node/n1',
      [{ name: 'k', path: '/k', content: 'UFJJVkFURQ==' }],
      { type: 'secrets', says: 'the secrets of 1 object would be created' }
    ],
    [
      '/config/osimage/compute/tag',
      { tag: 'v1' },
      { type: 'osimagetag', says: '1 OS image tag would be created' }
    ],
    [
      '/config/osimage/compute',
      { newosimage: 'other' },
      {
        type: 'osimage',
        says: '1 OS image would be renamed, 1 group would be changed; 1 node would get other values'
      }
    ]
  ]
  for (const [path, body, change] of table) {
    const answer = await dry(t, `${path}?dryrun=yes`, body)
    t.equal(answer.status, 200, `${path} ${answer.text.slice(0, 200)}`)
    t.equal(answer.body.message, `dry run, nothing was changed: ${change.says}`)
    t.ok(
      answer.body.changes.some((one: { type: string }) => one.type === change.type),
      path
    )
    t.notMatch(answer.text, /UFJJVkFURQ|PRIVATE/)
  }
  const masked = await dry(t, '/config/bmcsetup/b?dryrun=yes', { password: 'hobbes' })
  t.same(masked.body.changes[0].fields, [{ field: 'password', before: '********', after: '********' }])
})

// rules 12.7
t.test('no job gets a dry run by a transaction, which would not roll it back', t => {
  const jobs = table.filter(
    ({ path, summary, output }) =>
      path.startsWith('/config/') && /respond-async|"request_id"/.test(summary + JSON.stringify(output))
  )
  t.strictSame(jobs.filter(hasDryRun), [])
  // Their dry run is a job too.
  t.strictSame(
    jobs.flatMap(({ path, query }) => ('dryrun' in query ? path : [])),
    ['/config/node/{node}/_osgrab', '/config/node/{node}/_ospush', '/config/group/{group}/_ospush']
  )
  t.end()
})

t.test('a change that breaks a rule is refused as it would be', async t => {
  for (const [path, body, status] of [
    ['/config/node/n1', { group: 'none' }, 400],
    ['/config/node/n9/_clone', { newhostname: 'n3' }, 404],
    ['/config/group/compute/_delete', {}, 400],
    ['/config/node/n1', { nonsense: 1 }, 400]
  ] as const)
    t.equal((await dry(t, `${path}?dryrun=yes`, body)).status, status, path)
  t.match(await dry(t, '/config/node/n1?dryrun=1', { comment: 'x' }), {
    status: 400,
    body: { message: 'query key "dryrun" must be one of no, yes' }
  })
  t.equal((await c.post('/config/node/n1?dryrun=no', { comment: 'done' })).status, 204)
})

t.test('the files of DHCP that would differ', async t => {
  const { status, body } = await dry(t, '/config/node/n1?dryrun=yes', { macaddr: '52:54:00:00:00:99' })
  t.equal(status, 200)
  t.match(body.files, [{ service: 'dhcp', path: conf, diff: /\+.*52:54:00:00:00:99/ }])
})

t.test('a template that cannot be rendered is told, where the change itself would be made', async t => {
  const here = t.testdir({})
  const templates = join(here, 'templates')
  cpSync(shipped, templates, { recursive: true })
  writeFileSync(join(templates, 'dhcp', 'templ_isc.cfg'), '{{ nothing }}')
  const broken = await Controller.start(
    t,
    ...['dhcp.server=isc', `dhcp.config=${here}/dhcpd.conf`, 'dhcp.check=true', 'dhcp.control=true'],
    `paths.templates=${templates}`
  )
  await broken.cluster()
  const told = await broken.post('/config/node/n1?dryrun=yes', { group: 'compute' })
  t.match(told, { status: 200, body: { files: [{ service: 'dhcp', problem: /templ_isc\.cfg.*nothing/ }] } })
  t.equal((await broken.post('/config/node/n1', { group: 'compute' })).status, 201)
  // What DHCP and DNS are not made of is not rendered.
  t.same((await broken.post('/config/bmcsetup/b?dryrun=yes', {})).body.files, [])
})

t.test('dry runs that wait for DHCP and DNS have a bound', async t => {
  const all = await Promise.all(
    Array.from({ length: 14 }, (_, i) =>
      c.raw('POST', '/config/node/n1?dryrun=yes', `{"comment":"c${i}"}`, { 'x-access-tokens': c.token })
    )
  )
  const refused = all.filter(({ status }) => status === 503)
  t.ok(refused.length > 0)
  for (const { headers, body } of refused) {
    t.equal(headers['retry-after'], '5')
    t.match(body.message, /too many dry runs wait/)
  }
  t.ok(all.filter(({ status }) => status === 200).length >= 8)
  t.equal((await c.post('/config/node/n1?dryrun=yes', { comment: 'again' })).status, 200)
})
