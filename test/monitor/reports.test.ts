import t from 'tap'
import { scriptToken } from '../support/callers.js'
import { Controller } from '../support/controller.js'
import { row } from '../support/rows.js'
import { read, stored } from '../support/state.js'

const c = await Controller.start(t)
const envelope = (node: string, fields: unknown) => ({ monitor: { status: { [node]: fields } } })
const report = (node: string, state: unknown) => c.post(`/monitor/node/${node}`, envelope(node, { state }))
const status = async (node: string) => (await c.get(`/monitor/node/${node}`)).body.monitor.status[node]

// rules 6.2
t.test('a report is stored as sent and shown as the status of the node', async t => {
  await c.post('/config/node/n1', {})
  t.same(await status('n1'), { state: null, since: null, reason: null, history: [] })
  for (const state of [
    'installer.completed',
    ' ',
    'a "quoted"\nline \\ 🙂 \u2028',
    'x'.repeat(1024),
    '🙂'.repeat(1024),
    'constructor'
  ]) {
    const { status: code, text } = await report('n1', state)
    t.same([code, text], [204, ''])
    t.equal((await status('n1')).state, state)
    t.equal((await read(c, 'node', 'n1')).status, state)
  }
  t.equal((await c.post('/monitor/node/n1', { state: 'bare' })).status, 204, 'the inner object alone')
  const { state, since, history, reason } = await status('n1')
  t.same([state, reason], ['bare', null])
  t.match(since, /^\d{4}-\d\d-\d\dT[\d:.]+Z$/)
  t.same(
    history.map((entry: { state: string }) => entry.state).slice(-2),
    ['constructor', 'bare'],
    'oldest first'
  )
  t.same(history.at(-1), { state: 'bare', time: since })
})

// rules 6.2
t.test('what is no report changes nothing', async t => {
  const wrong: [string, unknown, RegExp][] = [
    ['empty', envelope('n1', { state: '' }), /node n1: field "state"/],
    ['too long', envelope('n1', { state: 'x'.repeat(1025) }), /node n1: field "state".*1024/],
    ['NUL', envelope('n1', { state: 'a\0b' }), /node n1: field "state".*NUL/],
    ['number', envelope('n1', { state: 5 }), /node n1: field "state".*string/],
    ['null', envelope('n1', { state: null }), /node n1: field "state".*string/],
    ['list', envelope('n1', { state: ['x'] }), /node n1: field "state".*string/],
    ['no state', envelope('n1', {}), /node n1: field "state"/],
    ['another field', envelope('n1', { state: 'x', time: 'now' }), /node n1.*"time"/],
    ['no object', envelope('n1', 'x'), /node n1/],
    ['null for the object', envelope('n1', null), /node n1/],
    ['another name', envelope('n2', { state: 'x' }), /"n2".*"n1"/],
    ['the wrong envelope', { config: envelope('n1', { state: 'x' }).monitor }, /config/],
    ['half the envelope', { monitor: { n1: { state: 'x' } } }, /"n1".*"status"/],
    ['a list', [], /object/],
    ['null as a body', null, /object/]
  ]
  for (const [what, body, says] of wrong)
    await row(t, c, { what, ask: ['POST', '/monitor/node/n1', body], status: 400, says })
  await row(t, c, {
    what: 'unknown node',
    ask: ['POST', '/monitor/node/none', { state: 'x' }],
    status: 404,
    says: /node none/
  })
  await row(t, c, { what: 'unknown node', ask: ['GET', '/monitor/node/none'], status: 404, says: /none/ })
  await row(t, c, {
    what: 'bad name',
    ask: ['POST', '/monitor/node/N1', { state: 'x' }],
    status: 400,
    says: /N1/
  })
  t.equal((await status('n1')).state, 'bare')
})

// rules 6.2
t.test('a status follows a rename, and goes with the node', async t => {
  await c.post('/config/node/old', {})
  await report('old', 'installer.one')
  const before = await status('old')
  await c.post('/config/node/old', { newhostname: 'new' })
  t.same(await status('new'), before)
  await c.post('/config/node/old', {})
  t.equal((await status('old')).state, null, 'another node of the former name has none')
  await c.get('/config/node/new/_delete')
  t.equal((await c.get('/monitor/node/new')).status, 404)
  await c.post('/config/node/new', {})
  t.same(await status('new'), { state: null, since: null, reason: null, history: [] })
  await c.restart()
  t.same(await status('new'), { state: null, since: null, reason: null, history: [] }, 'after a restart too')
  t.equal((await status('n1')).state, 'bare')
})

