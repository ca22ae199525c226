import t from 'tap'
import { Bmc } from '../support/bmc.js'
import { addNode, ask, bmcCluster, follow } from '../support/bmc-cluster.js'
import { Controller } from '../support/controller.js'
import { freePort } from '../support/free-port.js'
import { output, requirePrograms } from '../support/programs.js'
import { proof } from '../support/proof.js'
import { RedfishService } from '../support/redfish-service.js'

const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => from + i)

// rules 13.2
t.test('40 nodes by IPMI: two are dead, one has another password', async t => {
  const port = await freePort()
  const limitMs = 10_000
  const c = await Controller.start(
    t,
    `control.ipmi_port=${port}`,
    `control.time_limit=${limitMs / 1000}s`,
    'control.parallel=4',
    'control.delay=0s'
  )
  await bmcCluster(c)
  const [dead, stranger] = [[7, 23], 12]
  const bmcs = new Map<number, Bmc>()
  for (const i of range(1, 40)) {
    await addNode(c, `n${i}`, `127.7.0.${i}`)
    const options = { port, password: i === stranger ? 'another' : 'secret' }
    if (!dead.includes(i)) bmcs.set(i, await Bmc.start(t, `127.7.0.${i}`, options))
  }
  const good = range(1, 40).filter(i => !dead.includes(i) && i !== stranger)
  const all = (message: string) => Object.fromEntries(good.map(i => [`n${i}`, message]))
  const failed = {
    n7: `127.7.0.7: no answer within ${limitMs / 1000} s`,
    n12: '127.7.0.12: wrong password in BMC set-up boards',
    n23: `127.7.0.23: no answer within ${limitMs / 1000} s`
  }
  const times: number[] = []
  const run = async (action: string) => {
    const began = performance.now()
    const { body } = await ask(c, 'power', action, 'n[1-40]')
    const { answers: _, ...outcome } = await follow(c, 'power', body.request_id)
    const took = performance.now() - began
    times.push(took)
    t.ok(took < 2 * limitMs, `power ${action}: ${Math.round(took)} ms, and the dead ones take ${limitMs}`)
    const { lines } = (await c.get(`/monitor/request/${body.request_id}`)).body.monitor.request[
      body.request_id
    ]
    const last = lines.slice(-3, -1).map((line: string) => line.split(':')[0])
    t.same(last.sort(), ['n23', 'n7'], 'all others are done before the dead ones')
    return outcome
  }
  const none = { ok: {}, on: {}, off: {}, failed, state: 'failed' }
  t.same(await run('status'), { ...none, off: all('off') })
  t.same(await run('on'), { ...none, ok: all('power on') })
  for (const [i, bmc] of bmcs) t.equal(bmc.isOn, i !== stranger, bmc.address)
  t.same(await run('status'), { ...none, on: all('on') })
  t.same(await run('off'), { ...none, ok: all('power off') })
  for (const bmc of bmcs.values()) t.notOk(bmc.isOn, bmc.address)
  const seconds = times.map(ms => (ms / 1000).toFixed(1)).join(', ')
  t.comment(seconds)
  proof('power of 40 nodes', {
    tried: 160,
    note: `${seconds} s a request; a dead BMC takes ${limitMs / 1000} s`
  })
})

// rules 13.4
t.test('another client takes the service of the tests for a Redfish service', async t => {
  requirePrograms('redfishtool')
  const port = await freePort()
  const service = await RedfishService.start(t, '127.7.1.1', port, { light: 'led' })
  const ask = async (...words: string[]) => {
    const reach = ['-r', `127.7.1.1:${port}`, '-S', 'Always', '-u', 'admin', '-p', 'secret', '-A', 'Session']
    return output('redfishtool', [...reach, ...words])
  }
  t.match(JSON.parse(await ask('Systems', '-1', 'get')), { PowerState: 'Off' })
  await ask('Systems', '-1', 'reset', 'On')
  t.same(service.resets, ['On'])
  await t.rejects(ask('Systems', '-1', 'reset', 'On'), 'it is on already')
  await ask('Systems', '-1', 'setIndicatorLed', 'Lit')
  t.ok(service.lit)
  t.ok(service.logins > 2)
  t.equal(service.sessions.size, 0)
})
