import { mkdirSync, writeFileSync } from 'node:fs'
import t from 'tap'
import { startChild } from '../support/child.js'
import { freePort } from '../support/free-port.js'
import { requirePrograms } from '../support/programs.js'
import { until } from '../support/until.js'
import { ExportCluster } from './cluster.js'

requirePrograms('prometheus', 'prometheus-node-exporter')

// rules 12.11
t.test('Prometheus finds two nodes with a token, and scrapes them', async t => {
  const site = await ExportCluster.start(t)
  const { status, body } = await site.c.post('/config/token/prometheus', { role: 'viewer' })
  t.equal(status, 201)
  writeFileSync(site.at('prometheus.token'), `${body.token}\n`, { mode: 0o600 })
  const [port, nodePort] = [await freePort(), await freePort()]
  for (const address of ['127.141.0.1', '127.141.0.2']) {
    const words = [`--web.listen-address=${address}:${nodePort}`, '--collector.disable-defaults']
    const exporter = await startChild(
      ['prometheus-node-exporter', ...words, '--collector.uname'],
      output => output.includes('Listening on') || output.includes('TLS is disabled')
    )
    t.teardown(() => exporter.kill())
  }
  // JSON is YAML. Prometheus 2.42 sends no type for http_sd unless it is named.
  const config = {
    global: { scrape_interval: '1s' },
    scrape_configs: [
      {
        job_name: 'nodes',
        http_sd_configs: [
          {
            url: `${site.env.SVCD_URL}/config/export/prometheus?nodes=node[001-002]&port=${nodePort}`,
            refresh_interval: '1s',
            authorization: { type: 'Bearer', credentials_file: site.at('prometheus.token') }
          }
        ]
      }
    ]
  }
  writeFileSync(site.at('prometheus.yml'), JSON.stringify(config))
  mkdirSync(site.at('data'))
  const prometheus = await startChild(
    [
      'prometheus',
      `--config.file=${site.at('prometheus.yml')}`,
      `--storage.tsdb.path=${site.at('data')}`,
      `--web.listen-address=127.0.0.1:${port}`
    ],
    output => output.includes('ready to receive web requests')
  )
  t.teardown(() => prometheus.stop())
  type Found = { readonly metric: Readonly<Record<string, string>>; readonly value: [number, string] }
  const ask = async (): Promise<Found[]> => {
    const answer = await fetch(`http://127.0.0.1:${port}/api/v1/query?query=up`)
    return ((await answer.json()) as { data: { result: Found[] } }).data.result
  }
  const names = async () => (await ask()).map(({ metric, value }) => `${metric.node} ${value[1]}`).sort()
  await until(
    async () => (await names()).join() === 'node001 1,node002 1',
    async () => ({ found: await ask(), said: prometheus.output() })
  )
  const [first] = await ask()
  t.match(first?.metric, { group: 'compute', osimage: 'compute', job: 'nodes' })
  // The token is revoked: the targets stay, as Prometheus says, and its log tells why nothing new comes.
  t.equal((await site.c.get('/config/token/prometheus/_delete')).status, 204)
  await until(() => /http_sd|Unable to refresh target groups/.test(prometheus.output()))
  t.match(prometheus.output(), /401/)
})
