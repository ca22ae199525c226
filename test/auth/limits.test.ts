import t from 'tap'
import { cheapHash } from '../support/callers.js'
import { Controller } from '../support/controller.js'
import { until } from '../support/until.js'

// Users who are limited to groups, by what they see and do (rules 5.2). The access matrix has every route.

const grants = {
  vera: 'viewer:compute',
  nemo: 'viewer:empty',
  otto: 'operator:compute,empty',
  olga: 'operator',
  adam: 'admin'
}
const hash = cheapHash('correct horse')
const c = await Controller.start(
  t,
  ...Object.entries(grants).map(([user, grant]) => `users.${user}=${grant} ${hash}`)
)
const token: Record<string, string> = {}
for (const user of Object.keys(grants)) token[user] = await c.login(user, 'correct horse')
const [vera, otto, olga] = [
  { token: token.vera ?? '' },
  { token: token.otto ?? '' },
  { token: token.olga ?? '' }
]
c.token = token.adam ?? ''
await c.cluster()
for (const name of ['gpu', 'empty']) await c.post(`/config/group/${name}`, {})
const nodes = { n1: 'compute', n2: 'compute', g1: 'gpu', lone: null }
for (const [node, group] of Object.entries(nodes)) {
  await c.post(`/config/node/${node}`, group === null ? {} : { group })
  await c.post(`/monitor/node/${node}`, { state: `of ${node}` })
}

const names = (answer: { body: { config?: object; monitor?: object } }) => {
  const envelope = (answer.body.config ?? answer.body.monitor) as Record<string, object>
  return Object.keys(Object.values(envelope)[0] ?? {}).sort()
}

t.test('lists have the nodes and the groups of the limit alone', async t => {
  for (const by of [vera, otto]) {
    t.strictSame(names(await c.get('/config/node', by)), ['n1', 'n2'])
    t.strictSame(names(await c.get('/monitor/node', by)), ['n1', 'n2'])
    const csv = await c.get('/config/node?format=csv&fields=name&sort=-name', by)
    t.equal(csv.text, 'name\r\nn2\r\nn1\r\n')
    t.strictSame((await c.get('/monitor/odd', by)).body.monitor.odd, [])
  }
  t.strictSame(names(await c.get('/config/group', vera)), ['compute'])
  t.strictSame(names(await c.get('/config/group', otto)), ['compute', 'empty'])
  t.strictSame(names(await c.get('/config/node', olga)), ['g1', 'lone', 'n1', 'n2'])
})

t.test('a node is reached by name, by set and by group, if all of it is inside', async t => {
  for (const set of ['n1', 'n[1-2]', '@compute', 'n*', '@all&@compute', 'n1,n2!n1']) {
    const text = encodeURIComponent(set)
    for (const path of [`/config/node/${text}`, `/config/node?nodes=${text}`, `/monitor/node?nodes=${text}`])
      t.equal((await c.get(path, vera)).status, 200, path)
  }
  const refused = ['g1', 'lone', 'none', 'n1,g1', 'n[1-3]', '@gpu', '@none', 'x*', '@osimage:none']
  const messages = new Set<string>()
  for (const set of refused) {
    const text = encodeURIComponent(set)
    for (const path of [
      `/config/node/${text}`,
      `/config/node?nodes=${text}`,
      `/monitor/node?nodes=${text}`
    ]) {
      const { status, body } = await c.get(path, vera)
      t.strictSame([status, body.code], [403, 'role-not-permitted'], path)
      messages.add(body.message.replaceAll(set, 'SET'))
    }
  }
  t.strictSame(
    [...messages],
    [
      'user vera (viewer:compute) may not reach node set SET; &@compute behind a set limits it: ' +
        'not all of it is nodes of these groups'
    ],
    'nothing tells whether a node exists'
  )
  for (const path of ['/monitor/node/g1', '/monitor/node/none/_why', '/monitor/node/lone/_boots'])
    t.match((await c.get(path, vera)).body.message, /may not reach node \w+: not all of it/, path)
})

