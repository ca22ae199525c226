import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { start, startChild } from '../support/child.js'
import { Controller } from '../support/controller.js'
import { freePort } from '../support/free-port.js'
import { checkout, requirePrograms } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { until } from '../support/until.js'

requirePrograms('promtool', 'prometheus')
const rules = join(checkout, 'docs/metrics')

// rules 6.13
t.test('promtool finds nothing wrong with the metrics, the rules and their tests', async t => {
  const c = await Controller.start(t)
  await c.cluster()
  await c.post('/config/node/n1', { group: 'compute' })
  const { text } = await c.get('/metrics')
  // promtool looks whether the file of the token is there.
  const directory = scratch(t)
  for (const name of ['alerts.yml', 'prometheus.yml']) cpSync(join(rules, name), join(directory, name))
  writeFileSync(join(directory, 'svcd.token'), 'svcd_x')
  for (const [words, input] of [
    [['check', 'metrics'], text],
    [['check', 'rules', join(rules, 'alerts.yml')], ''],
    [['check', 'config', join(directory, 'prometheus.yml')], ''],
    [['test', 'rules', join(rules, 'alerts.test.yml')], '']
  ] as const) {
    const { code, stdout, stderr } = await start('promtool', words, { input }).ended
    t.equal(code, 0, `promtool ${words.slice(0, 2).join(' ')}: ${stdout}${stderr}`)
  }
})

// As docs/metrics/README.md says: the token and both files lie beside each other.
t.test('a real Prometheus scrapes it with the files as they are', async t => {
  const c = await Controller.start(t)
  await c.cluster()
  await c.post('/config/node/n1', { group: 'compute' })
  const directory = scratch(t)
  mkdirSync(join(directory, 'data'))
  const config = join(directory, 'prometheus.yml')
  const port = await freePort()
  cpSync(join(rules, 'alerts.yml'), join(directory, 'alerts.yml'))
  const made = await c.post('/config/token/prometheus', { role: 'viewer' })
  writeFileSync(join(directory, 'svcd.token'), `${made.body.token}\n`, { mode: 0o600 })
  const shipped = readFileSync(join(rules, 'prometheus.yml'), 'utf8')
  writeFileSync(config, shipped.replace('127.0.0.1:7050', `127.0.0.1:${c.daemon.port}`).replace('15s', '1s'))
  const prometheus = await startChild(
    [
      'prometheus',
      `--config.file=${config}`,
      `--storage.tsdb.path=${join(directory, 'data')}`,
      `--web.listen-address=127.0.0.1:${port}`
    ],
    output => output.includes('ready to receive web requests')
  )
  t.teardown(() => prometheus.stop())
  const ask = async (query: string) => {
    const url = `http://127.0.0.1:${port}/api/v1/query?query=${encodeURIComponent(query)}`
    const { data } = (await (await fetch(url)).json()) as { data: { result: { value: [number, string] }[] } }
    return data.result[0]?.value[1]
  }
  await until(async () => (await ask('svcd_nodes{state="none"}')) === '1')
  t.equal(await ask('up{job="svcd"}'), '1')
  t.ok(Number(await ask('svcd_store_commits_total')) > 0)
  t.equal((await c.get('/config/token/prometheus/_delete')).status, 204)
  await until(async () => (await ask('up{job="svcd"}')) === '0')
})
