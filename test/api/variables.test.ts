import { appendFileSync, cpSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { Controller } from '../support/controller.js'
import { scratch } from '../support/scratch.js'

const mac = '52:54:00:00:00:01'

async function cluster(test: Test, ...overrides: string[]) {
  const c = await Controller.start(test, ...overrides)
  await c.cluster()
  await c.post('/config/node/node001', { group: 'compute', macaddr: mac })
  return c
}

const paths = { cluster: '/config/cluster', group: '/config/group/compute', node: '/config/node/node001' }
type Owner = keyof typeof paths

const set = async (c: Controller, owner: Owner, variables: unknown, more: object = {}) => {
  const body = { variables, ...more }
  const { status, body: answer } = await c.post(
    paths[owner],
    owner === 'cluster' ? { config: { cluster: body } } : body
  )
  return status === 204 ? 204 : `${status} ${answer.message}`
}

const shown = async (c: Controller, owner: 'group' | 'node') => {
  const [, , type = '', name = ''] = paths[owner].split('/')
  const { variables, _variables_source, _override } = (await c.get(paths[owner])).body.config[type][name]
  return { variables, sources: _variables_source, own: _override }
}

// rules 3.16
t.test('variables: the node goes before its group, and that before the cluster, key by key', async t => {
  const c = await cluster(t)
  t.same(await shown(c, 'node'), { variables: {}, sources: {}, own: false })
  t.equal(await set(c, 'cluster', { a: 'c', b: 'c', c: 'c' }), 204)
  t.equal(await set(c, 'group', { b: 'g', c: 'g', d: '' }), 204)
  t.equal(await set(c, 'node', { c: 'n', e: 'two\nlines "quoted"' }), 204)
  const inForce = { a: 'c', b: 'g', c: 'n', d: '', e: 'two\nlines "quoted"' }
  const sources = { a: 'cluster', b: 'group', c: 'node', d: 'group', e: 'node' }
  t.strictSame(await shown(c, 'node'), { variables: inForce, sources, own: true })
  t.strictSame(await shown(c, 'group'), {
    variables: { a: 'c', b: 'g', c: 'g', d: '' },
    sources: { a: 'cluster', b: 'group', c: 'group', d: 'group' },
    own: true
  })
  t.same((await c.get('/config/cluster')).body.config.cluster.variables, { a: 'c', b: 'c', c: 'c' })

  const { body } = await c.get(paths.node)
  const before = c.state()
  t.equal((await c.post(paths.node, body)).status, 204, 'what was read is posted back')
  t.strictSame(c.state(), before, 'and nothing is written')
  t.equal(await set(c, 'node', { b: 'g' }), 204)
  t.equal((await shown(c, 'node')).sources.b, 'group', 'a value that is in force is not stored')
  t.equal(await set(c, 'node', { b: 'g' }, { _override: true }), 204)
  t.equal((await shown(c, 'node')).sources.b, 'node', 'but with _override it is')

  t.equal(await set(c, 'node', { c: null, gone: null, f: 'new' }), 204)
  t.strictSame(
    (await shown(c, 'node')).variables,
    { ...inForce, c: 'g', f: 'new' },
    'null takes one away; what is not named stays'
  )
  t.equal(await set(c, 'node', null), 204)
  t.strictSame((await shown(c, 'node')).variables, { a: 'c', b: 'g', c: 'g', d: '' }, 'null takes all away')
  t.equal(await set(c, 'cluster', { a: null, b: null }), 204)
  t.same((await c.get('/config/cluster')).body.config.cluster.variables, { c: 'c' })
  const exported = (await c.get('/config/cluster/export')).body
  t.same(exported.config.cluster.variables, { c: 'c' })
  t.same(exported.config.group.compute.variables, { b: 'g', c: 'g', d: '' })
  t.equal(await set(c, 'cluster', { c: 'other', z: 'z' }), 204)
  t.equal((await c.post('/config/cluster/import', exported)).status, 201)
  t.same(
    (await c.get('/config/cluster')).body.config.cluster.variables,
    { c: 'c' },
    'an import replaces them'
  )
  await c.restart()
  t.same((await c.get('/config/cluster')).body.config.cluster.variables, { c: 'c' }, 'they survive a restart')
  t.equal(await set(c, 'cluster', null), 204)
  t.notOk('variables' in (await c.get('/config/cluster')).body.config.cluster, 'none: not shown')
})

// rules 3.16
t.test('names and values of variables have bounds', async t => {
  const c = await cluster(t)
  const many = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, i) => [`v${i}`, 'x']))
  const before = c.state()
  for (const owner of ['cluster', 'group', 'node'] as const) {
    for (const name of ['', '1a', '_a', 'a-b', 'a.b', 'a b', 'a\n', 'ä', 'x'.repeat(64)])
      t.match(
        await set(c, owner, { [name]: 'x' }),
        /^400 .*"variables".*a name must be/,
        JSON.stringify(name)
      )
    for (const value of [1, true, [], {}])
      t.match(
        await set(c, owner, { a: value }),
        /^400 .*variable a that is not a text/,
        JSON.stringify(value)
      )
    t.match(await set(c, owner, { a: 'a\0' }), /^400 .*NUL/)
    t.match(await set(c, owner, { a: 'ä'.repeat(2049) }), /^400 .*4098 bytes: 4096 at most/)
    t.match(await set(c, owner, many(101)), /^400 .*101 variables: 100 at most/)
    const big = Object.fromEntries(['a', 'b', 'c', 'd', 'e'].map(name => [name, 'x'.repeat(4000)]))
    t.match(await set(c, owner, big), /^400 .*20005 bytes in all: 16384 at most/)
    for (const bad of ['text', 5, ['a']]) t.match(await set(c, owner, bad), /^400 .*"variables"/)
  }
  t.strictSame(c.state(), before, 'nothing was stored')
  t.equal(await set(c, 'node', many(100)), 204)
  t.match(await set(c, 'node', { w: 'x' }), /^400 .*101 variables/, 'those that are there count')
  t.equal(
    await set(c, 'node', { constructor: 'a', toString: 'b' }, {}),
    '400 node node001: field "variables" has 102 variables: 100 at most'
  )
  t.equal(await set(c, 'node', null), 204)
  t.equal(await set(c, 'node', { constructor: 'a', toString: 'b' }), 204)
  t.same((await shown(c, 'node')).variables, { constructor: 'a', toString: 'b' })
})