t.test('signs of a set stand for nodes of the limit alone, and tell nothing of others', async t => {
  const ask = (set: string, by = vera) => c.get(`/config/node?nodes=${encodeURIComponent(set)}`, by)
  for (const set of ['@all', '*1,n2', '@osimage:compute,@compute', '@compute!*1,n1'])
    t.strictSame(names(await ask(set)), ['n1', 'n2'], set)
  t.strictSame(names(await ask('*1')), ['n1'])
  t.strictSame(names(await ask('@status:of')), ['n1', 'n2'])
  await c.post('/monitor/node/g1', { state: 'secret: of g1' })
  await c.post('/config/osimage/theirs', {})
  await c.post('/config/node/g1', { osimage: 'theirs' })
  // Each pair: a set about others, and the same about nobody.
  const pairs: [string, string][] = [
    ['n1!g*', 'n1!zz*'],
    ['@compute!@gpu', '@compute!@none'],
    ['@all!lone!g*', '@all!lone!zz*'],
    ['n1,@status:sec', 'n1,@status:zzz'],
    ['@status:secret', '@status:zzzzzz'],
    ['n1!@osimage:theirs', 'n1!@osimage:none']
  ]
  for (const [theirs, nobodys] of pairs) {
    const [one, other] = [await ask(theirs), await ask(nobodys)]
    const told = (text: string, set: string) => text.replaceAll(set, 'SET').replace(/@status:\w+/g, 'SET')
    t.equal(`${one.status} ${told(one.text, theirs)}`, `${other.status} ${told(other.text, nobodys)}`, theirs)
  }
})

t.test('a set that is too long tells nothing of how many nodes there are', async t => {
  const ask = (by: typeof vera) => c.get('/config/node?nodes=x[1-9999999]', by)
  t.match((await ask(vera)).body.message, /more than 20,004 nodes/, 'two nodes of its own')
  t.match((await ask(olga)).body.message, /more than 20,008 nodes/)
})

t.test('a dry run shows a limited operator no files of DHCP: they name the nodes of others', async t => {
  const run = async (by: typeof vera) =>
    (await c.post('/config/node/n1?dryrun=yes', { netboot: false }, by)).body
  t.equal((await run(otto)).files, undefined)
  t.type((await run(olga)).files, Array)
  t.match((await run(otto)).changes, [{ name: 'n1' }])
})

t.test('a 412 names no change of a node outside of the limit', async t => {
  await c.post('/config/node/g1', { comment: 'theirs' })
  const headers = { 'If-Match': '"old"' }
  for (const [path, body] of [
    ['/config/node/_set', { nodes: 'n1', fields: { netboot: true } }],
    ['/config/node/n1', { netboot: true }]
  ] as const) {
    const answer = await c.post(path, body, { ...otto, headers })
    t.equal(answer.status, 412, path)
    t.notMatch(answer.text, /g1/)
  }
  const own = await c.post('/config/node/n1', { netboot: true }, { ...olga, headers })
  t.match(own.text, /last by user/)
})

t.test('an operator has nodes installed anew or rescued, reports states, and configures nothing', async t => {
  const set = (nodes: string, fields: object, by = olga) => c.post('/config/node/_set', { nodes, fields }, by)
  t.equal((await set('@all', { netboot: true, netboot_once: true })).status, 200)
  t.equal((await set('n1', { rescue: 'compute' }, otto)).status, 200)
  t.equal((await c.post('/config/node/n2', { rescue: 'compute' }, otto)).status, 200)
  t.equal((await c.get('/config/node/n2')).body.config.node.n2.rescue, 'compute')
  t.equal((await c.post('/monitor/node/g1', { state: 'checked' }, olga)).status, 204)
  t.equal((await c.post('/monitor/node/n1', { state: 'checked' }, otto)).status, 204)
  const refused: [string, object, typeof olga][] = [
    ['/config/node/_set', { nodes: 'n1', fields: { osimage: 'compute' } }, olga],
    ['/config/node/_set?dryrun=yes', { nodes: 'n1', fields: { group: 'gpu', netboot: true } }, otto],
    ['/config/node/_set', { nodes: 'n1', fields: { interfaces: [{ interface: 'x' }] } }, olga],
    ['/config/node/n1', { newhostname: 'n9' }, olga],
    ['/config/node/_set', { nodes: 'n1', fields: { newhostname: 'n9' } }, olga],
    ['/config/node/n1', { netboot: true, group: 'empty' }, otto],
    ['/config/node/g1', { netboot: true }, otto],
    ['/config/node/_set', { nodes: 'n1,g1', fields: { netboot: true } }, otto],
    ['/config/node/_set?dryrun=yes', { nodes: '@gpu', fields: { netboot: true } }, otto],
    ['/monitor/node/g1', { state: 'x' }, otto],
    ['/config/node/n1', { netboot: true }, vera],
    ['/config/group/compute', { netboot: true }, olga]
  ]
  const before = JSON.stringify(c.state())
  for (const [path, body, by] of refused) {
    const answer = await c.post(path, body, by)
    t.strictSame([answer.status, answer.body.code], [403, 'role-not-permitted'], `${path} ${answer.text}`)
  }
  const created = await c.post('/config/node/n7', { netboot: true }, olga)
  t.equal(created.status, 404, 'an operator creates no node')
  t.equal(JSON.stringify(c.state()), before)
})

