// rules 11.15, 6.13: a controller that is gone, as the one that writes shows it, and what /metrics says of
// controllers.
import t from 'tap'
import { controllerOn, isPrimary } from '../support/controllers.js'
import { startEtcd } from '../support/etcd.js'
import { giveKeys } from '../support/keys.js'
import { until } from '../support/until.js'

type Cluster = Record<
  string,
  { status?: string; since?: string; ipaddr?: string; serverport?: number; svc_config?: string }
>

t.test('a controller that is gone is listed until an admin removes it', async t => {
  const etcd = await startEtcd(t)
  const [first, second] = [
    await controllerOn(t, etcd, 'controller.name=c1', 'http.metrics=open'),
    await controllerOn(t, etcd, 'controller.name=c2', 'http.metrics=open')
  ]
  await first.start()
  await until(() => isPrimary(first))
  giveKeys(first, second)
  await second.start()
  const read = async () => {
    const { body } = await first.request('GET', '/config/cluster')
    return (body as { config: { cluster: Cluster } }).config.cluster
  }
  const statusOf = async (name: string) => (await read())[name]?.status
  await until(async () => (await statusOf('c2')) === 'standby')
  const metrics = async (daemon = first) => {
    const { port } = daemon.client()
    const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text()
    return (series: string) =>
      text
        .split('\n')
        .find(line => line.startsWith(`${series} `))
        ?.slice(series.length + 1)
  }
  const own = await metrics()
  t.equal(own('svcd_controller_role{role="primary"}'), '1')
  t.equal(own('svcd_controller_role{role="standby"}'), '0')
  t.equal(own('svcd_store_lag_seconds'), '0')
  t.equal(own('svcd_controllers{status="there"}'), '2')
  t.equal(own('svcd_controllers{status="gone"}'), '0')
  const other = await metrics(second)
  t.equal(other('svcd_controller_role{role="standby"}'), '1')
  t.equal(other('svcd_store_revision'), own('svcd_store_revision'))
  let offset: string | undefined
  await until(async () => {
    offset = (await metrics())('svcd_controller_clock_offset_seconds{controller="c2"}')
    return offset !== undefined
  })
  t.ok(Math.abs(Number(offset)) < 5, `${offset} s`)

  const there = await first.request('GET', '/config/cluster/c2/_delete')
  t.match(there, {
    status: 400,
    body: { message: /controller c2 is running: stop its svcd, .* then remove it/ }
  })
  const before = (await read()).c2
  await second.kill()
  await until(async () => (await statusOf('c2')) === 'gone')
  const gone = await read()
  const { since = '', ...rest } = gone.c2 ?? {}
  t.strictSame(rest, { ...before, status: 'gone' })
  t.ok(Math.abs(Date.parse(since) - Date.now()) < 60_000, since)
  const posted = await first.request('POST', '/config/cluster', { config: { cluster: gone } })
  t.equal(posted.status, 204, 'what was read can be posted')
  t.strictSame(await read(), gone)
  const changed = { config: { cluster: { ...gone, c2: { ...gone.c2, since: 'never' } } } }
  t.equal((await first.request('POST', '/config/cluster', changed)).status, 400)
  await until(async () => (await metrics())('svcd_controllers{status="gone"}') === '1')
  t.equal((await metrics())('svcd_controllers{status="there"}'), '1')

  const exported = await first.request('GET', '/config/cluster/export')
  t.notMatch(JSON.stringify(exported.body), /"gone"/)
  t.equal((await first.request('POST', '/config/cluster/import', exported.body)).status, 201)

  await first.kill()
  await first.start()
  await until(() => isPrimary(first))
  await until(async () => (await statusOf('c2')) === 'gone')
  t.strictSame((await read()).c2, gone.c2, 'also after a start')
  t.equal((await first.request('GET', '/config/cluster/c9/_delete')).status, 404)
  t.equal(
    (await first.request('POST', '/config/cluster/c2/_delete?dryrun=yes')).status,
    400,
    'there is no dry run'
  )
  t.equal((await first.request('GET', '/config/cluster/c2/_delete')).status, 204)
  t.equal(await statusOf('c2'), undefined)
  const audit = await first.request('GET', '/monitor/audit')
  const [line] = (audit.body as { monitor: { audit: object[] } }).monitor.audit
  t.match(line, {
    ...{ who: 'user admin', controller: 'c1', action: 'delete', type: 'controller', name: 'c2' },
    before: { address: gone.c2?.ipaddr, port: gone.c2?.serverport, ini: gone.c2?.svc_config, since }
  })
  t.equal((await first.request('POST', '/config/cluster/c2/_delete')).status, 404, 'it is removed')
  await second.start()
  await until(async () => (await statusOf('c2')) === 'standby')
})