// rules 6.2
t.test('the history of a node has a bound', async t => {
  for (let i = 0; i < 30; i++) await report('n1', `step ${i}`)
  const { history } = await status('n1')
  t.equal(history.length < 30, true)
  t.equal(history.at(-1).state, 'step 29')
  t.equal(history.at(-10).state, 'step 20')
})

// rules 6.3
t.test('services', async t => {
  const before = await stored(c)
  const { status, body } = await c.get('/monitor/service/svcd')
  const { since, ...rest } = body.monitor.service.svcd
  t.same([status, rest], [200, { status: 'ok', reason: '' }])
  t.match(since, /^\d{4}-/)
  for (const name of ['none', 'constructor', 'toString', 'hasOwnProperty', 'dhcpd'])
    await row(t, c, {
      what: name,
      ask: ['GET', `/monitor/service/${name}`],
      status: 404,
      says: new RegExp(name)
    })
  t.same(await stored(c), before)
})

// rules 4.32
t.test('why an installation failed stays visible while it is tried again', async t => {
  await c.cluster()
  await c.post('/config/node/tries', { group: 'compute', macaddr: '52:54:00:00:09:01' })
  const { interfaces } = (await c.get('/config/node/tries')).body.config.node.tries
  const own = { token: await scriptToken(c, 'tries'), source: interfaces[0].ipaddress as string }
  const report = (node: string, state: string) =>
    c.post(`/monitor/node/${node}`, envelope(node, { state }), own)
  const failure =
    'installer.failed: partscript: the partscript ended with status 1; it printed: mkfs: no disk | \u001b[0mend'
  const why = async () => (await c.get('/monitor/node/tries/_why')).body.monitor.why.tries
  for (const state of ['installer.started', 'installer.partscript', failure]) await report('tries', state)
  t.match(await status('tries'), { state: failure, reason: null }, 'the state tells it')
  for (const state of ['installer.started', 'installer.partscript']) await report('tries', state)
  const again =
    /^the installation is tried again; it failed in step partscript: .* status 1; it printed: mkfs: no disk/
  t.match(await status('tries'), { state: 'installer.partscript', reason: again })
  const list = (await c.get('/monitor/node?nodes=tries')).body.monitor.status
  t.match(list.tries.reason, again, 'in the list that svcctl shows')
  const { columns, nodes } = (await c.get('/monitor/overview')).body.monitor.overview
  const shown = nodes.find((values: string[]) => values[0] === 'tries')
  t.match(shown[columns.indexOf('reason')], again, 'on the page')
  t.match(await why(), {
    rule: 'failed-step',
    verdict:
      /failed in step partscript at .*: the partscript ended with status 1; it printed: mkfs: no disk \| .*end; /
  })

  await t.test('what was printed is for those alone who have a token', async t => {
    await report('tries', failure)
    const { body } = await c.get('/monitor/node/tries', { token: null })
    t.same(body.monitor.status.tries, { state: failure.replace(/; it printed.*/, '') })
  })

  await t.test('the same failure that prints another time is one failure', async t => {
    const boots = async () => {
      const { body } = await c.get('/monitor/node/tries/_boots')
      return body.monitor.boots.tries.boots.at(-1)?.steps ?? []
    }
    for (const at of ['10:01', '10:02', '10:03']) await report('tries', `${failure} ${at}`)
    t.notMatch(JSON.stringify(await boots()), 'it printed')
    t.match((await why()).verdict, /end 10:03/, 'the last one is told')
  })

  await t.test('until an installation is completed', async t => {
    for (const state of ['installer.started', 'installer.completed']) await report('tries', state)
    t.match(await status('tries'), { state: 'installer.completed', reason: null })
    await report('tries', 'installer.started')
    t.match(await status('tries'), { reason: null })
  })
})
