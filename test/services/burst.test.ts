import { chmodSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import t from 'tap'
import { renderInThread } from '../../lib/services/render-job.js'
import { Controller } from '../support/controller.js'
import { scratch } from '../support/scratch.js'
import { many } from './cluster.js'
import { Fake } from './fake.js'

const long = process.env.SVCD_LONG !== undefined
const changes = long ? 1000 : 60
const hosts = long ? 10_000 : 1000

t.test(`${changes} changes in a row: one reload in a gathering window at most`, async t => {
  const directory = scratch(t)
  const control = join(directory, 'control')
  writeFileSync(control, `#!/bin/sh\nif test "$1" != status; then date +%s%N >>${directory}/asked; fi\n`)
  chmodSync(control, 0o755)
  const gatherMs = 1000
  const c = await Controller.start(
    t,
    ...[
      'dhcp.server=isc',
      `dhcp.config=${directory}/dhcpd.conf`,
      `dhcp.control=${control}`,
      'dhcp.check=true'
    ],
    ...[`dhcp.gather=${gatherMs / 1000}s`]
  )
  const service = c.daemon.services.of('dhcp')
  await c.post('/config/network/cluster', {
    network: '10.142.0.0/16',
    dhcp: true,
    dhcp_range_begin: '10.142.9.1',
    dhcp_range_end: '10.142.9.9'
  })
  await service?.settled()
  writeFileSync(join(directory, 'asked'), '')
  for (let i = 1; i <= changes; i++) {
    const macaddress = `52:54:00:00:${(i >> 8).toString(16).padStart(2, '0')}:${(i & 255).toString(16).padStart(2, '0')}`
    const { status } = await c.post(`/config/node/n${i}`, {
      interfaces: [{ interface: 'BOOTIF', network: 'cluster', macaddress }]
    })
    if (status !== 201) t.fail(`n${i}: ${status}`)
    await new Promise(resolve => setTimeout(resolve, 5))
  }
  await service?.settled()
  t.equal(
    readFileSync(join(directory, 'dhcpd.conf'), 'utf8').match(/^host /gm)?.length,
    changes,
    'all are in force'
  )
  const times = readFileSync(join(directory, 'asked'), 'utf8')
    .trim()
    .split('\n')
    .map(time => Number(time) / 1e6)
  t.ok(times.length > 0)
  // The window begins when the last one is done: two reloads cannot be closer.
  const close = times.filter((time, i) => i > 0 && time - (times[i - 1] ?? 0) < gatherMs)
  t.strictSame(close, [], `${times.length} reloads`)
  t.comment(
    `${changes} changes, ${times.length} reloads in ${Math.round((times.at(-1) ?? 0) - (times[0] ?? 0))} ms`
  )
  const before = times.length
  for (let i = 1; i <= changes; i += 10) await c.post(`/config/node/n${i}`, { comment: `another one ${i}` })
  await service?.settled()
  const after = readFileSync(join(directory, 'asked'), 'utf8').trim().split('\n').length
  t.equal(after, before, 'none for changes that render the same bytes')
})

for (const [service, server] of [
  ['dhcp', 'isc'],
  ['dhcp', 'dnsmasq'],
  ['dns', 'bind']
] as const)
  t.test(`${service} ${server}: ${hosts} hosts are rendered off the event loop`, async t => {
    const fake = new Fake(t, service, server, {}, { render: renderInThread })
    // Their view is made before it is measured.
    fake.objects = many(hosts)
    const made = fake.prepare()
    const delay = monitorEventLoopDelay({ resolution: 5 })
    delay.enable()
    const since = performance.now()
    await fake.start()
    const ms = performance.now() - since
    delay.disable()
    t.ok(made)
    t.same(fake.service.condition, { ok: true, reason: '' })
    t.comment(
      `${server}: ${hosts} hosts in force in ${Math.round(ms)} ms, longest stall ${Math.round(delay.max / 1e6)} ms`
    )
    t.ok(delay.max / 1e6 < ms / 2, 'the event loop went on meanwhile')
  })
