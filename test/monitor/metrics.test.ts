import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { Metrics } from '../../lib/monitor/metrics.js'
import { Controller } from '../support/controller.js'
import { checkout } from '../support/programs.js'

const c = await Controller.start(t)
await c.cluster()
await c.post('/config/node/n1', { group: 'compute' })
await c.post('/config/node/n2', { group: 'compute' })

/** The value of a line, by its name and labels; undefined where there is none. */
async function value(series: string): Promise<number | undefined> {
  // One text serves all who ask within a second.
  c.clockMs += 1000
  const { status, text } = await c.get('/metrics')
  t.equal(status, 200)
  const line = text.split('\n').find(line => line.startsWith(`${series} `))
  return line === undefined ? undefined : Number(line.slice(series.length + 1))
}
const report = (node: string, state: string) =>
  c.post(`/monitor/node/${node}`, { monitor: { status: { [node]: { state } } } })

// rules 6.13
t.test('requests are counted by the pattern of their route, not by what a client makes up', async t => {
  const series = 'svcd_http_requests_total{method="GET",route="/config/node/{node}",status="200"}'
  const before = (await value(series)) ?? 0
  for (const node of ['n1', 'n2', 'n1']) await c.get(`/config/node/${node}`)
  t.equal(await value(series), before + 3)
  for (let i = 0; i < 20; i++) await c.get(`/no/such/${i}`)
  t.equal(await value('svcd_http_requests_total{method="-",route="-",status="404"}'), 20)
  const { text } = await c.get('/metrics')
  t.notMatch(text, /no\/such|n1"/)
  t.match(
    text,
    /^svcd_http_request_duration_seconds_bucket\{method="GET",route="\/config\/node\/\{node\}",le="\+Inf"\} /m
  )
})

t.test('nodes by state, installations and their steps', async t => {
  t.equal(await value('svcd_nodes{state="none"}'), 2)
  for (const state of ['installer.started', 'installer.download', 'installer.completed'])
    await report('n1', state)
  await report('n2', 'installer.started')
  await report('n2', 'installer.failed: download: no route')
  t.equal(await value('svcd_nodes{state="installer.completed"}'), 1)
  t.equal(await value('svcd_nodes{state="installer.failed"}'), 1)
  t.equal(await value('svcd_installations_total{outcome="completed"}'), 1)
  t.equal(await value('svcd_installations_total{outcome="failed"}'), 1)
  t.equal(await value('svcd_installation_step_duration_seconds_count{step="download"}'), 1)
  t.equal(await value('svcd_installation_step_duration_seconds_count{step="started"}'), 2)
  t.equal(await value('svcd_nodes_stale'), 0)
  for (let i = 0; i < 5; i++) await report('n1', `installer.made_up${i}`)
  await report('n1', 'what I like')
  t.equal(await value('svcd_nodes{state="other"}'), 1)
  t.notMatch((await c.get('/metrics')).text, /made_up/)
})

t.test('changes of the store, bytes of images, requests in the background', async t => {
  const commits = (await value('svcd_store_commits_total')) ?? 0
  await c.post('/config/node/n2', { comment: 'x' })
  t.equal(await value('svcd_store_commits_total'), commits + 1)
  t.equal(await value('svcd_image_sent_bytes_total'), 0)
  const { body } = await c.get('/files/compute.tar.gz').then(({ text }) => ({ body: text }))
  t.equal(await value('svcd_image_sent_bytes_total'), Buffer.byteLength(body))
  t.equal(await value('svcd_requests_in_background{state="running"}'), 0)
  t.equal(await value('svcd_service_ok{service="svcd"}'), 1)
  t.ok(((await value('process_resident_memory_bytes')) ?? 0) > 1e6)
})

t.test('one text serves all who ask within a second', async t => {
  c.clockMs += 1000
  const { text } = await c.get('/metrics')
  await c.post('/config/node/n2', { comment: 'y' })
  t.equal((await c.get('/metrics')).text, text)
  c.clockMs += 1000
  const later = await c.get('/metrics')
  t.equal(later.status, 200)
  t.not(later.text, text)
})

t.test('all nodes are looked at once for many who ask, and other work has its turns', async t => {
  let looks = 0
  const metrics = new Metrics({
    now: () => 0,
    nodes: () => {
      looks++
      return Array.from({ length: 50 }, (_, i) => `n${i}`)
    },
    state: () => {
      // As slow as thousands of nodes.
      for (const until = performance.now() + 1; performance.now() < until; );
      return 'installer.started'
    },
    *stale() {
      yield
      return ['n1', 'n2']
    },
    jobs: () => ['done', 'queued', 'done'],
    services: () => [],
    applies: () => [],
    loopDelayMs: () => 0
  })
  let turns = 0
  let isOver = false
  const turn = () => {
    turns++
    if (!isOver) setImmediate(turn)
  }
  setImmediate(turn)
  const texts = await Promise.all(Array.from({ length: 5 }, () => metrics.text()))
  isOver = true
  t.ok(turns >= 4, `${turns} turns in 50 ms`)
  t.equal(looks, 1)
  for (const { text } of texts) {
    t.match(text, /^svcd_nodes\{state="installer.started"\} 50$/m)
    t.match(text, /^svcd_nodes_stale 2$/m)
    t.match(text, /^svcd_requests_in_background\{state="done"\} 2$/m)
  }
})

t.test('a user may read it, nobody else; open: anybody', async t => {
  t.equal((await c.get('/metrics', { token: null })).status, 401)
  t.match((await c.get('/metrics')).headers['content-type'], /^text\/plain; version=0\.0\.4/)
  const open = await Controller.start(t, 'http.metrics=open')
  t.equal((await open.get('/metrics', { token: null })).status, 200)
})

t.test('every metric that the rules and the dashboard name is there', async t => {
  const { text } = await c.get('/metrics')
  for (const file of ['alerts.yml', 'dashboard.json']) {
    const named =
      readFileSync(join(checkout, 'docs/metrics', file), 'utf8').match(/\b(svcd|process)_[a-z_]+/g) ?? []
    for (const name of new Set(named))
      t.match(text, new RegExp(`^${name}(\\{| )|^# TYPE ${name} `, 'm'), name)
  }
})
