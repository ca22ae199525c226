import t from 'tap'
import type { ApiRoute } from '../../lib/api/context.js'
import { type Callers, withUsers } from '../support/callers.js'
import { neverTheSame, pathOf, table } from '../support/routes.js'
import { row } from '../support/rows.js'
import { read, stored } from '../support/state.js'

const { c, as } = await withUsers(t)

const nameOf = (route: ApiRoute) => `${route.method} ${route.path}`
// rules 2.5, 2.10
t.test('other methods are 405 with what is allowed; HEAD is for what only reads', async t => {
  const before = await stored(c)
  for (const path of new Set(table.map(route => route.path))) {
    const rows = table.filter(route => route.path === path)
    const get = rows.find(({ method }) => method === 'GET')
    const head = get?.effect === 'reads' ? ['HEAD'] : []
    const allow = [...(get ? ['GET'] : []), ...head, ...(rows.length > (get ? 1 : 0) ? ['POST'] : [])]
    const found: Record<string, unknown> = {}
    const wanted: Record<string, unknown> = {}
    for (const method of ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'PROPFIND']) {
      if (allow.includes(method)) continue
      const { status, headers } = await c.get(pathOf(rows[0] as ApiRoute), { method, token: null })
      found[method] = [status, headers.allow]
      wanted[method] = [405, allow.join(', ')]
    }
    t.same(found, wanted, path)
  }
  t.same(await stored(c), before)
})

// rules 2.3
t.test('the order of checks: route, method, token, role, body, object, rules', async t => {
  const rows: [string, 'GET' | 'POST' | 'PUT', string, keyof Callers, unknown, number][] = [
    ['unknown route before token', 'GET', '/config/nothing', 'garbage', undefined, 404],
    ['unknown route before method', 'PUT', '/config/nothing/x', 'none', undefined, 404],
    ['method before token', 'PUT', '/config/group/x', 'none', undefined, 405],
    ['method before name', 'PUT', '/config/group/-x', 'none', undefined, 405],
    ['token before name', 'GET', '/config/group/-x', 'none', undefined, 401],
    ['token before name', 'GET', '/config/network/-x', 'none', undefined, 401],
    ['token before name', 'GET', '/config/network/-x', 'garbage', undefined, 401],
    ['token before body', 'POST', '/config/group/x', 'none', '{', 401],
    ['token before object', 'GET', '/config/group/none', 'none', undefined, 401],
    ['token before object', 'GET', '/config/network/none', 'none', undefined, 401],
    ['role before name', 'POST', '/config/group/-x', 'viewer', '{', 403],
    ['role before body', 'POST', '/config/group/x', 'viewer', '{', 403],
    ['role before object', 'GET', '/config/group/none/_delete', 'viewer', undefined, 403],
    ['role of a node before its name', 'POST', '/config/node/-x', 'own', '{', 403],
    ['body before object', 'POST', '/config/group/none/interfaces', 'admin', '{', 400],
    ['body before object', 'POST', '/config/group/none/interfaces', 'admin', { interfaces: 5 }, 400],
    ['body before object', 'POST', '/monitor/node/none', 'admin', { state: 5 }, 400],
    ['body before object', 'POST', '/config/group/none', 'admin', { newgroupname: 'x', comment: 5 }, 400],
    ['object before rules', 'POST', '/config/group/none', 'admin', { newgroupname: 'compute' }, 404],
    [
      'object before rules',
      'POST',
      '/config/group/none/interfaces',
      'admin',
      { interfaces: [{ interface: 'x', network: 'none' }] },
      404
    ],
    [
      'rules last',
      'POST',
      '/config/group/compute/interfaces',
      'admin',
      { interfaces: [{ interface: 'x', network: 'none' }] },
      400
    ]
  ]
  const before = await stored(c)
  for (const [what, method, path, caller, body, expected] of rows) {
    const ask = { method, token: as[caller] }
    const { status, text } = await (body === undefined ? c.get(path, ask) : c.post(path, body, ask))
    t.equal(status, expected, `${what}: ${method} ${path} by ${caller}: ${text}`)
  }
  t.same(await stored(c), before)
})

