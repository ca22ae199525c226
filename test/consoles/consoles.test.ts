import { existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { addNode, bmcCluster } from '../support/bmc-cluster.js'
import { start } from '../support/child.js'
import { Controller } from '../support/controller.js'
import { checkout, output } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { svcctlFor } from '../support/svcctl.js'
import { until } from '../support/until.js'
import { attach, lab, settings, type } from './lab.js'

// rules 13.6
t.test('a console is attached, typed into, logged and audited', async t => {
  const { c, directory, machines } = await lab(t, ['n1', 'n2'])
  const machine = machines.n1 as NonNullable<typeof machines.n1>
  const config = join(directory, 'consoles', 'conman.conf')
  t.equal(statSync(config).mode & 0o777, 0o600, 'the file with the passwords is its owner’s alone')
  const preview = (await c.get('/config/consoles/_preview')).text
  t.notMatch(preview, Buffer.from('secret').toString('hex'), 'a preview shows no password')

  const one = await attach(c, 'n1')
  const two = await attach(c, 'n1')
  t.same([one.status, two.status], [200, 200])
  t.match(one.session, /^[0-9a-f]{32}$/)
  machine.says('n1 login: ')
  await until(() => one.text.includes('n1 login: ') && two.text.includes('n1 login: '))
  t.equal((await type(c, 'n1', { session: one.session, input: 'root\r\u0003é' })).status, 204)
  await until(
    () => machine.received.includes('root\r\u0003é'),
    () => machine.received
  )
  t.match(await type(c, 'n2', { session: one.session, input: 'x' }), { status: 404 }, 'another node')
  t.match(await type(c, 'n1', { session: 'f'.repeat(32), input: 'x' }), {
    status: 404,
    body: { code: 'not-attached' }
  })

  machine.says('\r\n\u001b[31mred\u001b[0m \u0007bell \u009b2J\r\nfine\r\n')
  await until(async () => {
    const { lines } = (await c.get('/monitor/console/n1?lines=5')).body.monitor.consoles.n1
    return lines.some(({ text }: { text: string }) => text === 'fine')
  })
  const { lines } = (await c.get('/monitor/console/n1')).body.monitor.consoles.n1
  t.notMatch(JSON.stringify(lines), /\\u00|\u009b/, 'the lines hold no control character')
  t.ok(
    lines.some(({ text }: { text: string }) => text.startsWith('red')),
    'and none of its codes'
  )
  t.match((await c.get('/monitor/console/n1?lines=0')).body, { message: /from 1 to/ })

  const three = await attach(c, 'n2')
  await output(join(directory, 'control'), ['restart', 'conmand'])
  await until(() => three.closed)
  t.equal(three.end, 'conmand has ended the connection')
  one.leave()
  two.leave()
  await until(async () => {
    const { audit } = (await c.get('/monitor/audit')).body.monitor
    return audit.filter(({ action }: { action: string }) => action === 'console').length === 6
  })
  const audit = readFileSync(join(c.directory, 'state', 'audit.log'), 'utf8')
  t.match(audit, /"who":"user admin".*"action":"console".*"name":"n1".*"after":\{"console":"attach"\}/)
  t.match(audit, /"after":\{"console":"detach"\}/)
  t.match((await type(c, 'n1', { session: one.session, input: 'x' })).status, 404)
})

t.test('the options of conman add no line to its file', async t => {
  const c = await Controller.start(t, ...(await settings(t, join(scratch(t), '5%N'), '')))
  await bmcCluster(c)
  await addNode(c, 'n1', '127.7.0.1')
  const file = async (conman_options: string) => {
    await c.post('/config/cluster', { variables: { conman_options } })
    return (await c.get('/config/consoles/_preview')).body.config.consoles.files[0].text
  }
  const fine = await file('W:solpayloadsize,W:solport')
  t.match(fine, /L:admin,W:solpayloadsize,W:solport"$/m)
  t.match(fine, /^global log=".*\/5%%N\/consoles\/%N\.log"$/m, 'conmand expands a % of the directory')
  for (const evil of ['W:x"\nconsole name="evil" dev="/tmp/evil.sh', 'W:x\n', 'W:x" dev="/bin/sh', 'W:x#']) {
    const text = await file(evil)
    t.match(text, /^# cluster: variable "conman_options" may hold only .*$/m, evil)
    t.match(text, /L:admin"$/m)
    t.notMatch(text, /evil|W:x/)
  }
})

t.test('foreign logs in the configured directory stay', async t => {
  const directory = scratch(t)
  writeFileSync(join(directory, 'foreign.log'), 'not of svcd')
  const c = await Controller.start(t, ...(await settings(t, directory)))
  const gone = join(directory, 'consoles', 'gone.log')
  mkdirSync(join(directory, 'consoles'), { recursive: true })
  writeFileSync(gone, '')
  await c.restart()
  await until(() => !existsSync(gone))
  t.ok(existsSync(join(directory, 'foreign.log')))
})

t.test('a pipe in the place of the file of conman stops no rendering', { timeout: 60_000 }, async t => {
  const { c, directory } = await lab(t, ['n1'])
  const config = join(directory, 'consoles', 'conman.conf')
  rmSync(config)
  await output('mkfifo', [config])
  t.match((await c.get('/config/consoles/_preview')).text, /it is not a regular file/)
})

t.test('the unit of conmand passes systemd-analyze verify', async t => {
  const unit = join(checkout, 'systemd/svcd-consoles.service')
  const child = start('systemd-analyze', ['verify', '--man=no', unit], { input: '' })
  t.equal((await child.ended).code, 0)
  t.equal(child.output(), '')
})

t.test('a verdict quotes a kernel panic', async t => {
  const { c, machines } = await lab(t, ['n1'])
  const verdict = async () => (await c.get('/monitor/node/n1/_why')).body.monitor.why.n1.verdict
  t.notMatch(await verdict(), /console says/)
  machines.n1?.says('[    2.5] Kernel panic - not syncing: \u001b[31mNo working init found\u001b[0m\r\n')
  await until(async () => /console says/.test(await verdict()))
  t.match(
    await verdict(),
    /n1 has no MAC.* Its console says at .* UTC: "\[ +2\.5\] Kernel panic - not syncing: No working init found"$/
  )
})

t.test('what is refused before anything is touched', async t => {
  const off = await Controller.start(t)
  await bmcCluster(off)
  await addNode(off, 'n1', '127.7.0.1')
  t.match(await attach(off, 'n1'), {
    status: 404,
    message: /svcd configures no consoles: set \[consoles\] enabled = yes/
  })
  t.match(await off.get('/service/consoles/status'), {
    status: 404,
    body: { message: 'there is no service consoles: [consoles] enabled = no' }
  })
  const lacking = await Controller.start(
    t,
    'consoles.enabled=yes',
    'consoles.check=/nonexistent/conmand -V',
    'consoles.gather=0s'
  )
  const service = lacking.daemon.services.of('consoles')
  await service?.settled()
  t.match(service?.condition, {
    ok: false,
    reason: /conmand is not installed: apt-get install conman(?:;|$)/
  })
  t.notOk(existsSync(join(lacking.directory, 'state', 'consoles', 'conman.conf')), 'nothing was written')
  await bmcCluster(lacking)
  await addNode(lacking, 'n1', '127.7.0.1')
  t.match(await attach(lacking, 'n1'), {
    status: 503,
    message: /conmand does not run \(port 7891\): type systemctl start svcd-consoles/
  })
  const log = start('svcctl', ['console', 'n1', '--log'], { input: '', env: svcctlFor(t.testdir(), lacking) })
  t.match(await log.ended, { code: 0, stdout: '', stderr: 'console of n1: nothing was logged yet\n' })
})
