import t from 'tap'
import { Controller } from '../support/controller.js'
import { row } from '../support/rows.js'
import { documents, objectFiles, read } from '../support/state.js'

const c = await Controller.start(t)

/**
 * Nothing but network cluster, image and group compute, and a second network, image, BMC set-up and group.
 */
async function start(): Promise<void> {
  for (const type of ['node', 'group', 'osimage', 'bmcsetup', 'network'])
    for (const name of Object.keys((await c.get(`/config/${type}`)).body.config[type]))
      await c.get(`/config/${type}/${name}/_delete`)
  await c.cluster()
  await c.post('/config/network/ipmi', { network: '10.148.0.0/16' })
  await c.post('/config/osimage/login', {})
  await c.post('/config/bmcsetup/boards', { username: 'root' })
  await c.post('/config/group/login', { osimage: 'login', bmcsetupname: 'boards' })
}

// rules 2.4
t.test('a reference to an object that does not exist is 400 and names it', async t => {
  await start()
  const rows: [string, unknown, RegExp][] = [
    ['/config/node/n', { group: 'nobody' }, /^node n: group nobody does not exist/],
    ['/config/node/n', { osimage: 'nobody' }, /^node n: OS image nobody does not exist/],
    ['/config/node/n', { bmcsetupname: 'nobody' }, /^node n: BMC set-up nobody does not exist/],
    ['/config/node/n', { osimagetag: 'stable' }, /^node n: OS image tag stable needs an OS image/],
    [
      '/config/node/n',
      { interfaces: [{ interface: 'a', network: 'nobody' }] },
      /network nobody does not exist/
    ],
    ['/config/group/g', { osimage: 'nobody' }, /^group g: OS image nobody does not exist/],
    ['/config/group/g', { bmcsetup: 'nobody' }, /^group g: BMC set-up nobody does not exist/],
    ['/config/group/g', { osimagetag: 'stable' }, /^group g: OS image tag stable needs an OS image/],
    [
      '/config/group/g',
      { interfaces: [{ interface: 'a', network: 'nobody' }] },
      /network nobody does not exist/
    ]
  ]
  for (const [path, body, says] of rows)
    await row(t, c, { what: JSON.stringify(body), ask: ['POST', path, body], status: 400, says })
})

// rules 2.4
t.test('an object in use is not deleted; its users are named', async t => {
  await start()
  const refused = (path: string, ...says: RegExp[]) =>
    row(t, c, { what: path, ask: ['GET', `${path}/_delete`], status: 400, says })
  await refused('/config/network/cluster', /network cluster/, /in use by 1: group compute$/)
  await refused('/config/osimage/compute', /OS image compute/, /by 1: group compute$/)
  await refused('/config/bmcsetup/boards', /BMC set-up boards/, /by 1: group login$/)
  for (let i = 1; i <= 12; i++) await c.post(`/config/node/n${i}`, { group: 'compute' })
  const ten = Array.from({ length: 10 }, (_, i) => `node n${i + 1}`).join(', ')
  await refused('/config/group/compute', /group compute/, new RegExp(`12: ${ten} and 2 more$`))
  for (let i = 1; i <= 12; i++) await c.get(`/config/node/n${i}/_delete`)
  t.equal((await c.get('/config/group/compute/_delete')).status, 204)
  t.equal((await c.get('/config/osimage/compute/_delete')).status, 204)
  t.equal((await c.get('/config/network/cluster/_delete')).status, 201)
})

// rules 3.2
t.test('a rename carries every reference along, and back restores every file', async t => {
  await start()
  await c.post('/config/node/n1', { group: 'compute', osimage: 'login', bmcsetupname: 'boards' })
  await c.post('/config/node/n2', { interfaces: [{ interface: 'BMC', network: 'ipmi' }] })
  const before = await objectFiles(c)
  const renames: [string, string, string, string][] = [
    ['network', 'cluster', 'newnetname', 'cluster2'],
    ['network', 'ipmi', 'newnetname', 'ipmi2'],
    ['osimage', 'login', 'newosimage', 'login2'],
    ['bmcsetup', 'boards', 'newbmcname', 'boards2'],
    ['group', 'compute', 'newgroupname', 'compute2'],
    ['node', 'n1', 'newhostname', 'n9']
  ]
  for (const [type, from, field, to] of renames)
    t.match((await c.post(`/config/${type}/${from}`, { [field]: to })).status, /200|204/, `${type} ${from}`)
  const n9 = await read(c, 'node', 'n9')
  t.match(n9, { group: 'compute2', osimage: 'login2', bmcsetupname: 'boards2' })
  t.match(n9, { interfaces: [{ interface: 'BOOTIF', network: 'cluster2', ipaddress: '10.141.0.1' }] })
  t.match(await read(c, 'node', 'n2'), { interfaces: [{ network: 'ipmi2', ipaddress: '10.148.0.1' }] })
  t.match(await read(c, 'group', 'login'), { osimage: 'login2', bmcsetupname: 'boards2' })
  t.match(await read(c, 'group', 'compute2'), { interfaces: [{ network: 'cluster2' }] })
  t.same((await c.get('/config/group/compute2/_list')).body.config.group.compute2.members, ['n9'])
  for (const [type, from, field, to] of renames.reverse())
    await c.post(`/config/${type}/${to}`, { [field]: from })
  t.same(await objectFiles(c), before)
})