t.test('power of the nodes of the limit, and requests of its own alone', async t => {
  const power = (hostlist: string, by = otto) =>
    c.post('/control/action/power/_on', { control: { power: { on: { hostlist } } } }, by)
  for (const hostlist of ['n1,g1', 'none', '@gpu']) t.equal((await power(hostlist)).status, 403, hostlist)
  t.equal((await c.get('/control/action/power/g1/_on', otto)).status, 403)
  t.not((await c.get('/control/action/power/n1/_on', otto)).status, 403)
  const own = (await power('n[1-2]')).body.request_id
  const other = (await power('@all', olga)).body.request_id
  await c.idle()
  t.strictSame(names(await c.get('/monitor/request', otto)), [own])
  t.strictSame(names(await c.get('/monitor/request', olga)), [own, other].sort())
  for (const path of ['/monitor/request/', '/config/status/', '/service/status/', '/control/status/']) {
    t.equal((await c.get(`${path}${other}`, otto)).status, 404, path)
    if (!path.startsWith('/service')) t.equal((await c.get(`${path}${other}`, olga)).status, 200, path)
  }
  t.equal((await c.get(`/control/status/${own}`, otto)).status, 200)
  t.equal((await c.get(`/config/status/${other}/_cancel`, otto)).status, 404)
  t.match(await c.get(`/config/status/${own}/_cancel`, olga), { status: 403, text: /one of user otto/ })
})

t.test('the overview with one value to a line, of all nodes, some, and none', async t => {
  for (const caller of ['adam', 'vera', 'nemo']) {
    const { body } = await c.get('/monitor/overview', { token: token[caller] ?? '' })
    const { text } = await c.get('/monitor/overview?pretty=yes', { token: token[caller] ?? '' })
    t.equal(text, `${JSON.stringify(body, null, 2)}\n`, caller)
  }
})

t.test('the overview and the events have the nodes of the limit alone', async t => {
  const rows = (await c.get('/monitor/overview', vera)).body.monitor.overview.nodes
  t.strictSame(
    rows.map(([name]: string[]) => name),
    ['n1', 'n2']
  )
  const all = (await c.get('/monitor/overview')).body.monitor.overview
  t.equal(all.nodes.length, 4)
  const since = { 'Last-Event-ID': all.mark }
  for (const node of ['n1', 'g1', 'lone', 'n2'])
    await c.post(`/monitor/node/${node}`, { state: `now ${node}` })
  await c.post('/config/group/gpu', { comment: 'x' })
  const read = async (ask: { token: string }) =>
    (await c.get('/monitor/events?follow=no', { ...ask, headers: since })).text
  await until(async () => {
    const whole = await read({ token: c.token })
    return ['"gpu"', ...['n1', 'g1', 'lone', 'n2'].map(name => `now ${name}`)].every(told =>
      whole.includes(told)
    )
  })
  const seen = await read(vera)
  t.match(seen, /now n1[\s\S]*now n2/)
  t.notMatch(seen, /g1|lone|gpu/)
  await c.post('/config/node/n1', { group: 'gpu' })
  t.notMatch(await read(vera), /n1/, 'nor those before the node has left')
  await c.post('/config/node/n1', { group: 'compute' })
})

t.test('a node that moves to another group leaves and enters the limit at once', async t => {
  await c.post('/config/node/n2', { group: 'gpu' })
  t.strictSame(names(await c.get('/config/node', vera)), ['n1'])
  for (const path of ['/config/node/n2', '/monitor/node/n2', '/config/node/n2/interfaces'])
    t.equal((await c.get(path, vera)).status, 403, path)
  await c.post('/config/node/n2', { group: 'compute' })
  t.equal((await c.get('/config/node/n2', vera)).status, 200)
  await c.get('/config/node/g1/_delete')
  t.equal((await c.get('/config/node/g1', vera)).status, 403)
})
