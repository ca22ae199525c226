import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { scriptToken } from '../support/callers.js'
import { populated } from '../support/routes.js'
import { scratch } from '../support/scratch.js'
import { Fake, named } from './fake.js'

// What one machine changes again and again: its server is not restarted each time, and others do not wait for
// it.

/** Changes objects all the time for so long; how often files came into force. */
async function applied(fake: Fake, isUrgent: boolean, forMs: number): Promise<number> {
  const before = fake.service.applies.applied
  const until = performance.now() + forMs
  for (let n = 0; performance.now() < until; n++) {
    fake.objects = named(`${isUrgent ? 'admins' : 'machines'}${n}`)
    fake.service.changed(isUrgent)
    await sleep(10)
  }
  return fake.service.applies.applied - before
}

// rules 10.1
t.test('what machines change comes into force later and later, what admins change at once', async t => {
  const fake = new Fake(t, 'dhcp', 'isc', named('first'))
  fake.service.start()
  await fake.service.settled()
  const byMachines = await applied(fake, false, 4000)
  const byAdmins = await applied(fake, true, 4000)
  t.ok(byMachines >= 1, 'machines are served')
  t.ok(byMachines <= 4, `${byMachines} times by machines, ${byAdmins} by admins`)
  t.ok(byAdmins > byMachines, `${byAdmins} times by admins`)
  await fake.service.settled()
  fake.objects = named('last')
  const begun = performance.now()
  fake.service.changed(false)
  await sleep(20)
  fake.objects = named('urgent')
  fake.service.changed()
  await fake.service.settled()
  t.ok(performance.now() - begun < 20_000)
  t.match(fake.read(), /subnet/)
})

// rules 10.1
t.test('a thousand machines that each change once come into force with one restart, or a few', async t => {
  const fake = new Fake(t, 'dhcp', 'isc', named('first'))
  fake.service.start()
  await fake.service.settled()
  fake.asked()
  for (let n = 0; n < 1000; n++) {
    fake.objects = named(`n${n}`)
    fake.service.changed(false)
  }
  await fake.service.settled()
  const restarts = fake.asked().filter(word => word === 'restart').length
  t.ok(restarts >= 1 && restarts <= 2, `${restarts} restarts`)
})

// rules 4.8
t.test(
  'a node changes itself at the pace at which it may report; admins and other nodes do not wait',
  async t => {
    const c = await populated(t)
    await c.post('/config/node/n2', { group: 'compute' })
    const tokens = { n1: await scriptToken(c, 'n1'), n2: await scriptToken(c, 'n2') }
    const begun = performance.now()
    const statuses: number[] = []
    let refused = ''
    for (let n = 0; n < 120; n++) {
      const fields = [
        { vendor: n % 2 ? 'one' : 'other' },
        { assettag: `${n}` },
        { interfaces: [{ interface: 'BOOTIF', force: true, ipaddress: `10.141.7.${1 + (n % 2)}` }] }
      ][n % 3]
      const body = { config: { node: { n1: fields } } }
      const { status, text } = await c.post('/config/node/n1', body, { token: tokens.n1 })
      statuses.push(status)
      if (status === 503) refused = text
    }
    const most = 60 + Math.ceil((performance.now() - begun) / 5000)
    const stored = statuses.filter(status => status === 204).length
    t.ok(stored >= 60 && stored <= most, `${stored} of 120 were stored`)
    t.equal(statuses.filter(status => status === 503).length, 120 - stored)
    t.match(refused, /node n1 reports too often: once in 5 s is stored/)
    const other = { config: { node: { n2: { vendor: 'x' } } } }
    t.equal((await c.post('/config/node/n2', other, { token: tokens.n2 })).status, 204)
    t.equal((await c.post('/config/node/n1', { vendor: 'by an admin' })).status, 204)
  }
)

// rules 10.1
t.test('whose change it is decides, not the way that it comes', async t => {
  const directory = scratch(t)
  const control = join(directory, 'control')
  writeFileSync(control, `#!/bin/sh\necho "$1" >>${directory}/asked\n`, { mode: 0o755 })
  const c = await populated(
    t,
    ...['dhcp.server=isc', `dhcp.config=${directory}/dhcpd.conf`, `dhcp.control=${control}`],
    ...['dhcp.check=true', 'dhcp.gather=0s']
  )
  const range = { dhcp: true, dhcp_range_begin: '10.141.9.1', dhcp_range_end: '10.141.9.9' }
  t.equal((await c.post('/config/network/cluster', range)).status, 200)
  const token = await scriptToken(c, 'n1')
  const service = c.daemon.services.of('dhcp')
  await service?.settled()
  const told: boolean[] = []
  if (service) service.changed = (isUrgent = true) => void told.push(isUrgent)
  let n = 1
  const change = async (by: { token?: string; source?: string }) => {
    told.length = 0
    const body = { interfaces: [{ interface: 'BOOTIF', force: true, ipaddress: `10.141.7.${n++}` }] }
    t.equal((await c.post('/config/node/n1', body, by)).status, 204)
    return told.includes(true)
  }
  t.equal(await change({ token }), false, 'a node')
  t.equal(await change({}), true, 'an admin')
  t.equal(await change({ token, source: '10.141.0.1' }), false)
})
