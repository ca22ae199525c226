import { createServer, type Socket } from 'node:net'
import t, { type Test } from 'tap'
import { createLog } from '../../lib/base/log.js'
import { Control } from '../../lib/control/control.js'
import { addNode, ask, bmcCluster, follow } from '../support/bmc-cluster.js'
import { cheapHash } from '../support/callers.js'
import { Controller, type Reply } from '../support/controller.js'
import { freePort } from '../support/free-port.js'
import { openJobs, settled } from '../support/jobs.js'
import { admin, MemoryCluster } from '../support/memory-cluster.js'
import { RedfishService } from '../support/redfish-service.js'
import { until } from '../support/until.js'

// rules 13.1, 13.2
t.test('a viewer who asks BMCs that say nothing keeps nobody from switching a machine off', async t => {
  const port = await freePort()
  await RedfishService.start(t, '127.7.0.2', port)
  const sockets = new Set<Socket>()
  const silent = createServer(socket => sockets.add(socket.on('error', () => {})))
  await new Promise<void>(resolve => silent.listen(port, '127.7.0.1', resolve))
  t.teardown(() => {
    for (const socket of sockets) socket.destroy()
    silent.close()
  })
  const bmc = [`control.redfish_port=${port}`, 'control.time_limit=10m', 'control.parallel=2']
  const c = await Controller.start(t, ...bmc)
  const users = [`users.alice=viewer ${cheapHash('secret')}`, `users.root=admin ${cheapHash('secret')}`]
  Object.assign(c, { overrides: [...c.overrides, ...users] })
  await c.restart()
  const viewer = await c.login('alice', 'secret')
  c.token = await c.login('root', 'secret')
  const setup = { username: 'admin', password: 'secret', protocol: 'redfish', verify_certificate: false }
  await bmcCluster(c, setup)
  await addNode(c, 'silent', '127.7.0.1')
  await addNode(c, 'good', '127.7.0.2')

  const refused: Reply[] = []
  const ask30 = Array.from({ length: 30 }, async () => {
    const answer = await c.get('/control/action/power/silent/_status', { token: viewer })
    if (answer.headers['retry-after'] !== undefined) refused.push(answer)
    return answer.status
  })
  const asked = Promise.allSettled(ask30)
  await until(() => refused.length >= 8)
  const post = () =>
    c.post(
      '/control/action/power/_status',
      { control: { power: { status: { hostlist: 'silent' } } } },
      { token: viewer }
    )
  const posted: Reply[] = []
  for (let i = 0; i < 9; i++) posted.push(await post())
  t.same(
    posted.map(({ status }) => status),
    [200, 200, 200, 200, 200, 200, 200, 200, 503]
  )
  t.equal(posted[8]?.headers['retry-after'], '10')
  t.match(posted[8]?.body.message, /^8 requests of user alice that only read have not ended/)

  t.equal(
    (await c.get('/control/action/power/good/_off')).status,
    204,
    'the admin needs no place of the viewer'
  )
  const { body } = await ask(c, 'power', 'off', 'good')
  t.match(await follow(c, 'power', body.request_id), { state: 'done', ok: { good: 'power off' } })
  t.equal(refused.length, 8, '2 are asked and 20 wait')
  for (const { status, body } of refused)
    t.match(
      { status, body },
      { status: 503, body: { message: /^20 requests of user alice to BMCs wait already/ } }
    )
  // Whoever still waits is told so by the end of the daemon.
  await c.daemon.close(1000)
  await asked
})

/** Control with two places, whose audit lines wait until they are let on. */
async function slowAudit(t: Test) {
  const port = await freePort()
  const bmc = await RedfishService.start(t, '127.0.0.1', port)
  let letOn = () => {}
  const isOn = new Promise<void>(resolve => {
    letOn = resolve
  })
  const told: string[] = []
  const { jobs } = await openJobs(t)
  const { model } = new MemoryCluster({
    'network/loop': { network: '127.0.0.0/8' },
    'bmcsetup/boards': {
      ...{ username: 'admin', password: 'secret', protocol: 'redfish', verify_certificate: false, port }
    },
    'group/compute': { bmcsetupname: 'boards' },
    'node/n1': {
      group: 'compute',
      interfaces: [{ interface: 'BMC', network: 'loop', ipaddress: '127.0.0.1' }]
    }
  })
  const config = { parallel: 2, delay: 0, time_limit: 5000, soft_limit: 5000, ipmi_port: 623 }
  const control = new Control({
    ...{ model, jobs, log: createLog('error', () => {}), ticks: () => performance.now(), now: Date.now },
    config: { ...config, redfish_port: port, ca_file: '' },
    onAction: async (_, nodes, part, action) => {
      await isOn
      told.push(`${part} ${action} of ${nodes.join()}: ${bmc.asked.length} asked before`)
    }
  })
  t.teardown(() => control.close())
  return { control, bmc, told, letOn: () => letOn() }
}

// rules 11.4, 13.1
t.test('requests whose audit line is slow wait in the bounded queue', async t => {
  const { control, letOn } = await slowAudit(t)
  const outcomes: string[] = []
  const all = Array.from({ length: 130 }, () =>
    control.act('n1', 'power on', admin).then(
      () => outcomes.push('done'),
      error => outcomes.push(error.message)
    )
  )
  for (let i = 0; i < 50 && outcomes.length < 28; i++) await settled()
  t.equal(outcomes.length, 28, '2 are asked and 100 wait')
  for (const outcome of outcomes) t.match(outcome, /^100 requests of user admin to BMCs wait already/)
  control.close()
  letOn()
  await Promise.all(all)
})

// rules 11.4, 13.2
t.test('the audit line of a set is there before a BMC is asked', async t => {
  const { control, bmc, told, letOn } = await slowAudit(t)
  const submitted = control.submit(['n1'], 'power on', admin)
  for (let i = 0; i < 50 && bmc.asked.length === 0; i++) await settled()
  t.same(bmc.asked, [])
  letOn()
  await (await submitted).done
  t.same(told, ['power on of n1: 0 asked before'])
  t.ok(bmc.asked.length > 0)
})
