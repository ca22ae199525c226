import { execFile } from 'node:child_process'
import { mkdirSync, readFileSync, readlinkSync, statSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import t from 'tap'
import { Controller } from '../support/controller.js'
import { inventoryProgram } from '../support/install-script.js'
import { scratch } from '../support/scratch.js'
import { completed, install, type Plan } from './install.js'
import { slowClock } from './slow-clock.js'

// An installation reports what the machine is made of, and the installed system does so at each boot and each
// day (rules 6.16).

t.test('an installation reports, and places the program for the system', async t => {
  const done = await install(t, { shell: 'ash', data: { files_token: 'the.running.token' } })
  completed(t, done)
  const { machine, controller } = done
  const [report, ...more] = controller.posts('/monitor/inventory/')
  t.equal(more.length, 0)
  t.equal(report?.url, '/monitor/inventory/node001')
  t.match(JSON.parse(report?.body ?? ''), { source: 'installation', cpu: {}, memory: {} })
  t.equal(machine.read('etc/svc/inventory'), inventoryProgram())
  t.equal(
    machine.read('etc/svc/inventory.conf'),
    `url ${controller.place.url}\nnode node001\ntoken the.running.token\ninsecure \n`
  )
  t.equal(statSync(machine.image('etc/svc/inventory.conf')).mode & 0o777, 0o600)
  t.match(
    machine.read('etc/systemd/system/svc-inventory.service'),
    '\nExecStart=/bin/sh /etc/svc/inventory\n'
  )
  t.match(machine.read('etc/systemd/system/svc-inventory.timer'), '\nOnUnitActiveSec=1d\n')
  for (const wants of [
    'multi-user.target.wants/svc-inventory.service',
    'timers.target.wants/svc-inventory.timer'
  ])
    t.equal(readlinkSync(machine.image(`etc/systemd/system/${wants}`)), `../${basename(wants)}`)
})

t.test('an installation goes on when its report is refused', async t => {
  const prepare: Plan['prepare'] = (_, controller) => {
    controller.onPost = (url, response) => {
      response.statusCode = url.startsWith('/monitor/inventory/') ? 500 : 204
      response.end()
    }
  }
  const done = await install(t, { shell: 'dash', prepare })
  completed(t, done)
  t.match(done.run.output, /warning: the hardware could not be reported/)
})

t.test('the system reports at each boot, and renews its token', async t => {
  const c = await Controller.start(t, 'auth.token_lifetime=30d')
  await c.cluster()
  await c.post('/config/node/node001', { group: 'compute', macaddr: '52:54:00:00:00:01' })
  const { text } = await c.get('/boot/install/node001', { token: null, source: '10.141.0.1' })
  const token = /^FILES_TOKEN='?([^'\n]+)/m.exec(text)?.[1] ?? ''
  const root = scratch(t)
  mkdirSync(join(root, 'etc/svc'), { recursive: true })
  const conf = join(root, 'etc/svc/inventory.conf')
  const program = join(root, 'inventory')
  writeFileSync(program, inventoryProgram())
  const { address, port } = c.daemon
  const settings = (given: string) =>
    writeFileSync(conf, `url http://${address}:${port}\nnode node001\ntoken ${given}\ninsecure \n`)
  const run = (path = '') =>
    new Promise<{ status: number; said: string }>(resolve => {
      const env = { PATH: `${path}${process.env.PATH}` }
      execFile('dash', [program, '--root', root], { env }, (error, stdout, stderr) =>
        resolve({ status: error ? Number(error.code) : 0, said: stdout + stderr })
      )
    })
  t.match(await run(), { status: 0, said: /inventory\.conf is missing/ })
  settings(token)
  t.strictSame(await run(), { status: 0, said: '' })
  t.match((await c.get('/monitor/inventory/node001')).body.monitor.inventory.node001, { source: 'boot' })
  t.match(readFileSync(conf, 'utf8'), `token ${token}\n`, 'a young token stays')
  c.clockMs = 2 * 86_400_000
  t.strictSame(await run(), { status: 0, said: '' })
  const [, renewed = ''] = /^token (\S+)$/m.exec(readFileSync(conf, 'utf8')) ?? []
  t.not(renewed, token)
  t.equal(statSync(conf).mode & 0o777, 0o600)
  // It waits until the system has started, for five minutes at most. Each sleep takes half a minute here.
  const bin = join(root, 'bin')
  const slept = join(root, 'slept')
  const place = (name: string, text: string) =>
    writeFileSync(join(bin, name), `#!/bin/sh\n${text}\n`, { mode: 0o755 })
  mkdirSync(bin)
  for (const [name, text] of Object.entries(slowClock(slept, 30))) place(name, text)
  for (const [ready, waits] of [
    [0, 0],
    [3, 3],
    [99, 10]
  ] as const) {
    const isUp = `[ "$(wc -l < ${slept})" -ge ${ready} ]`
    place('systemctl', `if ${isUp}; then echo running; else echo starting; exit 1; fi`)
    writeFileSync(slept, '')
    c.clockMs += 60_000
    t.strictSame(await run(`${bin}:`), { status: 0, said: '' })
    t.equal(readFileSync(slept, 'utf8').length, waits, `ready after ${ready}`)
  }
  settings('rubbish')
  t.match(await run(), { status: 0, said: /the controller answered 401/ })
  settings(renewed)
  await c.daemon.close(0)
  t.match(await run(), { status: 1 })
})
