import { get as httpGet, type IncomingMessage } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { type EventReader, Events } from '../../lib/monitor/events.js'
import { cheapHash } from '../support/callers.js'
import { Controller } from '../support/controller.js'
import { until } from '../support/until.js'

/** One event as it came. */
interface Came {
  readonly id: string
  readonly event: string
  readonly data: ReturnType<typeof JSON.parse>
}

/** The events of a text of server-sent events; comments and times to wait are left out. */
const parse = (text: string): Came[] =>
  text.split('\n\n').flatMap(block => {
    const fields = Object.fromEntries(block.split('\n').map(line => line.split(/: (.*)/, 2)))
    return fields.event === undefined
      ? []
      : [{ id: fields.id, event: fields.event, data: JSON.parse(fields.data) }]
  })

const drain = (reader: EventReader) => {
  let text = ''
  for (let piece = reader.next(); piece !== ''; piece = reader.next()) text += piece
  return parse(text)
}

/** What comes after the beginning. */
const since = (reader: EventReader) => drain(reader).slice(1)

/** A hub whose clock stands, with a reader that keeps it awake. */
function hub(most?: number) {
  const clock = { ms: 0 }
  const events = new Events({ ticks: () => clock.ms, batchMs: 1, ...(most === undefined ? {} : { most }) })
  const note = (name: string, key = name) => events.notify('node', key, () => ({ name }))
  return { clock, events, note }
}

// rules 6.9
t.test('events of one thing that come close together are one, as it is then', async t => {
  const { events } = hub()
  events.follow(() => undefined)
  const reader = events.reader(undefined, 'viewer')
  t.same(
    drain(reader).map(({ event }) => event),
    ['begin']
  )
  let state = 'a'
  for (const next of ['b', 'c', 'd']) {
    state = next
    events.notify('node', 'n1', () => ({ name: 'n1', state }))
  }
  await sleep(10)
  const came = drain(reader)
  t.same(
    came.map(({ event, data }) => [event, data]),
    [['node', { name: 'n1', state: 'd' }]]
  )
})

// rules 6.9
t.test('who comes back is told what was missed, and only that', async t => {
  const { events, note } = hub()
  events.follow(() => undefined)
  const mark = events.cursor()
  note('n1')
  await sleep(10)
  const [first] = since(events.reader(mark, 'viewer'))
  t.equal(first?.data.name, 'n1')
  note('n2')
  await sleep(10)
  t.same(
    since(events.reader(first?.id, 'viewer')).map(({ data }) => data.name),
    ['n2']
  )
})

// rules 6.9
t.test('who comes too late, from another run, or from the future loads anew', async t => {
  const { events, note } = hub(4)
  events.follow(() => undefined)
  const mark = events.cursor()
  for (let i = 0; i < 10; i++) note(`n${i}`)
  await sleep(10)
  const [run] = mark.split('-')
  for (const id of [mark, 'aabb-1', `${run}-999`, `${run}-`, `${run}-1x`, 'x', '-'])
    t.same(
      since(events.reader(id, 'viewer')).map(({ event }) => event),
      ['reset'],
      id
    )
})

// rules 6.9
t.test('a reader that lags past the bound is told to load anew, and goes on', async t => {
  const { events, note } = hub(4)
  events.follow(() => undefined)
  const reader = events.reader(undefined, 'viewer')
  reader.next()
  for (let i = 0; i < 10; i++) note(`n${i}`)
  await sleep(10)
  t.same(
    drain(reader).map(({ event }) => event),
    ['reset']
  )
  note('n11')
  await sleep(10)
  t.same(
    drain(reader).map(({ data }) => data.name),
    ['n11']
  )
})

