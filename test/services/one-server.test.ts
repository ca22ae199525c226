import { chmodSync, existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { Controller } from '../support/controller.js'
import { scratch } from '../support/scratch.js'
import { until } from '../support/until.js'

const network = (n: number) => ({
  network: `10.14${n}.0.0/16`,
  dhcp: true,
  dhcp_range_begin: `10.14${n}.1.1`,
  dhcp_range_end: `10.14${n}.1.9`
})

/**
 * DHCP and DNS by one dnsmasq, whose restart takes a while, in which it does not run, as it is with
 * systemctl.
 */
async function both(t: Test) {
  const directory = scratch(t)
  const control = join(directory, 'control')
  writeFileSync(
    control,
    `#!/bin/sh
cd ${directory}
echo "begin $1" >>asked
case $1 in
status) sleep 0.05; test -e running || exit 3 ;;
stop) rm -f running ;;
*) rm -f running
   sleep 0.3
   if grep -q poison dns.conf; then echo poisoned >&2; exit 1; fi
   touch running ;;
esac
echo "end $1" >>asked
`
  )
  chmodSync(control, 0o755)
  writeFileSync(join(directory, 'running'), '')
  const c = await Controller.start(
    t,
    ...['dhcp', 'dns'].flatMap(name =>
      [
        ...['server=dnsmasq', `config=${directory}/${name}.conf`, `directory=${directory}/${name}`],
        ...['check=true', 'gather=0s', `control=${control}`]
      ].map(setting => `${name}.${setting}`)
    )
  )
  const settled = () =>
    Promise.all(['dhcp', 'dns'].map(name => c.daemon.services.of(name)?.settled() ?? Promise.resolve()))
  const asked = () => {
    const words = readFileSync(join(directory, 'asked'), 'utf8').trim().split('\n')
    writeFileSync(join(directory, 'asked'), '')
    return words
  }
  await settled()
  asked()
  return { c, directory, settled, asked }
}

// rules 10.10, 5.3
t.test('DHCP and DNS are one server', async t => {
  const { c, directory, settled, asked } = await both(t)
  const answers = await Promise.all(Array.from({ length: 20 }, () => c.get('/service/dhcp/status')))
  t.same([...new Set(answers.map(({ body }) => body.monitor.service.dhcp.state))], ['running'])
  const questions = asked().filter(word => word === 'begin status').length
  t.ok(questions >= 1 && questions <= 4, 'status is asked once for all who ask at the same time')

  await c.post('/config/network/cluster', network(1))
  await settled()
  t.same(
    asked().filter(word => !word.endsWith('status')),
    ['begin restart', 'end restart'],
    'a change of both is one restart'
  )
  const text = (name: string) => readFileSync(join(directory, `${name}.conf`), 'utf8')
  for (const name of ['dhcp', 'dns']) t.match(text(name), /cluster/)
  const { status, body } = await c.get('/monitor/status')
  t.equal(status, 200, JSON.stringify(body))

  await c.post('/config/network/poison', network(2))
  await settled()
  t.ok(existsSync(join(directory, 'running')), 'what it does not come back with is taken back')
  t.notMatch(text('dns'), /poison/)
  t.match(text('dns'), /cluster/)
  await until(async () => (await c.get('/monitor/service/dhcp')).status === 200)
  t.match(text('dhcp'), /poison/, 'of the two, what was good comes into force by itself')
  t.match((await c.get('/monitor/service/dns')).body.message, /poisoned/)
  const anonymous = await Promise.all(
    ['/monitor/service/dns', '/monitor/status'].map(path => c.get(path, { token: null }))
  )
  t.same(
    anonymous.map(reply => [reply.status, reply.body.message]),
    [
      [503, 'service dns: failed'],
      [503, 'service dns: failed']
    ],
    'without a token the words of the server are not told'
  )
})
