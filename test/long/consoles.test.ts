import { readFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import t from 'tap'
import { attach, Machine, settings, type } from '../consoles/lab.js'
import { Bmc } from '../support/bmc.js'
import { addNode, bmcCluster } from '../support/bmc-cluster.js'
import { Controller } from '../support/controller.js'
import { freePort } from '../support/free-port.js'
import { output } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { until } from '../support/until.js'
import { browser, open, type Stage } from './page/stage.js'

/** ipmi_sim ends at a question of FreeIPMI, and has another idea of three more. */
const quirks = 'W:opensesspriv,W:0x08000000,W:solpayloadsize,W:solport'

// rules 13.6
t.test('the console of a BMC, by IPMI: attached, logged, quoted, and on the page', async t => {
  const directory = scratch(t)
  const machine = new Machine()
  const serial = createServer(socket => machine.connect(socket)).listen(0, '127.0.0.1')
  t.teardown(() => serial.close())
  const port = await freePort()
  const bmc = await Bmc.start(t, '127.7.0.1', {
    port,
    serial: (serial.address() as { port: number }).port,
    password: "pa'ss,0x"
  })
  const c = await Controller.start(t, `control.ipmi_port=${port}`, ...(await settings(t, directory, '')))
  t.match(await bmc.ask('power', 'status'), /Power is off/)
  await c.post('/config/cluster', { variables: { conman_options: quirks } })
  await bmcCluster(c, { username: 'admin', password: "pa'ss,0x" })
  await addNode(c, 'n1', '127.7.0.1')
  const log = () => readFileSync(join(directory, 'conmand.log'), 'utf8')
  const service = c.daemon.services.of('consoles')
  await service?.settled()
  await output(join(directory, 'control'), ['start', 'conmand'])
  await service?.applied()
  await until(
    () => /"?n1"?\] connected/.test(readFileSync(join(directory, 'consoles', 'n1.log'), 'utf8')),
    () => [log(), readFileSync(join(directory, 'consoles', 'conman.conf'), 'utf8')]
  )
  await until(() => machine.isConnected)

  const one = await attach(c, 'n1')
  machine.says('n1 login: ')
  await until(
    () => one.text.includes('n1 login: '),
    () => [one.text, log()]
  )
  await type(c, 'n1', { session: one.session, input: 'root\r' })
  await until(
    () => machine.received.includes('root\r'),
    () => machine.received
  )
  one.leave()

  const on = await browser()
  t.teardown(() => on.close())
  const stage = { url: `http://127.0.0.1:${c.daemon.port}` } as Stage
  const look = { theme: 'light', width: 1360, height: 860 } as const
  const { page, problems } = await open(on, stage, look, c.token, '/#/node/n1')
  await page.getByRole('heading', { name: 'Console' }).waitFor()
  await page.getByRole('button', { name: 'Open', exact: true }).click()
  await page.getByText('Attached. Keys go to n1').waitFor()
  machine.says('\r\n\u001b[31mhello from <b>n1</b>\u001b[0m\r\n')
  const shown = () => page.locator('.xterm-rows').textContent()
  await until(async () => /hello from <b>n1<\/b>/.test((await shown()) ?? ''), shown)
  t.match(await shown(), /n1 login:/, 'what was before is shown too')
  await page.keyboard.type('uptime')
  await page.keyboard.press('Enter')
  await until(
    () => machine.received.includes('uptime\r'),
    () => machine.received
  )
  const colour = await page
    .locator('.xterm-rows span', { hasText: 'hello' })
    .first()
    .evaluate('element => getComputedStyle(element).color')
  t.not(colour, 'rgb(255, 255, 255)', 'the styles of the terminal are in force')
  if (process.env.CONSOLE_PICTURE) await page.screenshot({ path: process.env.CONSOLE_PICTURE })
  await page.getByRole('button', { name: 'Close', exact: true }).click()
  await page.getByRole('button', { name: 'Open', exact: true }).waitFor()
  t.same(problems, [], 'the policy of the page has nothing to refuse')

  machine.says('[    1.2] Kernel panic - not syncing: VFS: Unable to mount root fs\r\n')
  const verdict = async () => (await c.get('/monitor/node/n1/_why')).body.monitor.why.n1.verdict
  await until(async () => /Its console says at .*Kernel panic - not syncing/.test(await verdict()), verdict)
  t.notMatch(JSON.stringify(c.log), /pa'ss/, 'no log has the password')
})