// rules 6.9
t.test('nothing is made while nobody reads, and who comes back after that loads anew', async t => {
  const { events, note, clock } = hub()
  clock.ms = 1e6
  let made = 0
  events.notify('node', 'n1', () => ({ made: ++made }))
  await sleep(10)
  t.equal(made, 0)
  const mark = events.cursor()
  note('n2')
  await sleep(10)
  t.equal(since(events.reader(mark, 'viewer')).length, 1, 'within two minutes of the mark it is kept')
  clock.ms += 121_000
  note('n3')
  t.same(
    since(events.reader(mark, 'viewer')).map(({ event }) => event),
    ['reset']
  )
})

// rules 6.9
t.test('lines of the audit log are for admins', async t => {
  const { events, note } = hub()
  events.follow(() => undefined)
  const [admin, viewer] = [events.reader(undefined, 'admin'), events.reader(undefined, 'viewer')]
  events.notify('audit', '1', () => ({ who: 'user root' }))
  note('n1')
  await sleep(10)
  t.same(
    drain(admin).map(({ event }) => event),
    ['begin', 'audit', 'node']
  )
  t.same(
    drain(viewer).map(({ event }) => event),
    ['begin', 'node']
  )
})

/** A stream of events over a real socket. */
async function follow(c: Controller, token: string, headers: Record<string, string> = {}) {
  const { address: host, port } = c.daemon
  const came: Came[] = []
  let text = ''
  let ended = false
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
    const path = '/monitor/events'
    httpGet(
      { host, port, path, agent: false, headers: { 'x-access-tokens': token, ...headers } },
      resolve
    ).on('error', reject)
  })
  answer.setEncoding('utf8')
  answer.on('error', () => undefined)
  answer.on('data', (piece: string) => {
    text += piece
    const end = text.lastIndexOf('\n\n') + 2
    came.push(...parse(text.slice(0, end)))
    text = text.slice(end)
  })
  answer.on('close', () => {
    ended = true
  })
  return {
    answer,
    came,
    close: () => answer.destroy(),
    hasEnded: () => ended,
    sees: (event: string, test: (data: Came['data']) => boolean = () => true) =>
      until(
        () => came.some(each => each.event === event && test(each.data)),
        () => came.map(each => JSON.stringify(each))
      )
  }
}