// rules 3.2
t.test('a switch that gets a name which nodes mention as free text takes them along', async t => {
  await start()
  await c.post('/config/node/n1', { switch: 'rack9' })
  await c.post('/config/switch/sw1', {})
  t.equal((await c.post('/config/switch/sw1', { newswitchname: 'rack9' })).status, 204)
  t.equal((await read(c, 'node', 'n1')).switch, 'rack9')
  await row(t, c, {
    what: 'in use now',
    ask: ['GET', '/config/switch/rack9/_delete'],
    status: 400,
    says: /switch rack9 is in use by 1: node n1$/
  })
  t.equal((await c.post('/config/switch/rack9', { newswitchname: 'sw1' })).status, 204)
  t.equal((await read(c, 'node', 'n1')).switch, 'sw1')
})

// rules 3.10, 1.12, 2.10
t.test('members are the nodes whose effective value it is, in natural order', async t => {
  await start()
  for (const name of ['n10', 'n2', 'n1']) await c.post(`/config/node/${name}`, { group: 'compute' })
  await c.post('/config/node/n2', { osimage: 'login', bmcsetupname: 'boards' })
  await c.post('/config/node/alone', { osimage: 'compute' })
  const lists: [string, string, string[]][] = [
    ['group', 'compute', ['n1', 'n2', 'n10']],
    ['group', 'login', []],
    ['osimage', 'compute', ['alone', 'n1', 'n10']],
    ['osimage', 'login', ['n2']],
    ['bmcsetup', 'boards', ['n2']]
  ]
  for (const [type, name, members] of lists)
    for (const suffix of ['_list', '_member'])
      await row(t, c, {
        what: `${type} ${name} ${suffix}`,
        ask: ['GET', `/config/${type}/${name}/${suffix}`],
        status: 200,
        body: { config: { [type]: { [name]: { members } } } }
      })
  await c.post('/config/group/compute', { osimage: 'login' })
  const { body } = await c.get('/config/osimage/login/_list')
  t.same(body.config.osimage.login.members, ['n1', 'n2', 'n10'], 'each once, the group having changed')
  for (const type of ['group', 'osimage', 'bmcsetup'])
    await row(t, c, { what: type, ask: ['GET', `/config/${type}/none/_list`], status: 404, says: /none/ })
  t.equal((await c.get('/config/node/n1/_list')).status, 404, 'nodes have no members')
})

// rules 3.3, 3.4
t.test('values in force, where they come from, and what a request stores', async t => {
  await start()
  const sources = async (type: string, name: string) => {
    const { osimage, _osimage_source, domain, _domain_source, _override, ...rest } = await read(c, type, name)
    const { provision_method, _provision_method_source } = rest
    return [
      osimage,
      _osimage_source,
      domain,
      _domain_source,
      provision_method,
      _provision_method_source,
      _override
    ]
  }
  await c.post('/config/node/n', { group: 'compute' })
  const inherited = ['compute', 'group', null, 'default', 'torrent', 'cluster', false]
  t.same(await sources('node', 'n'), inherited)
  t.same(await sources('group', 'compute'), ['compute', 'group', null, 'default', 'torrent', 'cluster', true])
  const set = (body: object, own: object) =>
    row(t, c, {
      what: JSON.stringify(body),
      ask: ['POST', '/config/node/n', body],
      status: 204,
      files: { 'node/n.json': { name: 'n', group: 'compute', ...own, interfaces } }
    })
  const interfaces = [{ interface: 'BOOTIF', network: 'cluster', ipaddress: '10.141.0.1' }]
  const unchanged = (body: object) =>
    row(t, c, { what: JSON.stringify(body), ask: ['POST', '/config/node/n', body], status: 204 })
  await unchanged({ osimage: 'compute', provision_method: 'torrent', domain: null, prescript: '' })
  await set({ osimage: 'login', provision_method: 'http' }, { osimage: 'login', provision_method: 'http' })
  t.same(await sources('node', 'n'), ['login', 'node', null, 'default', 'http', 'node', true])
  await unchanged({ osimage: 'login' })
  await set({ osimage: null, provision_method: '' }, {})
  t.same(await sources('node', 'n'), inherited)
  await set({ _override: true, osimage: 'compute' }, { osimage: 'compute' })
  t.same(await sources('node', 'n'), ['compute', 'node', null, 'default', 'torrent', 'cluster', true])
  await unchanged({ osimage: 'compute' })
  await set({ osimage: '' }, {})
  await unchanged({ _override: true, _osimage_source: 'group', osimage: 'compute' })
  await unchanged({ _override: false, osimage: 'compute', _whatever: ['is', 'ignored'] })
  await set({ netboot: false }, { netboot: false })
  await unchanged({ netboot: false })
  await set({ netboot: true }, { netboot: true })
  await set({ netboot: null }, {})

  await c.post('/config/group/compute', { domain: 'example.org', provision_method: 'http' })
  t.same(await sources('node', 'n'), ['compute', 'group', 'example.org', 'group', 'http', 'group', false])
  await c.post('/config/node/n', { group: null })
  t.same(await sources('node', 'n'), [null, 'default', null, 'default', 'torrent', 'cluster', false])
  t.same((await read(c, 'node', 'n')).interfaces, [])
})

