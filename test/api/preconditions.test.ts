import t from 'tap'
import { hasDryRun } from '../../lib/api/dry-run.js'
import { hasEntityTag, takesIfMatch } from '../../lib/api/preconditions.js'
import { scriptToken } from '../support/callers.js'
import { Client } from '../support/client.js'
import { Controller } from '../support/controller.js'
import { bodyOf, existing, populated, table } from '../support/routes.js'

const c = await populated(t)
const filled = (path: string) => path.replace(/\{(\w+)\}/g, (_, name: string) => existing[name] ?? '')
const etagOf = async (path: string, ask = {}) => String((await c.get(path, ask)).headers.etag)
const stateOf = (etag: string) => etag.slice(1).split('.', 1)[0]
const post = (path: string, body: unknown, match: string) =>
  c.post(path, body, { headers: { 'If-Match': match } })

// rules 2.21
t.test('every answer that shows the configuration has a strong entity tag', async t => {
  for (const route of table.filter(hasEntityTag)) {
    const { status, headers } = await c.get(filled(route.path))
    if (status === 200 && String(headers['content-type']).startsWith('application/json'))
      t.match(headers.etag, /^"[\w-]{22}\.[\w-]{22}"$/, route.path)
  }
})

/** Bodies of routes that refuse an empty one before they look at what is stored. */
const bodies: Readonly<Record<string, unknown>> = {
  '/config/cluster/import': { switch: { sw1: { read: 'community' } } },
  '/config/dns/{network}': [{ host: 'www', alias: 'elsewhere.example.org' }],
  '/config/node/_set': { nodes: 'n1', fields: { comment: 'set' } },
  '/config/node/_delete': { nodes: 'n1' },
  '/config/node': 'name,comment\nn1,table\n'
}

// rules 2.21
t.test(
  'every change of the configuration takes If-Match, and changes nothing if that is outdated',
  async t => {
    // It refuses every request.
    const routes = table.filter(takesIfMatch).filter(({ path }) => path !== '/config/osimage')
    const before = c.state()
    for (const route of routes) {
      const key = `${route.method} ${route.path}`
      const path = `${filled(route.path)}${route.body === 'text' ? '?format=csv' : ''}`
      const body = bodies[route.path] ?? (route.body === 'ignored' ? '' : bodyOf(route))
      const send = (match: string) =>
        c.post(path, body, { method: route.method, headers: { 'If-Match': match } })
      const { status, body: refusal } = await send('"outdated.tag"')
      t.strictSame([status, refusal.code], [412, 'changed-meanwhile'], key)
      t.ok(route.codes.includes(412), `${key}: its code`)
      const [, read = ''] = /GET (\/config\/\S+) .*read it again$/.exec(refusal.message) ?? []
      t.match(read, /./, `${key}: what to read`)
      t.strictSame(c.state(), before, `${key}: nothing has changed`)
      if (!hasDryRun(route)) continue
      // The tag of what the message names fits.
      const { status: now } = await c.post(`${path}${path.includes('?') ? '&' : '?'}dryrun=yes`, body, {
        method: route.method,
        headers: { 'If-Match': await etagOf(read) }
      })
      t.not(now, 412, `${key} with the ETag of ${read}`)
    }
    t.strictSame(c.state(), before, 'a dry run changes nothing either')
  }
)

// rules 2.21
t.test('If-Match compares what is configured: a group counts for its nodes, a report does not', async t => {
  const before = await etagOf('/config/node/n1')
  await c.post('/monitor/node/n1', { monitor: { status: { n1: { state: 'installer.x' } } } })
  const reported = await etagOf('/config/node/n1')
  t.not(reported, before, 'the text has changed, and so has the tag')
  t.equal(stateOf(reported), stateOf(before))
  t.equal((await post('/config/node/n1', { comment: 'mine' }, before)).status, 204)
  t.equal((await post('/config/node/n1', { comment: 'again' }, before)).status, 412, 'a tag is good once')
  const now = await etagOf('/config/node/n1')
  await c.post('/config/group/compute', { domain: 'example.org' })
  t.not(stateOf(await etagOf('/config/node/n1')), stateOf(now), 'it inherits the domain')
  t.equal((await post('/config/node/n1', { comment: 'again' }, now)).status, 412)
  const inherits = await etagOf('/config/node/n1')
  await c.post('/config/group/compute', { comment: 'not inherited' })
  t.equal(await etagOf('/config/node/n1'), inherits, 'what it does not show does not count')
})