t.test('a daemon', async t => {
  const users = ['root=admin', 'alice=viewer'].map(user => {
    const [name, role] = user.split('=')
    return `users.${name}=${role} ${cheapHash('correct horse')}`
  })
  const c = await Controller.start(t, 'auth.token_lifetime=1h')
  Object.assign(c, { overrides: [...c.overrides, ...users] })
  await c.restart()
  const [admin = '', viewer = ''] = await Promise.all(
    ['root', 'alice'].map(name => c.login(name, 'correct horse'))
  )
  c.token = admin
  await c.cluster()
  await c.post('/config/node/n1', { group: 'compute', macaddr: '52:54:00:00:00:01' })

  // rules 6.9
  await t.test('what happens is told as it happens', async t => {
    const [byAdmin, byViewer] = [await follow(c, admin), await follow(c, viewer)]
    t.match(byAdmin.answer.headers, {
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-store'
    })
    await byViewer.sees('begin')
    await c.post('/monitor/node/n1', { state: 'installer.downloading' })
    await byViewer.sees('node', data => data.state === 'installer.downloading')
    await c.get('/boot/search/mac/52:54:00:00:00:01', { token: null, source: '10.141.0.1' })
    await byViewer.sees('boot', data => data.node === 'n1' && data.step === 'script')
    await byViewer.sees('node', data => data.step === 'script')
    await c.post('/config/node/n1', { comment: 'watched' })
    await byAdmin.sees('audit', data => data.name === 'n1' && data.who === 'user root')
    const job = await c.daemon.jobs.submit({
      ...{ kind: 'pack', object: 'OS image compute', by: 'user root', lanes: ['compute'] },
      run: async ({ progress }) => progress(0.5)
    })
    await byViewer.sees('job', data => data.request_id === job.id && data.state === 'done')
    await c.post('/config/node/n2', { group: 'compute' })
    await byViewer.sees('node', data => data.name === 'n2')
    await c.get('/config/node/n2/_delete')
    await byViewer.sees('node', data => data.name === 'n2' && data.gone)
    t.notOk(
      byViewer.came.some(({ event }) => event === 'audit'),
      'a viewer sees no audit'
    )
    const lastId = byViewer.came.at(-1)?.id ?? ''
    byViewer.close()
    await c.post('/monitor/node/n1', { state: 'installer.completed' })
    const again = await follow(c, viewer, { 'Last-Event-ID': lastId })
    await again.sees('node', data => data.state === 'installer.completed')
    t.notOk(again.came.some(({ event }) => event === 'reset'))
    again.close()
    byAdmin.close()
  })

  // rules 6.10
  await t.test('the overview, and what follows its mark', async t => {
    const { body } = await c.get('/monitor/overview', { token: viewer })
    const { mark, columns, nodes } = body.monitor.overview
    const row = Object.fromEntries(columns.map((name: string, i: number) => [name, nodes[0][i]]))
    t.match(row, { name: 'n1', group: 'compute', osimage: 'compute', state: 'installer.completed' })
    t.match(row, { rack: null, rack_unit: null, rack_height: null })
    await c.post('/monitor/node/n1', { state: 'installer.failed: disk: full' })
    const stream = await follow(c, viewer, { 'Last-Event-ID': mark })
    await stream.sees('node', data => data.state.startsWith('installer.failed'))
    stream.close()
  })

  // rules 6.10
  await t.test('who loads anew after a change of a group sees it, however soon', async t => {
    const netboot = async () => {
      const { columns, nodes } = (await c.get('/monitor/overview')).body.monitor.overview
      return nodes[0][columns.indexOf('netboot')]
    }
    for (const wanted of [false, true]) {
      await c.post('/config/group/compute', { netboot: wanted })
      t.equal(await netboot(), wanted)
    }
  })

  // rules 6.11
  await t.test('the audit log is read, the newest line first', async t => {
    await c.post('/config/node/n1', { comment: 'later' })
    const { body } = await c.get('/monitor/audit')
    t.match(body.monitor.audit[0], { who: 'user root', name: 'n1', after: { comment: 'later' } })
    t.equal((await c.get('/monitor/audit', { token: viewer })).status, 403)
  })

  // rules 2.20
  await t.test('a viewer cannot keep an admin from the events', async t => {
    const streams = []
    for (let i = 0; i < 40; i++) streams.push(await follow(c, viewer))
    const statuses = streams.map(({ answer }) => answer.statusCode)
    t.same(
      [200, 503].map(status => statuses.filter(each => each === status).length),
      [32, 8]
    )
    const byAdmin = await follow(c, admin)
    t.equal(byAdmin.answer.statusCode, 200)
    for (const stream of [...streams, byAdmin]) stream.close()
    await until(async () => {
      const again = await follow(c, viewer)
      again.close()
      return again.answer.statusCode === 200
    })
  })

  // rules 2.20
  await t.test('a stream ends with its token', async t => {
    const stream = await follow(c, viewer)
    await stream.sees('begin')
    c.clockMs = 2 * 3_600_000
    t.teardown(() => {
      c.clockMs = 0
    })
    await sleep(1000)
    await c.daemon.model.change({ who: 'user root', from: '-', mayTakeAddresses: true }, tx => {
      tx.put('node', 'n3', { name: 'n3' })
    })
    await until(() => stream.hasEnded())
    t.notOk(
      stream.came.some(({ data }) => data.name === 'n3'),
      'nothing is told after that'
    )
  })

  // rules 2.20
  await t.test('a stream ends when svcd stops', async t => {
    const stream = await follow(c, viewer)
    await stream.sees('begin')
    const before = performance.now()
    await c.restart()
    t.ok(stream.hasEnded())
    t.ok(performance.now() - before < 20_000)
  })
})