// rules 1.1, 1.11, 3.4
t.test('what was read, posted back, changes nothing, whatever is inherited', async t => {
  await start()
  await c.post('/config/group/compute', {
    domain: 'example.org',
    postscript: 'ZWNobw==',
    interfaces: [
      { interface: 'BOOTIF', network: 'cluster', options: 'mtu=9000' },
      { interface: 'BMC', network: 'ipmi' }
    ]
  })
  await c.post('/config/node/n1', { group: 'compute', macaddr: '52:54:00:00:00:01', switchport: 'Gi1/0/1' })
  await c.post('/config/node/n2', { group: 'compute', osimage: 'login' })
  await c.post('/config/node/n2/interfaces', { interfaces: [{ interface: 'BOOTIF', options: 'mtu=1500' }] })
  await c.get('/config/node/n2/interfaces/BMC/_delete')
  await c.post('/monitor/node/n1', { state: 'installer.completed' })
  const paths = [
    'node/n1',
    'node/n2',
    'group/compute',
    'network/cluster',
    'osimage/compute',
    'bmcsetup/boards'
  ]
  for (const path of paths.map(path => `/config/${path}`)) {
    const { body } = await c.get(path)
    const status = /network|bmcsetup/.test(path) ? 200 : 204
    await row(t, c, { what: path, ask: ['POST', path, body], status })
  }
  for (const path of ['/config/node/n1', '/config/node/n2', '/config/group/compute'])
    for (const get of [`${path}/interfaces`, `${path}/interfaces/BOOTIF`]) {
      const { body } = await c.get(get)
      await row(t, c, { what: get, ask: ['POST', `${path}/interfaces`, body], status: 204 })
      await row(t, c, { what: `${get}, on the object`, ask: ['POST', path, body], status: 204 })
      await row(t, c, {
        what: `${get}, bare`,
        ask: ['POST', `${path}/interfaces`, { interfaces: body.interfaces }],
        status: 204
      })
    }
  t.equal((await read(c, 'node', 'n1')).switchport, 'Gi1/0/1')
  const { group: _, ...n1 } = await read(c, 'node', 'n1')
  await c.post('/config/node/n1', { ...n1, group: 'login' })
  t.same(
    (await read(c, 'node', 'n1')).interfaces,
    [],
    'moved by what was read: the interfaces of the group go'
  )
})

// rules 1.11
t.test('a clone by what was read is another machine', async t => {
  await start()
  await c.post('/config/node/n1', { group: 'compute', macaddr: '52:54:00:00:00:01', vendor: 'Dell' })
  await c.post('/monitor/node/n1', { state: 'installer.completed' })
  const whole = (await c.get('/config/node/n1')).body
  whole.config.node.n1.newhostname = 'n2'
  await row(t, c, {
    what: 'clone',
    ask: ['POST', '/config/node/n1/_clone', whole],
    status: 201,
    files: {
      'node/n2.json': {
        name: 'n2',
        group: 'compute',
        interfaces: [{ interface: 'BOOTIF', network: 'cluster', ipaddress: '10.141.0.2' }]
      }
    }
  })
  t.match(await read(c, 'node', 'n2'), { macaddr: null, vendor: null, status: null })
})

// rules 1.6
t.test('a node is renamed by newhostname, by newnodename too', async t => {
  await start()
  await c.post('/config/node/n1', {})
  t.equal((await c.post('/config/node/n1', { newnodename: 'n2' })).status, 204)
  t.equal((await c.post('/config/node/n2', { newnodename: 'n3', newhostname: 'n3' })).status, 204)
  await row(t, c, {
    what: 'both, and different',
    ask: ['POST', '/config/node/n3', { newnodename: 'n4', newhostname: 'n5' }],
    status: 400,
    says: /node n3: field "newhostname"/
  })
  t.same(Object.keys((await c.get('/config/node')).body.config.node), ['n3'])
})