// rules 2.21
t.test('the refusal names the object, and who changed which fields last', async t => {
  const before = await etagOf('/config/node/n1')
  await c.post('/config/node/n1', { comment: 'by another', service: true })
  const { status, body } = await post('/config/node/n1', { comment: 'late' }, before)
  t.equal(status, 412)
  t.match(body.message, /^GET \/config\/node\/n1 .*; last by user admin at \d{4}-\S+Z: update node n1 \(/)
  t.match(body.message, /\((comment, service|service, comment)\); read it again$/)
  t.equal((await c.get('/config/node/n1')).body.config.node.n1.comment, 'by another')
  const source = (await c.get('/config/node/n1')).body.config.node.n1.interfaces[0].ipaddress
  const asNode = { token: await scriptToken(c, 'n1'), source, headers: { 'If-Match': before } }
  const told = await c.post('/config/node/n1', { vendor: 'x' }, asNode)
  t.equal(told.status, 412)
  t.notMatch(told.body.message, /admin|comment/, 'a node learns nothing of the audit log')
  const gone = await post('/config/node/none', { comment: 'late' }, before)
  t.equal(gone.status, 412, 'nothing is created')
  t.match(gone.body.message, /node none does not exist/)
  t.equal((await c.get('/config/node/none')).status, 404)
})

// rules 2.21
t.test('each form of an answer has its own tag, and each is good for If-Match', async t => {
  for (let i = 10; i < 40; i++) await c.post(`/config/otherdev/dev${i}`, { comment: 'x'.repeat(300) })
  const forms = ['', '?pretty=yes', '?fields=name', '?format=csv', '?format=text', '?sort=-name']
  const tags = new Set<string>()
  for (const form of forms) tags.add(await etagOf(`/config/otherdev${form}`))
  const zipped = await c.get('/config/otherdev', { headers: { 'Accept-Encoding': 'gzip' } })
  t.equal(zipped.headers['content-encoding'], 'gzip')
  tags.add(String(zipped.headers.etag))
  t.equal(tags.size, forms.length + 1, 'as many tags as forms')
  t.equal(new Set([...tags].map(stateOf)).size, 1, 'of one state')
  t.equal(await etagOf('/config/otherdev', { method: 'HEAD' }), await etagOf('/config/otherdev'))
  const interfaces = await etagOf('/config/node/n1/interfaces')
  t.not(await etagOf('/config/node/n1/interfaces?pretty=yes'), interfaces)
  for (const entry of tags)
    t.equal((await post('/config/otherdev/dev10/_delete?dryrun=yes', '', entry)).status, 412)
  for (const form of ['?fields=name', '?pretty=yes']) {
    const one = await etagOf(`/config/otherdev/dev10${form}`)
    t.equal((await post('/config/otherdev/dev10', { comment: form }, one)).status, 204)
  }
})

// rules 2.21
t.test('sets, tables and imports compare the list that they change', async t => {
  await c.post('/config/node/n2', { group: 'compute' })
  const [set, list] = [await etagOf('/config/node?nodes=n[1-2]'), await etagOf('/config/node')]
  const table = 'name,comment\nn1,table\n'
  const document = await c.get('/config/cluster/export')
  const exported = String(document.headers.etag)
  await c.post('/config/node/n2', { comment: 'meanwhile' })
  const fields = { comment: 'set' }
  t.equal((await post('/config/node/_set', { nodes: 'n[1-2]', fields }, set)).status, 412)
  t.equal((await post('/config/node/n[1-2]', fields, set)).status, 412)
  t.equal((await post('/config/node?format=csv', table, list)).status, 412)
  t.equal((await post('/config/cluster/import', document.text, exported)).status, 412)
  const now = await etagOf('/config/node?nodes=n[1-2]')
  t.equal((await post('/config/node/_set', { nodes: 'n[1-2]', fields }, now)).status, 200)
  t.equal((await post('/config/node?format=csv', table, await etagOf('/config/node'))).status, 200)
  const again = await etagOf('/config/cluster/export')
  t.equal((await post('/config/cluster/import', document.text, again)).status, 201)
  t.equal((await post('/config/node/_delete', { nodes: 'n2' }, await etagOf('/config/node/n2'))).status, 200)
})

// rules 2.21
t.test('a change that takes many steps compares too', async t => {
  const table = ['name,group', ...Array.from({ length: 100 }, (_, i) => `many${i},many`)].join('\n')
  await c.post('/config/network/many', { network: '10.170.0.0/16' })
  await c.post('/config/group/many', {})
  t.equal((await c.post('/config/node?format=csv', `${table}\n`)).status, 200)
  const old = await etagOf('/config/group/many')
  await c.post('/config/group/many', { comment: 'meanwhile' })
  const body = { newgroupname: 'renamed', interfaces: [{ interface: 'BOOTIF', network: 'many' }] }
  t.equal((await post('/config/group/many', body, old)).status, 412)
  t.equal((await post('/config/group/many', body, await etagOf('/config/group/many'))).status, 204)
  t.equal((await c.get('/config/node/many7')).body.config.node.many7.group, 'renamed')
  await c.post('/config/node/_delete', { nodes: '@renamed' })
})

// rules 2.21
t.test('If-Match takes a list and *; a weak tag never matches; all else is 400', async t => {
  const now = await etagOf('/config/group/compute')
  const send = async (match: string) => (await post('/config/group/compute', {}, match)).status
  t.equal(await send(`"other", ${now}`), 204)
  t.equal(await send('*'), 204)
  t.equal(await send(`W/${now}`), 412)
  t.equal((await post('/config/group/none', {}, '*')).status, 412, '* needs something to be there')
  const wrong = ['', 'x', '"', 'w/"x"', '"a" "b"', '"a",', ',"a"', '*, "a"', now.slice(1), '"a b"', '"a";']
  for (const match of wrong) {
    const { status, body } = await post('/config/group/compute', {}, match)
    t.strictSame([status, body.code], [400, 'invalid-http'], JSON.stringify(match))
    t.match(body.message, /^header If-Match: /)
  }
  const long = `${'"x",'.repeat(3000)}"x`
  t.equal((await post('/config/group/compute', {}, long)).status, 400, 'read in one pass')
  // decisions: it is ignored everywhere, as there is no 3xx.
  t.equal((await c.get('/config/group/compute', { headers: { 'If-None-Match': now } })).status, 200)
})

// rules 2.21
t.test('of 64 writers with one tag exactly one wins, whatever they change', async t => {
  const clients = Array.from({ length: 64 }, () => new Client(c.daemon.address, c.daemon.port, c.token))
  t.teardown(() => {
    for (const client of clients) client.close()
  })
  const lists = { path: '/config/node/_set', read: '/config/node?nodes=n1' }
  for (const { path, read } of [{ path: '/config/node/n1', read: '/config/node/n1' }, lists]) {
    const headers = { 'If-Match': await etagOf(read) }
    const answers = await Promise.all(
      clients.map((client, i) => {
        const fields = { comment: `${path} ${i}` }
        const body = path === lists.path ? { nodes: 'n1', fields } : fields
        return client.send('POST', path, JSON.stringify(body), undefined, headers)
      })
    )
    const won = answers.findIndex(({ status }) => status < 300)
    t.strictSame(
      answers
        .map(({ status }) => status)
        .sort()
        .slice(1),
      Array(63).fill(412),
      path
    )
    t.equal((await c.get('/config/node/n1')).body.config.node.n1.comment, `${path} ${won}`)
  }
})

// rules 2.21
t.test('a tag survives a restart, and is the same on another controller with the same state', async t => {
  const paths = ['/config/node', '/config/node/n1', '/config/cluster', '/config/cluster/export']
  const before = await Promise.all(paths.map(path => etagOf(path)))
  await c.restart()
  t.strictSame(await Promise.all(paths.map(path => etagOf(path))), before)
  const document = await c.get('/config/cluster/export')
  const other = await Controller.start(t)
  t.equal((await other.post('/config/cluster/import', document.text)).status, 201)
  const there = String((await other.get('/config/group/compute')).headers.etag)
  t.equal(there, await etagOf('/config/group/compute'))
})