// rules 5.3
t.test('without a token: the minimal answers', async t => {
  await c.post('/monitor/node/n1', { state: 'installer.image' })
  const answers: [string, unknown][] = [
    ['/config/osimage', { config: { osimage: { compute: { name: 'compute' } } } }],
    ['/config/osimage/compute', { config: { osimage: { compute: { name: 'compute' } } } }],
    ...['_list', '_member'].map((suffix): [string, unknown] => {
      const taken = ['10.141.0.1', '10.141.0.2', '10.141.255.254'].map(ipaddress => ({ ipaddress }))
      return [`/config/network/cluster/${suffix}`, { config: { network: { cluster: { taken } } }, taken }]
    }),
    [
      '/config/network/cluster/_nextfreeip',
      { config: { network: { cluster: { nextip: '10.141.0.3' } } }, nextip: '10.141.0.3' }
    ],
    ...['cluster/10.141.0.1', '10.141.0.1'].map((path): [string, unknown] => {
      const state = { '10.141.0.1': { status: 'taken' } }
      return [`/config/network/${path}`, { config: { network: state }, ...state }]
    }),
    ['/monitor/node/n1', { monitor: { status: { n1: { state: 'installer.image' } } } }],
    ['/monitor/service/svcd', { monitor: { service: { svcd: { status: 'ok' } } } }]
  ]
  for (const [path, body] of answers) {
    await row(t, c, { what: path, ask: ['GET', path], by: { token: null }, status: 200, body })
    await row(t, c, { what: path, ask: ['GET', path], by: { token: '' }, status: 200, body })
    const invalid = await c.get(path, { token: 'garbage' })
    t.equal(invalid.status, 401, `${path} with a token that is not valid`)
  }
  const missing = [
    '/config/osimage/none',
    '/config/network/none/_list',
    '/monitor/node/none',
    '/monitor/service/none'
  ]
  for (const path of missing)
    await row(t, c, { what: path, ask: ['GET', path], by: { token: null }, status: 404, says: /none/ })
  const head = await c.get('/config/group', { token: null, method: 'HEAD' })
  t.same([head.status, head.text], [401, ''])
})

// rules 5.2
t.test('a viewer reads everything, passwords masked, and changes nothing', async t => {
  const viewer = { token: as.viewer }
  const hidden = { name: 'boards', username: 'root', password: '********' }
  t.match((await c.get('/config/bmcsetup/boards', viewer)).body.config.bmcsetup.boards, hidden)
  t.match((await c.get('/config/bmcsetup', viewer)).body.config.bmcsetup.boards, hidden)
  t.equal((await read(c, 'bmcsetup', 'boards')).password, 'calvin')
  await c.post('/config/bmcsetup/empty', {})
  t.equal((await c.get('/config/bmcsetup/empty', viewer)).body.config.bmcsetup.empty.password, null)
  // Who may call what is told by the access matrix (test/api).
  const isRead = ({ method, effect, access, path }: ApiRoute) =>
    method === 'GET' && effect === 'reads' && ['user', 'minimal'].includes(access) && !neverTheSame.test(path)
  let count = 0
  for (const route of table.filter(isRead)) {
    const [full, seen] = [await c.get(pathOf(route)), await c.get(pathOf(route), viewer)]
    if (full.status !== 200) continue
    count++
    t.notMatch(seen.text, /calvin|community|aGVsbG8=/)
    t.equal(seen.text, full.text.replaceAll(/"(calvin|community|aGVsbG8=)"/g, '"********"'), nameOf(route))
  }
  t.ok(count > 30, 'most answer')
})

// rules 4.9
t.test('/files: configured networks, loopback, or any valid token', async t => {
  const inside = '10.141.7.7'
  const outside = '192.0.2.7'
  const rows: [string, keyof Callers, number][] = [
    [inside, 'none', 200],
    ['127.0.0.1', 'none', 200],
    [outside, 'none', 401],
    [outside, 'garbage', 401],
    [outside, 'expired', 401],
    [outside, 'viewer', 200],
    [outside, 'own', 200],
    [outside, 'other', 200],
    [inside, 'expired', 200]
  ]
  for (const [source, caller, expected] of rows) {
    const { status } = await c.get('/files/compute.tar.gz', { source, token: as[caller] })
    t.equal(status, expected, `${caller} from ${source}`)
  }
})