// rules 1.1, 1.9
t.test('interfaces of a group', async t => {
  await start()
  const path = '/config/group/login/interfaces'
  const enveloped = (interfaces: object[]) => ({ config: { group: { login: { interfaces } } } })
  const boot = { interface: 'BOOTIF', network: 'cluster', options: '' }
  const bmc = { interface: 'BMC', network: 'ipmi', options: 'vlan=7' }
  await row(t, c, {
    what: 'none',
    ask: ['GET', path],
    status: 200,
    body: { ...enveloped([]), interfaces: [] }
  })
  await row(t, c, {
    what: 'new',
    ask: ['POST', path, enveloped([boot, bmc])],
    status: 201,
    files: {
      'group/login.json': {
        name: 'login',
        bmcsetupname: 'boards',
        osimage: 'login',
        interfaces: [{ interface: 'BOOTIF', network: 'cluster' }, bmc]
      }
    }
  })
  await row(t, c, { what: 'not new', ask: ['POST', path, { interfaces: [bmc] }], status: 204 })
  await row(t, c, {
    what: 'all',
    ask: ['GET', path],
    status: 200,
    body: { ...enveloped([boot, bmc]), interfaces: [boot, bmc] }
  })
  await row(t, c, {
    what: 'one',
    ask: ['GET', `${path}/BMC`],
    status: 200,
    body: { ...enveloped([bmc]), interfaces: [bmc] }
  })
  await row(t, c, {
    what: 'deleted',
    ask: ['GET', `${path}/BMC/_delete`],
    status: 204,
    files: {
      'group/login.json': {
        name: 'login',
        bmcsetupname: 'boards',
        osimage: 'login',
        interfaces: [{ interface: 'BOOTIF', network: 'cluster' }]
      }
    }
  })
  const missing: [string, 'GET' | 'POST', string, unknown][] = [
    ['interface', 'GET', `${path}/BMC`, undefined],
    ['interface to delete', 'GET', `${path}/BMC/_delete`, undefined],
    ['group', 'GET', '/config/group/none/interfaces', undefined],
    ['group of one', 'GET', '/config/group/none/interfaces/BMC', undefined],
    ['group to change', 'POST', '/config/group/none/interfaces', { interfaces: [bmc] }],
    ['group to delete of', 'POST', '/config/group/none/interfaces/BMC/_delete', undefined],
    ['node', 'GET', '/config/node/none/interfaces', undefined],
    ['node of one', 'GET', '/config/node/none/interfaces/BMC', undefined],
    ['node to change', 'POST', '/config/node/none/interfaces', { interfaces: [bmc] }],
    ['node to delete of', 'GET', '/config/node/none/interfaces/BMC/_delete', undefined]
  ]
  for (const [what, method, at, body] of missing)
    await row(t, c, {
      what: `missing ${what}`,
      ask: [method, at, body],
      status: 404,
      says: at.includes('none') ? /none does not exist/ : /login has no interface BMC/
    })
})

t.test('a restart gives the same answers', async t => {
  await start()
  await c.post('/config/node/n1', { group: 'compute', macaddr: '52:54:00:00:00:01' })
  await c.post('/config/node/n2', { group: 'compute', osimage: 'login' })
  await c.get('/config/node/n2/interfaces/BOOTIF/_delete')
  await c.post('/monitor/node/n1', { state: 'one' })
  await c.post('/monitor/node/n1', { state: 'two' })
  await c.post('/config/node/n2', { newhostname: 'n3' })
  await c.get('/config/node/n1/interfaces/BOOTIF')
  const paths = [
    ...['network', 'group', 'node', 'osimage', 'bmcsetup', 'cluster'].map(type => `/config/${type}`),
    ...['n1', 'n2', 'n3'].flatMap(n => [
      `/config/node/${n}`,
      `/monitor/node/${n}`,
      `/config/node/${n}/interfaces`
    ]),
    ...['compute', 'login'].flatMap(g => [`/config/group/${g}/_list`, `/config/osimage/${g}/_member`]),
    ...['_list', '_nextfreeip', '10.141.0.1', '10.141.0.2'].map(p => `/config/network/cluster/${p}`),
    '/boot',
    '/boot/short',
    '/boot/search/52:54:00:00:00:01',
    '/kickstart/install/n1',
    '/version'
  ]
  const answers = async () => {
    const all: unknown[] = []
    for (const path of paths) {
      const { status, text } = await c.get(path)
      all.push([path, status, text])
    }
    return all
  }
  const [before, files] = [await answers(), await documents(c)]
  await c.restart()
  t.same(await answers(), before)
  t.same(await documents(c), files)
})