// rules 3.16, 4.11
t.test('every template sees variables', async t => {
  const templates = join(scratch(t), 'templates')
  cpSync(fileURLToPath(new URL('../../templates', import.meta.url)), templates, { recursive: true })
  const line = "# Written by svcd {{ variables.a|default('-')|quote }}\n"
  for (const name of [
    'boot/templ_boot_ipxe',
    'boot/templ_boot_node',
    'install/templ_install',
    'install/templ_kickstart'
  ])
    appendFileSync(join(templates, `${name}.cfg`), `\n${line}`)
  appendFileSync(join(templates, 'dhcp/templ_isc.cfg'), line)
  appendFileSync(join(templates, 'dns/templ_bind.cfg'), line)
  const c = await cluster(
    t,
    `paths.templates=${templates}`,
    'dhcp.server=isc',
    'dns.server=bind',
    ...['dhcp', 'dns'].flatMap(name => [`${name}.control=/bin/true`, `${name}.check=/bin/true`])
  )
  const awkward = "it's $HOME `id`"
  t.equal(await set(c, 'cluster', { a: 'of the cluster' }), 204)
  t.equal(await set(c, 'node', { a: awkward }), 204)
  const quoted = `svcd 'it'"'"'s $HOME \`id\`'`
  for (const what of ['boot', 'install', 'kickstart'])
    t.ok((await c.get(`/config/node/node001/_render/${what}`)).text.includes(quoted), what)
  t.ok((await c.get(`/boot/search/mac/${mac}`, { token: null })).text.includes(quoted), 'boot script')
  t.ok((await c.get('/boot', { token: null })).text.includes("svcd 'of the cluster'"), 'menu')
  for (const service of ['dhcp', 'dns'])
    t.ok((await c.get(`/config/${service}/_preview`)).text.includes("svcd 'of the cluster'"), service)
})
